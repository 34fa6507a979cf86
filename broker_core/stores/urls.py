"""The store that a URL names."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidRequest
from .buckets import BucketStore
from .folders import FolderStore, is_local, local_path
from .objects import ObjectStore


def open_store(url: str, data_directory: Path | None = None) -> ObjectStore:
    """Return the store at a URL or folder path, without a request to it.

    Raises InvalidRequest for an invalid URL, and for a folder in `data_directory`, with which the copy would be lost.
    """
    if not is_local(url):
        return BucketStore(url)
    if not url:
        raise InvalidRequest("no place is named: give a URL, or the path of a folder")
    folder = Path(local_path(url)) if "://" in url else Path(url).absolute()
    if data_directory is not None and folder.resolve().is_relative_to(data_directory.resolve()):
        raise InvalidRequest(
            f"{url} lies in the data directory {data_directory}, and would be lost with it: name a folder on another disk"
        )
    return FolderStore(url, folder)

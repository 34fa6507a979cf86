"""URLs of stores."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import InvalidRequest
from .buckets import BucketStore
from .folders import DirectoryStore
from .stores import Store


def open_store(url: str, of: Path | None = None) -> Store:
    """Return the store at a URL, or at a folder's path; nothing is asked of it yet. `of`: the data directory that it is to hold.

    InvalidRequest when the URL is none, or leads into that directory, with which it would be lost.
    """
    kind, colon, _ = url.partition("://")
    if colon and kind != "file":
        return BucketStore(url)
    if not url:
        raise InvalidRequest("no place is named: give a URL, or the path of a folder")
    folder = Path(unquote(urlsplit(url).path)) if colon else Path(url).absolute()
    if of is not None and folder.resolve().is_relative_to(of.resolve()):
        raise InvalidRequest(f"{url} lies in the data directory {of}, and would be lost with it: name a folder on another disk")
    return DirectoryStore(url, folder)

"""URLs of stores."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from .buckets import BucketStore
from .folders import DirectoryStore
from .stores import Store


def open_store(url: str) -> Store:
    """Return the store at a URL, or at a folder's path; nothing is asked of it yet. InvalidRequest when the URL is none."""
    kind, colon, _ = url.partition("://")
    if not colon:
        return DirectoryStore(url, Path(url).absolute())
    if kind == "file":
        return DirectoryStore(url, Path(unquote(urlsplit(url).path)))
    return BucketStore(url)

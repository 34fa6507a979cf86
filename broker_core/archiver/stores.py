"""Places of tables: a folder of this host, or an object store that delta-rs reaches. Tables and their files go by the same way.

What is written to a folder is on the disk before a commit names it, and a commit is on the disk before anybody hears of it: the
journal may then forget the messages.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from ..archive.places import is_local, local_path


class Store(Protocol):
    """The files of one table. Paths are below its folder."""

    url: str

    def create(self, path: str) -> Any:
        """Open a new file for writing."""

    def open(self, path: str) -> Any:
        """Open a file for reading."""

    def sync(self, path: str) -> None:
        """Return when a closed file, and its name, are on the disk."""

    def remove(self, path: str) -> None:
        """Remove a file that no commit names."""


def store_of(url: str) -> Store:
    """Return the store of a table's URL or path."""
    return Folder(Path(local_path(url))) if is_local(url) else Objects(url)


class Folder:
    """A folder of this host."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    def create(self, path: str) -> Any:
        """Open a new file for writing. Its folder is made, and on the disk, first."""
        _make(self._path / Path(path).parent)
        return open(self._path / path, "xb")

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        return open(self._path / path, "rb")

    def sync(self, path: str) -> None:
        """Return when a closed file, and its name, are on the disk."""
        _sync(self._path / path)
        _sync((self._path / path).parent)

    def remove(self, path: str) -> None:
        """Remove a file that no commit names."""
        (self._path / path).unlink(missing_ok=True)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Objects:
    """A prefix of an object store, reached as delta-rs reaches it: with the same credentials, from the environment."""

    def __init__(self, url: str) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self.url = url
        self._files = PyFileSystem(DeltaStorageHandler(url))

    def create(self, path: str) -> Any:
        """Open a new object for writing; it is there once it is closed."""
        return self._files.open_output_stream(path)

    def open(self, path: str) -> Any:
        """Open an object for reading."""
        return self._files.open_input_file(path)

    def sync(self, path: str) -> None:
        """Do nothing: what is closed is stored."""

    def remove(self, path: str) -> None:
        """Remove an object that no commit names."""
        self._files.delete_file(path)

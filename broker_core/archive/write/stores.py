"""Files of tables: in a folder of this host, or in an object store. Tables and their files go by the same way.

What is written to a folder is on the disk before a commit names it, and a commit is on the disk before anybody hears of it: the
journal may then forget the messages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from ...local_files import make_folders, start_sync, sync
from ...stores.credentials import delta_options
from ...stores.folders import is_local, local_path

LOG = "_delta_log"
_COMMIT = re.compile(r"\d{20}\.json")
_COLOURS = re.compile("\x1b\\[[0-9;]*m|↳")
_BEGIN, _END = 150, 450  # characters of a long text


class TableStore(Protocol):
    """The files of one table. Paths are below its folder."""

    url: str
    options: dict[str, str] | None  # of delta-rs, beside the URL

    def prepare(self) -> None:
        """Make the place for a new table."""

    def create(self, path: str) -> Any:
        """Open a new file for writing."""

    def start_sync(self, path: str) -> None:
        """Let the disk begin with what was written to a file, and return: a later `sync` is then shorter."""

    def open(self, path: str) -> Any:
        """Open a file for reading."""

    def exists(self, path: str) -> bool:
        """Say whether a file is there."""

    def sync(self, path: str) -> None:
        """Return when a closed file, and its name, are on the disk."""

    def sync_log(self, version: int) -> None:
        """Return when all commits up to this version, the table's newest, are on the disk, whoever made them."""

    def set_aside_torn(self, heard: int) -> list[str]:
        """Set aside commits above version `heard`, and checkpoints, of which only a part came to the disk; return their names."""

    def remove(self, path: str) -> None:
        """Remove a file that no commit names."""


def short(error: Exception) -> str:
    """Return an error's text on one line, without delta-rs's colours; where it is long, its begin and its end, the cause."""
    text = " ".join(_COLOURS.sub("", str(error)).split())
    return text if len(text) <= _BEGIN + _END else f"{text[:_BEGIN]} … {text[-_END:]}"


def store_of(url: str) -> TableStore:
    """Return the store of a table's URL or path."""
    return FolderTableStore(Path(local_path(url))) if is_local(url) else ObjectTableStore(url)


def names_in(archive: str) -> list[str]:
    """Return the names of what lies in an archive and may be a table, in order."""
    if not is_local(archive):
        found = _system(archive).get_file_info(FileSelector("", allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == FileType.Directory)
    folder = Path(local_path(archive))
    return sorted(path.name for path in folder.iterdir() if (path / LOG).is_dir()) if folder.is_dir() else []


class FolderTableStore:
    """A folder of this host."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self.options: dict[str, str] | None = None
        self._path = path
        self._synced = -1  # version up to which the log is on the disk

    def prepare(self) -> None:
        """Make the folders of a new table: their names are on the disk afterwards."""
        make_folders(self._path / LOG)
        self._synced = -1

    def create(self, path: str) -> Any:
        """Open a new file for writing. Its folder is made, and on the disk, first."""
        make_folders(self._path / Path(path).parent)
        # Arrow's own, since one of Python's would wait for the interpreter's lock at each page that is written.
        return pa.OSFile(str(self._path / path), "wb")

    def start_sync(self, path: str) -> None:
        """Let the disk begin with what was written to a file, so that others that sync do not find all of it before them."""
        with open(self._path / path, "rb") as file:
            start_sync(file.fileno())

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        return open(self._path / path, "rb")

    def exists(self, path: str) -> bool:
        """Say whether a file is there."""
        return (self._path / path).exists()

    def sync(self, path: str) -> None:
        """Return when a closed file, and its name, are on the disk."""
        sync(self._path / path)
        sync((self._path / path).parent)

    def sync_log(self, version: int) -> None:
        """Return when all commits up to this version are on the disk. Those before the newest checkpoint are not needed."""
        if version <= self._synced:
            return
        log = self._path / LOG
        for number in range(max(self._checkpoint(), self._synced + 1), version + 1):
            path = log / f"{number:020d}.json"
            if path.exists():
                sync(path)
        sync(log)
        self._synced = version

    def set_aside_torn(self, heard: int) -> list[str]:
        """Set aside commits above version `heard`, and checkpoints, of which only a part came to the disk; return their names.

        A commit without actions takes the place of a torn one, so that others behind it are read.
        """
        log = self._path / LOG
        found = [path for path in sorted(log.iterdir()) if _is_torn(path, heard)]
        if any(path.suffix == ".parquet" for path in found) and (log / "_last_checkpoint").exists():
            found.append(log / "_last_checkpoint")
        for path in found:
            path.rename(path.with_name(f"{path.name}.torn"))
            if _COMMIT.fullmatch(path.name) and int(path.stem):
                path.touch()
        sync(log)
        self._synced = -1
        return [path.name for path in found]

    def _checkpoint(self) -> int:
        try:
            return int(json.loads((self._path / LOG / "_last_checkpoint").read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            return 0

    def remove(self, path: str) -> None:
        """Remove a file that no commit names."""
        (self._path / path).unlink(missing_ok=True)


def _is_torn(path: Path, heard: int) -> bool:
    if path.name.endswith(".checkpoint.parquet"):
        return not path.read_bytes().endswith(b"PAR1")
    if not _COMMIT.fullmatch(path.name) or int(path.stem) <= heard:
        return False
    lines = path.read_bytes().splitlines()
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return True
    return not lines and int(path.stem) == 0  # an empty one later is a commit without actions


def _system(url: str) -> Any:
    return PyFileSystem(DeltaStorageHandler(url, delta_options(url)))


class ObjectTableStore:
    """A prefix of an object store, reached as delta-rs reaches it. What is closed is stored."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.options = delta_options(url)
        self._files = _system(url)

    def prepare(self) -> None:
        """Do nothing: an object store has no folders."""

    def create(self, path: str) -> Any:
        """Open a new object for writing; it is there once it is closed."""
        return self._files.open_output_stream(path)

    def start_sync(self, path: str) -> None:
        """Do nothing."""

    def open(self, path: str) -> Any:
        """Open an object for reading."""
        return self._files.open_input_file(path)

    def exists(self, path: str) -> bool:
        """Say whether an object is there."""
        return bool(self._files.get_file_info(path).type == FileType.File)

    def sync(self, path: str) -> None:
        """Do nothing."""

    def sync_log(self, version: int) -> None:
        """Do nothing."""

    def set_aside_torn(self, heard: int) -> list[str]:
        """Find nothing: an object is there whole, or it is not."""
        return []

    def remove(self, path: str) -> None:
        """Remove an object that no commit names."""
        self._files.delete_file(path)

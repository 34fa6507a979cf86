"""Files of tables, in a folder or an object store.

A file is on the disk before a commit names it. A commit is on the disk before the broker learns of it, because the journal may
then drop the messages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow.fs import FileType

from ...local_files import make_folders, start_sync, sync
from ...stores.credentials import delta_file_system, delta_options
from ...stores.folders import is_local, local_path
from ..table.layout import LOG

_COMMIT = re.compile(r"\d{20}\.json")
_COLOURS = re.compile("\x1b\\[[0-9;]*m|↳")
_BEGIN, _END = 150, 450  # characters of a long text that `short` keeps


def short(error: Exception) -> str:
    """Return an error's text on one line, without delta-rs's colours. A long text is cut in the middle."""
    text = " ".join(_COLOURS.sub("", str(error)).split())
    return text if len(text) <= _BEGIN + _END else f"{text[:_BEGIN]} … {text[-_END:]}"


def store_of(url: str) -> TableStore:
    return FolderTableStore(Path(local_path(url))) if is_local(url) else ObjectTableStore(url)


class FolderTableStore:
    """A table in a folder. Paths are below the folder."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self.options: dict[str, str] | None = None
        self._path = path
        self._synced = -1  # the log is on the disk up to this version

    def prepare(self) -> None:
        make_folders(self._path / LOG)
        self._synced = -1

    def create(self, path: str) -> Any:
        make_folders(self._path / Path(path).parent)
        # A file of Python would wait for the interpreter's lock at each written page.
        return pa.OSFile(str(self._path / path), "wb")

    def start_sync(self, path: str) -> None:
        """Let the disk begin to write, so that a sync of another file does not wait for all of these bytes."""
        with open(self._path / path, "rb") as file:
            start_sync(file.fileno())

    def open(self, path: str) -> Any:
        return open(self._path / path, "rb")

    def exists(self, path: str) -> bool:
        return (self._path / path).exists()

    def sync(self, path: str) -> None:
        """Sync a closed file and its name."""
        sync(self._path / path)
        sync((self._path / path).parent)

    def sync_log(self, version: int) -> None:
        """Sync all programs' commits up to this version. Those before the newest checkpoint are not needed."""
        if version <= self._synced:
            return
        log = self._path / LOG
        for number in range(max(self._checkpoint(), self._synced + 1), version + 1):
            path = log / f"{number:020d}.json"
            if path.exists():
                sync(path)
        sync(log)
        self._synced = version

    def set_aside_torn(self, durable: int) -> list[str]:
        """Rename torn commits above version `durable`, and torn checkpoints. An empty commit replaces a torn one, so that readers
        find the commits after it."""
        log = self._path / LOG
        torn = [path for path in sorted(log.iterdir()) if _is_torn(path, durable)]
        if any(path.suffix == ".parquet" for path in torn) and (log / "_last_checkpoint").exists():
            torn.append(log / "_last_checkpoint")
        for path in torn:
            path.rename(path.with_name(f"{path.name}.torn"))
            if _COMMIT.fullmatch(path.name) and int(path.stem):
                path.touch()
        sync(log)
        self._synced = -1
        return [path.name for path in torn]

    def _checkpoint(self) -> int:
        try:
            return int(json.loads((self._path / LOG / "_last_checkpoint").read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            return 0

    def remove(self, path: str) -> None:
        (self._path / path).unlink(missing_ok=True)


def _is_torn(path: Path, durable: int) -> bool:
    if path.name.endswith(".checkpoint.parquet"):
        return not path.read_bytes().endswith(b"PAR1")
    if not _COMMIT.fullmatch(path.name) or int(path.stem) <= durable:
        return False
    lines = path.read_bytes().splitlines()
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return True
    return not lines and int(path.stem) == 0  # a later empty one is a commit without actions


class ObjectTableStore:
    """A table in an object store, accessed as delta-rs accesses it. A closed object is durable."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.options = delta_options(url)
        self._files = delta_file_system(url)

    def prepare(self) -> None: ...

    def create(self, path: str) -> Any:
        return self._files.open_output_stream(path)

    def start_sync(self, path: str) -> None:
        """Do nothing."""

    def open(self, path: str) -> Any:
        return self._files.open_input_file(path)

    def exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type == FileType.File)

    def sync(self, path: str) -> None:
        """Do nothing."""

    def sync_log(self, version: int) -> None:
        """Do nothing."""

    def set_aside_torn(self, durable: int) -> list[str]:
        return []

    def remove(self, path: str) -> None:
        self._files.delete_file(path)


TableStore: TypeAlias = FolderTableStore | ObjectTableStore

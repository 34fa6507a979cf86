"""A data directory that is only read: by a backup, by a check, perhaps beside the broker that writes it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pyarrow as pa

from ..errors import InvalidRequest, StorageError
from ..journal.disk import AppendFile, Identity, NoteFile, ReadFile
from ..journal.journal import ID_FILE

LOCK_FILE = "lock"


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        return data + self.read(offset + len(data), length - len(data))

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def map(self) -> pa.Buffer:
        with pa.memory_map(f"/proc/self/fd/{self._fd}" if os.path.exists("/proc/self/fd") else str(self._path)) as file:
            return file.read_buffer()

    def identity(self) -> Identity:
        found = os.fstat(self._fd)
        return Identity(found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


class ReadOnlyDirectory:
    """A `Disk` that reads a directory and changes nothing in it.

    `live`: a broker is running on it. Where none is, none can start until `close`. Raises InvalidRequest when the path is no data
    directory, StorageError when it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).absolute()
        if not self._root.is_dir():
            raise InvalidRequest(f"{self._root} is no directory")
        try:
            if not (self._root / ID_FILE).is_file() and not any(self._root.glob("*.seg")):
                raise InvalidRequest(f"{self._root} is no data directory of a broker: there is no file `id` in it")
        except PermissionError as error:
            raise StorageError(f"{self._root} cannot be read: {error.strerror}. It belongs to the broker's account") from None
        self._lock = -1
        self.live = False
        try:
            self._lock = os.open(self._root / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass  # no broker has been here: a directory put together by hand
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or self._lock < 0:
                raise StorageError(f"{self._root} cannot be read: {error}") from error
            self.live = True

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(entry.name for entry in os.scandir(self._root) if entry.is_file())

    def open(self, name: str) -> ReadFile:
        """Open a file for reading."""
        return _File(self._root / name)

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        return os.stat(self._root / name).st_size

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return str(self._root / name)

    def free_bytes(self) -> int:
        """Return the free space of the disk, bytes."""
        found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize

    def now_ns(self) -> int:
        """Return the wall clock, nanoseconds since 1970."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return the monotonic clock, seconds."""
        return time.monotonic()

    def create(self, name: str) -> AppendFile:
        """Refuse."""
        raise self._refusal(name)

    def create_note(self, name: str) -> NoteFile:
        """Refuse."""
        raise self._refusal(name)

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        raise self._refusal(old)

    def unlink(self, name: str) -> None:
        """Refuse."""
        raise self._refusal(name)

    def sync_directory(self) -> None:
        """Do nothing: nothing was changed."""

    def _refusal(self, name: str) -> OSError:
        return OSError(errno.EROFS, "the directory is only read", self.path(name))

    def close(self) -> None:
        """Let a broker start again."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

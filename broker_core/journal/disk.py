"""All I/O of the journal, behind `Disk`, so that tests can lose unsynced bytes, fill the disk, or fail a sync.

At a power cut, the journal expects of a disk:

- Any pages of appended, unsynced bytes may be missing and read as zeros, or the file may end before them.
- Zeros that were written ahead may remain after all appended bytes.
- A created, renamed or unlinked file may be back in its former state until `sync_directory`, each name on its own.
- Synced bytes and synced names stay.

An OSError that `is_shortage` is temporary: no file descriptor is left, not even in reserve. A write to a full disk without
reserve raises an OSError that `is_full`. It leaves the file unchanged, and can be repeated.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from ..errors import StorageError
from ..local_files import make_folders, start_sync
from .descriptors import RESERVED_TO_WRITE, Descriptors
from .locks import lock
from .reserve import Reserve, free_bytes, is_full

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

COPY_BYTES = 1 << 20  # of the pieces in which files are copied and checked; they fit the cache
#: Zeros written at a time: some hundred small groups, and a sync still takes well under a millisecond.
PREALLOCATE_BYTES = 128 << 10
TEMPORARY = ".tmp"  # suffix of unfinished files; recovery removes them
_IOV_MAX = 512  # buffers of one writev; POSIX systems allow 1,024


class FileIdentity(NamedTuple):
    """st_dev and st_ino of a file on this host."""

    device: int
    inode: int


def is_shortage(error: OSError) -> bool:
    """Return True if the system had no descriptor or memory left. This is temporary, and no fault of the file."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class AppendFile(Protocol):
    """A file that one thread writes, from its beginning."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of `buffers` at the end. After an OSError an unknown number of bytes is written; if it `is_full`, none."""

    def preallocate(self, nbytes: int) -> None:
        """Write zeros for `nbytes` more bytes ahead: a sync is quicker if the file's length stays.

        Until `close` the file may end in zeros. A failure may go unnoticed; OSError as of `append`.
        """

    def start_sync(self) -> None:
        """Let the disk begin with the appended bytes, so that a later `sync` takes less time."""

    def sync(self) -> None:
        """Return when everything appended is on the disk. After an OSError the content is unknown."""

    def close(self) -> None:
        """Cut off zeros that were written ahead."""


class ReadFile(Protocol):
    """A file open for reading, by several threads. It stays readable after its name is removed."""

    def read(self, offset: int, length: int) -> bytes:
        """Return fewer bytes only at the file's end. A bad page is an OSError, not a signal."""

    def size(self) -> int: ...

    def map(self) -> pa.Buffer:
        """Map the current file. The buffer keeps the mapping."""

    def identity(self) -> FileIdentity: ...


class NoteFile(Protocol):
    """A few bytes that are overwritten in place and never synced. A power cut may leave any mixture of them."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One data directory, held by one process. Names are plain file names in it."""

    def names(self) -> list[str]: ...

    def create(self, name: str, *, optional: bool = False) -> AppendFile:
        """Replace a file of that name. The caller can do without an `optional` file if the disk is full."""

    def open(self, name: str) -> ReadFile: ...

    def create_note(self, name: str) -> NoteFile:
        """Replace a note of that name. Other holders of the replaced file keep it."""

    def size(self, name: str) -> int:
        """Return the size in bytes, without opening the file."""

    def rename(self, old: str, new: str) -> None:
        """Replace an existing file."""

    def unlink(self, name: str) -> None: ...

    def sync_directory(self) -> None:
        """Return when all names are on the disk."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written: the free space and the reserve."""

    def fill_reserve(self, nbytes: int) -> None:
        """Make the reserve `nbytes` large, if the disk has at least twice that. Raises nothing."""

    def has_reserve(self) -> bool:
        """Return True if the reserve is whole. Otherwise the disk is full."""

    def path(self, name: str) -> str:
        """Return the absolute path for other processes of this host."""

    def now_ns(self) -> int:
        """Return nanoseconds since 1970. No decision depends on it."""

    def monotonic_s(self) -> float:
        """Return seconds since an arbitrary moment."""

    def close(self) -> None: ...


def write_file(disk: Disk, name: str, pieces: Iterable[Buffer], *, optional: bool = False) -> None:
    """Write a whole file. Under its name it is complete or absent, even after a power cut. `optional` as for `Disk.create`."""
    file = disk.create(name + TEMPORARY, optional=optional)
    try:
        for piece in pieces:
            file.append([piece])
        file.sync()
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk its space is needed
            disk.unlink(name + TEMPORARY)
        raise
    finally:
        file.close()
    disk.rename(name + TEMPORARY, name)
    disk.sync_directory()


def pieces_of(file: ReadFile, start: int, stop: int) -> Iterable[bytes]:
    """Yield fewer bytes if the file ends before `stop`."""
    while start < stop:
        piece = file.read(start, min(COPY_BYTES, stop - start))
        if not piece:
            return
        yield piece
        start += len(piece)


class _LocalNote:
    def __init__(self, descriptors: Descriptors, reserve: Reserve, name: str) -> None:
        self._descriptors, self._reserve = descriptors, reserve
        self._fd = descriptors.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, data: bytes) -> None:
        self._reserve.helped(lambda: os.pwrite(self._fd, data, 0), optional=True)

    def close(self) -> None:
        if self._fd >= 0:
            self._descriptors.close(self._fd)
            self._fd = -1


class _LocalAppend:
    def __init__(self, descriptors: Descriptors, reserve: Reserve, name: str, optional: bool) -> None:
        self._descriptors, self._helped = descriptors, partial(reserve.helped, optional=optional)
        self._fd = self._helped(lambda: descriptors.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        self._synced = self._size = self._preallocated = 0  # offsets of the bytes on the disk, appended, and zeros

    def append(self, buffers: Sequence[Buffer]) -> None:
        size = self._size
        try:
            self._append([view for view in (memoryview(b).cast("B") for b in buffers) if view.nbytes])
        except OSError as error:
            if is_full(error):
                os.ftruncate(self._fd, size)
                self._size = self._preallocated = os.lseek(self._fd, size, os.SEEK_SET)
            raise

    def _append(self, views: list[memoryview]) -> None:
        first = 0
        while first < len(views):
            part = views[first : first + _IOV_MAX]
            done = self._helped(partial(os.writev, self._fd, part))
            self._size += done
            if done == 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            while first < len(views) and done >= views[first].nbytes:
                done -= views[first].nbytes
                first += 1
            if done:
                views[first] = views[first][done:]

    def preallocate(self, nbytes: int) -> None:
        if self._size + nbytes <= self._preallocated:
            return
        start = max(self._preallocated, self._size)
        try:
            done = self._helped(lambda: os.pwrite(self._fd, bytes(max(nbytes, PREALLOCATE_BYTES)), start))
            self._preallocated = start + done
        except OSError as error:
            if not is_full(error):
                raise
            # The bytes to append may still fit.

    def start_sync(self) -> None:
        start_sync(self._fd, self._synced)

    def sync(self) -> None:
        _fdatasync(self._fd)
        self._synced = self._size

    def close(self) -> None:
        if self._fd >= 0:
            if self._preallocated > self._size:
                os.ftruncate(self._fd, self._size)
            self._descriptors.close(self._fd)
            self._fd = -1


_fdatasync = getattr(os, "fdatasync", os.fsync)


class _LocalRead:
    def __init__(self, descriptors: Descriptors, name: str, path: str) -> None:
        self._descriptors, self._path = descriptors, path
        self._fd = -1
        self._fd = descriptors.open(name, os.O_RDONLY, leave=RESERVED_TO_WRITE)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        return data + self.read(offset + len(data), length - len(data))

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def map(self) -> pa.Buffer:
        return self._descriptors.opened(self._map, leave=RESERVED_TO_WRITE)

    def _map(self) -> pa.Buffer:
        path = f"/proc/self/fd/{self._fd}"
        path = path if os.path.exists(path) else self._path
        with pa.memory_map(path) as file:  # the buffer keeps the mapping, but not the file
            if not os.path.samestat(os.fstat(file.fileno()), os.fstat(self._fd)):
                raise OSError(errno.ESTALE, f"{self._path} is another file now: the data directory was moved or replaced")
            return file.read_buffer()

    def identity(self) -> FileIdentity:
        status = os.fstat(self._fd)
        return FileIdentity(status.st_dev, status.st_ino)

    def __del__(self) -> None:
        if self._fd >= 0:
            self._descriptors.close(self._fd)


class LocalDisk:
    """A directory of this host, created with mode 0700 and locked against a second broker.

    An existing directory also gets mode 0700 if it is empty or a broker's. Raises `DirectoryLocked`, which names the holder's
    process, if another `LocalDisk` has it; StorageError if the lock is not a plain file, or the directory is unusable.
    """

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).absolute()
        try:
            self._open()
        except OSError as error:
            is_denied = error.errno in (errno.EACCES, errno.EPERM)
            remedy = "; the account that the broker runs as must own it" if is_denied else ""
            text = f"the data directory {self._root} cannot be used: {error.strerror or error}{remedy}"
            raise StorageError(text) from error

    def _open(self) -> None:
        _make_directory(self._root)
        self._descriptors = Descriptors(self._root)
        self._reserve, self._lock = Reserve(), -1
        try:
            _keep_private(self._descriptors.directory)
            self._lock = lock(self._root / "lock")
            self._reserve.open(self._descriptors.directory)
        except BaseException:
            self.close()
            raise

    def names(self) -> list[str]:
        return sorted(self._descriptors.opened(lambda: os.listdir(self._descriptors.directory)))

    def create(self, name: str, *, optional: bool = False) -> AppendFile:
        return _LocalAppend(self._descriptors, self._reserve, name, optional)

    def open(self, name: str) -> ReadFile:
        return _LocalRead(self._descriptors, name, self.path(name))

    def create_note(self, name: str) -> NoteFile:
        file = _LocalNote(self._descriptors, self._reserve, name + TEMPORARY)
        self.rename(name + TEMPORARY, name)
        return file

    def size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._descriptors.directory).st_size

    def rename(self, old: str, new: str) -> None:
        directory = self._descriptors.directory
        self._reserve.helped(lambda: os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory))

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptors.directory)

    def sync_directory(self) -> None:
        os.fsync(self._descriptors.directory)

    def free_bytes(self) -> int:
        return free_bytes(self._descriptors.directory) + self._reserve.held

    def fill_reserve(self, nbytes: int) -> None:
        self._reserve.fill(nbytes)

    def has_reserve(self) -> bool:
        return self._reserve.is_whole

    def path(self, name: str) -> str:
        return str(self._root / name)

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._reserve.close()
        self._descriptors.close_all()


class OthersDirectory(LocalDisk):
    """A directory that another process holds, opened to read."""

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).absolute()
        self._descriptors = Descriptors(self._root)
        self._reserve, self._lock = Reserve(), -1


def _make_directory(path: Path) -> None:
    """A power cut must not take the whole journal, so the directory's name is on the disk afterwards."""
    try:
        make_folders(path, 0o700)
    except OSError as error:
        raise StorageError(f"the directory {error.filename or path} cannot be made: {error.strerror or error}") from error


def _keep_private(directory: int) -> None:
    """Remove the permissions of group and others, unless the directory is another account's, or has files and no lock."""
    status = os.fstat(directory)
    names = os.listdir(directory)
    if status.st_mode & 0o077 and status.st_uid == os.geteuid() and (not names or "lock" in names):
        os.fchmod(directory, stat.S_IMODE(status.st_mode) & 0o700)

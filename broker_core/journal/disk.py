"""The only I/O of the journal: what it asks of a disk (`Disk`), and the local directory that answers (`LocalDisk`).

Everything else in this package reaches files through `Disk`, so that tests can put a disk below it that lies: one that loses
what was not synced, is full, or fails to sync. What a disk may do on a power cut, and the journal reckons with:

- bytes appended and not synced: any of their pages may be missing, read back as zeros, or the file may end before them;
- zeros that were to be appended into: may still be there after all that was;
- a file created, renamed or unlinked: may be undone until `sync_directory`, each name on its own;
- bytes synced and names synced stay.

A process may run out of file descriptors, whoever opened them. `LocalDisk` holds some in reserve for itself: to get one it lets
go of one, and what it closes goes back into the reserve without being let go. What cannot be opened all the same is an OSError
that `is_shortage`, which is neither damage nor a failure of the disk: it passes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa

from penstock.broker_core.errors import DirectoryLocked, StorageError

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

COPY_BYTES = 1 << 20  # piece in which files are copied and checked: large enough for the disk, small enough for the cache
ROOM_BYTES = 128 << 10  # zeros written at a time: some hundred small groups, and still a sync of well under a millisecond
TEMPORARY = ".tmp"  # a name that counts for nothing: whatever bears it after a crash is removed
RESERVED = 16  # descriptors: a segment, its manifest or a snapshot, and directory, twice over; most of them against races
RESERVED_TO_WRITE = 8  # of these; those who read are refused before
_IOV_MAX = 512  # buffers of one writev; POSIX systems allow 1,024


_T = TypeVar("_T")


class Identity(NamedTuple):
    """Which file of this host it is: st_dev and st_ino."""

    device: int
    inode: int


def is_shortage(error: OSError) -> bool:
    """Whether process or system had no descriptor or memory left: no fault of the file, and gone after a while."""
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class AppendFile(Protocol):
    """A file being written, from its beginning, by one thread."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of `buffers` after what is there; OSError when that fails, and then nobody knows how much is."""

    def make_room(self, nbytes: int) -> None:
        """See to it that so much can be appended into zeros that stand there already: a sync is quicker that need not say how
        long the file has become. Until `close` the file may so end in zeros. It promises nothing; OSError as of `append`."""

    def start_sync(self) -> None:
        """Let the disk begin with what was appended, and return: `sync` has less to wait for then. It promises nothing."""

    def sync(self) -> None:
        """Return when everything appended is on the disk; OSError when nobody can know."""

    def close(self) -> None: ...


class ReadFile(Protocol):
    """A file being read; stays readable after its name is gone. Safe for several threads."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes at `offset`; fewer only at the file's end. A page that fails is an OSError, not a signal."""

    def size(self) -> int: ...

    def map(self) -> pa.Buffer:
        """The file as it is now, mapped, not copied; the buffer holds the mapping for as long as it lives."""

    def identity(self) -> Identity:
        """Which file this is, for another process of this host that opens the same path."""


class NoteFile(Protocol):
    """A few bytes that are overwritten in place and never synced: after a power cut any of them may be there, or none."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One data directory, held by one process. Names are plain file names in it."""

    def names(self) -> list[str]: ...

    def create(self, name: str) -> AppendFile:
        """A new, empty file; a file of that name is replaced."""

    def open(self, name: str) -> ReadFile: ...

    def create_note(self, name: str) -> NoteFile:
        """A new, empty one, which replaces a file of that name; whoever has that one open or linked keeps it."""

    def size(self, name: str) -> int:
        """Of the file, bytes; opens nothing."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, name: str) -> None: ...

    def sync_directory(self) -> None:
        """Return when all names are on the disk."""

    def free_bytes(self) -> int: ...

    def path(self, name: str) -> str:
        """The absolute path under which another process on this host opens the file."""

    def now_ns(self) -> int:
        """The wall clock, in nanoseconds since 1970: stamps files, decides nothing."""

    def monotonic_s(self) -> float:
        """Seconds since any moment: says how long calls take, and when the next sync is due."""

    def close(self) -> None: ...


def write_file(disk: Disk, name: str, pieces: Iterable[Buffer]) -> None:
    """Write a whole file that, under its name, is there with all its bytes or not at all, also after a power cut."""
    file = disk.create(name + TEMPORARY)
    try:
        for piece in pieces:
            file.append([piece])
        file.sync()
    except OSError:
        with contextlib.suppress(OSError):  # best effort: on a full disk its space is needed
            disk.unlink(name + TEMPORARY)
        raise
    finally:
        file.close()
    disk.rename(name + TEMPORARY, name)
    disk.sync_directory()


def pieces_of(file: ReadFile, start: int, stop: int) -> Iterable[bytes]:
    """The bytes [start, stop) of a file, in pieces of at most `COPY_BYTES`; ends early where the file does."""
    while start < stop:
        piece = file.read(start, min(COPY_BYTES, stop - start))
        if not piece:
            return
        yield piece
        start += len(piece)


class _Descriptors:
    """The directory, as a descriptor: what is opened stays in it wherever it is moved; and descriptors in reserve.

    For any thread. List operations are atomic, and a destructor may come between any two lines: so there is no lock.
    """

    def __init__(self, path: Path) -> None:
        self.directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._reserve: list[int] = []
        self._closed = False
        self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError):  # there is none to be had
            while len(self._reserve) < RESERVED:
                self._reserve.append(os.dup(self.directory))

    def opened(self, open_it: Callable[[], _T], leave: int = 0) -> _T:
        """What `open_it` opens, if need be out of the reserve, of which `leave` stay. OSError as it raises it."""
        while True:
            try:
                found = open_it()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._reserve) <= leave:
                    raise
                with contextlib.suppress(IndexError):  # another thread took the last one
                    os.close(self._reserve.pop())  # who else waits for one may be quicker: then the next
            else:
                if len(self._reserve) < RESERVED:
                    self._fill()
                return found

    def open(self, name: str, flags: int, leave: int = 0) -> int:
        return self.opened(lambda: os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self.directory), leave)

    def close(self, fd: int) -> None:
        if self._closed or len(self._reserve) >= RESERVED:
            os.close(fd)
            return
        os.dup2(self.directory, fd, inheritable=False)
        self._reserve.append(fd)

    def close_all(self) -> None:
        if self._closed:
            return
        self._closed = True
        for fd in (*self._reserve, self.directory):
            os.close(fd)
        self._reserve = []
        self.directory = -1


class _LocalNote:
    def __init__(self, descriptors: _Descriptors, name: str) -> None:
        self._descriptors = descriptors
        self._fd = descriptors.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, data: bytes) -> None:
        os.pwrite(self._fd, data, 0)

    def close(self) -> None:
        if self._fd >= 0:
            self._descriptors.close(self._fd)
            self._fd = -1


class _LocalAppend:
    def __init__(self, descriptors: _Descriptors, name: str) -> None:
        self._descriptors = descriptors
        self._fd = descriptors.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._synced = self._size = self._room = 0  # offsets: on the disk, appended, zeros

    def append(self, buffers: Sequence[Buffer]) -> None:
        views = [view for view in (memoryview(b).cast("B") for b in buffers) if view.nbytes]
        first = 0
        while first < len(views):
            done = os.writev(self._fd, views[first : first + _IOV_MAX])
            self._size += done
            if done == 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            while first < len(views) and done >= views[first].nbytes:
                done -= views[first].nbytes
                first += 1
            if done:
                views[first] = views[first][done:]

    def make_room(self, nbytes: int) -> None:
        if self._size + nbytes <= self._room:
            return
        try:
            start = max(self._room, self._size)
            self._room = start + os.pwrite(self._fd, bytes(max(nbytes, ROOM_BYTES)), start)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The disk is nearly full: what is appended may still fit.

    def start_sync(self) -> None:
        if _sync_file_range is not None:
            _sync_file_range(self._fd, self._synced, 0, _SYNC_FILE_RANGE_WRITE)

    def sync(self) -> None:
        _fdatasync(self._fd)
        self._synced = self._size

    def close(self) -> None:
        if self._fd >= 0:
            if self._room > self._size:
                os.ftruncate(self._fd, self._size)
            self._descriptors.close(self._fd)
            self._fd = -1


_fdatasync = getattr(os, "fdatasync", os.fsync)
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: begin to write the pages that wait for it


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None  # Linux alone has it; elsewhere all of the work is the sync's
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", function)


_sync_file_range = _find_sync_file_range()


class _LocalRead:
    def __init__(self, descriptors: _Descriptors, name: str, path: str) -> None:
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
        with pa.memory_map(path if os.path.exists(path) else self._path) as file:  # the buffer keeps the mapping, not the file
            if not os.path.samestat(os.fstat(file.fileno()), os.fstat(self._fd)):
                raise OSError(errno.ESTALE, f"{self._path} is another file now: the data directory was moved or replaced")
            return file.read_buffer()

    def identity(self) -> Identity:
        found = os.fstat(self._fd)
        return Identity(found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self._fd >= 0:
            self._descriptors.close(self._fd)


class LocalDisk:
    """A directory of this host, created with mode 0700 and locked against a second broker (see `Disk` for the methods).

    A directory that is there already, and is empty or a broker's, gets mode 0700 too. Raises `DirectoryLocked`, which names the
    holder's process, when another `LocalDisk` has it, and StorageError where the lock file is not a plain file.
    """

    def __init__(self, path: Path | str) -> None:
        self._root = Path(path).absolute()
        _make_directory(self._root)
        self._descriptors = _Descriptors(self._root)
        self._lock = -1
        try:
            _keep_private(self._descriptors.directory)
            self._lock = _lock(self._root / "lock")
        except BaseException:
            self.close()
            raise

    def names(self) -> list[str]:
        return sorted(self._descriptors.opened(lambda: os.listdir(self._descriptors.directory)))

    def create(self, name: str) -> AppendFile:
        return _LocalAppend(self._descriptors, name)

    def open(self, name: str) -> ReadFile:
        return _LocalRead(self._descriptors, name, self.path(name))

    def create_note(self, name: str) -> NoteFile:
        file = _LocalNote(self._descriptors, name + TEMPORARY)
        self.rename(name + TEMPORARY, name)
        return file

    def size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._descriptors.directory).st_size

    def rename(self, old: str, new: str) -> None:
        directory = self._descriptors.directory
        os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptors.directory)

    def sync_directory(self) -> None:
        os.fsync(self._descriptors.directory)

    def free_bytes(self) -> int:
        stat = os.statvfs(self._descriptors.directory)
        return stat.f_bavail * stat.f_frsize

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
        self._descriptors.close_all()


def _make_directory(path: Path) -> None:
    """Create it with mode 0700, and sync the directory above it: a power cut must not take the whole journal."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    parent = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _keep_private(directory: int) -> None:
    """Take group and others out of an empty directory of ours, or one with a broker's lock in it. A directory of other files, or
    of another account, is not ours to close."""
    found = os.fstat(directory)
    names = os.listdir(directory)
    if found.st_mode & 0o077 and found.st_uid == os.geteuid() and (not names or "lock" in names):
        os.fchmod(directory, stat.S_IMODE(found.st_mode) & 0o700)


def _lock(path: Path) -> int:
    """Take the lock file and write in it who holds it. The file stays: unlinking it would let two hold two files."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StorageError(f"{path} is a symbolic link: somebody put it there. Remove it: the broker makes its own") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 400, 0).decode(errors="replace").split()
        os.close(fd)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise StorageError(f"{path} cannot be locked: {error}") from error
        who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else "another process"
        raise DirectoryLocked(f"{path.parent} is in use by {who}; stop that broker, or give this one another directory") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    return fd

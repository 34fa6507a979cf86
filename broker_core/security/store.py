"""The users file on the disk: read whole, and changed by one process at a time, atomically.

A change is written to a file beside it, synced, renamed over it, and the folder synced: a reader sees the old or the new one,
after a power cut too. The lock is on a file of its own, since the users file's inode changes with each rename. Names do not end
in the journal's suffixes: recovery removes what it takes for its own leftovers, in the same directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .. import errors
from . import users as u
from .users import Users

FILE_NAME = "users.json"  # in the data directory, unless `users_file` says otherwise
LOCK_SUFFIX, NEW_SUFFIX = ".lock", ".new"
MAX_FILE_BYTES = 16 << 20  # some 40,000 users; a wrong path to something huge is not read into memory


SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # no descriptor or memory left: no fault of the file, and it passes


class Mark(NamedTuple):
    """Tells one state of a file from another without reading it. A change of its mode counts: now it may be readable."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int


def mark_of(path: Path) -> Mark | None:
    """None when there is no such file, or nobody can tell."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return Mark(stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)


def read(path: Path) -> Users | None:
    """Read the users file; None when there is none.

    Raises InvalidRequest, naming the file, when it cannot be read or does not hold; ResourceLimit when it cannot be opened just
    now, for want of a file descriptor."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        said = f"the users file {path} cannot be read: {error.strerror or error}"
        if error.errno in SHORTAGE:
            raise errors.ResourceLimit(said) from error
        raise errors.InvalidRequest(said) from error
    if len(data) > MAX_FILE_BYTES:
        raise errors.InvalidRequest(f"the users file {path} has more than {MAX_FILE_BYTES:,} bytes: it is something else")
    try:
        return u.parse(data)
    except errors.InvalidRequest as error:
        raise errors.InvalidRequest(f"the users file {path} cannot be used: {error}") from None


def edit(path: Path, change: Callable[[Users], Users]) -> Users:
    """Change the file, or make it, with mode 0600; returns what is in it now. Another process that edits waits for this one."""
    try:
        with _locked(path):
            before = read(path)
            after = change(before if before is not None else Users(os.urandom(u.SECRET_BYTES)))
            _write(path, u.render(after))
    except OSError as error:
        raise errors.StorageError(f"the users file {path} cannot be written: {error.strerror or error}") from error
    return after


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = _open_lock(path.with_name(path.name + LOCK_SUFFIX), path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # which unlocks it; the file stays, for its name must mean one lock


def _open_lock(name: Path, path: Path) -> int:
    """Open the lock file, or make it for the owner of the users file at `path`.

    Root may run this in a directory of the broker's account, which can put anything there: so a link is not followed, only a
    plain file with one name is taken, and no file is given away but one that this call made.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _open_plain(name, flags)
    try:
        _give_to_the_owner(lock, path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open_plain(name: Path, flags: int) -> int:
    refused = errors.InvalidRequest(
        f"{name} is not a plain file with one name: somebody put it there. Look at who may write in its directory, then remove it"
    )
    try:
        descriptor = os.open(name, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise refused from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(descriptor)
        raise refused
    return descriptor


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + NEW_SUFFIX)
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed: we hold the lock, so it is nobody's
        new.unlink()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask says
        _give_to_the_owner(file.fileno(), path)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _give_to_the_owner(descriptor: int, path: Path) -> None:
    """Root edits the file of a broker that runs as somebody else, who must still be able to read it."""
    if os.geteuid() == 0:
        owner = path.stat() if path.exists() else path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)

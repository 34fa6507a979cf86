"""The users file, which one process at a time changes atomically. The lock is a separate file, because a rename changes the
inode. No name ends in a suffix of the journal, because recovery deletes such leftovers in the directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from .. import errors
from ..local_files import sync
from . import users as u
from .users import Users

FILE_NAME = "users.json"  # in the data directory, unless `users_file` is set
LOCK_SUFFIX, NEW_SUFFIX = ".lock", ".new"
MAX_FILE_BYTES = 16 << 20  # about 40,000 users

SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # not a fault of the file


#: Identifies a state of a file without reading it: its times in ns, size and inode. A change of mode, after which the file may be
#: readable, also changes the second time.
Mark: TypeAlias = tuple[int, int, int, int]


def mark_of(path: Path) -> Mark | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def read(path: Path) -> Users | None:
    """Return None if the file does not exist. Raises InvalidRequest if it is unreadable or invalid, ResourceLimit without
    descriptors."""
    data = octets(path, "the users file", MAX_FILE_BYTES)
    if data is None:
        return None
    try:
        return u.parse(data)
    except errors.InvalidRequest as error:
        raise errors.InvalidRequest(f"the users file {path} cannot be used: {error}") from None


def octets(path: Path, subject: str, most: int) -> bytes | None:
    """Return None if the file does not exist. Raises InvalidRequest, ResourceLimit."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"{subject} {path} cannot be read: {error.strerror or error}"
        if error.errno in SHORTAGE:
            raise errors.ResourceLimit(text) from error
        raise errors.InvalidRequest(text) from error
    if len(data) > most:
        raise errors.InvalidRequest(f"{subject} {path} has more than {most:,} bytes: it is another kind of file")
    return data


def edit(path: Path, change: Callable[[Users], Users]) -> Users:
    """Change or create the file, and return its content. Other editing processes wait."""
    with changing(path):
        before = read(path)
        after = change(before if before is not None else Users(os.urandom(u.SECRET_BYTES)))
        write(path, u.render(after))
    return after


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Let one process at a time change a file. Raises StorageError."""
    try:
        lock = _open_lock(path.with_name(path.name + LOCK_SUFFIX), path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)  # unlocks it; the file stays, so that its name is always the same lock
    except OSError as error:
        raise errors.StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def _open_lock(name: Path, path: Path) -> int:
    """Open the lock file, or create it for the owner of the users file at `path`."""
    owner = _owner(path)
    try:
        return open_regular(name, os.O_RDWR, owner)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise errors.InvalidRequest(
            f"{name} is not a regular file with one name. Check who can write to its directory, then remove it"
        ) from None


def open_regular(name: Path | str, flags: int, owner: os.stat_result, folder: int | None = None) -> int:
    """Open a file, or create it for `owner`. `folder`: a descriptor of its folder. Raises OSError.

    Root may run this in a directory of the broker's account. So links are not followed, the file must be regular and have one
    name, and only a new file changes its owner.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        is_new = True
    except FileExistsError:
        descriptor = os.open(name, flags, dir_fd=folder)
        is_new = False
    try:
        status = os.fstat(descriptor)
        if is_new:
            give_to(owner, descriptor)
        elif not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(errno.ELOOP, f"{name} is a link or a special file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + NEW_SUFFIX)
    with contextlib.suppress(FileNotFoundError):  # of a killed process: this process holds the lock
        new.unlink()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # regardless of the umask
        give_to(_owner(path), file.fileno())
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def _owner(path: Path) -> os.stat_result:
    return path.stat() if path.exists() else path.parent.stat()


def give_to(owner: os.stat_result, descriptor: int) -> None:
    """Keep a file or folder usable for the broker's account if root writes it."""
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)

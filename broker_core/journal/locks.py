"""The lock of a data directory, for one broker at a time. Other processes can see which."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from ..errors import DirectoryLocked, StorageError

LOOKED_AT_S = 0.1  # a process that only looks at the lock (`holder`) holds it for an instant


def holder(directory: Path) -> str | None:
    """Raises OSError if the lock cannot be read."""
    try:
        fd = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    finally:
        os.close(fd)
    return None


def _holder(lock: int) -> str:
    words = os.pread(lock, 400, 0).decode(errors="replace").split()
    return f"process {words[0]} on {words[1]}" if len(words) == 2 else "another process"


def _take(lock: int) -> None:
    until = time.monotonic() + LOOKED_AT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOKED_AT_S / 10)


def lock(path: Path) -> int:
    """Write the holder into the lock file. The file stays: after an unlink, two brokers could hold two files."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StorageError(
            f"{path} is a symbolic link, which the broker did not make. Remove it: the broker makes its own file"
        ) from None
    try:
        _take(fd)
    except OSError as error:
        who = _holder(fd)
        os.close(fd)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise StorageError(f"{path} cannot be locked: {error}") from error
        raise DirectoryLocked(f"{path.parent} is in use by {who}; stop that broker, or give this one another directory") from None
    text = f"{os.getpid()} {socket.gethostname()}\n".encode()
    with contextlib.suppress(OSError):  # on a full disk; the lock holds without its text
        os.ftruncate(fd, os.pwrite(fd, text, 0))
    return fd

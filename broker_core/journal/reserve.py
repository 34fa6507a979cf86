"""Disk space in reserve: the file `reserve` holds blocks for writes that must not fail on a full disk.

Settling, purging and retention write little and free much, so they continue on a full disk, even if another program has filled
it. A write that finds the disk full cuts a piece off the reserve and tries again. Optional files, such as snapshots, leave half
of it. The content is never read.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

NAME = "reserve"
PIECE_BYTES = 64 << 10  # cut off at a time: enough for some hundred settlements, and little for another program to take
OPTIONAL_SHARE = 2  # optional files leave one part in this many
_ZEROS_BYTES = 1 << 20  # written at a time, if the file system cannot allocate blocks
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


def is_full(error: OSError) -> bool:
    """Return True if the disk, or the account's quota, had no space left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """Empty until `open`. For any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._directory = self._fd = -1
        self._held = self._wanted = 0  # bytes
        self._usable = True

    def open(self, directory: int) -> None:
        self._directory = directory
        with contextlib.suppress(FileNotFoundError):
            self._open(0)
            status = os.fstat(self._fd)
            self._held = min(status.st_size, status.st_blocks * 512)  # a copied file may have holes

    def _open(self, flags: int) -> None:
        self._fd = os.open(NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600, dir_fd=self._directory)

    @property
    def held(self) -> int:
        return self._held

    @property
    def is_whole(self) -> bool:
        """False, and the disk full, until the reserve has the size of the last `fill`."""
        return self._held >= self._wanted

    def fill(self, nbytes: int) -> None:
        """Make the reserve `nbytes` large, if at least as much stays free on the disk. Raises nothing."""
        with self._lock:
            if not self._usable:
                return
            self._wanted = nbytes
            try:
                if self._held > nbytes:
                    self._cut(nbytes)
                elif self._held < nbytes and free_bytes(self._directory) >= 2 * nbytes - self._held:
                    self._grow(nbytes)
            except OSError as error:
                if not is_full(error):  # the broker works without a reserve
                    self._usable, self._wanted = False, 0
                    _log.warning("disk space cannot be held in reserve: %s", error)

    def _grow(self, nbytes: int) -> None:
        if self._fd < 0:
            self._open(os.O_CREAT)
        try:
            _allocate(self._fd, self._held, nbytes)
        except OSError:
            self._cut(self._held)  # frees blocks that were allocated before the error
            raise
        self._held = nbytes

    def _cut(self, nbytes: int) -> None:
        os.ftruncate(self._fd, nbytes)
        self._held = nbytes

    def draw(self, *, optional: bool = False) -> bool:
        """Give a piece back to the disk, for an immediate write. Return False if none is left."""
        with self._lock:
            leave = self._wanted // OPTIONAL_SHARE if optional else 0
            if self._held <= leave or _has_no_inodes(self._directory):  # blocks do not help
                return False
            self._cut(max(leave, self._held - PIECE_BYTES))
            return True

    def helped(self, attempt: Callable[[], _T], *, optional: bool = False) -> _T:
        """Repeat `attempt` with pieces of the reserve while the disk is full. Raises its OSError."""
        while True:
            try:
                return attempt()
            except OSError as error:
                if not is_full(error) or not self.draw(optional=optional):
                    raise

    def close(self) -> None:
        """The blocks stay in reserve."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd, self._held = -1, 0


def _allocate(fd: int, start: int, stop: int) -> None:
    try:
        os.posix_fallocate(fd, start, stop - start)
    except (AttributeError, OSError) as error:  # macOS has no such function
        if isinstance(error, OSError) and error.errno not in _NO_ALLOCATION:
            raise
        while start < stop:
            start += os.pwrite(fd, bytes(min(_ZEROS_BYTES, stop - start)), start)


def free_bytes(directory: int) -> int:
    status = os.fstatvfs(directory)
    return status.f_bavail * status.f_frsize


def _has_no_inodes(directory: int) -> bool:
    status = os.fstatvfs(directory)
    return status.f_files > 0 and status.f_favail == 0

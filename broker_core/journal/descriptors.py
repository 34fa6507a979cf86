"""File descriptors in reserve. The journal must continue even if the process has none left."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

RESERVED = 16  # twice a segment, a manifest or snapshot, and the directory; the rest against races
RESERVED_TO_WRITE = 8  # for writers only

_T = TypeVar("_T")


class Descriptors:
    """Descriptors in reserve, and one of the directory, which stays valid when the directory is moved.

    For any thread, without a lock: list operations are atomic, and a destructor may run between any two lines.
    """

    def __init__(self, path: Path) -> None:
        self.directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._reserve: list[int] = []
        self._closed = False
        self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError):  # the process has no descriptor left
            while len(self._reserve) < RESERVED:
                self._reserve.append(os.dup(self.directory))

    def opened(self, open_it: Callable[[], _T], leave: int = 0) -> _T:
        """Call `open_it`; if no descriptor is left, try again with one of the reserve, of which `leave` stay. Raises its
        OSError.
        """
        while True:
            try:
                result = open_it()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._reserve) <= leave:
                    raise
                with contextlib.suppress(IndexError):  # another thread took the last one
                    os.close(self._reserve.pop())
            else:
                if len(self._reserve) < RESERVED:
                    self._fill()
                return result

    def open(self, name: str, flags: int, leave: int = 0) -> int:
        """A new file gets mode 0600. `leave` as for `opened`."""
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

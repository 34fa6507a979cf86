"""File descriptors in reserve: a process may run out of them, whatever has opened them, and the journal must go on.

To get a descriptor, one of the reserve is closed. A descriptor that is no longer needed goes back into the reserve.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

RESERVED = 16  # descriptors: a segment, a manifest or snapshot, and the directory, each twice; the rest against races
RESERVED_TO_WRITE = 8  # of these; readers are refused before writers

_T = TypeVar("_T")


class Descriptors:
    """Descriptors in reserve, and the directory as a descriptor: files stay in it wherever it is moved.

    For any thread. List operations are atomic, and a destructor may run between any two lines, so there is no lock.
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
        """Return the result of `open_it`, with descriptors from the reserve if need be; `leave` of them stay. OSError as it
        raises.
        """
        while True:
            try:
                found = open_it()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._reserve) <= leave:
                    raise
                with contextlib.suppress(IndexError):  # another thread took the last one
                    os.close(self._reserve.pop())  # another thread may take it first: then try the next
            else:
                if len(self._reserve) < RESERVED:
                    self._fill()
                return found

    def open(self, name: str, flags: int, leave: int = 0) -> int:
        """Open a file of the directory, mode 0600 if it is new; `leave` as for `opened`."""
        return self.opened(lambda: os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self.directory), leave)

    def close(self, fd: int) -> None:
        """Close a descriptor, or keep it in the reserve."""
        if self._closed or len(self._reserve) >= RESERVED:
            os.close(fd)
            return
        os.dup2(self.directory, fd, inheritable=False)
        self._reserve.append(fd)

    def close_all(self) -> None:
        """Close the directory and the reserve."""
        if self._closed:
            return
        self._closed = True
        for fd in (*self._reserve, self.directory):
            os.close(fd)
        self._reserve = []
        self.directory = -1

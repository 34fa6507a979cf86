"""One process of the HTTP plane, seen from the broker."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..children import frames, processes
from ..children.frames import ChildFrame

STOP_S = 3.0  # for requests that it is answering; then it is killed


class HttpProcess:
    """A process that serves `listening` until it ends. `hello` and `attachments`: its first frame. Raises OSError if it cannot be
    started."""

    def __init__(self, listening: socket.socket, hello: dict[str, Any], folder: str, attachments: Sequence[bytes] = ()) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "penstock", "http"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    pass_fds=[listening.fileno()],
                    cwd=folder,  # so that `-m` imports the package of this process
                    env=processes.environment(),
                    **processes.OWN_GROUP,
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        self._from, self._to = ours.makefile("rb"), ours.makefile("wb")
        self._writing = threading.Lock()
        self.say({**hello, "listening": listening.fileno()}, attachments)

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
        """Send a frame, from any thread. Waits while the process does not read; does nothing if it is gone."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            frames.send(self._to, header, attachments)

    def listen(self, receive: Callable[[ChildFrame], None]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while (frame := frames.receive(self._from)) is not None:
                receive(frame)

    def end(self, *, immediately: bool) -> int:
        """`immediately`: do not wait for requests that it is answering."""
        try:
            if immediately:
                self._process.kill()
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # releases a thread that waits to write
        with self._writing:
            for file in (self._from, self._to, self._socket):
                with contextlib.suppress(OSError):
                    file.close()
        return code

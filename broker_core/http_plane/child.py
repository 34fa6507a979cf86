"""One process of the HTTP plane, as the broker sees it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .. import children
from ..children import frames
from ..children.frames import Frame

STOP_S = 3.0  # for requests that it has begun to answer; then it is killed, which loses nothing


class HttpProcess:
    """A process that serves `listening`, from construction until it ends. `hello`: what it is told at its start, with
    `attachments`.

    Raises OSError where none can be started."""

    def __init__(self, listening: socket.socket, hello: dict[str, Any], folder: str, attachments: Sequence[bytes] = ()) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "penstock", "http"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    pass_fds=[listening.fileno()],
                    cwd=folder,  # so that `-m` finds the package where this process has it
                    env=children.environment(),
                    **children.OWN_GROUP,
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
        """Number of the process."""
        return self._process.pid

    def say(self, header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
        """Send a frame, from any thread. Nothing happens where the process is gone; waits while it does not read."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            frames.send(self._to, header, attachments)

    def listen(self, hear: Callable[[Frame], None]) -> None:
        """Hand over each frame of the process, until it is gone."""
        with contextlib.suppress(OSError, ValueError):
            while (frame := frames.receive(self._from)) is not None:
                hear(frame)

    def end(self, *, at_once: bool) -> int:
        """End the process, whatever it does; its exit code. `at_once`: without a wait for what it has begun."""
        try:
            if at_once:
                self._process.kill()
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread that waits to write is let go
        with self._writing:
            for file in (self._from, self._to, self._socket):
                with contextlib.suppress(OSError):
                    file.close()
        return code

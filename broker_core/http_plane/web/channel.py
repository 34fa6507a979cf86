"""Questions to the broker, and their answers, on the channel that this process was started with.

Two threads read and write it, so that neither can hold up the loop: a broker that does not read, or whose answer is large.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

from ...children import frames
from ...children.frames import Frame

MAX_WAITING = 256  # questions without an answer: so many requests of browsers wait, one more is told to come back
ANSWER_S = 60.0  # for which an answer is waited for


class Busy(Exception):
    """Too many questions wait for an answer."""


class Silent(Exception):
    """The broker has not answered in time."""


class Answer(NamedTuple):
    """Answer of the broker: an HTTP status, what else its header has, and a body."""

    status: int
    header: dict[str, Any]
    body: bytes
    more: list[bytes]  # attachments after the body


class Channel:
    """The way to the broker. `lost` is called, in another thread, when it has gone; `stop`, in the loop, when it says so."""

    def __init__(self, connected: socket.socket, lost: Callable[[], None]) -> None:
        self._from: IO[bytes] = connected.makefile("rb")
        self._to: IO[bytes] = connected.makefile("wb")
        self._lost = lost
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._out: queue.SimpleQueue[tuple[dict[str, Any], Sequence[bytes]]] = queue.SimpleQueue()

    def hello(self) -> tuple[dict[str, Any], list[bytes]]:
        """Wait for the first thing that the broker says: what is told, and attachments."""
        frame = frames.receive(self._from)
        if frame is None:
            os._exit(0)
        return frame.header, frame.attachments

    def start(self, stop: Callable[[], None]) -> None:
        """Begin to hear answers, in the running loop. `stop`: called when the broker says that it stops."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, stop), name="answers", daemon=True).start()
        threading.Thread(target=self._write, name="questions", daemon=True).start()

    async def ask(self, op: str, body: bytes = b"", limit_s: float = ANSWER_S, probe: bool = False, **header: Any) -> Answer:
        """Ask the broker; a probe is asked however many others wait. Raises Busy and Silent."""
        if len(self._waiting) >= MAX_WAITING and not probe:
            raise Busy
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._out.put(({"op": op, "id": number, **header}, [body]))
        try:
            return await asyncio.wait_for(future, limit_s)
        except asyncio.TimeoutError:
            raise Silent from None
        finally:
            self._waiting.pop(number, None)

    def tell(self, op: str) -> None:
        """Tell the broker something to which there is no answer."""
        self._out.put(({"op": op}, ()))

    def _hear(self, frame: Frame) -> None:
        future = self._waiting.get(frame.header["id"])
        if future is not None and not future.done():
            body, *more = frame.attachments
            future.set_result(Answer(frame.header["status"], frame.header, body, more))

    def _read(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        try:
            while (frame := frames.receive(self._from)) is not None:
                if frame.header.get("op") == "stop":
                    loop.call_soon_threadsafe(stop)
                else:
                    loop.call_soon_threadsafe(self._hear, frame)
        except (OSError, RuntimeError):  # the loop is closed: this process ends anyway
            pass
        self._lost()

    def _write(self) -> None:
        try:
            while True:
                header, attachments = self._out.get()
                frames.send(self._to, header, attachments)
        except OSError:
            self._lost()

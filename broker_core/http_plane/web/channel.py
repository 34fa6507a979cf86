"""Questions to the broker and their answers.

Two threads read and write: neither a broker that does not read nor a large answer blocks the loop.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

from ...children import frames
from ...children.frames import ChildFrame

MAX_WAITING = 256  # questions of users; the next request is refused and may be repeated
MAX_WAITING_OF_USER = 128  # of one user: half of all. Clients without a user name count as one
MAX_WAITING_OF_STRANGERS = 512  # of all clients before their login: twice the limit of their connections
STRANGERS_TOGETHER = 4  # of strangers, answered together by half of the broker's threads: a password check is slow
ANSWER_S = 60.0


class Busy(Exception):
    """Too many questions wait for an answer."""


class Silent(Exception):
    """The broker has not answered in time."""


class BrokerGone(Exception):
    """The client was gone before its question was sent."""


class ChannelAnswer(NamedTuple):
    """An answer of the broker."""

    status: int
    header: dict[str, Any]
    body: bytes
    more: list[bytes]  # attachments after the body


class Channel:
    """The connection to the broker. `lost` is called in another thread when the broker is gone."""

    def __init__(self, connected: socket.socket, lost: Callable[[], None]) -> None:
        self._from: IO[bytes] = connected.makefile("rb")
        self._to: IO[bytes] = connected.makefile("wb")
        self._lost = lost
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[ChannelAnswer]] = {}
        self._waiting_of: Counter[str | None] = Counter()  # by user; None: strangers
        self._strangers_turn = asyncio.Semaphore(STRANGERS_TOGETHER)
        self._out: queue.SimpleQueue[tuple[dict[str, Any], Sequence[bytes]]] = queue.SimpleQueue()

    def hello(self) -> tuple[dict[str, Any], list[bytes]]:
        frame = frames.receive(self._from)
        if frame is None:
            os._exit(0)
        return frame.header, frame.attachments

    def start(self, stop: Callable[[], None]) -> None:
        """`stop` is called in the running loop when the broker stops."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, stop), name="answers", daemon=True).start()
        threading.Thread(target=self._write, name="questions", daemon=True).start()

    async def probe(self, op: str, limit_s: float) -> ChannelAnswer:
        """Ask for the broker's health, ahead of waiting questions. Raises Silent."""
        return await self._ask(op, b"", limit_s, {})

    async def ask(self, op: str, body: bytes, user: str | None, is_gone: Callable[[], bool], **header: Any) -> ChannelAnswer:
        """Ask for a user, or with None for a stranger, in the order of the strangers' questions. Raises Busy, Silent, and
        BrokerGone if the client has left."""
        of_users = self._waiting_of.total() - self._waiting_of[None]
        most = MAX_WAITING_OF_STRANGERS if user is None else MAX_WAITING_OF_USER
        if self._waiting_of[user] >= most or (user is not None and of_users >= MAX_WAITING):
            raise Busy
        self._waiting_of[user] += 1
        try:
            if user is not None:
                return await self._ask(op, body, ANSWER_S, header)
            async with self._strangers_turn:
                if is_gone():
                    raise BrokerGone
                return await self._ask(op, body, ANSWER_S, header)
        finally:
            self._waiting_of[user] -= 1
            if not self._waiting_of[user]:
                del self._waiting_of[user]

    async def _ask(self, op: str, body: bytes, limit_s: float, header: dict[str, Any]) -> ChannelAnswer:
        number = next(self._numbers)
        future: asyncio.Future[ChannelAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._out.put(({"op": op, "id": number, **header}, [body]))
        try:
            return await asyncio.wait_for(future, limit_s)
        except asyncio.TimeoutError:
            raise Silent from None
        finally:
            self._waiting.pop(number, None)

    def notify(self, op: str) -> None:
        self._out.put(({"op": op}, ()))

    def _receive(self, frame: ChildFrame) -> None:
        future = self._waiting.get(frame.header["id"])
        if future is not None and not future.done():
            body, *more = frame.attachments
            future.set_result(ChannelAnswer(frame.header["status"], frame.header, body, more))

    def _read(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        try:
            while (frame := frames.receive(self._from)) is not None:
                if frame.header.get("op") == "stop":
                    loop.call_soon_threadsafe(stop)
                else:
                    loop.call_soon_threadsafe(self._receive, frame)
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

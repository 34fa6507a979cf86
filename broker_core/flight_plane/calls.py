"""One gRPC call.

The connection's thread feeds bytes in, and the call's own thread takes messages out. A message's memory is allocated when its
length is within the limit, its sender is authenticated, and the budget has room. Until then the sender has only the first window
(64 KiB). Then the bytes go there from the socket without a copy.

A message of at most `AHEAD_BYTES` costs the budget nothing, and a call has one such message at a time. So a small request
arrives, for example to make room in a full queue, even if large messages that wait for that room hold the whole budget.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from .. import errors
from ..client import timeouts
from . import frames

if TYPE_CHECKING:
    from .connection import FlightConnection
    from .transports import Octets

PREFIX_BYTES = 5  # of a gRPC message: a flag for compression, and the length
READY_BYTES = 1 << 20  # of complete messages that wait for the call's thread; beyond it none is begun
# Bytes that a sender may send beyond allocated memory, and the size of a message that costs nothing. So a call takes twice as
# much outside of the budget, and all calls that may run (`flight_max_calls`) 64 MiB.
AHEAD_BYTES = 64 << 10

ALIGNMENT = 64  # bytes; a message ends at a multiple, which aligns Arrow's buffers at its end
HEADROOM = 64  # bytes before a message, for the framing of `arrow_ipc`
#: The headers of every response. 0x88: status 200.
_ANSWER = b"\x88" + frames.header_block([(b"content-type", b"application/grpc")])


class CallGone(Exception):
    """The peer has ended this call, or its connection."""


class CallMessage:
    """A complete message: a view of its bytes in `memory`."""

    __slots__ = ("cost", "memory", "view")

    def __init__(self, length: int, cost: int) -> None:
        padding = -(HEADROOM + length) % ALIGNMENT
        self.memory = pa.allocate_buffer(HEADROOM + padding + length)
        self.view = memoryview(self.memory).cast("B")[HEADROOM + padding :]
        self.cost = cost  # to the budget


class CallHeaders(NamedTuple):
    """Headers that the broker reads. `client`: the kind of program."""

    authorization: str | None
    client: str


class Call:
    """The connection's mutex guards everything except `_raw` and `_filled`, which only its thread uses."""

    def __init__(self, connection: FlightConnection, number: int, path: str, headers: CallHeaders, window: int) -> None:
        self.connection, self.number, self.path = connection, number, path
        self.peer, self.headers = connection.peer, headers
        self.out_window = window
        self.sendable = threading.Condition(connection.mutex)
        self._arrived = threading.Condition(connection.mutex)
        self._raw = bytearray()  # bytes without memory of their own
        self._window = frames.FIRST_WINDOW  # bytes that the peer may still send
        self._limit: int | None = None  # of a message; None: not authenticated yet
        self._refusal: Callable[[int], errors.PenstockError] | None = None
        self._message: CallMessage | None = None
        self._filled = 0
        self._begun = 0.0  # start of the incoming message
        self._small = False  # a message that costs nothing is incoming, ready or in hand
        self._waiting = 0  # bytes requested from the budget
        self._promised = False  # and granted
        self._ready: deque[CallMessage] = deque()
        self._ready_bytes = self._cost = 0  # of the ready messages; and taken from the budget, also for the message in hand
        self._in_hand: int | None = None  # cost of the last message
        self._ended = False  # the peer sends no more
        self._failure: Exception | None = None
        self.gone = self.finished = False
        self.user: str | None = None  # after the login
        self._answered = False

    # --- incoming bytes: the connection's thread, with the mutex

    def target(self) -> memoryview | None:
        """Return memory for the next bytes, if they have a place."""
        return None if self._message is None else self._message.view[self._filled :]

    def counted(self, octets: int) -> None:
        """Count the bytes of a DATA frame. Raises Http2Error beyond the window."""
        self._window -= octets
        if self._window < 0:
            raise frames.Http2Error(frames.Code.FLOW_CONTROL_ERROR, "more DATA than the stream's window")

    def filled(self, octets: int) -> None:
        self._filled += octets
        self._complete()
        self._advance()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that had no `target`."""
        self._raw += data
        self._advance()

    def end(self) -> None:
        self._ended = True
        self._arrived.notify_all()

    def drop(self) -> None:
        self.gone = True
        self._arrived.notify_all()
        self.sendable.notify_all()

    def is_late(self, now: float, timeout_s: float, least_rate: int) -> bool:
        """Return True if a message that has its memory takes too long to arrive."""
        message = self._message
        return message is not None and now - self._begun > timeout_s + len(message.view) / least_rate

    @property
    def expected(self) -> int:
        """Bytes that will go to allocated memory."""
        return 0 if self._message is None else len(self._message.view) - self._filled

    @property
    def unplaced(self) -> int:
        """Bytes before authentication. Later bytes are limited by the call's own window."""
        return len(self._raw) if self._limit is None else 0

    def _advance(self) -> None:
        while self._failure is None and not self.finished and not self.gone:
            message = self._message
            if message is None:
                if not self._begin():
                    break
                continue  # an empty message is complete
            if not self._raw:
                break
            taken = min(len(self._raw), len(message.view) - self._filled)
            message.view[self._filled : self._filled + taken] = self._raw[:taken]
            del self._raw[:taken]
            self._filled += taken
            self._complete()
        if self._failure is not None or self.finished:
            self._raw.clear()
        self._grant()

    def _begin(self) -> bool:
        """Give the next message its memory, unless it must wait."""
        if self._limit is None or self._waiting or len(self._raw) < PREFIX_BYTES or self._ready_bytes >= READY_BYTES:
            return False
        length = int.from_bytes(self._raw[1:PREFIX_BYTES], "big")
        if self._raw[0]:
            self._fail(errors.InvalidRequest("compressed gRPC messages are refused: send without compression"))
            return False
        if length > self._limit:
            assert self._refusal is not None
            self._fail(self._refusal(length))
            return False
        cost = length if length > AHEAD_BYTES else 0
        if not cost and self._small:
            return False
        if cost and not self.connection.budget.take(cost, self._granted):
            self._waiting = cost
            return False
        self._place(length, cost)
        return True

    def _place(self, length: int, cost: int) -> None:
        del self._raw[:PREFIX_BYTES]
        self._small |= not cost
        self._cost += cost
        self._message, self._filled, self._begun = CallMessage(length, cost), 0, time.monotonic()
        self._complete()  # an empty message is complete

    def _granted(self) -> None:
        """Runs in another call's thread."""
        with self.connection.mutex:
            finished = self.finished
            if not finished:
                self._promised = True
                self._arrived.notify_all()
            octets = self._waiting
        if finished:
            self.connection.budget.give(octets)

    def _complete(self) -> None:
        message = self._message
        if message is not None and self._filled == len(message.view):
            self._message = None
            self._ready.append(message)
            self._ready_bytes += message.cost
            self._arrived.notify_all()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._arrived.notify_all()

    def _grant(self) -> None:
        """Renew the window: for allocated memory, and a little more while messages are taken."""
        if self._limit is None or self._failure or self.finished or self.gone or self._ended or self._waiting:
            return
        ahead = AHEAD_BYTES if self._ready_bytes < READY_BYTES else 0
        wanted = self.expected + max(0, ahead - len(self._raw))
        if wanted > self._window and (wanted - self._window >= AHEAD_BYTES // 2 or self._window < AHEAD_BYTES // 2):
            self.connection.control(frames.number(frames.FrameKind.WINDOW_UPDATE, self.number, wanted - self._window))
            self._window = wanted

    # --- for the call's own thread

    def admit(self, user: str, limit: int, refusal: Callable[[int], errors.PenstockError]) -> None:
        """Accept messages up to `limit` bytes. `refusal` returns the error for a longer one."""
        self.connection.trust(user)
        self.user = user
        with self.connection.mutex:
            self._limit, self._refusal = limit, refusal
            self._advance()
        self.connection.settle()

    def next(self, waiting: Callable[[], None] | None = None) -> CallMessage | None:
        """Return the next message; None after the last. The memory of the previous one returns to the budget.

        `waiting` is called every `timeouts.ALIVE_S` while the message waits for memory, as a sign of life for the peer.
        """
        self._let_go()
        while True:
            waits = False
            try:
                with self.connection.mutex:
                    if self._promised:
                        length, self._waiting, self._promised = self._waiting, 0, False
                        self._place(length, length)
                        self._advance()
                    elif self._ready:
                        message = self._ready.popleft()
                        self._ready_bytes -= message.cost
                        self._in_hand = message.cost
                        self._advance()
                        return message
                    elif self._is_over():
                        return None
                    else:
                        waits = not self._arrived.wait(timeouts.ALIVE_S) and self._waiting > 0
            finally:
                self.connection.settle()
            if waits and waiting is not None:
                waiting()

    def _is_over(self) -> bool:
        """Return True after the peer's last message. Raises the error that prevents another."""
        if self.gone:
            raise CallGone
        if self._failure is not None:
            raise self._failure
        if not self._ended or self._waiting:
            return False
        if self._raw or self._message is not None:
            raise errors.InvalidRequest("the call ends within a message")
        return True

    def _let_go(self) -> None:
        octets, self._in_hand = self._in_hand, None
        if octets is None:
            return
        with self.connection.mutex:
            self._cost -= octets
            if not octets:
                self._small = False
                self._advance()
        if octets:
            self.connection.budget.give(octets)

    def send(self, pieces: Sequence[Octets]) -> None:
        """Send one message as fast as the peer takes it. Raises CallGone."""
        length = sum(map(len, pieces))
        begin = b""
        if not self._answered:
            self._answered = True
            begin = frames.header(len(_ANSWER), frames.FrameKind.HEADERS, frames.END_HEADERS, self.number) + _ANSWER
        self.connection.send(self, begin, [b"\0" + length.to_bytes(4, "big"), *pieces], length + PREFIX_BYTES)

    def finish(self, trailers: bytes) -> None:
        """End the call with this header block. Later bytes are discarded."""
        block = trailers if self._answered else _ANSWER + trailers
        with self.connection.mutex:
            gone, unsent = self.gone, not self._ended
            self.finished = True
            dropped, self._message = self._message, None
            self._ready.clear()
            self._raw.clear()
            cost, self._cost, self._in_hand = self._cost, 0, None
            if self._promised:
                cost += self._waiting
            waits = self._waiting and not self._promised
        del dropped
        self.connection.budget.give(cost)
        if waits:
            self.connection.budget.leave(self._granted)
        if not gone:
            flags = frames.END_HEADERS | frames.END_STREAM
            data = frames.header(len(block), frames.FrameKind.HEADERS, flags, self.number) + block
            if unsent:  # the peer need not send the rest
                data += frames.number(frames.FrameKind.RST_STREAM, self.number, frames.Code.NO_ERROR)
            self.connection.say(data)
        self.connection.forget(self)

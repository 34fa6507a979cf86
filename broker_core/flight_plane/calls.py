"""One gRPC call: the messages that come in, those that go out, and how it ends.

The connection's thread feeds octets in and the call's own thread takes messages out. A message's memory is allocated when its
length is known to be within the limit, its sender has been let in, and the budget has room for it; until then the sender has
no more than the first window (64 KiB). Octets of a message that has its memory go there from the socket, without a copy between.

A message of no more than `AHEAD_BYTES` costs the budget nothing, of which a call has one at a time: senders of large ones that
wait for room in a full queue may hold all of the budget, and requests, of whoever would make room, must be heard.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from .. import errors
from ..client import timeouts
from . import frames

if TYPE_CHECKING:
    from .budget import Budget
    from .transports import Octets

PREFIX_BYTES = 5  # of a gRPC message: whether it is compressed, and its length
READY_BYTES = 1 << 20  # of complete messages that wait for the call's thread; then no further one is begun
# Octets that a sender may be ahead of what has memory, and of a message that costs nothing. So a call takes twice as much beside
# the budget, and all calls that may run (`flight_max_calls`) 64 MiB.
AHEAD_BYTES = 64 << 10
ALIGNMENT = 64  # a message ends at a multiple of this, so that an Arrow body at its end lies on multiples of 8
HEADROOM = 64  # octets kept free before a message: `arrow_ipc` puts its own framing there


class CallConnection(Protocol):
    """The connection of a call, as the call needs it; `connection.Connection` implements it."""

    mutex: threading.Lock
    budget: Budget
    peer: str

    def trust(self, user: str) -> None:
        """Count a call of this user. Raises ResourceLimit beyond the limits of connections or calls, CallGone after its end."""

    def send(self, call: Call, begin: bytes, pieces: Sequence[Octets], length: int) -> None:
        """Send one message of a call. Raises CallGone."""

    def say(self, data: bytes) -> None:
        """Send frames that need no window."""

    def control(self, data: bytes) -> None:
        """Let frames leave with what is sent next, or at `settle`. With the mutex in hand."""

    def settle(self) -> None:
        """Send the waiting frames, and renew the connection's window. Never with the mutex in hand."""

    def forget(self, call: Call) -> None:
        """Forget a call that has ended."""


class CallGone(Exception):
    """The peer has ended this call, or its connection."""


class CallMessage:
    """A whole message: `view` of its octets in `memory`."""

    __slots__ = ("cost", "memory", "view")

    def __init__(self, length: int, cost: int) -> None:
        padding = -(HEADROOM + length) % ALIGNMENT
        self.memory = pa.allocate_buffer(HEADROOM + padding + length)
        self.view = memoryview(self.memory).cast("B")[HEADROOM + padding :]
        self.cost = cost  # to the budget


class Call:
    """Everything here is guarded by the connection's mutex, but for what only its thread touches (`_raw`, `_filled`)."""

    def __init__(self, connection: CallConnection, number: int, path: str, authorization: str | None, window: int) -> None:
        self.connection, self.number, self.path, self.authorization = connection, number, path, authorization
        self.out_window = window
        self.sendable = threading.Condition(connection.mutex)
        self._arrived = threading.Condition(connection.mutex)
        self._raw = bytearray()  # what came and has no memory of its own yet
        self._window = frames.FIRST_WINDOW  # octets that the peer may still send
        self._limit: int | None = None  # of a message; None: not let in yet
        self._refusal: Callable[[int], errors.PenstockError] | None = None
        self._message: CallMessage | None = None
        self._filled = 0
        self._begun = 0.0  # when the message that is coming was
        self._small = False  # there is one that costs nothing, coming, ready or in hand
        self._waiting = 0  # octets asked of the budget
        self._promised = False  # and had
        self._ready: deque[CallMessage] = deque()
        self._ready_bytes = self._cost = 0  # of the ready ones; and taken from the budget, also for the one in hand
        self._in_hand: int | None = None  # cost of the message that was taken last
        self._ended = False  # the peer sends no more
        self._failure: Exception | None = None
        self.gone = self.finished = False
        self.user: str | None = None  # who was let in, and has this call counted
        self._answered = False

    # --- what comes in: the connection's thread, with the mutex

    def target(self) -> memoryview | None:
        """Memory for the next octets, if they have a place already."""
        return None if self._message is None else self._message.view[self._filled :]

    def counted(self, octets: int) -> None:
        """DATA came, of this length. Http2Error when it was more than the window allows."""
        self._window -= octets
        if self._window < 0:
            raise frames.Http2Error(frames.Code.FLOW_CONTROL_ERROR, "more DATA than the stream's window")

    def filled(self, octets: int) -> None:
        """So many octets were put to `target`."""
        self._filled += octets
        self._complete()
        self._advance()

    def feed(self, data: bytes | memoryview) -> None:
        """Take octets of the peer's messages."""
        self._raw += data
        self._advance()

    def end(self) -> None:
        """Note that the peer sends nothing more."""
        self._ended = True
        self._arrived.notify_all()

    def drop(self) -> None:
        """The call is over for the peer: what it sends and waits for is nobody's."""
        self.gone = True
        self._arrived.notify_all()
        self.sendable.notify_all()

    @property
    def stalled_since(self) -> float | None:
        """Time at which the message began that is under way and has its memory; None where there is none."""
        return self._begun if self._message is not None else None

    @property
    def coming(self) -> int:
        """The length of that message."""
        return 0 if self._message is None else len(self._message.view)

    @property
    def expected(self) -> int:
        """Octets that will go to memory which is there."""
        return 0 if self._message is None else len(self._message.view) - self._filled

    @property
    def unplaced(self) -> int:
        """Count the octets that came before the caller was let in. Those after it are what the call's own window allows."""
        return len(self._raw) if self._limit is None else 0

    def _advance(self) -> None:
        """Make messages of what came. The peer is told how much more it may send."""
        while self._failure is None and not self.finished and not self.gone:
            message = self._message
            if message is None:
                if not self._begin():
                    break
                continue  # an empty one is complete
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
        """Give the next message its memory; False where it cannot have it now."""
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
        self._complete()  # an empty one is whole

    def _granted(self) -> None:
        """The budget's turn has come, in another call's thread, which has better to do: the own one goes on from here."""
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
        """A window for what has memory, and a little ahead of it, while messages are taken as they come."""
        if self._limit is None or self._failure or self.finished or self.gone or self._ended or self._waiting:
            return
        ahead = AHEAD_BYTES if self._ready_bytes < READY_BYTES else 0
        wanted = self.expected + max(0, ahead - len(self._raw))
        if wanted > self._window and (wanted - self._window >= AHEAD_BYTES // 2 or self._window < AHEAD_BYTES // 2):
            self.connection.control(frames.number(frames.FrameKind.WINDOW_UPDATE, self.number, wanted - self._window))
            self._window = wanted

    # --- for the call's own thread

    @property
    def peer(self) -> str:
        """Address of the caller."""
        return self.connection.peer

    def admit(self, user: str, limit: int, refusal: Callable[[int], errors.PenstockError]) -> None:
        """The caller was let in: take messages up to `limit` octets. `refusal` is the error for one of another length."""
        self.connection.trust(user)
        self.user = user
        with self.connection.mutex:
            self._limit, self._refusal = limit, refusal
            self._advance()
        self.connection.settle()

    def next(self, waiting: Callable[[], None] | None = None) -> CallMessage | None:
        """The next message; None when the peer has sent the last. Gives the memory of the one before back to the budget.

        `waiting` is called every `timeouts.ALIVE_S` while there is no memory for it: the peer should hear of us.
        """
        self._let_go()
        while True:
            waits = False
            try:
                with self.connection.mutex:
                    if self._promised:
                        self._take_promise()
                    elif self._ready:
                        return self._pick()
                    elif self._is_over():
                        return None
                    else:
                        waits = not self._arrived.wait(timeouts.ALIVE_S) and self._waiting > 0
            finally:
                self.connection.settle()
            if waits and waiting is not None:
                waiting()

    def _pick(self) -> CallMessage:
        message = self._ready.popleft()
        self._ready_bytes -= message.cost
        self._in_hand = message.cost
        self._advance()
        return message

    def _is_over(self) -> bool:
        """Say whether the peer has sent its last message. Raises what keeps another one from coming."""
        if self.gone:
            raise CallGone
        if self._failure is not None:
            raise self._failure
        if not self._ended or self._waiting:
            return False
        if self._raw or self._message is not None:
            raise errors.InvalidRequest("the call ends within a message")
        return True

    def _take_promise(self) -> None:
        length, self._waiting, self._promised = self._waiting, 0, False
        self._place(length, length)
        self._advance()

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
        """Send one message, made of these pieces, as quickly as the peer takes it. Raises CallGone."""
        length = sum(map(len, pieces))
        begin = b"" if self._answered else _ANSWER.frame(self.number)
        self._answered = True
        self.connection.send(self, begin, [b"\0" + length.to_bytes(4, "big"), *pieces], length + PREFIX_BYTES)

    def finish(self, trailers: bytes) -> None:
        """End the call with this header block; what still comes is thrown away."""
        block = trailers if self._answered else _ANSWER.block + trailers
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


class _Answer:
    """The headers of every answer."""

    def __init__(self) -> None:
        self.block = b"\x88" + frames.header_block([(b"content-type", b"application/grpc")])  # 0x88: status 200

    def frame(self, stream: int) -> bytes:
        return frames.header(len(self.block), frames.FrameKind.HEADERS, frames.END_HEADERS, stream) + self.block


_ANSWER = _Answer()

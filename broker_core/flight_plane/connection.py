"""One connection of the Flight plane: HTTP/2 frames in and out.

Its own thread reads. Calls run in threads of the plane's pool, and write. A sender holds `_sending` while its bytes leave.
Control frames (windows, answers to pings) wait in `_waiting`, and leave with the next sender. If no thread sends, the reading
thread sends them, and waits until the peer has taken them. It waits for another sender only to refuse a call.

Before authentication, a peer's memory is bounded: a header block of 16 KiB, 64 KiB of DATA over all calls, and `CALLS` calls.
That DATA is the connection's first window, which is renewed only for bytes that were taken. Later, messages have memory from the
budget, and each call may have `calls.AHEAD_BYTES` more. The connection's window is the allocated memory plus
`frames.FIRST_WINDOW`, so a stalled call takes nothing from the others.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import hpack

from .. import wrong_port
from . import frames
from .calls import Call, CallGone, CallHeaders
from .frames import Code, FrameKind, Http2Error, Setting

if TYPE_CHECKING:
    from .budget import Budget
    from .listener import FlightListener
    from .transports import FlightTransport, Octets

CALLS = 64  # on one connection, including running calls that the peer has given up
CLIENT_HEADER, MAX_CLIENT = b"penstock-client", 40
HEADER_BYTES = 16 << 10  # of one request's headers, encoded and decoded
READ_BYTES = 64 << 10  # read ahead from the socket, for bytes without a place; before authentication a third of it
FRAME_BYTES = 1 << 20  # of DATA: a large message comes in few frames, with few switches of the interpreter
SEND_BYTES = 1 << 20  # of one call before another call may send
CONTROL_BYTES = 64 << 10  # of waiting control frames; a peer that causes more is cut off

log = logging.getLogger("penstock.flight")

_numbers = itertools.count(1)


class FlightConnection:
    """One client's connection (RFC 9113), and the calls on it."""

    def __init__(self, host: FlightListener, wire: FlightTransport, peer: str, budget: Budget) -> None:
        self.peer, self.budget = peer, budget
        self.mutex = threading.Lock()
        self.user: str | None = None  # of the first authenticated call
        self.number = next(_numbers)  # unique in one run of the broker
        self.since = time.monotonic()
        self.closing = False
        self._host, self._wire = host, wire
        self._calls: dict[int, Call] = {}  # running; the peer may have dropped some
        self._last = 0
        self._window = frames.FIRST_WINDOW  # bytes of DATA that the peer may still send
        self._out_window = frames.FIRST_WINDOW
        self._first_out_window = frames.FIRST_WINDOW  # of a new call
        self._frame = frames.LEAST_FRAME
        self._sending = threading.Lock()
        self._waiting = bytearray()
        self._dead = False
        self._headers = hpack.Decoder(HEADER_BYTES)
        self._buffer = memoryview(bytearray(READ_BYTES // 3))
        self._start = self._stop = 0
        self._begun: float | None = None  # start of an incomplete frame

    # --- reading

    def run(self) -> None:
        try:
            self._begin()
            while True:
                self._frame_in()
        except EOFError:
            pass
        except Http2Error as error:
            log.info("%s: %s", self.peer, error, extra={"peer": self.peer})
            self._farewell(error.code, str(error))
        except OSError as error:
            log.debug("%s: %s", self.peer, error)
        except Exception:  # a bug in Penstock ends only this connection
            log.exception("%s: cut off", self.peer)
        finally:
            self.abort()
            with self._sending:  # a sender must not reach another socket with the same descriptor
                self._host.leave(self)

    def _begin(self) -> None:
        sizes = {Setting.MAX_FRAME_SIZE: FRAME_BYTES, Setting.MAX_HEADER_LIST_SIZE: HEADER_BYTES}
        self._answer(frames.settings({Setting.MAX_CONCURRENT_STREAMS: CALLS, **sizes}))
        self.settle()
        for number, expected in enumerate(frames.PREFACE):
            if self._take(1)[0] != expected:
                began = frames.PREFACE[:number] + bytes(self._buffer[self._start - 1 : self._stop][:64])
                wrong = wrong_port.mismatch(wrong_port.FLIGHT, wrong_port.spoken(began), urls=self._host.urls())
                raise Http2Error(Code.PROTOCOL_ERROR, wrong or "this is not HTTP/2: Arrow Flight speaks gRPC")

    def _frame_in(self) -> None:
        if self._start == self._stop and len(self._buffer) < READ_BYTES and self.user is not None:
            self._buffer, self._start, self._stop = memoryview(bytearray(READ_BYTES)), 0, 0
        self._begun = None
        header = self._take(frames.HEADER_BYTES)
        self._begun = time.monotonic()
        length, kind, flags, number = frames.parse_header(header)
        if kind == FrameKind.DATA:
            self._data(length, flags, number)
            return
        if length > HEADER_BYTES:
            raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame of {length} octets; other than DATA has at most {HEADER_BYTES}")
        payload = bytes(self._take(length))
        if kind == FrameKind.HEADERS:
            self._open(payload, flags, number)
        elif kind == FrameKind.WINDOW_UPDATE:
            self._window_grows(payload, number)
        elif kind == FrameKind.SETTINGS:
            self._settings(payload, flags)
        elif kind == FrameKind.PING:
            if length != 8:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "a PING is 8 octets")
            if not flags & frames.ACK:
                self._answer(frames.header(8, FrameKind.PING, frames.ACK, 0) + payload)
        elif kind == FrameKind.RST_STREAM:
            with self.mutex:
                call = self._calls.get(number)
                if call is not None:
                    call.drop()
        elif kind in (FrameKind.PUSH_PROMISE, FrameKind.CONTINUATION):
            raise Http2Error(Code.PROTOCOL_ERROR, f"a frame of kind {kind} where none may be")
        self._whole()  # others (PRIORITY, GOAWAY, unknown ones) have no effect

    def _whole(self) -> None:
        """Send control frames after a complete frame, as long as that takes."""
        self._begun = None
        self.settle()

    def _need(self, octets: int) -> None:
        while self._stop - self._start < octets:
            if self._start:
                rest = self._stop - self._start
                self._buffer[:rest] = bytes(self._buffer[self._start : self._stop])
                self._start, self._stop = 0, rest
            got = self._wire.receive(self._buffer[self._stop :])
            if not got:
                raise EOFError
            self._stop += got

    def _take(self, octets: int) -> memoryview:
        self._need(octets)
        taken = self._buffer[self._start : self._start + octets]
        self._start += octets
        return taken

    def _data(self, length: int, flags: int, number: int) -> None:
        if length > FRAME_BYTES:
            raise Http2Error(Code.FRAME_SIZE_ERROR, f"a DATA frame of {length} octets, at most {FRAME_BYTES} are taken")
        padding = 0
        with self.mutex:
            call = self._calls.get(number)
            if call is None and (number > self._last or number == 0):
                raise Http2Error(Code.PROTOCOL_ERROR, "DATA of a call that was not begun")
            self._window -= length
            if self._window < 0:
                raise Http2Error(Code.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
            if call is not None:
                call.counted(length)
        left = length
        if flags & frames.PADDED:
            padding = self._take(1)[0]
            left -= 1 + padding
            if left < 0:
                raise Http2Error(Code.PROTOCOL_ERROR, "more padding than frame")
        while left:
            left -= self._octets(call, left)
        self._take(padding)
        if call is not None and flags & frames.END_STREAM:
            with self.mutex:
                call.end()
        self._whole()

    def _octets(self, call: Call | None, most: int) -> int:
        held = self._stop - self._start
        with self.mutex:
            place = None if call is None else call.target()
        if place is not None and not held:
            got = self._wire.receive(place[:most])
            if not got:
                raise EOFError
        else:
            if not held:
                self._need(1)
            got = min(most, self._stop - self._start)
            if place is not None:
                got = min(got, len(place))
                place[:got] = self._take(got)
        with self.mutex:
            if call is None or call.finished or call.gone:
                if place is None:
                    self._take(got)
            elif place is not None:
                call.filled(got)
            else:
                call.feed(self._take(got))
        return got

    def _open(self, payload: bytes, flags: int, number: int) -> None:
        block = _unpadded(payload, flags)
        if flags & frames.PRIORITY:
            block = block[5:]
        while not flags & frames.END_HEADERS:
            length, kind, more, same = frames.parse_header(self._take(frames.HEADER_BYTES))
            if kind != FrameKind.CONTINUATION or same != number:
                raise Http2Error(Code.PROTOCOL_ERROR, "a header block without its CONTINUATION")
            if not length or len(block) + length > HEADER_BYTES:
                raise Http2Error(Code.ENHANCE_YOUR_CALM, f"a request has at most {HEADER_BYTES} bytes of headers")
            block += bytes(self._take(length))
            flags |= more & frames.END_HEADERS
        try:
            headers = dict(reversed(list(self._headers.decode(block, raw=True))))  # of repeated headers the first
        except hpack.HPACKError as error:
            raise Http2Error(Code.COMPRESSION_ERROR, f"{error!s:.200}") from None  # it may contain a stranger's bytes
        self._begun = None
        with self.mutex:
            trailing = self._calls.get(number)
            if trailing is not None:
                trailing.end()
                return
            if not number % 2 or number <= self._last:
                if number and number <= self._last:
                    return  # the trailers of a finished call
                raise Http2Error(Code.PROTOCOL_ERROR, "a call with a number that is not a client's")
            self._last = number
            refused = self.closing or len(self._calls) >= CALLS
            path = headers.get(b":path", b"").decode(errors="replace")
            authorization = headers.get(b"authorization")
            credentials = None if authorization is None else authorization.decode("latin-1")
            client = headers.get(CLIENT_HEADER, b"flight").decode("latin-1")[:MAX_CLIENT]
            call = Call(self, number, path, CallHeaders(credentials, client), self._first_out_window)
            if flags & frames.END_STREAM:
                call.end()
            if not refused:
                self._calls[number] = call
        if refused:  # a peer cannot run more calls by dropping them
            self._answer(frames.number(FrameKind.RST_STREAM, number, Code.REFUSED_STREAM))
        else:
            self._host.begin(call)

    def _window_grows(self, payload: bytes, number: int) -> None:
        grown = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if len(payload) != 4 or not grown:
            raise Http2Error(Code.PROTOCOL_ERROR, "a window that grows by nothing")
        with self.mutex:
            if number == 0:
                self._out_window += grown
                most = self._out_window
                for call in self._calls.values():
                    call.sendable.notify_all()
            else:
                grown_call = self._calls.get(number)
                if grown_call is None:
                    return
                grown_call.out_window += grown
                most = grown_call.out_window
                grown_call.sendable.notify_all()
        if most > frames.LARGEST_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")

    def _settings(self, payload: bytes, flags: int) -> None:
        if flags & frames.ACK:
            return
        with self.mutex:
            for name, value in frames.parse_settings(payload):
                if name == Setting.INITIAL_WINDOW_SIZE:
                    if value > frames.LARGEST_WINDOW:
                        raise Http2Error(Code.FLOW_CONTROL_ERROR, "a window beyond 2^31-1")
                    for call in self._calls.values():
                        call.out_window += value - self._first_out_window
                        call.sendable.notify_all()
                    self._first_out_window = value
                elif name == Setting.MAX_FRAME_SIZE:
                    if not frames.LEAST_FRAME <= value < 1 << 24:
                        raise Http2Error(Code.PROTOCOL_ERROR, "a largest frame that may not be")
                    self._frame = min(value, SEND_BYTES)
        self._answer(frames.header(0, FrameKind.SETTINGS, frames.ACK, 0))

    # --- writing

    def send(self, call: Call, begin: bytes, pieces: Sequence[Octets], length: int) -> None:
        """Send one message of a call, in frames, as both windows allow. Raises CallGone."""
        cut = _Cutter(pieces)
        while length:
            with self.mutex:
                while not call.gone and not self._dead and min(call.out_window, self._out_window) <= 0:
                    if begin:
                        break
                    call.sendable.wait()
                if call.gone or self._dead:
                    raise CallGone
                some = max(0, min(length, call.out_window, self._out_window, SEND_BYTES))
                call.out_window -= some
                self._out_window -= some
                frame = self._frame
            data: list[Octets] = [begin] if begin else []
            begin = b""
            length -= some
            while some:
                size = min(some, frame)
                data.append(frames.header(size, FrameKind.DATA, 0, call.number))
                data += cut.take(size)
                some -= size
            self._write(data)

    def say(self, data: bytes) -> None:
        """Send frames that need no window."""
        with contextlib.suppress(CallGone):
            self._write([data])

    def control(self, data: bytes) -> None:
        """Let frames leave with the next write, or at `settle`. The caller holds the mutex."""
        self._waiting += data

    def _answer(self, data: bytes) -> None:
        """Too many unread replies end the connection."""
        with self.mutex:
            if len(self._waiting) > CONTROL_BYTES:
                raise Http2Error(Code.ENHANCE_YOUR_CALM, "the peer does not read the replies that it causes")
            self.control(data)

    def settle(self) -> None:
        """Send the control frames unless another thread sends, and renew the connection's window. The caller does not hold the
        mutex."""
        with self.mutex:
            self._renew()
        while self._waiting and self._sending.acquire(blocking=False):
            try:
                self._flush([])
            except OSError:
                self.abort()
                return
            finally:
                self._sending.release()

    def _renew(self) -> None:
        placed = unplaced = 0
        for call in self._calls.values():
            placed += call.expected
            unplaced += call.unplaced
        wanted = placed + max(0, frames.FIRST_WINDOW - unplaced)
        if wanted - self._window >= frames.FIRST_WINDOW // 2:
            self._waiting += frames.number(FrameKind.WINDOW_UPDATE, 0, wanted - self._window)
            self._window = wanted

    def _write(self, data: list[Octets]) -> None:
        try:
            with self._sending:
                self._flush(data)
        except OSError:
            self.abort()
            raise CallGone from None
        self.settle()

    def _flush(self, data: list[Octets]) -> None:
        if self._dead:
            raise OSError("the connection is over")
        with self.mutex:
            control, self._waiting = self._waiting, bytearray()
        self._wire.send([memoryview(control), *data])

    # --- for the plane

    def trust(self, user: str) -> None:
        """Raises ResourceLimit beyond the user's limits, CallGone if the connection has ended."""
        if self.user is None:
            self._host.trust(self, user)
        self._host.count(user)

    @property
    def running(self) -> list[str]:
        with self.mutex:
            return [call.path for call in self._calls.values()]

    def forget(self, call: Call) -> None:
        with self.mutex:
            self._calls.pop(call.number, None)
        self.settle()

    def look(self, now: float, login_timeout: float, message_timeout: float, least_rate: int) -> str | None:
        """Return the reason to end this connection, if any."""
        if self.user is None:
            return "no login in time" if now - self.since > login_timeout else None
        begun = self._begun  # also of a finished call, whose memory is held until its bytes have come
        if begun is not None and now - begun > message_timeout + FRAME_BYTES / least_rate:
            return "a frame stands still"
        with self.mutex:
            for call in self._calls.values():
                if call.is_late(now, message_timeout, least_rate):
                    return f"a message stands still, {call.expected} octets of it are missing"
        return None

    def abort(self) -> None:
        self._dead = True
        self._host.shut(self)
        with self.mutex:
            for call in self._calls.values():
                call.drop()

    def _farewell(self, code: Code, reason: str) -> None:
        if self._sending.acquire(timeout=1):
            try:
                with contextlib.suppress(OSError):
                    self._flush([frames.goaway(self._last, code, reason)])
            finally:
                self._sending.release()

    def go_away(self) -> None:
        self.closing = True
        self.say(frames.goaway(self._last, Code.NO_ERROR, "the broker stops"))


class _Cutter:
    """Pieces of a message, cut into frames without a copy."""

    def __init__(self, pieces: Sequence[Octets]) -> None:
        self._pieces = [memoryview(piece) for piece in pieces if len(piece)]
        self._index = self._at = 0

    def take(self, octets: int) -> list[Octets]:
        taken: list[Octets] = []
        while octets:
            piece = self._pieces[self._index]
            some = min(octets, len(piece) - self._at)
            taken.append(piece[self._at : self._at + some])
            octets -= some
            self._at += some
            if self._at == len(piece):
                self._index, self._at = self._index + 1, 0
        return taken


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(Code.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]

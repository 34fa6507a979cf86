"""A real plane over a real socket, in the process of the test, and clients that say exactly what a test wants said.

`Stage` is a broker with its plane; `Script` a client that sends performatives as they are written and reads frame by frame, each of
which must be the one that is expected next; `Client` one whose protocol our own library keeps, for generated histories. Every wait
ends with what is waited for, or fails after `PATIENCE_S`.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from broker_core.amqp import Connection, Message, Role, Settings, decode_message, events
from broker_core.amqp.composites import Composite
from broker_core.amqp.errors import RemoteProtocolError
from broker_core.amqp.frames import AMQP_FRAME, encode_frame, parse_frame, protocol_header
from broker_core.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Header,
    Open,
    Source,
    Target,
    Transfer,
)
from broker_core.amqp.types import Symbol
from broker_core.amqp_plane import AmqpPlane
from broker_core.config import Settings as BrokerSettings
from broker_core.engine import commands as c
from broker_core.engine.states import State
from broker_core.journal import Disk
from broker_core.security import Access
from broker_core.service import BrokerService

from ..amqp.wire import show

PATIENCE_S = 20.0  # for what must come, on the slowest machine
HEADER_OCTETS = 8
MANY = 1 << 30

Some = TypeVar("Some", bound=Composite)


class Stage:
    """A broker and its AMQP plane; `lines` is the transcript of all that happens on it."""

    def __init__(self, folder: Path, *, disk: Disk | None = None, access: Access | None = None, **settings: Any) -> None:
        self.lines: list[str] = []
        self.settings = BrokerSettings(data=folder / "data", **settings)
        self.service = BrokerService(self.settings, disk=disk)
        self.access = access or Access(folder / "users.json")
        self.plane = AmqpPlane(
            self.service, self.settings.amqp_listeners, access=self.access, tls_context=None, flight=("grpc", 8815)
        )
        host, _, port = self.plane.urls[0].partition("://")[2].rpartition(":")
        self.address = (host, int(port))
        self._clients: list[Script | Client] = []

    def close(self) -> None:
        for client in self._clients:
            client.drop(quietly=True)
        self.plane.close()
        self.service.close()

    # --- what the broker is told beside AMQP

    def note(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def declare(self, *queues: str) -> None:
        for queue in queues:
            self.service.submit(c.DeclareQueue(queue))

    def delete(self, queue: str) -> None:
        self.lines.append(f"!  the queue {queue!r} is deleted")
        self.service.submit(c.DeleteQueue(queue, force=True))

    # --- what it says

    def counts(self, queue: str) -> dict[str, int]:
        """Messages by state."""
        with self.service.turn():
            counts = list(self.service.state.queues[queue].counts)
        return {state.name.lower(): counts[state] for state in State if counts[state]}

    def messages(self, queue: str) -> list[tuple[int, int]]:
        """(sequence number, failed attempts) of what is not settled."""
        found = []
        with self.service.turn():
            for block in self.service.state.queues[queue].blocks.values():
                for row in range(block.filled):
                    if block.state[row] != State.ARCHIVED:
                        attempts = block.attempts.get(slice(row, row + 1))
                        found.append((block.base + row, int(attempts if isinstance(attempts, int) else attempts[0])))
        return found

    def show(self, *queues: str) -> None:
        """The queues' counts, in the transcript."""
        self.settle()
        for queue in queues:
            said = ", ".join(f"{count} {name}" for name, count in self.counts(queue).items())
            self.lines.append(f"=  {queue}: {said or 'empty'}")

    def settle(self) -> None:
        """Until the plane has done all that it knows of, its effects included."""
        turns, done = self.plane.turns, threading.Event()

        def look() -> None:
            busy = turns._scheduled or turns._effects or turns._ready or turns._notified or turns._woken
            if busy:
                self.plane._loop.call_later(0.001, look)
            else:
                done.set()

        self.plane.call(look)
        assert done.wait(PATIENCE_S), "the plane does not come to rest"

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Until something is so that nobody tells us of."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.002)

    # --- clients

    def script(self, name: str = "", **fields: Any) -> Script:
        """A client that is connected, and has opened unless told otherwise."""
        script = Script(self, name)
        self._clients.append(script)
        if fields.pop("open", True):
            script.open(**fields)
        return script

    def client(self, container: str, **settings: Any) -> Client:
        client = Client(self, container, **settings)
        self._clients.append(client)
        return client


@contextlib.contextmanager
def stage(folder: Path, **settings: Any) -> Iterator[Stage]:
    made = Stage(folder, **settings)
    try:
        yield made
    finally:
        made.close()


class Script:
    """A client by hand. `send` says, `expect` hears; whatever comes besides is a failure."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self._name = f"{name} " if name else ""
        self._socket = socket.create_connection(stage.address, PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.frame_size = 65536
        self._sent: dict[int, int] = {}  # transfers, by our channel; the broker's are the same in these tests
        self._heard: dict[int, int] = {}

    # --- octets

    def _line(self, arrow: str, text: str) -> None:
        self.stage.lines.append(f"{self._name}{arrow} {text}")

    def say(self, text: str, *octets: bytes) -> None:
        """Octets as they are."""
        self._line("->", text)
        self._socket.sendall(b"".join(octets))

    def send(self, *bodies: Composite | tuple[Composite, bytes] | None, channel: int = 0) -> None:
        """Frames in one write; a transfer stands with its payload."""
        out = []
        for body in bodies:
            performative, payload = body if isinstance(body, tuple) else (body, b"")
            if isinstance(performative, Transfer):
                self._sent[channel] = self._sent.get(channel, 0) + 1
            if isinstance(performative, Flow):
                performative.next_outgoing_id = self._sent.get(channel, 0)
                performative.next_incoming_id = self._heard.get(channel, 0)
            octets = b"" if performative is None else performative.encode()
            out.append(encode_frame(channel, octets, payload))
            self._line("->", f"[{channel}] {shown(performative, payload)}")
        self._socket.sendall(b"".join(out))

    def _fill(self, size: int) -> bool:
        while len(self._buffer) < size:
            data = self._socket.recv(1 << 16)
            if not data:
                return False
            self._buffer += data
        return True

    def _frame(self) -> tuple[int, Composite, bytes] | None:
        """Channel, performative, payload; None at the end of the stream."""
        while True:
            if not self._fill(HEADER_OCTETS):
                return None
            size = int.from_bytes(self._buffer[:4], "big")
            if not self._fill(size):
                return None
            octets, self._buffer = self._buffer[:size], self._buffer[size:]
            assert size <= self.frame_size, f"a frame of {size} octets"
            frame = parse_frame(octets, 0, size, AMQP_FRAME)
            if isinstance(frame.performative, Transfer):
                self._heard[frame.channel] = self._heard.get(frame.channel, 0) + 1
            if frame.performative is not None:
                self._line("<-", f"[{frame.channel}] {shown(frame.performative, frame.payload)}")
                return frame.channel, frame.performative, frame.payload

    def expect(self, kind: type[Some], channel: int | None = None, **fields: Any) -> Some:
        """The next frame, which must be one of this kind with these fields."""
        frame = self._frame()
        assert frame is not None, f"the end of the stream instead of {kind.__name__}"
        found, body, _ = frame
        assert isinstance(body, kind), f"{kind.__name__} expected, got {show(body)}"
        assert channel is None or found == channel
        for name, value in fields.items():
            assert getattr(body, name) == value, f"{name} is {show(getattr(body, name))}, not {show(value)}"
        return body

    def expect_message(self, **fields: Any) -> bytes:
        """The next delivery, of as many transfers as it takes: its payload."""
        payload = b""
        while True:
            frame = self._frame()
            assert frame is not None, "the end of the stream instead of a transfer"
            body, part = frame[1:]
            assert isinstance(body, Transfer), f"a transfer expected, got {show(body)}"
            for name, value in fields.items():
                assert getattr(body, name) == value
            fields = {}
            payload += part
            if not body.more:
                return payload

    def expect_messages(self, *bodies: bytes) -> None:
        """Deliveries with these bodies, in this order."""
        for body in bodies:
            message = decode_message(self.expect_message())
            assert message.data == [body], f"{message.data} instead of {body!r}"

    def expect_end(self) -> None:
        """The end of the stream, and nothing before it."""
        frame = self._frame()
        assert frame is None, f"{show(frame[1])} instead of the end of the stream"
        self._line("<-", "end of stream")

    def nothing(self, channel: int = 0) -> None:
        """Nothing more comes: all that was sent has been read and carried out, and the answer to an echo is all there is."""
        for _ in range(2):
            count = len(self.stage.lines)
            self.send(Flow(next_incoming_id=0, incoming_window=MANY, next_outgoing_id=0, outgoing_window=MANY, echo=True))
            self.expect(Flow, channel, handle=None)
            del self.stage.lines[count:]
            self.stage.settle()
        self._line("<-", "nothing")

    def drop(self, *, quietly: bool = False) -> None:
        """The connection is lost."""
        if not quietly:
            self._line("--", "the connection is lost")
        self._socket.close()

    # --- the usual beginnings

    def open(self, **fields: Any) -> Open:
        self.say("header AMQP 0.1.0.0", protocol_header(0))
        self.send(Open(**{"container_id": "client", **fields}))
        self.hear_header()
        return self.expect(Open)

    def hear_header(self) -> None:
        assert self._fill(HEADER_OCTETS)
        octets, self._buffer = self._buffer[:HEADER_OCTETS], self._buffer[HEADER_OCTETS:]
        self._line("<-", f"header AMQP {'.'.join(map(str, octets[4:]))}")

    def begin(self, channel: int = 0, **fields: Any) -> Begin:
        self.send(begin(**fields), channel=channel)
        return self.expect(Begin, channel, remote_channel=channel)

    def sender(self, queue: str = "q", handle: int = 0, **fields: Any) -> Attach:
        """We send: attached, and the first credit has come."""
        self.send(sends(queue, handle, **fields))
        answer = self.expect(Attach, role=RECEIVER)
        self.expect(Flow)
        return answer

    def receiver(self, queue: str = "q", handle: int = 0, credit: int = 0, **fields: Any) -> Attach:
        """We receive: attached, with this much credit given."""
        self.send(receives(queue, handle, **fields))
        answer = self.expect(Attach, role=SENDER)
        if credit:
            self.send(flow(handle, credit))
        return answer

    def usual(self) -> Script:
        self.begin()
        return self


# ---- frames as tests mean them


def begin(**fields: Any) -> Begin:
    return Begin(**{"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000, **fields})


def sends(queue: str | None = "q", handle: int = 0, **fields: Any) -> Attach:
    usual: dict[str, Any] = {"name": f"to {queue}", "source": Source(address="here"), "target": Target(address=queue)}
    return Attach(**{"handle": handle, "role": SENDER, "initial_delivery_count": 0, **usual, **fields})


def receives(queue: str | None = "q", handle: int = 0, **fields: Any) -> Attach:
    usual: dict[str, Any] = {"name": f"from {queue}", "source": Source(address=queue), "target": Target(address="here")}
    return Attach(**{"handle": handle, "role": RECEIVER, **usual, **fields})


def flow(handle: int | None, credit: int | None = None, count: int = 0, **fields: Any) -> Flow:
    usual = {"next_incoming_id": 0, "incoming_window": 1000, "next_outgoing_id": 0, "outgoing_window": 1000}
    link = {} if handle is None else {"handle": handle, "delivery_count": count, "link_credit": credit}
    return Flow(**{**usual, **link, **fields})


def transfer(number: int, payload: bytes | None = None, handle: int = 0, **fields: Any) -> tuple[Transfer, bytes]:
    """One delivery in one frame: `payload` is by default a message whose body is m0, m1 …"""
    usual = {"handle": handle, "delivery_id": number, "delivery_tag": b"t%d" % number, "message_format": 0}
    return Transfer(**{**usual, **fields}), message(b"m%d" % number) if payload is None else payload


def more(payload: bytes, handle: int = 0, **fields: Any) -> tuple[Transfer, bytes]:
    """A further frame of a delivery."""
    return Transfer(handle=handle, **fields), payload


def message(body: bytes, **sections: Any) -> bytes:
    return Message(data=[body], **sections).encode()


def says(state: Any, first: int, last: int | None = None, *, settled: bool = True) -> Disposition:
    """A receiver's disposition."""
    return Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=state)


def detach(handle: int = 0, *, closed: bool = True) -> Detach:
    return Detach(handle=handle, closed=closed)


# ---- frames as people read them

_LONG = 64  # octets of a body that are shown


def shown(body: Composite | None, payload: bytes = b"") -> str:
    if isinstance(body, Open):
        body = _steady(body)
    text = "(empty)" if body is None else show(body)
    return f"{text} + {_message(payload)}" if payload else text


def _steady(body: Open) -> Open:
    """Without what differs from broker to broker."""
    names = {"version": "VERSION", "flight-token": "TOKEN"}
    properties = {key: names.get(str(key), value) for key, value in (body.properties or {}).items()}
    container = "BROKER" if body.container_id.startswith("penstock-") else body.container_id
    fields = {item.attribute: getattr(body, item.attribute) for item in body.FIELDS}
    return Open(**{**fields, "container_id": container, "properties": properties or None})


def _message(payload: bytes) -> str:
    try:
        found = decode_message(payload)
    except RemoteProtocolError:
        return f"{len(payload)} octets"
    parts = []
    header = found.header
    if header is not None:
        parts.append(show(header))
    for name in ("delivery_annotations", "message_annotations", "application_properties", "footer"):
        value = getattr(found, name)
        if value is not None:
            parts.append(f"{name.replace('_', '-')}={show(value)}")
    if found.properties is not None:
        parts.append(show(found.properties))
    for data in found.data:
        parts.append(show(data) if len(data) <= _LONG else f"{len(data)} octets of data")
    if found.has_value:
        parts.append(f"value={show(found.value)}")
    return " ".join(parts) or "an empty message"


def header_of(payload: bytes) -> Header:
    header = decode_message(payload).header
    return Header() if header is None else header


def annotations_of(payload: bytes) -> dict[str, Any]:
    return {str(key): value for key, value in (decode_message(payload).message_annotations or {}).items()}


# ---- a client whose protocol is kept by our library


class Client:
    """`pump` moves octets and hands every event to `on_event`; links are the library's."""

    def __init__(self, stage: Stage, container: str, *, receive_buffer: int | None = None, **settings: Any) -> None:
        self.stage = stage
        self.connection = Connection(Role.CLIENT, Settings(container_id=container, **settings))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(stage.address)
        self._socket.setblocking(False)
        self.gone = False
        self.reads = True
        self.on_event: Callable[[Any], None] = lambda event: None
        self._names = itertools.count()
        self.connection.open()
        self.until(lambda: self.connection.remote_open is not None, "the broker's open")

    def pump(self, wait_s: float = 0.0) -> bool:
        """Write what is to be written, read what has come; whether something has."""
        if self.gone:
            return False
        data = self.connection.data_to_send()
        while data:
            select.select([], [self._socket], [], PATIENCE_S)
            data = data[self._socket.send(data) :]
        if not self.reads or not select.select([self._socket], [], [], wait_s)[0]:
            return False
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionError:
            data = b""
        if not data:
            self.gone = True
            found = self.connection.receive_eof()
        else:
            found = self.connection.receive_data(data)
        for event in found:
            self.on_event(event)
        return True

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            self.pump(0.0)
            if condition():
                return
            assert time.monotonic() < end and not self.gone, f"waited in vain: {what}"
            self.pump(0.05)

    def drop(self, *, quietly: bool = False) -> None:
        self.gone = True
        self._socket.close()


def attached(event: Any) -> bool:
    return isinstance(event, events.Attached)


def symbol(text: str) -> Symbol:
    return Symbol(text)

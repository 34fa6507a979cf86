"""A real plane over a real socket, in the process of the test, and clients that send exactly the frames of the test.

`Stage` is a broker with its plane. `Script` is a client that sends performatives as written, and reads frame by frame: each must
be the expected one. Every wait ends with its condition, or fails after `PATIENCE_S`.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from penstock.broker_core.amqp import decode_message
from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.frames import AMQP_FRAME, encode_frame, parse_frame, protocol_header
from penstock.broker_core.amqp.performatives import RECEIVER, SENDER, Attach, Begin, Flow, Open, Transfer
from penstock.broker_core.amqp_plane import AmqpPlane
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.errors import ResourceLimit
from penstock.broker_core.journal import Disk
from penstock.broker_core.security import Access
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings as BrokerSettings

from .. import waiting
from ..amqp.wire import show
from ..journal.lying_disk import LyingDisk
from ..service.helpers import Clock, enqueue
from .frames import begin, flow, receives, sends, shown
from .library_client import PATIENCE_S, Client

HEADER_OCTETS = 8
MADE_UP = re.compile("temp:[0-9a-f]{24}")
ID_OF_TRANSACTION = re.compile(r"b'(\d+)-[0-9a-f]{16}'")
ID_IN_A_TEXT = re.compile("(?<=has no transaction )[0-9a-f]{36,}")
MANY = 1 << 30

Some = TypeVar("Some", bound=Composite)


class Stage:
    """A broker and its AMQP plane; `lines` is the transcript."""

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk | None = None,
        access: Access | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.lines: list[str] = []
        self._names: dict[str, int] = {}  # generated ones
        self.settings = BrokerSettings(data=folder / "data", **settings)
        self.disk = disk
        self.clock = clock
        self.service = BrokerService(self.settings, disk=disk, clock=clock)
        self.access = access or Access(folder / "users.json")
        self.plane = AmqpPlane(
            self.service, self.settings.amqp_listeners, access=self.access, tls_context=None, flight=("grpc", 8815)
        )
        host, _, port = self.plane.urls[0].partition("://")[2].rpartition(":")
        self.address = (host, int(port))
        self._clients: list[Script | Client] = []
        self._stopping: threading.Thread | None = None

    def close(self) -> None:
        for client in self._clients:
            client.drop(quietly=True)
        if self._stopping is not None:
            self._stopping.join()
        self.plane.close()
        self.service.close()

    def stop(self) -> None:
        """Begin to stop the plane."""
        self._stopping = threading.Thread(target=self.plane.close)
        self._stopping.start()

    # --- events outside of AMQP

    def note(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def declare(self, *queues: str, type: str = "fifo", **options: Any) -> None:
        for queue in queues:
            self.service.submit(c.DeclareQueue(queue, type, options))

    def exchange(self, name: str, kind: str = "topic", **options: Any) -> None:
        self.service.submit(c.DeclareExchange(name, kind, {"unroutable": "drop", **options}))

    def delete(self, queue: str) -> None:
        self.lines.append(f"!  the queue {queue!r} is deleted")
        self.service.submit(c.DeleteQueue(queue, force=True))

    def pass_time(self, seconds: float) -> None:
        """Advance the broker's clock, which stands still otherwise. For a stage with a `clock`."""
        assert self.clock is not None
        self.clock.advance(seconds)
        self.service.submit(c.Tick())
        self.lines.append(f"!  {seconds:g} s pass")

    def slow_disk(self) -> None:
        """Let no record become durable until `quick_disk`. The journal has measured that its disk is slow."""
        disk = self.disk
        assert isinstance(disk, LyingDisk)

        def slowly(call: str, name: str) -> None:
            disk.time_s += 0.1 if call == "sync" else 0

        disk.fail = slowly  # type: ignore[assignment]
        self.declare(f"slow {len(self.lines)}")
        self.lines.append("!  the disk is slow: nothing becomes durable")
        gate = self._gate = threading.Event()

        def wait(call: str, name: str) -> None:
            if call == "sync":
                assert gate.wait(PATIENCE_S)

        disk.fail = wait  # type: ignore[assignment]

    def crowd(self, queue: str) -> None:
        """Fill the journal's buffer while the disk is slow."""
        self.lines.append("!  the journal's buffer is full")
        while self.service.has_space(1):
            self.service.submit_nowait(enqueue(queue, b"x" * (4 << 20)))

    def quick_disk(self) -> None:
        self.lines.append("!  the disk has it all")
        self._gate.set()

    def room(self, nbytes: int | None) -> None:
        """Set the free space of the disk, and wait until the broker has noticed."""
        assert isinstance(self.disk, LyingDisk)
        self.lines.append(f"!  the disk has {'room' if nbytes is None else f'{nbytes} bytes free'}")
        self.disk.room = nbytes

        def noticed() -> bool:
            try:
                return self.service.has_space(1) and nbytes is None
            except ResourceLimit:
                return nbytes is not None

        self.until(noticed, "the broker looks at its disk")

    # --- output of the broker

    def without_chance(self, text: str) -> str:
        """Replace generated names by numbers, and remove the random part of transaction ids."""
        text = MADE_UP.sub(lambda match: f"temp:{self._names.setdefault(match[0], len(self._names) + 1)}", text)
        text = ID_IN_A_TEXT.sub(lambda match: str(bytes.fromhex(match[0])), text)
        return ID_OF_TRANSACTION.sub(r"b'\1-RANDOM'", text)

    def nodes(self) -> None:
        """Show all queues and exchanges in the transcript."""
        self.settle()
        with self.service.turn() as turn:
            names = [*turn.state.queues, *(f"exchange {name}" for name in turn.state.exchanges.by_name)]
        self.lines.append(f"=  there are {self.without_chance(', '.join(names))}")

    def counts(self, queue: str) -> dict[str, int]:
        """Count the messages by state."""
        with self.service.turn():
            counts = list(self.service.state.queues[queue].counts)
        return {state.name.lower(): counts[state] for state in State if counts[state]}

    def messages(self, queue: str) -> list[tuple[int, int]]:
        """Return (sequence number, failed attempts) of each unsettled message."""
        pairs = []
        with self.service.turn():
            for block in self.service.state.queues[queue].blocks.values():
                for row in range(block.filled):
                    if block.state[row] != State.ARCHIVED:
                        attempts = block.attempts.get(slice(row, row + 1))
                        pairs.append((block.base + row, int(attempts if isinstance(attempts, int) else attempts[0])))
        return pairs

    def show(self, *queues: str) -> None:
        """Show the queues' counts in the transcript."""
        self.settle()
        for queue in queues:
            summary = ", ".join(f"{count} {name}" for name, count in self.counts(queue).items())
            self.lines.append(f"=  {queue}: {summary or 'empty'}")

    def settle(self) -> None:
        """Wait until the plane has done all its work, including effects."""
        passes, done = self.plane.commit_loop, threading.Event()

        def look() -> None:
            if passes.busy:
                self.plane._loop.call_later(0.001, look)
            else:
                done.set()

        self.plane.call(look)
        assert done.wait(PATIENCE_S), "the plane does not become idle"

    def until(self, condition: Callable[[], bool], description: str) -> None:
        """Wait for a condition that no event reports."""
        waiting.until(condition, description, limit_s=PATIENCE_S)

    # --- clients

    def script(self, name: str = "", **fields: Any) -> Script:
        """Return a connected client, which has opened unless `open` is False."""
        script = Script(self, name)
        self._clients.append(script)
        if fields.pop("open", True):
            script.open(**fields)
        return script

    def client(self, container: str, **settings: Any) -> Client:
        client = Client(self.address, container, **settings)
        self._clients.append(client)
        return client


Scenario = Callable[[Stage], None]


def staged(**settings: Any) -> Callable[[Scenario], Scenario]:
    """Set the settings, the disk and the clock (classes) of a scenario's broker."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.settings = settings  # type: ignore[attr-defined]
        return scenario

    return mark


@contextlib.contextmanager
def stage(folder: Path, **settings: Any) -> Iterator[Stage]:
    made = Stage(folder, **settings)
    try:
        yield made
    finally:
        made.close()


class Script:
    """A scripted client. `send` sends frames, and `expect` reads them; an unexpected frame is a failure."""

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
        self.stage.lines.append(f"{self._name}{arrow} {self.stage.without_chance(text)}")

    def say(self, text: str, *octets: bytes) -> None:
        """Send bytes unchanged."""
        self._line("->", text)
        self._socket.sendall(b"".join(octets))

    def send(self, *bodies: Composite | tuple[Composite, bytes] | None, channel: int = 0) -> None:
        """Send frames in one write. A transfer is a pair with its payload."""
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
        """Read channel, performative and payload; None at the end of the stream."""
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
        """Read the next frame, which must be of this kind with these fields."""
        frame = self._frame()
        assert frame is not None, f"the end of the stream instead of {kind.__name__}"
        actual, body, _ = frame
        assert isinstance(body, kind), f"{kind.__name__} expected, got {show(body)}"
        assert channel is None or actual == channel
        for name, value in fields.items():
            assert getattr(body, name) == value, f"{name} is {show(getattr(body, name))}, not {show(value)}"
        return body

    def read(self, count: int) -> list[Composite]:
        """Read the next frames, which may be of any kind; return their performatives."""
        frames = [frame for _ in range(count) if (frame := self._frame()) is not None]
        assert len(frames) == count, f"the end of the stream after {len(frames)} of {count} frames"
        return [body for _, body, _ in frames]

    def expect_message(self, **fields: Any) -> bytes:
        """Read all transfers of the next delivery; return its payload."""
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
        """Read deliveries with these bodies, in this order."""
        for body in bodies:
            message = decode_message(self.expect_message())
            assert message.data == [body], f"{message.data} instead of {body!r}"

    def expect_end(self) -> None:
        """Expect the end of the stream."""
        frame = self._frame()
        assert frame is None, f"{show(frame[1])} instead of the end of the stream"
        self._line("<-", "end of stream")

    def nothing(self, channel: int = 0) -> None:
        """Expect no frame except the answer to an echo, after the broker has processed all frames."""
        for _ in range(2):
            count = len(self.stage.lines)
            self.send(Flow(next_incoming_id=0, incoming_window=MANY, next_outgoing_id=0, outgoing_window=MANY, echo=True))
            self.expect(Flow, channel, handle=None)
            del self.stage.lines[count:]
            self.stage.settle()
        self._line("<-", "nothing")

    def drop(self, *, quietly: bool = False) -> None:
        """Lose the connection."""
        if not quietly:
            self._line("--", "the connection is lost")
        self._socket.close()

    # --- common beginnings

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
        """Attach a sender, and read its first credit."""
        self.send(sends(queue, handle, **fields))
        answer = self.expect(Attach, role=RECEIVER)
        self.expect(Flow)
        return answer

    def receiver(self, queue: str = "q", handle: int = 0, credit: int = 0, **fields: Any) -> Attach:
        """Attach a receiver, and grant credit."""
        self.send(receives(queue, handle, **fields))
        answer = self.expect(Attach, role=SENDER)
        if credit:
            self.send(flow(handle, credit))
        return answer

    def usual(self) -> Script:
        self.begin()
        return self

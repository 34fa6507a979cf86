"""W5, W6: peers that read slowly or never, or send no heartbeats: their output is bounded, and they are cut off."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Source, Target, events
from penstock.broker_core.amqp.frames import AMQP_ID, encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import Accepted, Close, Disposition, Flow, Open
from penstock.broker_core.amqp_plane.loop import transport

from ..service.helpers import enqueue
from .frames import begin, flow, message, receives, says, sends, transfer
from .harness import Stage, stage
from .test_fuzz_plane import MIB, Bystander

KIB = 1024


@contextlib.contextmanager
def patient(folder: Path, **settings: Any) -> Iterator[Stage]:
    """A plane in this process, with a bystander."""
    with stage(folder, fsync="never", **settings) as s:
        s.declare("q", "bystander")
        bystander = Bystander(s.plane.urls[0])
        bystander.start()
        bystander.served(0)
        before = bystander.rounds
        try:
            yield s
            bystander.served(before)
        finally:
            bystander.stop()
        assert bystander.failure is None


def test_a_peer_that_stops_beating_is_closed_and_what_it_held_is_back(tmp_path: Path) -> None:
    """A peer that sends only empty frames stays."""
    with patient(tmp_path, amqp_idle_timeout_s=1) as s:
        s.service.submit(enqueue("q", b"m0", b"m1", b"m2"))
        a, b = s.script("A", container_id="A").usual(), s.script("B", container_id="B").usual()
        assert s.plane.protocol.idle_time_out == 500
        a.receiver(credit=2)
        a.expect_messages(b"m0", b"m1")
        b.receiver(credit=1)
        b.expect_messages(b"m2")
        over = threading.Event()

        def beat() -> None:
            while not over.wait(0.1):
                b._socket.sendall(encode_frame(0, b""))

        beating = threading.Thread(target=beat)
        beating.start()
        close = a.expect(Close)
        assert close.error is not None
        assert close.error.condition == "amqp:resource-limit-exceeded"
        s.until(lambda: s.counts("q") == {"available": 2, "acquired": 1}, "its messages are back")
        over.set()
        beating.join()
        b.send(says(Accepted(), 0))
        b.nothing()
        assert s.counts("q") == {"available": 2, "archived": 1}


def test_a_close_that_is_not_answered_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CLOSE_TIMEOUT_S", 0.3)
    with patient(tmp_path, amqp_max_sessions=1) as s:
        a = s.script("A").usual()
        a.send(begin(), channel=1)
        a.expect(Close)
        a.expect_end()


SIZE = 100 * KIB
#: Of messages that are acquired for a peer that does not read: the content of its socket on both sides, and one quantum.
ON_THE_WAY = transport.WRITE_BUFFER + 8 * MIB


def test_a_receiver_that_never_reads_is_cut_off_and_slows_nobody(tmp_path: Path) -> None:
    """Its heartbeats continue. Its socket bounds the messages that are acquired for it, not its credit."""
    count = 200
    with patient(tmp_path, amqp_idle_timeout_s=2, amqp_max_unsettled=10_000) as s:
        for _ in range(count // 10):
            s.service.submit(enqueue("q", *[b"x" * SIZE] * 10))
        stuck = s.client("stuck", receive_buffer=4096, max_frame_size=1 << 20)
        session = stuck.connection.begin()
        link = session.receiver("never read")
        link.attach(source=Source(address="q"), target=Target())
        stuck.until(lambda: link.remote_attach is not None, "the answer to the attach")
        stuck.reads = False
        link.grant(count)
        over = threading.Event()

        def beat() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.1):
                    stuck._socket.send(encode_frame(0, b""))

        stuck.pump()
        beating = threading.Thread(target=beat)
        beating.start()
        s.until(lambda: stalled(s), "its socket is full")
        assert s.counts("q")["acquired"] * SIZE < ON_THE_WAY
        got = take(s, "brisk", 50)
        assert got == 50, "another client receives the rest"
        s.until(lambda: s.counts("q") == {"available": count - 50, "archived": 50}, "it is cut off, and its messages are back")
        over.set()
        beating.join()


def take(s: Stage, name: str, wanted: int) -> int:
    """Take and accept so many messages with another client."""
    client = s.client(name, max_frame_size=1 << 20)
    got: list[int] = []
    settled: list[int] = []

    def on_event(event: Any) -> None:
        if isinstance(event, events.Delivered):
            got.extend(d.id for d in event.deliveries)
            event.link.session.dispose(event.deliveries, Accepted(), settled=False)
        elif isinstance(event, events.Disposed):
            settled.extend(d.id for d in event.deliveries)

    client.on_event = on_event
    link = client.connection.begin().receiver(name)
    link.attach(source=Source(address="q"), target=Target(), rcv_settle_mode=1)
    link.grant(wanted)
    client.until(lambda: len(got) == wanted and len(settled) >= wanted, "the messages, and that they are settled")
    return len(got)


def blind(s: Stage, first: list[Any]) -> socket.socket:
    """Send frames after an open and a begin, and never read."""
    side = socket.socket()
    side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    side.connect(s.address)
    opening = [Open(container_id="blind"), begin(incoming_window=1 << 31, outgoing_window=1 << 31), *first]
    side.sendall(protocol_header(AMQP_ID) + b"".join(encode_frame(0, body.encode()) for body in opening))
    return side


def stalled(s: Stage) -> bool:
    return any(wire.stalled for wire in s.plane._accepted)


def cut_off(s: Stage, side: socket.socket) -> None:
    [wire] = [wire for wire in s.plane._accepted if wire.stalled]
    assert wire._transport is not None
    # All input of one read of its socket is answered.
    assert wire._transport.get_write_buffer_size() < 3 * transport.WRITE_BUFFER
    s.until(lambda: wire not in s.plane._accepted, "it is cut off")
    side.close()


def test_a_sender_that_never_reads_its_outcomes_is_cut_off(tmp_path: Path) -> None:
    """Its messages are refused, and the error texts accumulate. It respects its windows, as if it read them."""
    with patient(tmp_path, amqp_idle_timeout_s=2, amqp_credit=1000) as s:
        side = blind(s, [sends(name="blind")])
        links = s.plane.registry._attached
        s.until(lambda: any(key[3] == "blind" for key in links), "it is attached")
        [link] = [endpoint.link for key, endpoint in links.items() if key[3] == "blind"]
        start = 0
        while not stalled(s):
            assert start < 500_000, "nothing stops it"
            s.until(lambda: stalled(s) or link.link_credit >= 500, "it has credit")
            frames = [transfer(number, b"not a message") for number in range(start, start + 500)]
            side.sendall(b"".join(encode_frame(0, body.encode(), payload) for body, payload in frames))
            start += 500
            s.until(lambda: stalled(s) or link.delivery_count == start, "they have come")  # noqa: B023
        cut_off(s, side)
        assert s.counts("q") == {}


def test_a_peer_that_asks_for_echoes_and_reads_none_is_cut_off(tmp_path: Path) -> None:
    with patient(tmp_path, amqp_idle_timeout_s=2) as s:
        echo = Flow(next_incoming_id=0, incoming_window=1 << 31, next_outgoing_id=0, outgoing_window=1 << 31, echo=True)
        part, sent = encode_frame(0, echo.encode()) * 1000, 0
        side = blind(s, [])
        side.settimeout(0.1)
        while not stalled(s):
            assert sent < 400 * len(part), "nothing stops it"
            with contextlib.suppress(TimeoutError):
                sent += side.send(part[sent % len(part) :])
        cut_off(s, side)


def test_a_reader_that_was_only_slow_misses_nothing(tmp_path: Path) -> None:
    count = 200
    with patient(tmp_path, amqp_idle_timeout_s=60) as s:
        for _ in range(count // 10):
            s.service.submit(enqueue("q", *[b"x" * SIZE] * 10))
        slow = s.script("slow").usual()
        slow.frame_size = 1 << 20
        slow.send(receives(), flow(0, count))
        s.until(lambda: stalled(s), "its socket is full")
        sent = threading.Thread(target=_other_sender, args=(s,))
        sent.start()
        slow._frame()
        for _ in range(count):
            assert len(slow.expect_message()) > SIZE
        sent.join()


def _other_sender(s: Stage) -> None:
    sender = s.script("other", container_id="other").usual()
    sender.sender()
    sender.send(transfer(0, message(b"late")))
    sender.expect(Disposition, state=Accepted())

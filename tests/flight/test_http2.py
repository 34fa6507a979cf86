"""HTTP/2 by another implementation, and invalid HTTP/2: a peer can end only its own connection."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import InvalidRequest, ResourceLimit
from penstock.broker_core.flight_plane import arrow_ipc, frames, listener, protobuf, statuses
from penstock.broker_core.flight_plane.listener import FlightListener, ListenerLimits
from penstock.broker_core.flight_plane.server import SERVICE

from ..waiting import until
from .helpers import batch_of, numbered, send
from .octets import Raw, action, grpc_message, put
from .peers import Site
from .test_bad_clients import MIB, address, served

SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "0"))
ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))


@pytest.fixture
def peer(broker: Broker) -> Iterator[Raw]:
    opened = Raw(address(broker))
    yield opened
    opened.close()


def test_calls_interleave_and_messages_come_in_any_pieces(peer: Raw) -> None:
    first, second = peer.begin("DoAction"), peer.begin("DoAction")
    message = grpc_message(action("hello", b"{}"))
    for at in range(len(message)):
        for number in (second, first):
            peer.h2.send_data(number, message[at : at + 1], pad_length=at % 3 or None)
            peer.flush()
    for number in (first, second):
        peer.h2.end_stream(number)
    peer.flush()
    for number in (second, first):
        data, trailers = peer.answer(number)
        assert trailers["grpc-status"] == "0"
        assert json.loads(protobuf.parse("", data[5:])[1].tobytes())["version"] == 1


def test_long_headers_go_on_and_endless_ones_end_the_connection(broker: Broker, peer: Raw) -> None:
    many = [(f"x-{number}", "y" * 100) for number in range(60)]
    number = int(peer.h2.get_next_available_stream_id())
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", SERVICE + "Nothing")]
    peer.h2.send_headers(number, headers + many, end_stream=True)
    peer.flush()
    assert peer.answer(number)[1]["grpc-status"] == "12"
    with socket.create_connection(address(broker)) as flood, contextlib.suppress(OSError):
        flood.settimeout(30)
        flood.sendall(frames.PREFACE + frames.settings({}) + frames.header(1, frames.FrameKind.HEADERS, 0, 1) + b"\x82")
        for _ in range(100_000):
            flood.sendall(frames.header(1000, frames.FrameKind.CONTINUATION, 0, 1) + bytes(1000))
        pytest.fail("16 KiB of headers are enough")


def test_wrong_headers_are_not_in_the_log_at_length(broker: Broker) -> None:
    with socket.create_connection(address(broker)) as stranger:
        stranger.settimeout(30)
        block = b"\x00\x7f" + b"\xff" * 9998
        stranger.sendall(frames.PREFACE + frames.settings({}) + frames.header(len(block), frames.FrameKind.HEADERS, 4, 1) + block)
        received = b""
        while octets := stranger.recv(65536):
            received += octets
    reason = received[received.rindex(frames.Code.COMPRESSION_ERROR.to_bytes(4, "big")) + 4 :].decode()
    assert reason[:150] in broker.log()
    assert max(map(len, broker.log().splitlines())) < 1000


def test_pings_resets_and_windows(peer: Raw) -> None:
    peer.h2.ping(b"12345678")
    peer.flush()
    peer.receive_until(lambda event: isinstance(event, h2.events.PingAckReceived))
    for _ in range(300):  # calls that are begun and dropped immediately
        peer.h2.reset_stream(peer.begin("DoPut"), error_code=8)
        peer.flush()
    number = peer.begin("DoAction")
    peer.h2.send_data(number, grpc_message(action("hello", b"{}")), end_stream=True)
    peer.flush()
    with contextlib.suppress(h2.exceptions.StreamClosedError):
        assert peer.answer(number)[1]["grpc-status"] == "0"


def test_a_host_without_threads_costs_no_call_its_place(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a call that is refused for that as under way no more."""
    peer = Raw(("127.0.0.1", site.plane.port))
    start = threading.Thread.start

    def starved(thread: threading.Thread) -> None:
        if thread.name == "penstock-flight-call":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starved)
    for _ in range(3):
        assert peer.answer(peer.begin("DoAction"))[1]["grpc-status"] != "0"
    monkeypatch.undo()
    assert site.plane._listener._calls == 0
    peer.close()


def test_a_small_window_gets_its_answer_in_small_pieces(broker: Broker, client: Client, queue: str) -> None:
    send(client, queue, numbered(1000, 100))
    peer = Raw(address(broker))
    peer.h2.update_settings({4: 1000, 5: 16384})
    peer.flush()
    number = peer.begin("DoGet")
    ticket = json.dumps({"op": "browse", "queue": queue, "columns": ["body"]}).encode()
    peer.h2.send_data(number, grpc_message(protobuf.octets(1, ticket)), end_stream=True)
    peer.flush()
    got = 0
    while not any(isinstance(event, h2.events.StreamEnded) for event in peer.events):
        seen = len(peer.events)
        peer.receive_until(lambda event: True)
        for event in peer.events[seen:]:
            if isinstance(event, h2.events.DataReceived):
                got += len(event.data)
                assert len(event.data) <= 1000
                peer.h2.acknowledge_received_data(event.flow_controlled_length, number)
                peer.flush()
    assert got > 100_000
    peer.close()


def test_a_peer_that_sends_beyond_its_window_is_cut_off(peer: Raw) -> None:
    peer.socket.sendall(frames.header(MIB, frames.FrameKind.DATA, 0, peer.begin("DoPut")))
    received = b""
    while piece := peer.socket.recv(65536):
        received += piece
    assert b"more DATA than the connection's window" in received


def test_a_peer_that_does_not_read_for_a_while_is_not_cut_off_for_a_frame(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that have come whole stand not still: it is we who cannot answer."""
    ping, ack = (frames.header(8, frames.FrameKind.PING, flags, 0) + b"12345678" for flags in (0, frames.ACK))
    with contextlib.closing(Raw(("127.0.0.1", site.plane.port))) as peer:
        peer.h2.send_data(peer.begin("DoAction"), grpc_message(action("hello", b"{}")), end_stream=True)
        peer.flush()
        until(lambda: site.plane._listener.connected(), "a login succeeded")
        (connection,) = site.plane._listener.connected()
        for end in (peer.socket, site.plane._listener._sockets[connection]):
            for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, buffer, 1 << 14)
        peer.socket.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):  # the broker reads no more, since it cannot answer
            while True:
                sent += peer.socket.send((ping * 4096)[sent % len(ping) :])
        assert connection._sending.locked()
        with monkeypatch.context() as patched:
            patched.setattr(listener, "MESSAGE_TIMEOUT_S", 0.0)
            patched.setattr(listener, "LEAST_RATE", 1 << 40)
            time.sleep(4 * listener.TICK_S)
        assert not connection._dead
        peer.socket.settimeout(30)
        received = bytearray()
        while received.count(ack) < sent // len(ping):
            data = peer.socket.recv(MIB)
            assert data
            received += data


def test_random_frames_end_their_own_connection_at_most(broker: Broker, client: Client, queue: str) -> None:
    """Frames of every kind, header blocks among them, valid and not; the broker logs no mistake of its own."""
    for round_ in range(4 * ROUNDS):
        seed = SEED * 1000 + round_
        print("seed", seed)
        source = random.Random(seed)
        data = bytearray(frames.PREFACE + frames.settings({}))
        for _ in range(60):
            kind = source.choice([*frames.FrameKind, 77])
            payload = source.randbytes(source.choice([0, 4, 5, 8, 6, source.randrange(300)]))
            if kind == frames.FrameKind.HEADERS and source.random() < 0.8:
                payload = b"\x83\x86" + frames.header_block(
                    [(b":path", SERVICE.encode() + b"DoPut"), (b"x", source.randbytes(9))]
                )
            flags, number = source.choice([0, 1, 4, 5, 8, 0x2D, 255]), source.choice([0, 1, 3, 5, 7, source.randrange(2**31)])
            data += frames.header(len(payload), kind, flags, number) + payload
        with socket.create_connection(address(broker)) as wild, contextlib.suppress(OSError):
            wild.sendall(data)
            wild.shutdown(socket.SHUT_WR)
            wild.settimeout(30)
            while wild.recv(65536):
                pass
    assert served(client, queue)
    assert "Traceback" not in broker.log(), broker.log()[broker.log().index("Traceback") :][:3000]


def test_random_metadata_is_refused_or_read(queue: str) -> None:
    """The flatbuffer is parsed by hand: any bytes are a size or a named error."""
    _, batch = put(queue, batch_of(numbered(10)))
    metadata = bytes(protobuf.parse("", batch)[protobuf.DATA_HEADER])
    for seed in range(SEED * 1000, SEED * 1000 + 300 * ROUNDS):
        source = random.Random(seed)
        evil = bytearray(metadata)
        for _ in range(source.randint(1, 8)):
            evil[source.randrange(len(evil))] = source.choice([0, 1, 255, source.randrange(256)])
        with contextlib.suppress(struct.error, ValueError, IndexError, ResourceLimit, InvalidRequest):
            kind, _, body = arrow_ipc._inspect(bytes(evil)[: source.choice([len(evil), source.randrange(len(evil))])])
            assert isinstance(kind, int)
            assert len(body.buffers) <= arrow_ipc.MOST_BUFFERS


@pytest.mark.parametrize("calls", [9, 0], ids=["served", "refused"])
def test_a_listener_that_closes_ends_the_answers_that_it_has_begun(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """A call that is about to reply no longer counts. Its connection stays until the reply is sent. The same is true of a refused
    call."""
    begun, closed = threading.Event(), threading.Event()

    class Late(bytes):
        """Trailers that are ready when the listener closes, and wait until it is closed."""

        def __radd__(self, before: bytes) -> bytes:
            begun.set()
            closed.wait(0.2)
            return before + bytes(self)

    limits, late = ListenerLimits(9, 9, calls, 9, 30.0, MIB), Late(statuses.of(ResourceLimit("enough")))
    monkeypatch.setattr(statuses, "of", lambda error: late)
    listener = FlightListener("127.0.0.1", 0, limits, lambda call: late, None)
    peer = Raw(("127.0.0.1", listener.port))
    peer.begin("DoAction", end=True)
    assert begun.wait(30)
    listener_closes = threading.Thread(target=lambda: (listener.close(30.0), closed.set()))
    listener_closes.start()
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := peer.socket.recv(MIB):  # the library h2 takes nothing more after a GOAWAY
            got += data
    peer.close()
    listener_closes.join(30)
    assert closed.is_set()
    assert bytes(late) in got

"""What a stranger, and a user, can make the broker do with a few octets: its memory stays bounded, and who is silent is gone."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import numpy as np
import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from broker_core import Broker, errors
from broker_core.amqp import Message
from broker_core.amqp.messages import Properties
from broker_core.client import Client
from broker_core.flight_plane import arrow_ipc, frames, protobuf
from broker_core.flight_plane.budget import Budget
from broker_core.flight_plane.server import SERVICE
from broker_core.security import Right

from .helpers import BODY, Reader, batch_of, browse, descriptor, numbered, send
from .peers import Site, basic, translated
from .test_bad_clients import MIB, Sampled, address, served

SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "0"))
ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "3"))
GROWTH = 256 * MIB  # the most that bombs may cost


def action(name: str, body: bytes) -> bytes:
    return protobuf.octets(1, name.encode()) + protobuf.octets(2, body)


def as_it_is(data: bytes) -> bytes:
    return data


def call(channel: grpc.Channel, method: str, *messages: bytes, **options: Any) -> list[bytes]:
    """The answers of a call whose messages are these octets."""
    return list(channel.stream_stream(SERVICE + method, as_it_is, as_it_is)(iter(messages), **options))


def put(queue: str, batch: pa.RecordBatch, **options: Any) -> list[bytes]:
    """FlightData of one record batch, as a client sends it with these IPC options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    messages = []
    for found in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())):
        messages.append(protobuf.octets(protobuf.DATA_HEADER, found.metadata.to_pybytes()))
        if found.body is not None and found.body.size:
            messages[-1] += protobuf.octets(protobuf.DATA_BODY, found.body.to_pybytes())
    command = json.dumps({"op": "enqueue", "queue": queue}).encode()
    messages[0] = protobuf.octets(protobuf.FLIGHT_DESCRIPTOR, b"\x08\x02" + protobuf.octets(2, command)) + messages[0]
    return messages


@pytest.fixture(scope="module")
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel("{}:{}".format(*address(broker)), options=[("grpc.max_send_message_length", -1)]) as opened:
        yield opened


# --- bombs

ONE = pa.array([b"x" * MIB], pa.large_binary())


def said_again(rows: int) -> pa.RecordBatch:
    """A megabyte that is said so many times, by a dictionary."""
    return pa.record_batch({"body": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ONE)})


def views(rows: int) -> pa.RecordBatch:
    """The same, by views of one buffer."""
    slot = struct.pack("<i4sii", MIB, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(slot * rows), pa.py_buffer(b"x" * MIB)]
    return pa.record_batch({"body": pa.Array.from_buffers(pa.binary_view(), rows, buffers)})


def nothing(rows: int) -> pa.RecordBatch:
    """Empty messages, an octet each."""
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([b""]))
    return pa.record_batch({"body": one, "subject": pa.nulls(rows)})


BOMBS: dict[str, tuple[Callable[[], pa.RecordBatch], dict[str, Any], str]] = {
    "compressed": (lambda: batch_of([bytes(30 * MIB)] * 2), {"compression": "zstd"}, "compressed record batches are refused"),
    "lz4": (lambda: batch_of([bytes(30 * MIB)] * 2), {"compression": "lz4"}, "compressed record batches are refused"),
    "dictionary": (lambda: said_again(2000), {}, "once its columns have the types"),
    "views": (lambda: views(2000), {}, "once its columns have the types"),
    "rows": (lambda: nothing(5_000_000), {}, "a record batch has at most 1048576 rows, this one 5000000"),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
@pytest.mark.parametrize("bomb", BOMBS)
def test_what_expands_is_refused_before_it_does(
    broker: Broker, client: Client, channel: grpc.Channel, queue: str, bomb: str
) -> None:
    make, options, says = BOMBS[bomb]
    messages = put(queue, make(), **options)
    failures = []

    def throw() -> None:
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as refused:
                call(channel, "DoPut", *messages)
            failures.append(refused.value.details())

    with Sampled(broker) as memory:
        throwers = [threading.Thread(target=throw) for _ in range(4)]
        for each in throwers:
            each.start()
        for each in throwers:
            each.join()
    print(bomb, sum(map(len, messages)), "octets", memory.growth >> 20, "MiB")
    assert len(failures) == 8
    assert all(says in said for said in failures), failures[0]
    assert memory.growth < GROWTH
    assert client.call("queue.stat", queue=queue)["enqueued"] == 0
    assert served(client, queue)


def test_what_expands_within_the_limits_is_taken(client: Client, queue: str) -> None:
    for batch in (said_again(3), views(3)):
        assert client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])["messages"] == 3
    found = [len(row["body"]) for part in client.get(op="browse", queue=queue, columns=["body"]) for row in part.to_pylist()]
    assert found == [MIB] * 6


def test_buffers_that_overlap_are_refused(channel: grpc.Channel, queue: str) -> None:
    """One buffer as many columns: no octet is compressed, and yet a batch is a multiple of what came."""
    batch = pa.record_batch({"body": pa.array([b"x" * 100_000]), "subject": pa.array(["y" * 100_000])})
    messages = put(queue, batch)
    offsets = [struct.pack("<qq", *pair) for pair in _buffers(messages[1])]
    assert len(offsets) == 6
    evil = messages[1].replace(offsets[5], offsets[2])
    assert evil != messages[1]
    with pytest.raises(grpc.RpcError, match="its buffers overlap"):
        call(channel, "DoPut", messages[0], evil)
    assert len(call(channel, "DoPut", *messages)) == 1


def _buffers(message: bytes) -> list[tuple[int, int]]:
    return arrow_ipc._inspect(protobuf.parse("", message)[protobuf.DATA_HEADER])[2].buffers


@pytest.mark.parametrize("of", ["body", "length", "schema twice", "no schema"])
def test_messages_that_lie_about_themselves_are_refused(channel: grpc.Channel, queue: str, of: str) -> None:
    schema, batch = put(queue, batch_of(numbered(100)))
    evil = {
        "body": [schema, batch[:-8]],
        "length": [schema, protobuf.octets(protobuf.DATA_HEADER, bytes(protobuf.parse("", batch)[2])) + b"\xc2\x3e\x00"],
        "schema twice": [schema, schema],
        "no schema": [schema[: -len(protobuf.parse("", schema)[2]) - 3], batch],
    }[of]
    with pytest.raises(grpc.RpcError, match=r"malformed|no message of Arrow"):
        call(channel, "DoPut", *evil)


LARGE = Message(data=[bytes(MIB)], properties=Properties(subject="a"))
ODD = Message(data=[b""], application_properties={f"property {number}": "" for number in range(3000)})


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
@pytest.mark.parametrize(("message", "count", "growth"), [(LARGE, 120, 48 * MIB), (ODD, 200, 24 * MIB)], ids=["large", "odd"])
def test_a_selector_looks_at_messages_a_few_at_a_time(
    broker: Broker, client: Client, queue: str, message: Message, count: int, growth: int
) -> None:
    """Those that are large are not put together in memory, nor does what nobody asks for stay once it is decoded."""
    schema = pa.schema([pa.field("message", pa.binary())])
    one = pa.record_batch([pa.array([message.encode()])], schema=schema)
    client.put({"op": "enqueue", "queue": queue}, schema, [one] * count)
    with Sampled(broker) as memory:
        reader = Reader(client, queue)
        assert reader.advance(selector="JMSType = 'b' OR size = 3", messages=1) == reader.finished
        assert browse(client, queue, "subject", selector="JMSType = 'b' OR size = 3") == []
    print(memory.growth >> 20, "MiB")
    assert memory.growth < growth


def test_compressed_grpc_is_refused(broker: Broker, client: Client, queue: str) -> None:
    with (
        grpc.insecure_channel("{}:{}".format(*address(broker)), compression=grpc.Compression.Gzip) as channel,
        Sampled(broker) as memory,
        pytest.raises(grpc.RpcError, match="compressed gRPC messages are refused"),
    ):
        call(channel, "DoAction", action("hello", bytes(64 * MIB)))
    assert memory.growth < 16 * MIB
    assert served(client, queue)


def test_bombs_are_refused_through_tls(tmp_path: Path) -> None:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    ca.issue_cert("127.0.0.1").configure_cert(context)
    site = Site(tmp_path, lambda: context)
    try:
        trusted = grpc.ssl_channel_credentials(ca.cert_pem.bytes())
        where = f"127.0.0.1:{site.plane.port}"
        squeezing = grpc.secure_channel(where, trusted, compression=grpc.Compression.Gzip)
        with squeezing as channel, pytest.raises(grpc.RpcError, match="compressed gRPC messages are refused"):
            call(channel, "DoAction", action("hello", bytes(MIB)))
        peer = site.peer(tls_root_certs=ca.cert_pem.bytes())
        peer.call("queue.declare", queue="q")
        with grpc.secure_channel(where, trusted) as channel, pytest.raises(grpc.RpcError, match="once its columns"):
            call(channel, "DoPut", *put("q", said_again(2000)))
        large = [b"%d" % number * MIB for number in range(8)]
        peer.put(*large, op="enqueue", queue="q")
        assert [row["body"] for row in peer.get(op="browse", queue="q", columns=["body"])] == large
    finally:
        site.close()


def test_who_is_not_let_in_sends_no_more_than_a_window(site: Site) -> None:
    """The call is refused while the rest of its message is still at the sender."""
    site.user("alice", Right.SEND)
    site.service.submit(_declare("q"))
    sent = 0

    def messages() -> Iterator[bytes]:
        nonlocal sent
        for message in put("q", batch_of([b"x" * MIB] * 16)):
            sent += len(message)
            yield message

    with grpc.insecure_channel(f"127.0.0.1:{site.plane.port}") as channel:
        for method in ("DoPut", "DoAction", "DoGet"):
            with pytest.raises(grpc.RpcError, match="without a user nobody may"):
                call(channel, method, *messages())
    assert sent > 16 * MIB
    stranger = Raw(("127.0.0.1", site.plane.port))
    number = stranger.begin("DoPut", authorization=None)
    stranger.receive_until(lambda event: isinstance(event, h2.events.StreamEnded | h2.events.StreamReset))
    assert stranger.h2.outbound_flow_control_window == frames.FIRST_WINDOW, number
    assert not [event for event in stranger.events if isinstance(event, h2.events.WindowUpdated)]
    stranger.close()


def _declare(queue: str) -> Any:
    from broker_core.engine.commands import DeclareQueue

    return DeclareQueue(queue)


HOSTILE_JSON = {
    "deep": b"[" * 500_000,
    "nested": b'{"queue": ' + b"[" * 900 + b"]" * 900 + b"}",
    "number": b'{"queue": ' + b"9" * 500_000 + b"}",
    "octets": b"\xff",
    "infinite": b'{"queue": 1e999}',
}


@pytest.mark.parametrize("body", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_the_senders_fault(channel: grpc.Channel, body: bytes) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, "DoAction", action("queue.stat", body))
    details = dict(refused.value.trailing_metadata())
    assert json.loads(details["grpc-status-details-bin"])["code"] == "invalid"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_large_requests_are_read_one_after_another(broker: Broker, channel: grpc.Channel) -> None:
    """As values they take fifty times their octets."""
    body = b'{"queue":[' + b'{"a":1},' * 125_000 + b"1]}"

    def throw() -> None:
        with pytest.raises(grpc.RpcError, match="field 'queue' must be str, not a list"):
            call(channel, "DoAction", action("queue.stat", body))

    with Sampled(broker) as memory:
        throwers = [threading.Thread(target=throw) for _ in range(16)]
        for each in throwers:
            each.start()
        for each in throwers:
            each.join()
    print(memory.growth >> 20, "MiB")
    assert memory.growth < 160 * MIB


def test_no_traceback_reaches_a_client(channel: grpc.Channel, queue: str) -> None:
    """Column names and time zones that are no UTF-8, types nobody casts: each is named as what it is."""
    schema, batch = put(queue, pa.record_batch({"body": [b"x"], "subject": ["s"]}))
    for messages in ([schema.replace(b"subject", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9"), batch], [schema[:100], batch]):
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, "DoPut", *messages)
        assert "Traceback" not in str(refused.value.trailing_metadata())
        assert '"fault": "caller"' in str(refused.value.trailing_metadata())
    struct_array = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"a": 1}]))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([b"x"]))
    for column in (struct_array, runs, pa.array([[b"x"]]), pa.array([1.5])):
        with pytest.raises(grpc.RpcError, match="column 'body' has type"):
            call(channel, "DoPut", *put(queue, pa.record_batch({"body": column})))


def test_what_null_slots_hold_is_not_followed(client: Client, queue: str) -> None:
    """A view that is null and points anywhere passed Arrow's own validation, and the cast that followed it killed the broker."""
    slots = struct.pack("<i4sii", 5, b"hello", 0, 0)[:16] + struct.pack("<i4sii", 1 << 30, b"xxxx", 77, 1 << 30)
    subject = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(slots)], 1)
    batch = pa.record_batch({"body": pa.array([b"a", b"b"]), "subject": subject})
    assert client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])["messages"] == 2
    assert served(client, queue)


# --- connections


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Broker]:
    limits = {"flight_max_connections": 4, "flight_max_connections_per_user": 3, "flight_login_timeout_s": 1}
    with Broker(tmp_path / "data", fsync="never", amqp_port="off", **limits) as running:
        yield running


def test_silent_connections_are_gone_after_a_while_and_others_are_served(narrow: Broker) -> None:
    for data in (b"", frames.PREFACE, frames.PREFACE[:5], frames.PREFACE + frames.settings({})):
        silent = [socket.create_connection(address(narrow)) for _ in range(4)]
        for each in silent:
            each.sendall(data)
        beyond = socket.create_connection(address(narrow))
        beyond.settimeout(30)
        said = b"".join(iter(partial(beyond.recv, 1000), b""))
        assert b"4 connections are open, the limit" in said
        for each in silent:
            each.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                while each.recv(1000):
                    pass
        for each in [*silent, beyond]:
            each.close()
        with Client(narrow.url) as client:
            client.call("hello")


def test_a_user_has_a_limit_of_connections(narrow: Broker) -> None:
    clients = [Client(narrow.url) for _ in range(4)]
    for each in clients[:3]:
        each.call("hello")
    with pytest.raises(errors.ResourceLimit, match="flight_max_connections_per_user"):
        clients[3].call("hello")
    clients[0].close()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(errors.ResourceLimit):
            clients[3].call("hello")
            break
    for each in clients[1:]:
        each.call("hello")
        each.close()


@pytest.mark.parametrize("limit", ["flight_max_calls", "flight_max_calls_per_user"])
def test_calls_at_once_have_a_limit(tmp_path: Path, limit: str) -> None:
    options: dict[str, Any] = {limit: 2}
    with Broker(tmp_path / "data", fsync="never", amqp_port="off", **options) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        open_puts = []
        for _ in range(2):
            writer, reader = flight.connect(broker.url).do_put(descriptor(op="enqueue", queue="q"), BODY)
            writer.write_batch(batch_of([b"x"]))
            reader.read()
            open_puts.append(writer)
        with pytest.raises(errors.ResourceLimit, match=rf"\({limit}\)"):
            client.call("hello")
        open_puts[0].close()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(errors.ResourceLimit):
                client.call("hello")
                break
        assert client.call("queue.stat", queue="q")["enqueued"] == 2
        open_puts[1].close()


# --- memory that is shared


def test_many_senders_share_the_memory_and_all_are_served(tmp_path: Path) -> None:
    """Eight senders of batches of which two fit."""
    settings = {"flight_receive_bytes": 10 * MIB, "max_batch_bytes": 8 * MIB, "max_message_bytes": MIB}
    with Broker(tmp_path / "data", fsync="never", **settings) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")

        def work() -> None:
            with Client(broker.url) as mine:
                send(mine, "q", *[batch_of([b"x" * MIB] * 4)] * 6)

        senders = [threading.Thread(target=work) for _ in range(8)]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        assert client.call("queue.stat", queue="q")["enqueued"] == 8 * 6 * 4


def test_the_budget_keeps_its_line() -> None:
    budget, granted = Budget(10), []
    assert budget.take(6, lambda: granted.append("a"))
    wants: list[Callable[[], None]] = [lambda n=n: granted.append(n) for n in range(3)]  # type: ignore[misc]
    assert [budget.take(octets, want) for octets, want in zip((8, 1, 99), wants, strict=True)] == [False] * 3
    assert budget.leave(wants[0])
    assert granted == [1]
    assert not budget.leave(wants[1])
    budget.give(6)
    assert granted == [1]
    budget.give(1)
    assert granted == [1, 2], "who wants more than there is has all of it, alone"
    budget.give(99)
    assert budget.take(10, lambda: None), "all of it is back"
    assert not budget.take(1, lambda: None)


# --- HTTP/2, by another implementation


class Raw:
    """A client on the library h2: what a gRPC client never does."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.socket = socket.create_connection(where)
        self.socket.settimeout(30)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.events: list[Any] = []
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, method: str, authorization: str | None = None, *, end: bool = False) -> int:
        number = int(self.h2.get_next_available_stream_id())
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", SERVICE + method), ("te", "trailers")]
        headers += [("content-type", "application/grpc")]
        self.h2.send_headers(number, headers + ([("authorization", authorization)] if authorization else []), end_stream=end)
        self.flush()
        return number

    def receive_until(self, found: Callable[[Any], bool]) -> list[Any]:
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            new = self.h2.receive_data(data)
            self.events += new
            self.flush()
            if any(found(event) for event in new):
                return self.events

    def answer(self, number: int) -> tuple[bytes, dict[str, str]]:
        def ended(event: Any) -> bool:
            return isinstance(event, h2.events.StreamEnded) and event.stream_id == number

        if not any(ended(event) for event in self.events):
            self.receive_until(ended)
        mine = [event for event in self.events if getattr(event, "stream_id", None) == number]
        data = b"".join(event.data for event in mine if isinstance(event, h2.events.DataReceived))
        trailers = {}
        for event in mine:
            if isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                trailers.update(event.headers)
        return data, trailers

    def close(self) -> None:
        self.socket.close()


def grpc_message(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data


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
        flood.sendall(frames.PREFACE + frames.settings({}) + frames.header(1, frames.Kind.HEADERS, 0, 1) + b"\x82")
        for _ in range(100_000):
            flood.sendall(frames.header(1000, frames.Kind.CONTINUATION, 0, 1) + bytes(1000))
        pytest.fail("16 KiB of headers are enough")


def test_pings_resets_and_windows(peer: Raw) -> None:
    peer.h2.ping(b"12345678")
    peer.flush()
    peer.receive_until(lambda event: isinstance(event, h2.events.PingAckReceived))
    for _ in range(300):  # calls that are begun and dropped at once
        peer.h2.reset_stream(peer.begin("DoPut"), error_code=8)
        peer.flush()
    number = peer.begin("DoAction")
    peer.h2.send_data(number, grpc_message(action("hello", b"{}")), end_stream=True)
    peer.flush()
    with contextlib.suppress(h2.exceptions.StreamClosedError):
        assert peer.answer(number)[1]["grpc-status"] == "0"


def test_a_host_without_threads_costs_no_call_its_place(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is refused for that does not count as under way for ever."""
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
    peer.socket.sendall(frames.header(MIB, frames.Kind.DATA, 0, peer.begin("DoPut")))
    said = b""
    while piece := peer.socket.recv(65536):
        said += piece
    assert b"more DATA than the connection's window" in said


def test_random_frames_end_their_own_connection_at_most(broker: Broker, client: Client, queue: str) -> None:
    """Frames of every kind, header blocks among them, valid and not; the broker logs no mistake of its own."""
    for round_ in range(4 * ROUNDS):
        seed = SEED * 1000 + round_
        print("seed", seed)
        source = random.Random(seed)
        data = bytearray(frames.PREFACE + frames.settings({}))
        for _ in range(60):
            kind = source.choice([*frames.Kind, 77])
            payload = source.randbytes(source.choice([0, 4, 5, 8, 6, source.randrange(300)]))
            if kind == frames.Kind.HEADERS and source.random() < 0.8:
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
    """The flatbuffer is read by hand: whatever stands there, it is a size or a named error."""
    _, batch = put(queue, batch_of(numbered(10)))
    metadata = bytes(protobuf.parse("", batch)[protobuf.DATA_HEADER])
    for seed in range(SEED * 1000, SEED * 1000 + 300 * ROUNDS):
        source = random.Random(seed)
        evil = bytearray(metadata)
        for _ in range(source.randint(1, 8)):
            evil[source.randrange(len(evil))] = source.choice([0, 1, 255, source.randrange(256)])
        with contextlib.suppress(struct.error, ValueError, IndexError):
            kind, _, found = arrow_ipc._inspect(bytes(evil)[: source.choice([len(evil), source.randrange(len(evil))])])
            assert isinstance(kind, int)
            assert len(found.buffers) <= arrow_ipc.MOST_BUFFERS


def test_a_stopped_reader_ends_with_its_client(site: Site) -> None:
    """A call whose client is gone gives its thread and its memory back."""
    site.service.submit(_declare("q"))
    peer = site.peer(basic("a", "b"))
    writer, reader = peer.put_stream(op="enqueue", queue="q")
    writer.write_batch(batch_of([b"x" * MIB]))
    with translated():
        assert reader.read() is not None
    del writer, reader
    peer.connection.close()
    until = time.monotonic() + 30
    while site.plane._listener._calls and time.monotonic() < until:
        time.sleep(0.01)
    assert site.plane._listener._calls == 0
    assert site.plane._listener._budget._left == site.plane._listener._budget._total

"""Load that strangers and users can cause with a few bytes: memory stays bounded, and silent peers are disconnected."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
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

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.client.flight import Client
from penstock.broker_core.flight_plane import arrow_ipc, frames, listener, protobuf, statuses
from penstock.broker_core.flight_plane.budget import Budget
from penstock.broker_core.flight_plane.calls import Call, CallGone
from penstock.broker_core.flight_plane.listener import FlightListener, ListenerLimits
from penstock.broker_core.security import Right

from ..waiting import until
from .helpers import BODY, Reader, batch_of, browse, descriptor, numbered, send
from .octets import Raw, action, call, grpc_message, put
from .peers import Site, basic, translated
from .test_bad_clients import MIB, Sampled, address, served

GROWTH = 256 * MIB  # the most that bombs may cost


@pytest.fixture(scope="module")
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel("{}:{}".format(*address(broker)), options=[("grpc.max_send_message_length", -1)]) as opened:
        yield opened


# --- bombs

ONE = pa.array([b"x" * MIB], pa.large_binary())


def said_again(rows: int) -> pa.RecordBatch:
    """A megabyte that a dictionary repeats this many times."""
    return pa.record_batch({"body": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ONE)})


def views(rows: int) -> pa.RecordBatch:
    """Columns by views of one buffer."""
    slot = struct.pack("<i4sii", MIB, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(slot * rows), pa.py_buffer(b"x" * MIB)]
    return pa.record_batch({"body": pa.Array.from_buffers(pa.binary_view(), rows, buffers)})


def nothing(rows: int) -> pa.RecordBatch:
    """Empty messages, an octet each."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([b""]))
    return pa.record_batch({"body": column, "subject": pa.nulls(rows)})


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
        for thrower in throwers:
            thrower.start()
        for thrower in throwers:
            thrower.join()
    print(bomb, sum(map(len, messages)), "octets", memory.growth >> 20, "MiB")
    assert len(failures) == 8
    assert all(says in failure for failure in failures), failures[0]
    assert memory.growth < GROWTH
    assert client.call("queue.stat", queue=queue)["enqueued"] == 0
    assert served(client, queue)


def test_what_expands_within_the_limits_is_taken(client: Client, queue: str) -> None:
    for batch in (said_again(3), views(3)):
        assert client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])["messages"] == 3
    lengths = [len(row["body"]) for part in client.get(op="browse", queue=queue, columns=["body"]) for row in part.to_pylist()]
    assert lengths == [MIB] * 6


def test_buffers_that_overlap_are_refused(channel: grpc.Channel, queue: str) -> None:
    """One buffer as many columns: no byte is compressed, but the batch is a multiple of its message."""
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
    with pytest.raises(grpc.RpcError, match=r"malformed|not a message of Arrow"):
        call(channel, "DoPut", *evil)


LARGE = Message(data=[bytes(MIB)], properties=Properties(subject="a"))
ODD = Message(data=[b""], application_properties={f"property {number}": "" for number in range(3000)})


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
@pytest.mark.parametrize(("message", "count", "growth"), [(LARGE, 120, 48 * MIB), (ODD, 200, 24 * MIB)], ids=["large", "odd"])
def test_a_selector_looks_at_messages_a_few_at_a_time(
    broker: Broker, client: Client, queue: str, message: Message, count: int, growth: int
) -> None:
    """Large messages are not joined in memory, and decoded columns that the reader did not request are freed."""
    schema = pa.schema([pa.field("message", pa.binary())])
    batch = pa.record_batch([pa.array([message.encode()])], schema=schema)
    client.put({"op": "enqueue", "queue": queue}, schema, [batch] * count)
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
            with pytest.raises(grpc.RpcError, match="a client without a user name may not"):
                call(channel, method, *messages())
    assert sent > 16 * MIB
    stranger = Raw(("127.0.0.1", site.plane.port))
    number = stranger.begin("DoPut", authorization=None)
    stranger.receive_until(lambda event: isinstance(event, h2.events.StreamEnded | h2.events.StreamReset))
    assert stranger.h2.outbound_flow_control_window == frames.FIRST_WINDOW, number
    assert not [event for event in stranger.events if isinstance(event, h2.events.WindowUpdated)]
    stranger.close()


def _declare(queue: str) -> Any:
    from penstock.broker_core.engine.commands import DeclareQueue

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
    assert json.loads(details["grpc-status-details-bin"])["code"] == "INVALID_REQUEST"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_large_requests_are_read_one_after_another(broker: Broker, channel: grpc.Channel) -> None:
    """As values they take fifty times their octets."""
    body = b'{"queue":[' + b'{"a":1},' * 125_000 + b"1]}"

    def throw() -> None:
        with pytest.raises(grpc.RpcError, match="field 'queue' must be str, not a list"):
            call(channel, "DoAction", action("queue.stat", body))

    with Sampled(broker) as memory:
        throwers = [threading.Thread(target=throw) for _ in range(16)]
        for thrower in throwers:
            thrower.start()
        for thrower in throwers:
            thrower.join()
    print(memory.growth >> 20, "MiB")
    assert memory.growth < 160 * MIB


def test_no_traceback_reaches_a_client(channel: grpc.Channel, queue: str) -> None:
    """Column names and time zones with invalid UTF-8, and types without a cast, have errors of their own."""
    schema, batch = put(queue, pa.record_batch({"body": [b"x"], "subject": ["s"]}))
    for messages in ([schema.replace(b"subject", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9"), batch], [schema[:100], batch]):
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, "DoPut", *messages)
        assert "Traceback" not in str(refused.value.trailing_metadata())
        assert '"fault": "caller"' in str(refused.value.trailing_metadata())
    struct_array = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"a": 1}]))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([b"x"]))
    for column in (struct_array, runs, pa.array([[b"x"]]), pa.array([1.5])):
        with pytest.raises(grpc.RpcError, match=r"column 'body' has (the Arrow )?type .*; it must be binary"):
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


SILENT = [b"", frames.PREFACE, frames.PREFACE[:5], frames.PREFACE + frames.settings({})]


def silent_ones(broker: Broker, data: bytes) -> list[socket.socket]:
    """Return as many connections as `narrow` has, which have sent `data`, and nothing more."""
    made = [socket.create_connection(address(broker), timeout=30) for _ in range(4)]
    for sock in made:
        sock.sendall(data)
    return made


def read_to_end(connection: socket.socket) -> bytes:
    """Return the bytes that the broker sends before it closes a connection."""
    received = b""
    with contextlib.closing(connection), contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1000):
            received += piece
    return received


def answers(client: Client) -> bool:
    try:
        client.call("hello")
    except (errors.ResourceLimit, errors.PeerError):  # a user's limit; that of connections
        return False
    return True


def test_silent_connections_are_gone_after_a_while_and_others_are_served(narrow: Broker) -> None:
    for data in SILENT:
        for silent_client in silent_ones(narrow, data):
            read_to_end(silent_client)
        with Client(narrow.url) as client:
            until(lambda: answers(client), "others are served when these are gone")


def test_a_connection_beyond_the_limit_hears_why_it_is_closed(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", fsync="never", amqp_port="off", flight_max_connections=4) as broker:
        for data in SILENT:
            silent = silent_ones(broker, data)
            assert b"4 connections are open, the limit" in read_to_end(socket.create_connection(address(broker), timeout=30))
            for silent_client in silent:
                silent_client.close()
            with Client(broker.url) as client:
                until(lambda: answers(client), "others are served when these are gone")


def test_a_user_has_a_limit_of_connections(narrow: Broker) -> None:
    clients = [Client(narrow.url) for _ in range(4)]
    for peer in clients[:3]:
        peer.call("hello")
    with pytest.raises(errors.ResourceLimit, match="flight_max_connections_per_user"):
        clients[3].call("hello")
    clients[0].close()
    until(lambda: answers(clients[3]), "the fourth is let in for the first")
    for peer in clients[1:]:
        peer.call("hello")
        peer.close()


def test_a_connection_that_ends_in_its_login_counts_for_no_user() -> None:
    begun, let_in, outcomes = threading.Event(), threading.Event(), SimpleQueue[str]()

    def serve(login: Call) -> bytes:
        begun.set()
        assert let_in.wait(30)
        try:
            login.admit("somebody", MIB, errors.ResourceLimit)
            outcomes.put("let in")
        except (CallGone, errors.ResourceLimit) as error:
            outcomes.put(type(error).__name__)
        return statuses.OK

    listener = FlightListener("127.0.0.1", 0, ListenerLimits(9, 1, 9, 9, 30.0, MIB), serve, None)
    gone = Raw(("127.0.0.1", listener.port))
    gone.begin("DoAction")
    assert begun.wait(30)
    gone.close()
    until(lambda: not listener.count_connections(), "the connection has ended")
    let_in.set()
    assert outcomes.get(timeout=30) == "CallGone"
    here = Raw(("127.0.0.1", listener.port))
    here.begin("DoAction")
    assert outcomes.get(timeout=30) == "let in"
    here.close()
    listener.close(30.0)


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
        until(lambda: answers(client), "another call is let in for the one that ended")
        assert client.call("queue.stat", queue="q")["enqueued"] == 2
        open_puts[1].close()


# --- memory that is shared


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
    until(lambda: site.plane._listener._calls == 0, "the call has ended")
    assert site.plane._listener._budget._left == site.plane._listener._budget._total


def test_a_frame_that_stands_still_ends_its_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a frame of a finished call: only its connection holds memory for it."""
    with contextlib.closing(Raw(("127.0.0.1", site.plane.port))) as peer:
        peer.h2.send_data(peer.begin("DoAction"), grpc_message(action("hello", b"{}")), end_stream=True)
        peer.flush()
        number = peer.begin("Nothing")
        peer.answer(number)
        (connection,) = site.plane._listener.connected()
        # Not before: a frame of the login may take as long as its thread waits for a core.
        monkeypatch.setattr(listener, "MESSAGE_TIMEOUT_S", 0.1)
        monkeypatch.setattr(listener, "LEAST_RATE", 1 << 40)
        peer.socket.sendall(frames.header(1000, frames.FrameKind.DATA, 0, number) + b"x")
        with pytest.raises(EOFError):
            peer.receive_until(lambda event: False)
        assert connection._dead


def test_many_senders_share_the_memory_and_all_are_served(tmp_path: Path) -> None:
    """Eight senders of batches of which two fit."""
    settings = {"flight_receive_bytes": 10 * MIB, "max_batch_bytes": 8 * MIB, "max_message_bytes": MIB}
    with Broker(tmp_path / "data", fsync="never", **settings) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")

        def work() -> None:
            with Client(broker.url) as mine:
                send(mine, "q", *[batch_of([b"x" * MIB] * 4)] * 6)

        senders = [threading.Thread(target=work) for _ in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
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
    assert granted == [1, 2], "a request beyond the total gets all of it, alone"
    budget.give(99)
    assert budget.take(10, lambda: None), "all of it is back"
    assert not budget.take(1, lambda: None)

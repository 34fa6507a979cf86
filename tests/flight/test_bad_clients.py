"""Clients that send garbage, die, stop reading or request everything harm only themselves."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS

from .helpers import BODY, Reader, batch_of, browse, descriptor, numbered, raw, send

MIB = 1 << 20


def address(broker: Broker) -> tuple[str, int]:
    host, port = broker.url.removeprefix("grpc://").split(":")
    return host, int(port)


class Proxy:
    """Passes bytes on between a client and the broker, through `change`. Ends the connection when `change` returns None."""

    def __init__(self, target: tuple[str, int], change: Callable[[bytes], bytes | None]) -> None:
        self._target, self._change = target, change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._pass, args=(client, server, self._change), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, lambda data: data), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes | None]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                changed = change(data)
                if changed is None:
                    break
                sink.sendall(changed)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


@contextlib.contextmanager
def proxied(broker: Broker, change: Callable[[bytes], bytes | None]) -> Iterator[Client]:
    proxy = Proxy(address(broker), change)
    try:
        with Client(proxy.url, timeout_s=30) as client:
            yield client
    finally:
        proxy.close()


def served(client: Client, queue: str) -> bool:
    """Check that another client is served as usual."""
    second = queue + " other"
    client.call("queue.declare", queue=second)
    before = client.call("queue.stat", queue=second)["enqueued"]
    return bool(send(client, second, numbered(3))["next"] == before + 3)


# ---- garbage

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def test_garbage_on_the_port_ends_its_own_connection_only(broker: Broker, client: Client, queue: str) -> None:
    random = Random(11)
    print("seed 11")
    garbage = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500),
        b"AMQP\x00\x01\x00\x00",
        PREFACE[:10],
        PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + random.randbytes(2000),
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(10_000),
        *[random.randbytes(random.randint(1, 100_000)) for _ in range(20)],
    ]
    for data in garbage:
        with socket.create_connection(address(broker)) as connection, contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            while connection.recv(65536):
                pass
        assert broker.running
    assert served(client, queue)


def test_a_batch_that_lies_about_its_length_is_refused_and_not_believed(broker: Broker, client: Client, queue: str) -> None:
    """The broker must not follow offsets that are not there: that would end it."""
    rows, lie = 54_321, 1_000_000_000

    def change(data: bytes) -> bytes:
        return data.replace(struct.pack("<q", rows), struct.pack("<q", lie))

    batch = pa.record_batch([pa.array([b"ab"] * rows, pa.binary())], schema=BODY)
    with proxied(broker, change) as liar, pytest.raises(errors.PenstockError):
        send(liar, queue, batch)
    assert broker.running
    assert browse(client, queue) == []
    assert served(client, queue)


def test_offsets_that_run_out_of_their_data_are_refused(client: Client, queue: str) -> None:
    offsets = pa.py_buffer(struct.pack("<4i", 0, 1 << 30, 2, 3))
    bad = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(errors.InvalidRequest, match="malformed"):
        send(client, queue, pa.RecordBatch.from_arrays([bad], schema=BODY))
    assert browse(client, queue) == []
    assert served(client, queue)


def test_flipped_bytes_in_a_request_never_end_the_broker(broker: Broker, client: Client, queue: str) -> None:
    """The broker continues, and the messages in the queue can be read."""
    for seed in range(25):
        random = Random(seed)
        print(f"seed {seed}")

        def change(data: bytes, random: Random = random) -> bytes:
            flipped = bytearray(data)
            if len(data) > 1000:
                for _ in range(random.randint(1, 5)):
                    flipped[random.randrange(200, len(data))] ^= 1 << random.randrange(8)
            return bytes(flipped)

        with proxied(broker, change) as liar, contextlib.suppress(errors.PenstockError):
            send(liar, queue, numbered(500), numbered(500, start=500))
        assert broker.running
    browse(client, queue, *DEFAULT_COLUMNS)
    assert served(client, queue)


def test_too_large_a_batch_or_message_is_refused_by_name(tmp_path: Path) -> None:
    limits = {"max_batch_bytes": MIB, "max_message_bytes": MIB // 2}
    with Broker(tmp_path / "data", fsync="never", **limits) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        with pytest.raises(errors.ResourceLimit, match="a record batch has at most 1048576 bytes"):
            send(client, "q", [b"x" * (MIB // 4)] * 5)
        with pytest.raises(errors.ResourceLimit, match="a message has at most 524288 bytes"):
            send(client, "q", [b"x", b"x" * (MIB // 2 + 1)])
        assert browse(client, "q") == []
        assert send(client, "q", [b"x" * (MIB // 2)])["next"] == 1


# ---- clients that die


DYING = """
import sys
sys.path.append(sys.argv[1])
from tests.flight.helpers import *
connection = raw(Client(sys.argv[2]))
writer, reader = connection.do_put(descriptor(**eval(sys.argv[3])), BODY)
for number in range(4):
    writer.write_batch(batch_of(numbered(100, start=100 * number)))
    reader.read()
print("acknowledged", flush=True)
writer.write_batch(batch_of(numbered(100, start=400)))
sys.stdin.read()
"""


def test_a_client_that_is_killed_in_mid_stream_leaves_what_was_acknowledged(
    repository: Path, broker: Broker, client: Client, queue: str
) -> None:
    for command in ({"op": "enqueue", "queue": queue}, {"op": "stage", "queue": queue, "stage": queue + " stage"}):
        arguments = [sys.executable, "-c", DYING, str(repository), broker.url, repr(command)]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"acknowledged\n"
        process.kill()
        process.communicate()
    bodies_stored = [row["body"] for row in browse(client, queue)]
    assert bodies_stored in (numbered(400), numbered(500)), "the stage is not seen, the acknowledged four batches are"
    published = client.call("stage.publish", stages=[queue + " stage"])["published"]
    assert published in (400, 500)
    assert served(client, queue)


def test_a_stream_cut_anywhere_leaves_whole_batches_and_all_that_were_acknowledged(
    broker: Broker, client: Client, queue: str
) -> None:
    stored = 0
    for seed in range(30):
        cut = f"{queue} cut {seed}"
        client.call("queue.declare", queue=cut)
        random = Random(seed)
        left = random.randint(500, 400_000)
        print(f"seed {seed}: cut after {left} bytes")

        def change(data: bytes) -> bytes | None:
            nonlocal left
            left -= len(data)
            return data if left >= 0 else None

        acknowledged = 0
        with proxied(broker, change) as doomed, contextlib.suppress(pa.ArrowException):
            writer, reader = raw(doomed).do_put(descriptor(op="enqueue", queue=cut), BODY)
            with contextlib.suppress(pa.ArrowException), writer:
                for number in range(10):
                    writer.write_batch(batch_of(numbered(50, 500, start=50 * number)))
                    if number % 2 and (answer := reader.read()) is not None:
                        acknowledged = max(acknowledged, int(answer.to_pybytes().split(b'"messages": ')[1].split(b",")[0]))
        bodies = [row["body"] for row in browse(client, cut)]
        assert len(bodies) % 50 == 0
        assert acknowledged <= len(bodies) <= 500
        assert bodies == numbered(len(bodies), 500)
        stored += len(bodies)
    assert stored
    assert served(client, queue)


# ---- many clients, slow clients


def test_two_hundred_clients_at_once_are_all_served(broker: Broker, client: Client, queue: str) -> None:
    clients, together = 200, threading.Barrier(200)

    def work(number: int) -> list[int]:
        with Client(broker.url) as mine:
            together.wait(60)
            send(mine, queue, numbered(20, start=1000 * number))
            assert mine.call("queue.stat", queue=queue)["enqueued"] >= 20
            reader = Reader(mine, queue, lease=f"{queue} {number}")
            taken: list[int] = []
            while len(taken) < 20:
                batch = reader.advance(messages=20 - len(taken), waitMs=100)
                taken += [row["sequenceNumber"] for row in (reader.read(batch) if batch > reader.finished else [])]
                reader.settle(batch)
            return taken

    with ThreadPoolExecutor(clients) as pool:
        taken = [sequence for part in pool.map(work, range(clients)) for sequence in part]
    assert sorted(taken) == list(range(20 * clients)), "each message went to exactly one"
    stat = client.call("queue.stat", queue=queue)
    assert (stat["archived"], stat["available"], stat["acquired"]) == (20 * clients, 0, 0)


def test_readers_that_stop_reading_slow_nobody(broker: Broker, client: Client, queue: str) -> None:
    for start in range(0, 20_000, 4000):
        send(client, queue, numbered(4000, 1000, start=start))
    ticket = flight.Ticket(b'{"op": "browse", "queue": "%s", "columns": ["body"]}' % queue.encode())
    stuck = [raw(client).do_get(ticket) for _ in range(10)]
    seen = [reader.read_chunk().data.num_rows for reader in stuck]
    assert max(seen) < 20_000

    def everything(_: int) -> int:
        with Client(broker.url) as second:
            return sum(batch.num_rows for batch in second.get(op="browse", queue=queue, columns=["body"]))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(everything, range(8))) == [20_000] * 8
    assert served(client, queue)
    # They were only slow: later they receive everything.
    for rows, chunks in zip(seen, stuck, strict=True):
        assert rows + sum(chunk.data.num_rows for chunk in chunks) == 20_000


def test_a_sender_that_reads_no_acknowledgement_slows_nobody(client: Client, queue: str) -> None:
    writer, reader = raw(client).do_put(descriptor(op="enqueue", queue=queue), BODY)
    for number in range(300):
        writer.write_batch(batch_of(numbered(10, 1000, start=10 * number)))
    assert served(client, queue)
    writer.done_writing()
    last = None
    while (answer := reader.read()) is not None:
        last = answer.to_pybytes()
    writer.close()
    assert last is not None
    assert b'"messages": 3000' in last


# ---- memory


def anonymous(broker: Broker) -> int:
    """RssAnon of the broker, bytes: mapped segments are not in it."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


class Sampled:
    """The most that the broker's memory grew while this is open."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._stop = broker, threading.Event()
        self.before = self.most = anonymous(broker)
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, anonymous(self._broker))

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_memory_stays_bounded_when_somebody_asks_for_everything(tmp_path: Path) -> None:
    """120 MiB in large single messages, 100 MB in batches. The broker sends record batches of some MiB."""
    with Broker(tmp_path / "data", fsync="never") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="large")
        client.call("queue.declare", queue="small")
        for _ in range(30):
            send(client, "large", [os.urandom(4096) * 1024])
        for start in range(0, 100_000, 10_000):
            send(client, "small", numbered(10_000, 1000, start=start))
        reader = Reader(client, "small")
        batch = reader.advance()
        for ask in ({"maxMessages": 10}, {"minPartitions": 50_000}):
            reader.plan(batch, **ask)
        list(client.get(op="browse", queue="large", columns=["body"], last=1))  # one-time allocations
        requests: list[dict[str, Any]] = [
            {"op": "browse", "queue": "large", "columns": list(DEFAULT_COLUMNS)},
            {"op": "browse", "queue": "small", "states": ["acquired"], "columns": list(DEFAULT_COLUMNS)},
            reader.ticket(batch, columns=list(DEFAULT_COLUMNS)),
            {**reader.ticket(batch), "op": "map", "host": this_host()},
        ]
        for request in requests:
            with Sampled(broker) as memory:
                assert sum(part.nbytes for part in client.get(**request))
            print(request["op"], request.get("queue", "small"), memory.growth >> 20, "MiB")
            assert memory.growth < 50 * MIB, request["op"]
        with Sampled(broker) as memory, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: [None for _ in Client(broker.url).get(**requests[0])], range(8)))
        print("8 readers at once", memory.growth >> 20, "MiB")
        assert memory.growth < 8 * 32 * MIB
        client.call("queue.purge", queue="large")
        with Sampled(broker) as memory:
            shown = client.call("queue.messages", queue="large", states=["archived"], count=29)
        print("shown", memory.growth >> 20, "MiB")
        assert [row["sequenceNumber"] for row in shown["messages"]] == list(range(29))
        assert memory.growth < 80 * MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_memory_stays_bounded_while_somebody_sends_large_batches(tmp_path: Path) -> None:
    """960 MiB in batches of 16 MiB. Some ten of them are in the broker together. gRPC has the next one in slices and in one
    piece, and unacknowledged batches wait for the disk. The allocators keep as much again for the next ones."""
    with Broker(tmp_path / "data", fsync="never") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="large")
        large = batch_of([b"x" * MIB] * 16)
        with Sampled(broker) as memory:
            send(client, "large", *[large] * 60)
        print("a sender of large batches", memory.growth >> 20, "MiB")
        assert memory.growth < 480 * MIB


# ---- the end


def test_sigterm_ends_it_with_0_also_while_clients_neither_read_nor_send(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").start()
    client = Client(broker.url)
    client.call("queue.declare", queue="q")
    for start in range(0, 20_000, 4000):
        send(client, "q", numbered(4000, 1000, start=start))
    stuck = raw(client).do_get(flight.Ticket(b'{"op": "browse", "queue": "q", "columns": ["body"]}'))
    stuck.read_chunk()
    idle, answers = raw(client).do_put(descriptor(op="enqueue", queue="q"), BODY)
    idle.write_batch(batch_of([b"last"]))
    assert b'"messages": 1' in answers.read().to_pybytes()
    broker.stop(limit_s=30)  # raises unless the exit code is 0
    assert [name for name in os.listdir(tmp_path / "data") if name.endswith(".snap")], "a clean stop leaves a snapshot"
    with broker.start():
        assert [row["body"] for row in browse(client, "q")][-1] == b"last"
    client.close()
    with contextlib.suppress(pa.ArrowException):
        idle.close()


def test_a_disk_that_fails_ends_the_broker_and_loses_nothing_confirmed(tmp_path: Path) -> None:
    """A write that the kernel refuses (the file-size limit): exit code 1, and everything confirmed is there afterwards."""
    broker = Broker(tmp_path / "data").start()
    confirmed = 0
    with Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (3 * MIB, 3 * MIB))
        failure: errors.PenstockError | None = None
        while failure is None:
            assert confirmed < 10_000
            try:
                confirmed = send(client, "q", numbered(100, 2000, start=confirmed))["next"]
            except errors.PenstockError as error:
                failure = error
    assert failure.code in ("STORAGE", "PEER", "UNREACHABLE")
    with pytest.raises(errors.PeerError, match="exit code 1"):
        broker.stop()
    assert confirmed
    with broker.start(), Client(broker.url) as client:
        bodies_stored = [row["body"] for row in browse(client, "q")]
        assert bodies_stored[:confirmed] == numbered(confirmed, 2000)
        assert len(bodies_stored) <= confirmed + 100


def test_a_second_stop_signal_or_none_leaves_a_directory_that_starts(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").start()
    with Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(5))
        os.kill(broker.pid, signal.SIGTERM)
        os.kill(broker.pid, signal.SIGTERM)
        with contextlib.suppress(errors.PeerError):
            broker.stop()
        with broker.start():
            assert [row["body"] for row in browse(client, "q")] == numbered(5)

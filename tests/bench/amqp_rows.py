"""Rows about the AMQP plane, its client in a process of its own (amqp_load.py)."""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
from feeding import BATCH, QUEUE, anonymous_bytes, batch_of
from harness import Bench, Line
from yardsticks import proton_peer

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

CREDIT = 1000
IDLE = 2000  # connections


class Load:
    """The client's process."""

    def __init__(self) -> None:
        program = str(Path(__file__).with_name("amqp_load.py"))
        self._process = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, do: str, **fields: Any) -> Callable[[], dict[str, Any]]:
        """Begin; the function gives the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline
        return lambda: dict(json.loads(answer()))

    def __call__(self, do: str, **fields: Any) -> dict[str, Any]:
        return self.start(do, **fields)()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def running(bench: Bench, **options: Any) -> Iterator[Broker]:
    data = bench.folder()
    with Broker(data, fsync="always", **options) as broker:
        broker.declare(QUEUE)
        yield broker
    bench.remove(data)


def transfers(bench: Bench) -> Iterator[Line]:
    """Durable transfers in, and out with accept, against a peer on python-qpid-proton that has no queue."""
    ours_count, peer_count = bench.count(100_000, 5_000), bench.count(30_000, 5_000)
    with running(bench) as broker, proton_peer() as peer, Load() as load:

        def rate(do: str, url: str, count: int) -> float:
            size = {"size": 1024} if do == "send" else {"credit": CREDIT}
            return count / float(load(do, url=url, count=count, **size)["seconds"])

        for do, way in (("send", "in, each accepted"), ("receive", "out, each accepted by the client")):
            feed = do == "receive"

            def ours(_: int, do: str = do, feed: bool = feed) -> float:
                if feed:
                    load("send", url=broker.amqp_url, count=ours_count, size=1024)
                return rate(do, broker.amqp_url, ours_count)

            def theirs(_: int, do: str = do) -> float:
                return rate(do, peer, peer_count)

            ours(0), theirs(0)
            figures = bench.pairs("messages/s", ours, theirs)
            yield Line(
                "amqp-transfers",
                f"durable transfers of 1 KiB {way}, one link, window {CREDIT:,}",
                "a bare python-qpid-proton peer without queue and disk",
                2,
                4,
                True,
                "messages/s",
                *figures,
            )


def of_spark(bench: Bench) -> Iterator[Line]:
    """AMQP clients that receive messages of Spark."""
    messages = bench.count(200_000, BATCH)
    batch = batch_of(BATCH, 1024)

    with running(bench) as broker, Load() as load, Client(broker.url) as client:

        def columnar(_: int) -> float:
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(messages // BATCH)))
            return messages / load("receive", url=broker.amqp_url, count=messages, credit=CREDIT)["seconds"]

        def encoded(_: int) -> float:
            load("send", url=broker.amqp_url, count=messages, size=1024)
            return messages / load("receive", url=broker.amqp_url, count=messages, credit=CREDIT)["seconds"]

        columnar(0), encoded(0)
        ours, theirs = bench.pairs("messages/s", columnar, encoded)
    title = f"an AMQP client receives and accepts {messages:,} messages of 1 KiB that Spark sent"
    yield Line(
        "amqp-of-spark", title, "the same of messages that an AMQP client sent", 0.8, None, True, "messages/s", ours, theirs
    )


def stuck(bench: Bench) -> Iterator[Line]:
    """Nine receivers with a tenth that does not read."""
    messages = bench.count(200_000, BATCH)
    batch = batch_of(BATCH, 1024)

    def run(with_stuck: bool) -> float:
        with running(bench) as broker, Load() as load, Load() as bystander, Client(broker.url) as client:
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(messages // BATCH + 2)))
            if with_stuck:
                bystander("stick", url=broker.amqp_url)
                time.sleep(0.5)  # until its socket is full, which is not part of the measurement
                assert client.call("queue.stat", queue=QUEUE)["acquired"], "it was sent nothing"
            return messages / load("receive_on_many", url=broker.amqp_url, count=messages, links=9)["seconds"]

    # Single runs differ by a tenth: five would not tell 0.95 from 1.
    ours, alone = bench.pairs("messages/s", lambda _: run(True), lambda _: run(False), repeats=bench.count(11, 2))
    yield Line("stuck", "9 fast receivers with 1 stuck receiver", "9 alone", 0.95, None, True, "messages/s", ours, alone)


def latency(bench: Bench) -> Iterator[Line]:
    """One message at a time."""
    count = bench.count(500, 50)
    with running(bench) as broker, Load() as load, _echo() as wire:

        def ours(_: int) -> float:
            return statistics.median(load("latency", url=broker.amqp_url, count=count, size=1024)["seconds"]) * 1000

        def parts(_: int) -> float:
            return _syncs_and_trips(bench.folder(), wire, count) * 1000

        def into_zeros(_: int) -> float:
            return _syncs_and_trips(bench.folder(), wire, count, room=True) * 1000

        ours(0), parts(0)
        mine, theirs, with_room = bench.pairs("ms", ours, parts, into_zeros)
    title = "from send to receipt of one durable message of 1 KiB, median"
    more = {"the other into a file that has its length, as our journal does, ms": with_room}
    yield Line("latency", title, "two fsyncs plus two loopback round trips", 2, None, False, "ms", mine, theirs, more=more)


@contextmanager
def _echo() -> Iterator[socket.socket]:
    """A connection to a process that echoes."""
    program = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept(); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
        "while d := c.recv(65536): c.sendall(d)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield wire
    process.wait()
    process.stdout.close()


def _syncs_and_trips(path: Path, wire: socket.socket, count: int, room: bool = False) -> float:
    """Seconds, the median. With `room` there are zeros where it writes, so that a sync need not say how long the file is."""
    piece, figures = os.urandom(1024), []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    if room:
        os.pwrite(descriptor, bytes(2 * count * len(piece)), 0)
        os.fsync(descriptor)
    for _ in range(count):
        began = time.perf_counter()
        for _ in range(2):
            os.write(descriptor, piece)
            os.fdatasync(descriptor)
            wire.sendall(piece)
            left = len(piece)
            while left:
                left -= len(wire.recv(left))
        figures.append(time.perf_counter() - began)
    os.close(descriptor)
    return statistics.median(figures)


def connections(bench: Bench) -> Iterator[Line]:
    """Memory of idle connections with TLS and SASL."""
    count = bench.count(IDLE, 100)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    authority = trustme.CA()
    folder = bench.folder()
    folder.mkdir(parents=True)
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    add = [sys.executable, "-m", "penstock", "user", "add", "bench", "--users-file", str(folder / "users.json")]
    subprocess.run([*add, "--password-file", "-"], input="secret\n", text=True, check=True, stdout=subprocess.DEVNULL)
    listeners = json.dumps([{"port": 0, "tls": True}])
    figures = []
    for _ in range(2):
        data = bench.folder()
        with (
            Broker(
                data,
                listeners=listeners,
                tls_cert_file=folder / "cert.pem",
                tls_key_file=folder / "key.pem",
                users_file=folder / "users.json",
            ) as broker,
            Load() as load,
        ):
            load("hold", url=broker.amqp_url, count=20, user="bench", password="secret", ca=str(folder / "ca.pem"))
            before = anonymous_bytes(broker.pid)
            answer = load("hold", url=broker.amqp_url, count=count, user="bench", password="secret", ca=str(folder / "ca.pem"))
            assert answer["open"] == count + 20
            assert len(os.listdir(f"/proc/{broker.pid}/fd")) > count, "some are gone"
            figures.append((anonymous_bytes(broker.pid) - before) / count / 1024)
        bench.remove(data)
        bench.say(f"{figures[-1]:.1f} KiB each")
    title = f"anonymous memory of the broker for each of {count:,} connections, TLS and SASL, idle"
    yield Line("connections", title, "", 100, None, False, "KiB", figures)

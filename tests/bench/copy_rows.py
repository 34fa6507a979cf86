"""Rows about a copy elsewhere, in a real S3 server on loopback: its lag, its cost, a restore."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from feeding import BATCH, QUEUE, batch_of, enqueue_command, filled, nbytes
from harness import Bench, Line, Stopwatch
from interest_rows import cpu_seconds

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker
from penstock.broker_core.stores.urls import open_store

sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))
from building import command_of

from tests.s3 import BUCKET, S3Server, environment

MEMORY = Path("/dev/shm")
PACE = 50_000_000  # bytes a second
PACED_S = 20.0
ENQUEUED = 300_000  # messages of 1 KiB a repeat
SAMPLE_S = 0.05
AT_ONCE = 8  # requests of the download that a restore is compared with


@contextmanager
def s3_server(bench: Bench, *, memory: bool = False) -> Iterator[tuple[str, S3Server]]:
    """Yield the URL of a bucket, and its server; its credentials are in the environment meanwhile.

    `memory`: its files are there, if the machine has such a folder, and not on the disk that the broker syncs.
    """
    folder = bench.folder()
    if memory and MEMORY.is_dir():
        folder = Path(tempfile.mkdtemp(dir=MEMORY))
    folder.mkdir(parents=True, exist_ok=True)
    server = S3Server(command_of("versitygw"), folder / "files")
    before = dict(os.environ)
    os.environ.update(environment(server.port))
    try:
        yield f"s3://{BUCKET}", server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.close()
        bench.remove(folder)


def _lag(client: Client) -> tuple[float, int]:
    copy = client.call("broker.status")["copy"]
    return copy["lagSeconds"], copy["lagBytes"]


def _until_copied(client: Client) -> None:
    while _lag(client)[1]:
        time.sleep(SAMPLE_S)


def copy(bench: Bench) -> Iterator[Line]:
    yield _copied_lag(bench)
    yield from _copied_rate(bench)


def _copied_lag(bench: Bench) -> Line:
    batch = batch_of(1000, 1024)
    size = nbytes(enqueue_command(batch))
    seconds = PACED_S * min(1.0, bench.scale * 5)
    lags, rates, without = list[float](), list[float](), list[float]()

    def paced() -> Iterator[pa.RecordBatch]:
        began = time.perf_counter()
        for number in range(int(seconds * PACE / size)):
            time.sleep(max(0.0, began + number * size / PACE - time.perf_counter()))
            yield batch

    def put(client: Client) -> float:
        with Stopwatch() as watch:
            sent = client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, paced())
        return float(sent["messages"] * size / 1000 / watch.seconds / 1e6)

    with s3_server(bench) as (url, _), Broker(bench.folder(), copy_url=f"{url}/lag") as broker, Broker(bench.folder()) as plain:
        broker.declare(QUEUE)
        plain.declare(QUEUE)
        with (
            Client(broker.url) as client,
            Client(broker.url) as looking,
            Client(plain.url) as no_copy,
            ThreadPoolExecutor(1) as pool,
        ):
            for repeat in range(3):
                worst, done = 0.0, pool.submit(put, client)
                while not done.done():
                    worst = max(worst, _lag(looking)[0])
                    time.sleep(SAMPLE_S)
                lags.append(worst)
                rates.append(done.result())
                _until_copied(client)
                without.append(put(no_copy))
                bench.say(f"{repeat + 1}/3: {worst:.2f} s behind at most, {rates[-1]:.1f} MB/s against {without[-1]:.1f} MB/s")
    title = f"largest lag of the copy at {PACE // 1_000_000} MB/s of durable messages, for {PACED_S:g} s"
    more = {"arrived, MB/s": rates, "arrived without a copy, MB/s": without}
    return Line("copy", title, "", 2.0, None, False, "s", lags, more=more)


def _copied_rate(bench: Bench) -> Iterator[Line]:
    batch, batches = batch_of(BATCH, 1024), bench.count(ENQUEUED, BATCH) // BATCH
    octets = batches * nbytes(enqueue_command(batch))
    spent: dict[str, list[float]] = {}

    def put(client: Client, name: str = "", *pids: int) -> float:
        """Return the rate; note the CPU time of these processes until the copy is complete."""
        before = [cpu_seconds(pid) for pid in pids]
        with Stopwatch() as watch:
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(batches)))
        if client.call("broker.status")["copy"]:
            _until_copied(client)
        for pid, began, which in zip(pids, before, (name, "S3 server"), strict=False):
            spent.setdefault(f"{which}, CPU ms/MB", []).append((cpu_seconds(pid) - began) * 1e9 / octets)
        return batches * BATCH / watch.seconds

    def figures(memory: bool) -> list[list[float]]:
        with (
            s3_server(bench, memory=memory) as (url, server),
            Broker(bench.folder(), copy_url=f"{url}/rate") as with_copy,
            Broker(bench.folder()) as without,
        ):
            with_copy.declare(QUEUE)
            without.declare(QUEUE)
            with Client(with_copy.url) as ours, Client(without.url) as plain:
                put(ours), put(plain)
                return bench.pairs(
                    "messages/s",
                    lambda _: put(ours, "broker", with_copy.pid, server.pid),
                    lambda _: put(plain, "broker without a copy", without.pid),
                )

    for memory, where in ((False, "on the journal's disk"), *(((True, "in memory"),) if MEMORY.is_dir() else ())):
        spent.clear()
        rates = figures(memory)
        title = (
            "durable enqueue over Flight, 1 KiB messages, until the last is confirmed, with a copy in S3 on"
            f" the same cores, the server's files {where}"
        )
        yield Line("copy", title, "the same without a copy", 0.9, None, True, "messages/s", *rates, more=dict(spent))


def restore(bench: Bench) -> Iterator[Line]:
    messages = bench.count(1_000_000, 50_000)
    origin = bench.folder()
    with bench.doing(f"{messages:,} messages of 1 KiB"):
        filled(origin, messages, size=1024)
    with s3_server(bench) as (base, _):
        url = f"{base}/restore"
        command = [sys.executable, "-m", "penstock"]
        with bench.doing("the copy"), Broker(origin, copy_url=url) as broker, Client(broker.url) as client:
            while client.call("broker.status")["copy"]["state"] != "copying":
                time.sleep(SAMPLE_S)
            _until_copied(client)
        bench.remove(origin)
        store = open_store(url)
        names = [*store.names("objects/"), *store.names("chunks/")]

        def download(_: int) -> float:
            folder = bench.folder()
            folder.mkdir(parents=True)
            with Stopwatch() as watch, ThreadPoolExecutor(AT_ONCE) as pool:
                for name, data in zip(names, pool.map(store.get, names), strict=True):
                    (folder / name.replace("/", "-")).write_bytes(data)
            bench.remove(folder)
            return watch.seconds

        def restored(_: int) -> float:
            folder = bench.folder()
            with Stopwatch() as watch:
                subprocess.run([*command, "restore", "--from", url, "--data", str(folder)], check=True, stdout=subprocess.DEVNULL)
                broker = Broker(folder).start()
            with Client(broker.url) as client:
                assert client.call("queue.stat", queue=QUEUE)["available"] == messages
            broker.kill()
            bench.remove(folder)
            return watch.seconds

        figures = bench.pairs("s", restored, download, repeats=3)
    title = f"restore of {messages:,} waiting messages of 1 KiB from S3 on loopback, until the broker is ready"
    yield Line("restore", title, "downloading the same objects into files", 3.0, None, False, "s", figures[0], figures[1])

"""Rows about a copy elsewhere, in a real S3 server on loopback: its lag, what it costs, a restore."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from feeding import BATCH, QUEUE, batch_of, enqueue_command, filled, nbytes
from harness import Bench, Line, Stopwatch

from penstock.broker_core.client.flight import Client
from penstock.broker_core.copy.urls import open_store
from penstock.broker_core.server.process import Broker

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in (".", "clients")]
from building import command_of
from s3 import BUCKET, S3Server, environment

PACE = 50_000_000  # bytes a second
PACED_S = 20.0
ENQUEUED = 300_000  # messages of 1 KiB a repeat
SAMPLE_S = 0.05
AT_ONCE = 8  # requests of the download that a restore is compared with


@contextmanager
def s3_server(bench: Bench) -> Iterator[str]:
    """Yield the URL of a bucket; its credentials are in the environment meanwhile."""
    folder = bench.folder()
    folder.mkdir(parents=True)
    server = S3Server(command_of("versitygw"), folder / "files")
    before = dict(os.environ)
    os.environ.update(environment(server.port))
    try:
        yield f"s3://{BUCKET}"
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
    batch = batch_of(1000, 1024)
    size = nbytes(enqueue_command(batch))
    lags: list[float] = []
    rates: list[float] = []

    def paced(seconds: float) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter()
        for number in range(int(seconds * PACE / size)):
            time.sleep(max(0.0, began + number * size / PACE - time.perf_counter()))
            yield batch

    with s3_server(bench) as url, Broker(bench.folder(), copy_url=f"{url}/lag") as broker, Client(broker.url) as client:
        broker.declare(QUEUE)
        for repeat in range(3):
            seconds, worst = PACED_S * min(1.0, bench.scale * 5), 0.0
            with ThreadPoolExecutor(1) as pool, Stopwatch() as watch:
                done = pool.submit(client.put, {"op": "enqueue", "queue": QUEUE}, batch.schema, paced(seconds))
                with Client(broker.url) as looking:
                    while not done.done():
                        worst = max(worst, _lag(looking)[0])
                        time.sleep(SAMPLE_S)
                sent = done.result()
            lags.append(worst)
            rates.append(sent["messages"] * size / 1000 / watch.seconds / 1e6)
            bench.say(f"{repeat + 1}/3: {lags[-1]:.2f} s behind at most, at {rates[-1]:.1f} MB/s")
            _until_copied(client)
    what = f"largest lag of the copy at {PACE // 1_000_000} MB/s of durable messages, for {PACED_S:g} s"
    yield Line("copy", what, "", 2.0, None, False, "s", lags, more={"arrived, MB/s": rates})

    batch, batches = batch_of(BATCH, 1024), bench.count(ENQUEUED, BATCH) // BATCH

    def put(client: Client) -> float:
        with Stopwatch() as watch:
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(batches)))
        return batches * BATCH / watch.seconds

    with s3_server(bench) as url, Broker(bench.folder(), copy_url=f"{url}/rate") as with_copy, Broker(bench.folder()) as without:
        with_copy.declare(QUEUE)
        without.declare(QUEUE)
        with Client(with_copy.url) as ours, Client(without.url) as other:

            def ours_put(_: int) -> float:
                found = put(ours)
                _until_copied(ours)
                return found

            ours_put(0), put(other)
            figures = bench.pairs("messages/s", ours_put, lambda _: put(other))
    what = "durable enqueue over Flight, 1 KiB messages, as fast as it goes, with a copy in S3 on the same two cores"
    yield Line("copy", what, "the same without a copy", 0.9, None, True, "messages/s", figures[0], figures[1])


def restore(bench: Bench) -> Iterator[Line]:
    messages = bench.count(1_000_000, 50_000)
    origin = bench.folder()
    with bench.doing(f"{messages:,} messages of 1 KiB"):
        filled(origin, messages, size=1024)
    with s3_server(bench) as base:
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
    what = f"restore of {messages:,} waiting messages of 1 KiB from S3 on loopback, until the broker is ready"
    yield Line("restore", what, "downloading the same objects into files", 3.0, None, False, "s", figures[0], figures[1])

"""The row about a silent network: the time until the error of each of our clients."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from feeding import QUEUE
from harness import MIB, Bench, Line

from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client import app
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import PenstockError
from penstock.broker_core.server.child import Broker

sys.path.append(str(Path(__file__).resolve().parents[1] / "flight"))
from silent_wire import SilentWire

MESSAGES = 64  # of 1 MiB: more than sockets and gRPC hold on the way


def silence(bench: Bench) -> Iterator[Line]:
    batch = pa.record_batch({"body": pa.array([b"." * MIB] * 4, pa.binary())})
    data = bench.folder()
    with Broker(data, fsync="never") as broker, Client(broker.url) as direct:
        broker.declare(QUEUE)
        broker.declare("empty")
        direct.put({"op": "enqueue", "queue": QUEUE}, batch.schema, [batch] * (MESSAGES // 4))
        with SilentWire(broker.flight_url) as flight, SilentWire(broker.amqp_url) as amqp:
            wires = (flight, amqp)
            with (
                Client(flight.url) as client,
                amqp_client.connect(amqp.url) as receiving,
                app.connect(amqp.url, reconnect=None) as consuming,
            ):
                reading = client.get(op="browse", queue=QUEUE, columns=["body"])
                next(reading)
                receiver = receiving.receiver("empty")
                consumer = consuming.session().consumer("empty")

                def batches() -> Iterator[pa.RecordBatch]:
                    while True:
                        yield batch

                waits: dict[str, Callable[[], Any]] = {
                    "a task that reads": lambda: list(reading),
                    "a task that stages": lambda: client.put(
                        {"op": "stage", "queue": QUEUE, "stage": "silent"}, batch.schema, batches()
                    ),
                    "a planner's request": lambda: client.call("hello"),
                    "an AMQP receiver": lambda: receiver.receive(timeout_s=600),
                    "a consumer of messaging": lambda: consumer.receive(timeout_s=600),
                }
                for wire in wires:
                    wire.cut()
                with ThreadPoolExecutor(len(waits)) as threads:
                    seconds = dict(zip(waits, threads.map(_until_error, waits.values()), strict=True))
    bench.remove(data)
    yield Line(
        "silence",
        "from the silence of the network to the error, the slowest of " + ", ".join(waits),
        "",
        60.0,
        None,
        False,
        "s",
        [max(seconds.values())],
        more={f"{name}, s": [value] for name, value in seconds.items()},
    )


def _until_error(wait: Callable[[], Any]) -> float:
    began = time.perf_counter()
    try:
        wait()
    except PenstockError:
        return time.perf_counter() - began
    raise AssertionError("it came to an end without an error")

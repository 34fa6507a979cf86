"""Rows about streams on Spark 4.0 and 4.1, against the in-memory source on the same version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from feeding import BATCH, QUEUE, batch_of
from harness import Bench, Line
from spark_sources import MEMORY, TRIGGERS, memory_options

import penstock
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS
from penstock.broker_core.server.child import Broker
from penstock.connector.options import DEFAULT_MESSAGES_PER_PARTITION


class OlderSpark:
    """A process with another Spark: `older_spark.py`."""

    def __init__(self, bench: Bench, version: str) -> None:
        self.folder = bench.folder()
        package = self.folder / "package"
        package.mkdir(parents=True)
        (package / "penstock").symlink_to(Path(penstock.__file__).resolve().parent)
        here = Path(__file__).resolve().parent
        sys.path.append(str(here.parent / "spark_versions"))
        from environments import Environment, python_of, variables_for  # type: ignore[import-not-found]

        python = python_of(Environment(version))
        environment = {**variables_for(python), "PYTHONPATH": f"{package}:{here}"}
        self._process = subprocess.Popen(
            [python, str(here / "older_spark.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def figure(self, job: str, source: str, options: dict[str, Any], **arguments: Any) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"job": job, "format": source, "options": options, "folder": str(self.folder), "arguments": arguments}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            word, _, value = line.partition(" ")
            if word == "figure":
                return float(value)
        raise RuntimeError("the process with the older Spark has ended: its errors are above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def _both(bench: Bench, version: str) -> Iterator[tuple[OlderSpark, Broker, Client]]:
    spark = OlderSpark(bench, version)
    with Broker(bench.folder(), fsync="always") as broker, Client(broker.url) as client:
        broker.declare(QUEUE)
        try:
            yield spark, broker, client
        finally:
            spark.close()


def trigger(bench: Bench) -> Iterator[Line]:
    with _both(bench, "4.1.4") as (spark, broker, client):

        def ours(_: int) -> float:
            client.call("queue.purge", queue=QUEUE)
            rows = pa.record_batch({"body": pa.array([b"x" * 100] * TRIGGERS, pa.binary())})
            client.put({"op": "enqueue", "queue": QUEUE}, rows.schema, [rows])
            options = {"url": broker.url, "queue": QUEUE, "maxMessagesPerTrigger": 1}
            return spark.figure("trigger", "amqp", options)

        def theirs(_: int) -> float:
            return spark.figure("trigger", MEMORY, memory_options(DEFAULT_COLUMNS, TRIGGERS, limit=1))

        ours(0), theirs(0)
        figures = bench.pairs("ms", ours, theirs)
    title = "trigger of a stream with one row each on Spark 4.1 (median)"
    yield Line("trigger-4.1", title, "an in-memory Python source on Spark 4.1", 1.3, None, False, "ms", *figures)


def drain(bench: Bench) -> Iterator[Line]:
    messages = bench.count(10_000_000, 200_000)
    partitions = -(-messages // DEFAULT_MESSAGES_PER_PARTITION)
    with _both(bench, "4.0.1") as (spark, broker, client):

        def ours(_: int) -> float:
            client.call("queue.purge", queue=QUEUE)  # also of the rows that the last run has settled late
            batch = batch_of(BATCH, 100)
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(messages // BATCH)))
            seconds = spark.figure("drain", "amqp", {"url": broker.url, "queue": QUEUE}, rows=messages)
            for lease in client.call("lease.list")["leases"]:  # on Spark 4.0 the last batch is settled by the next run
                if lease["stage"] != "idle":
                    client.call("lease.release", lease=lease["lease"], how="settle")
                client.call("lease.delete", lease=lease["lease"])
            return messages / seconds

        def theirs(_: int) -> float:
            return messages / spark.figure(
                "drain", MEMORY, memory_options(DEFAULT_COLUMNS, messages, partitions=partitions), rows=messages
            )

        ours(0), theirs(0)
        figures = bench.pairs("rows/s", ours, theirs)
    title = f"drain {messages:,} messages of 100 bytes into noop on Spark 4.0, the default columns"
    against = "the same rows from a Python source that yields one prebuilt Arrow batch, on Spark 4.0"
    yield Line("drain-4.0", title, against, 0.8, None, True, "rows/s", *figures)

"""S1 S6 S7 C3 Q7 Q8 Q16: streams of every kind together, while the broker is killed repeatedly: each message once.

PENSTOCK_TORTURE_SEED and PENSTOCK_TORTURE_S (seconds) run more rounds: see `./dev torture`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql.streaming import StreamingQuery

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261122"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "0"))
KILLS = 1  # without SECONDS
ROWS = 150  # in each write of the feeder
QUEUES = {
    "plain": {},
    "grouped": {"groups": "held"},
    "left": {},
    "right": {},
    "chosen": {},
    "urgent": {"type": "priority"},
    "through": {},
    "out": {},
}


class Feeder:
    """Writes into every queue. Each write is published once, also after repetitions."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.written = rig, 0

    def write(self) -> None:
        number = self.written
        for queue in QUEUES:
            if queue == "out":
                continue
            numbers = range(number * ROWS, number * ROWS + ROWS)
            columns = {
                "body": pa.array([b"%d" % i for i in numbers]),
                "groupId": pa.array([f"group {i % 7}" for i in numbers]),
                "subject": pa.array(["odd" if i % 2 else "even" for i in numbers]),
                "priority": pa.array([i % 10 for i in numbers], pa.int16()),
            }
            batch = pa.record_batch(columns)
            self._until_done(lambda stage, q=queue, b=batch: self._publish(q, b, stage, number))
        self.written += 1

    def _publish(self, queue: str, batch: pa.RecordBatch, stage: str, number: int) -> None:
        with Client(self.rig.broker.url) as client:
            client.put({"op": "stage", "queue": queue, "stage": stage}, batch.schema, [batch])
            client.call("stage.publish", stages=[stage], key={"kind": "txn", "id": f"feeder of {queue}", "number": number})

    def _until_done(self, step: Callable[[str], None]) -> None:
        for attempt in range(1000):
            try:
                step(f"stage {self.written} {attempt} {os.urandom(8).hex()}")
                return
            except (errors.PeerError, errors.StorageError):
                time.sleep(0.05)  # the broker is down, as the test requires
        raise AssertionError("no broker came back")


class Matrix:
    """The streams, by name. A stream that fails with the broker is restarted from its checkpoint."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.queries: dict[str, StreamingQuery] = {}

    def start(self, name: str) -> StreamingQuery:
        rig = self.rig
        options = {"maxMessagesPerTrigger": "400"}
        frames = {
            "plain": lambda: rig.stream("plain", **options),
            "grouped": lambda: rig.stream("grouped", minPartitions="3", **options),
            "several": lambda: rig.stream("left,right", **options),
            "chosen": lambda: rig.stream("chosen", selector="JMSType = 'odd'", **options),
            "urgent": lambda: rig.stream("urgent", **options),
            "through": lambda: rig.stream("through", **options),
        }
        writer = frames[name]().writeStream.option("checkpointLocation", rig.path("checkpoints", name))
        writer = writer.trigger(processingTime="0 seconds")
        if name == "through":
            return writer.format("amqp").options(url=rig.broker.url, queue="out").start()
        return writer.format("delta").start(rig.path("tables", name))

    def keep_running(self) -> None:
        for name in ("plain", "grouped", "several", "chosen", "urgent", "through"):
            query = self.queries.get(name)
            if query is None or not query.isActive:
                self.queries[name] = self.start(name)

    def left(self) -> int:
        """Return the number of messages that are not settled yet."""
        return sum(
            self.rig.counts(queue)[1] + (self.rig.counts(queue)[0] if queue not in ("chosen", "out") else self._odd())
            for queue in QUEUES
            if queue != "out"
        )

    def _odd(self) -> int:
        return int(self.rig.look("chosen", selector="JMSType = 'odd'").count())


@pytest.mark.timeout(86_400)
def test_streams_of_every_kind_under_kills(rig: Rig) -> None:
    random = Random(SEED)
    print("seed", SEED)
    for queue, options in QUEUES.items():
        named = dict(options)
        rig.client.call("queue.declare", queue=queue, type=named.pop("type", "fifo"), options=named)
    feeder, matrix = Feeder(rig), Matrix(rig)
    feeder.write()
    matrix.keep_running()
    end, kills = time.monotonic() + SECONDS, 0
    while kills < KILLS or time.monotonic() < end:
        before = sum(rig.counts(queue)[2] for queue in QUEUES)
        for _ in range(random.randint(1, 3)):
            feeder.write()
        # After some progress since the last kill, the next one comes at a random moment.
        rig.until(lambda before=before: sum(rig.counts(queue)[2] for queue in QUEUES) > before, "something is settled")
        time.sleep(random.random())
        rig.broker.kill()
        rig.broker.start()
        kills += 1
        matrix.keep_running()

    def all_settled() -> bool:
        matrix.keep_running()
        return matrix.left() == 0

    rig.until(all_settled, "all is settled", 600)
    for query in rig.spark.streams.active:
        query.stop()
    every = Counter(str(i) for i in range(feeder.written * ROWS))
    odd = Counter(str(i) for i in range(1, feeder.written * ROWS, 2))
    assert arrived(rig, "plain") == arrived(rig, "grouped") == arrived(rig, "urgent") == every
    assert arrived(rig, "several") == Counter(dict.fromkeys(every, 2))
    assert arrived(rig, "chosen") == odd
    assert Counter(rig.bodies("out")) == every
    print(f"{kills} kills, {feeder.written * ROWS} messages in each of {len(QUEUES) - 1} queues")


def arrived(rig: Rig, table: str) -> Counter[str]:
    frame = rig.spark.read.format("delta").load(rig.path("tables", table)).selectExpr("cast(body as string) body")
    return Counter(row.body for row in frame.collect())

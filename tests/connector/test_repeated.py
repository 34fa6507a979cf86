"""W1: queue to queue, driven as Spark drives it, without Spark: after any repetition, every message arrives once or waits.

tests/spark/test_repeated.py does some of this with Spark itself.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.sink import writer as sink
from penstock.connector.sink.writer import BatchWriter, StageReport, StreamWriter
from penstock.connector.task import partition
from penstock.connector.task.context import MicroBatch

from ..waiting import until
from .helpers import INITIAL, LIMIT, Queue

SCHEMA = StructType([StructField("body", BinaryType())])
_ids = itertools.count()


class Checkpoint:
    """Checkpoint as Spark keeps it: the query's id, the end of each batch that was begun, and which was finished."""

    def __init__(self) -> None:
        self.query = f"query {next(_ids)}"
        self.ends: list[dict[str, Any]] = []
        self.finished = 0


class Killed(Exception):
    pass


class Spark:
    """Runs batches of a query from `queue` into `out`, and dies at a given step."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        queue: Queue,
        out: str,
        checkpoint: Checkpoint,
        *,
        app: str | None = None,
        **more: str,
    ) -> None:
        self.patch, self.queue, self.out, self.checkpoint, self.app = monkeypatch, queue, out, checkpoint, app
        self.reader = queue.reader(maxMessagesPerTrigger="3", **more)

    def run(self, batches: int, die: str = "") -> None:
        """`die`, in the last of them: after `read`, after `publish`, or never."""
        for left in range(batches, 0, -1):
            checkpoint = self.checkpoint
            start = checkpoint.ends[checkpoint.finished - 1] if checkpoint.finished else INITIAL
            if len(checkpoint.ends) == checkpoint.finished:
                end = self.reader.latestOffset(start, LIMIT)
                if end == start:
                    return
                checkpoint.ends.append(end)
            self._batch(start, checkpoint.ends[-1], die if left == 1 else "")
            checkpoint.finished += 1

    def _batch(self, start: dict[str, Any], end: dict[str, Any], die: str) -> None:
        """The rows are pulled before the sink's task runs a line: Spark's JVM feeds it ahead of its asking."""
        now = MicroBatch(self.checkpoint.query, len(self.checkpoint.ends) - 1)
        self.patch.setattr(partition, "spark_batch", lambda: now)
        self.patch.setattr(sink, "spark_batch", lambda: now)
        parts = self.reader.partitions(start, end)
        rows = [pa.record_batch({"body": batch.column("body")}) for part in parts for batch in self.reader.read(part)]
        if die == "read":
            raise Killed
        options = {"url": self.queue.broker.url, "queue": self.out}
        if self.app is None:
            stream = StreamWriter(Options(options), SCHEMA, False)
            stream.commit([stream.write(iter([batch])) for batch in rows], now.number)
        else:
            options |= {"txnAppId": self.app, "txnVersion": str(now.number)}
            writer = BatchWriter(Options(options), SCHEMA, False)
            tasks = [writer.write(iter([batch])) for batch in rows]
            assert all(isinstance(task, StageReport) for task in tasks)
            writer.commit(tasks)
        if die == "publish":
            raise Killed


def waiting(client: Client, queue: str) -> list[bytes]:
    batches = client.get(op="browse", queue=queue, columns=["body"], states=["available", "acquired"])
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.fixture
def out(queue: Queue) -> str:
    name = queue.name[:200] + " out"
    queue.client.call("queue.declare", queue=name)
    return name


def until_all_is_sent(spark: Spark, count: int) -> None:
    """Nothing is lost on the way, and in the end each has arrived once."""

    def sent() -> bool:
        if spark.queue.counts() != (0, 0, count):
            spark.run(30)  # returns early where batches that sent nothing are held back for a moment
        return spark.queue.counts() == (0, 0, count)

    until(sent, lambda: f"all is sent; the counts are {spark.queue.counts()}", limit_s=60)
    assert sorted(waiting(spark.queue.client, spark.out), key=int) == [b"%d" % n for n in range(count)]


def test_a_version_that_does_not_rise_with_the_batch_is_said(
    queue: Queue, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W1: with any rows, the write counts as a write of its micro-batch; other sinks get those messages again."""
    query = f"query {next(_ids)}"
    options = Options({"url": queue.broker.url, "queue": out, "txnAppId": f"marker {query}", "txnVersion": "1"})

    def write(batch: MicroBatch | None) -> list[str]:
        caplog.clear()
        monkeypatch.setattr(sink, "spark_batch", lambda: batch)
        writer = BatchWriter(options, SCHEMA, False)
        writer.commit([writer.write(iter([pa.record_batch({"body": pa.array([b"marker"])})]))])
        return [record.getMessage() for record in caplog.records]

    assert write(MicroBatch(query, 0)) == []
    (warning,) = write(MicroBatch(query, 1))
    assert f"batch 1 of query {query}" in warning
    assert "a txnVersion that rises with the batch" in warning
    assert write(None) == [], "outside of a foreachBatch it has read nothing"
    assert waiting(queue.client, out) == [b"marker"]


KINDS = pytest.mark.parametrize("app", [None, "constant"])
DEATHS = pytest.mark.parametrize("die", ["", "read", "publish"])


@KINDS
@DEATHS
@pytest.mark.parametrize("settled", [False, True])
def test_an_older_checkpoint(
    queue: Queue, out: str, monkeypatch: pytest.MonkeyPatch, app: str | None, die: str, settled: bool
) -> None:
    """The later one had published its last batch, or had read it and died, or died after the publish, or had settled it too."""
    checkpoint = Checkpoint()
    name = None if app is None else f"{app} {checkpoint.query}"
    queue.send(20)
    Spark(monkeypatch, queue, out, checkpoint, app=name).run(2)
    older = deepcopy(checkpoint)
    later = Spark(monkeypatch, queue, out, checkpoint, app=name)
    if settled:
        later.run(2)
        later.reader.latestOffset(checkpoint.ends[-1], LIMIT)  # and the next batch was taken, but not read
    elif die:
        with pytest.raises(Killed):
            later.run(3, die)
    else:
        later.run(3)
    until_all_is_sent(Spark(monkeypatch, queue, out, older, app=name, failOnDataLoss="false"), 20)


@KINDS
@DEATHS
def test_a_restart_from_the_same_checkpoint(
    queue: Queue, out: str, monkeypatch: pytest.MonkeyPatch, app: str | None, die: str
) -> None:
    checkpoint = Checkpoint()
    name = None if app is None else f"{app} {checkpoint.query}"
    queue.send(10)
    for _ in range(2 if die else 1):  # the same batch again, and again it dies
        spark = Spark(monkeypatch, queue, out, checkpoint, app=name)
        if die:
            with pytest.raises(Killed):
                spark.run(2 if checkpoint.finished == 0 else 1, die)
        else:
            spark.run(2)
    until_all_is_sent(Spark(monkeypatch, queue, out, checkpoint, app=name), 10)


@DEATHS
def test_a_constant_application_and_a_new_checkpoint(queue: Queue, out: str, monkeypatch: pytest.MonkeyPatch, die: str) -> None:
    app = queue.name[:200]
    queue.send(9)
    Spark(monkeypatch, queue, out, Checkpoint(), app=app).run(30)
    again = Checkpoint()
    batch = pa.record_batch({"body": pa.array([b"%d" % n for n in range(9, 18)])})
    queue.client.put({"op": "enqueue", "queue": queue.name}, batch.schema, [batch])
    spark = Spark(monkeypatch, queue, out, again, app=app)
    if die:
        with pytest.raises(Killed):
            spark.run(2, die)
        spark = Spark(monkeypatch, queue, out, again, app=app)
    until_all_is_sent(spark, 18)

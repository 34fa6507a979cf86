"""S1: a driver dies at each step of a batch, alone or with the broker; a worker dies; a sink skips: each message once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql import DataFrame

#: A driver whose source kills it, with its JVM, at one step of its second batch.
DRIVER = """
import json, os, signal, sys, time
from pyspark.sql import SparkSession
from penstock import connector
from penstock.connector.offset import parse
from penstock.connector.source import AmqpSource
from penstock.connector.stream import StreamReader

step, settings, url, table, checkpoint = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:]
group = os.getpgid(0)

def die():
    os.killpg(group, signal.SIGKILL)
    time.sleep(600)  # a worker outside the group waits for its own end

class Dying(StreamReader):
    def latestOffset(self, start, limit):
        if step == "before settling" and parse(start).batch == 2:
            die()
        end = super().latestOffset(start, limit)
        if step == "before the plan" and parse(start).batch == 1 and parse(end).batch == 2:
            die()
        return end

    def partitions(self, start, end):
        parts = super().partitions(start, end)
        if step == "after the plan" and parse(end).batch == 2:
            die()
        return parts

    def read(self, part):
        for batch in super().read(part):
            yield batch
            if step == "while reading" and part.batch == 2:
                die()

class DyingSource(AmqpSource):
    @classmethod
    def name(cls):
        return "dying"

    def streamReader(self, schema):
        return Dying(self._options, schema)

builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(DyingSource)
frame = spark.readStream.format("dying").options(url=url, queue="orders", maxMessagesPerTrigger="10", minPartitions="2").load()

def save(batch, number):
    app = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number).save(table)
    if number == 1:
        die()

writer = frame.writeStream.option("checkpointLocation", checkpoint)
if step == "after the sink's commit":
    writer.foreachBatch(save).start()
else:
    writer.format("delta").start(table)
spark.streams.awaitAnyTermination()
"""

STEPS = ("before the plan", "after the plan", "while reading", "after the sink's commit", "before settling")

#: How long a driver may take to its death: three batches, on a machine that is busy with other tests.
DRIVER_S = 600


@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(rig: Rig, settings: dict[str, str], step: str) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 35)
    script = Path(rig.path("driver.py"))
    script.write_text(DRIVER)
    arguments = [step, json.dumps(settings), rig.broker.url, rig.path("table"), rig.path("checkpoint")]
    with open(rig.path("driver.log"), "wb") as said:
        driver = subprocess.Popen([sys.executable, str(script), *arguments], stdout=said, stderr=said, start_new_session=True)
        try:
            code: int | str = driver.wait(DRIVER_S)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            code = f"none within {DRIVER_S} s"
    assert code == -signal.SIGKILL, Path(rig.path("driver.log")).read_text(errors="replace")[-3000:]
    available, acquired, archived = rig.counts("orders")
    assert (available, acquired + archived) == (15, 20)  # it died with the second batch acquired
    if step in ("while reading", "before settling"):  # and the broker with it
        rig.broker.kill()
        rig.broker.start()
    go_on(rig, step)
    assert rig.table() == list(range(35))
    assert rig.counts("orders") == (0, 0, 35)


def go_on(rig: Rig, step: str) -> None:
    frame = rig.stream("orders", maxMessagesPerTrigger="10")
    if step != "after the sink's commit":
        rig.drain(frame)
        return

    def save(batch: DataFrame, number: int) -> None:
        app = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert app
        batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number).save(rig.path("table"))

    writer = frame.writeStream.foreachBatch(save).option("checkpointLocation", rig.path("checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_python_worker_that_dies_while_reading_costs_nothing(rig: Rig) -> None:
    from penstock.connector.source import AmqpSource
    from penstock.connector.stream import StreamReader

    died = Path(rig.path("died"))

    class Fragile(StreamReader):
        def read(self, partition: Any) -> Iterator[Any]:
            for batch in super().read(partition):
                yield batch
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), 9)

    class FragileSource(AmqpSource):
        @classmethod
        def name(cls) -> str:
            return "fragile"

        def streamReader(self, schema: Any) -> StreamReader:
            return Fragile(self._options, schema)

    rig.spark.dataSource.register(FragileSource)
    rig.declare("orders")
    rig.send("orders", 0, 50)

    def run() -> None:
        reader = rig.spark.readStream.format("fragile").options(url=rig.broker.url, queue="orders", maxMessagesPerTrigger="20")
        rig.drain(reader.load())

    try:
        run()
    except StreamingQueryException:  # where Spark gives a task one attempt, the query ends and is started again
        run()
    assert died.exists()
    assert rig.table() == list(range(50))
    assert rig.counts("orders") == (0, 0, 50)


def test_a_constant_transaction_id_under_a_new_checkpoint_settles_nothing_unseen(rig: Rig) -> None:
    """Delta believes to have the batch and skips it, without reading: the messages must not be settled for that."""
    rig.declare("orders")

    def run(checkpoint: str) -> None:
        def save(frame: DataFrame, batch: int) -> None:
            writer = frame.write.format("delta").mode("append").option("txnAppId", "a constant")
            writer.option("txnVersion", batch).save(rig.path("table"))

        writer = rig.stream("orders").writeStream.foreachBatch(save).option("checkpointLocation", rig.path(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    rig.send("orders", 0, 10)
    run("first")
    rig.send("orders", 10, 10)
    run("second")
    assert rig.table() == list(range(10))
    assert rig.counts("orders") == (10, 0, 10)
    assert rig.client.call("queue.stat", queue="orders")["unread"] == 10
    rig.drain(rig.stream("orders"), table="all", checkpoint="third")
    assert rig.table("all") == list(range(10, 20))


def test_a_batch_number_that_delta_has_already_is_skipped_and_its_messages_come_with_the_next(rig: Rig) -> None:
    """Offsets and commits were deleted by hand, the query's id was not: Delta skips the number, and nobody reads the batch."""
    rig.declare("orders")
    rig.send("orders", 0, 10)
    rig.drain(rig.stream("orders"))
    for folder in ("offsets", "commits"):
        shutil.rmtree(rig.path("checkpoint", folder))
    rig.send("orders", 10, 10)
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(10))
    assert rig.counts("orders") == (10, 0, 10)  # given back, not settled unseen
    assert rig.client.call("queue.stat", queue="orders")["unread"] == 10
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(20))
    assert rig.counts("orders") == (0, 0, 20)


def test_asynchronous_progress_tracking_is_refused_with_delta_and_takes_nothing(rig: Rig) -> None:
    """Exactly once it would not be; Spark itself says so before anything starts."""
    rig.declare("orders")
    rig.send("orders", 0, 40)
    writer = rig.stream("orders").writeStream.format("delta").option("checkpointLocation", rig.path("checkpoint"))
    with pytest.raises(IllegalArgumentException, match="does not support async progress tracking"):
        writer.option("asyncProgressTrackingEnabled", "true").start(rig.path("table"))
    assert rig.counts("orders") == (40, 0, 0)
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(40))

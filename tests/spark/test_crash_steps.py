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

#: A driver with a query for each step. Each stops there in its second batch. The last of them kills the driver and its JVM.
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from penstock import connector
from penstock.connector.source import AmqpSource
from penstock.connector.stream.reader import StreamReader

steps, settings, url, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
group = os.getpgid(0)

def die(step):
    (folder / (step + ".reached")).touch()
    if all((folder / (each + ".reached")).exists() for each in steps):
        os.killpg(group, signal.SIGKILL)
    while True:
        signal.pause()  # the other queries wait; a worker outside the group waits for its end

def batch(offset):
    return max(offset.get("batches", {}).values(), default=0)

class Dying(StreamReader):
    @property
    def step(self):
        (queue,) = self._options["queue"]
        return queue

    def latestOffset(self, start, limit):
        if self.step == "before settling" and batch(start) == 2:
            die(self.step)
        end = super().latestOffset(start, limit)
        if self.step == "before the plan" and batch(start) == 1 and batch(end) == 2:
            die(self.step)
        return end

    def partitions(self, start, end):
        parts = super().partitions(start, end)
        if self.step == "after the plan" and batch(end) == 2:
            die(self.step)
        return parts

    def read(self, part):
        for batch in super().read(part):
            yield batch
            if self.step == "while reading" and part.batch == 2:
                die(self.step)

class DyingSource(AmqpSource):
    @classmethod
    def name(cls):
        return "dying"

    def streamReader(self, schema):
        return Dying(self._options, schema)

builder = SparkSession.builder.master("local[8]")  # for tasks that wait at their step, and one that works
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(DyingSource)

def save(batch, number):
    app = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    table = str(folder / "after the sink's commit")
    batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number).save(table)
    if number == 1:
        die("after the sink's commit")

for step in steps:
    options = {"url": url, "queue": step, "maxMessagesPerTrigger": "10", "minPartitions": "2"}
    frame = spark.readStream.format("dying").options(**options).load()
    writer = frame.writeStream.option("checkpointLocation", str(folder / (step + ".checkpoint")))
    if step == "after the sink's commit":
        query = writer.foreachBatch(save).start()
    else:
        query = writer.format("delta").start(str(folder / step))
    while not (folder / (step + ".reached")).exists() and not query.awaitTermination(0.1):
        pass  # Spark gives its Python workers ten seconds to start: one query after the other
"""

ALONE = ("before the plan", "after the plan", "after the sink's commit")
WITH_THE_BROKER = ("while reading", "before settling")
STEPS = (*ALONE, *WITH_THE_BROKER)

#: Limit for the driver's death: three batches of each query, while other tests run.
DRIVER_S = 600


@pytest.mark.timeout(900)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(rig: Rig, settings: dict[str, str]) -> None:
    for step in STEPS:
        rig.declare(step)
        rig.send(step, 0, 35)
    script = Path(rig.path("driver.py"))
    script.write_text(DRIVER)
    arguments = [json.dumps(STEPS), json.dumps(settings), rig.broker.url, rig.path()]
    with open(rig.path("driver.log"), "wb") as log:
        driver = subprocess.Popen([sys.executable, str(script), *arguments], stdout=log, stderr=log, start_new_session=True)
        try:
            code: int | str = driver.wait(DRIVER_S)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            code = f"none within {DRIVER_S} s"
    assert code == -signal.SIGKILL, Path(rig.path("driver.log")).read_text(errors="replace")[-3000:]
    for step in STEPS:
        available, acquired, archived = rig.counts(step)
        assert (step, available, acquired + archived) == (step, 15, 20)  # it died with the second batch acquired
    for step in ALONE:
        go_on(rig, step)
    rig.broker.kill()
    rig.broker.start()
    for step in WITH_THE_BROKER:
        go_on(rig, step)
    for step in STEPS:
        assert (step, rig.table(step)) == (step, list(range(35)))
        assert (step, rig.counts(step)) == (step, (0, 0, 35))


def go_on(rig: Rig, step: str) -> None:
    frame = rig.stream(step, maxMessagesPerTrigger="10")
    if step != "after the sink's commit":
        rig.drain(frame, table=step, checkpoint=f"{step}.checkpoint")
        return

    def save(batch: DataFrame, number: int) -> None:
        app = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert app
        batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number).save(rig.path(step))

    writer = frame.writeStream.foreachBatch(save).option("checkpointLocation", rig.path(f"{step}.checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_python_worker_that_dies_while_reading_costs_nothing(rig: Rig) -> None:
    from penstock.connector.source import AmqpSource
    from penstock.connector.stream.reader import StreamReader

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
    except StreamingQueryException:  # if Spark gives a task one attempt, the query fails and is restarted
        run()
    assert died.exists()
    assert rig.table() == list(range(50))
    assert rig.counts("orders") == (0, 0, 50)


def test_a_constant_transaction_id_under_a_new_checkpoint_settles_nothing_unseen(rig: Rig) -> None:
    """Delta finds the batch number in its log and skips the batch unread: its messages must not be settled."""
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
    """Offsets and commits were deleted by hand, but not the query's id: Delta skips the number, and no task reads the batch."""
    rig.declare("orders")
    rig.send("orders", 0, 10)
    rig.drain(rig.stream("orders"))
    for folder in ("offsets", "commits"):
        shutil.rmtree(rig.path("checkpoint", folder))
    rig.send("orders", 10, 10)
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(10))
    assert rig.counts("orders") == (10, 0, 10)  # returned, not settled unread
    assert rig.client.call("queue.stat", queue="orders")["unread"] == 10
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(20))
    assert rig.counts("orders") == (0, 0, 20)


def test_asynchronous_progress_tracking_is_refused_with_delta_and_takes_nothing(rig: Rig) -> None:
    """Spark itself refuses the query before it starts: its writes would not be exactly once."""
    rig.declare("orders")
    rig.send("orders", 0, 40)
    writer = rig.stream("orders").writeStream.format("delta").option("checkpointLocation", rig.path("checkpoint"))
    with pytest.raises(IllegalArgumentException, match="does not support async progress tracking"):
        writer.option("asyncProgressTrackingEnabled", "true").start(rig.path("table"))
    assert rig.counts("orders") == (40, 0, 0)
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(40))

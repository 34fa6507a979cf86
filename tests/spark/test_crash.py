"""After any crash, each message is in the table exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Rig

#: A separate driver: a stream from a queue into Delta until it is killed.
DRIVER = """
import json, sys
from pyspark.sql import SparkSession
from penstock import connector
settings, url, table, checkpoint = json.loads(sys.argv[1]), *sys.argv[2:]
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
connector.register(spark)
frame = spark.readStream.format("amqp").options(url=url, queue="orders", maxMessagesPerTrigger="500").load()
writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint)
writer.trigger(processingTime="0 seconds").start(table)
print("started", flush=True)
spark.streams.awaitAnyTermination()
"""


@pytest.mark.timeout(600)
def test_a_killed_driver(rig: Rig, settings: dict[str, str]) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 20_000)
    script = Path(rig.path("driver.py"))
    script.write_text(DRIVER)
    arguments = [json.dumps(settings), rig.broker.url, rig.path("table"), rig.path("checkpoint")]
    with open(rig.path("driver.log"), "wb") as log:
        driver = subprocess.Popen([sys.executable, str(script), *arguments], stdout=log, stderr=log, start_new_session=True)
        try:
            # Some batches are settled, others wait.
            rig.until(lambda: rig.counts("orders")[2] >= 1000, "some batches are settled")
        finally:
            _kill_group(driver)
    available, acquired, archived = rig.counts("orders")
    assert available + acquired > 0
    assert available + acquired + archived == 20_000
    # The next driver takes the lease, under a new epoch, and its batch.
    rig.drain(rig.stream("orders", maxMessagesPerTrigger="10000"))
    assert rig.table() == list(range(20_000))
    assert rig.counts("orders") == (0, 0, 20_000)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and its Python workers together, as the loss of a machine does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_killed_broker_ends_no_query_that_is_between_two_batches(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 100)
    writer = rig.stream("orders").writeStream.format("delta").option("checkpointLocation", rig.path("checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start(rig.path("table"))
    rig.until(lambda: rig.counts("orders") == (0, 0, 100), "the first hundred are settled")
    rig.broker.kill()
    time.sleep(1)  # the outage: an idle query asks every 10 ms, without an answer
    rig.broker.start()
    rig.send("orders", 100, 100)
    rig.until(lambda: rig.counts("orders") == (0, 0, 200), "all are settled")
    query.stop()
    assert rig.table() == list(range(200))


def test_a_broker_killed_again_and_again_while_a_query_runs(rig: Rig) -> None:
    """A query that fails is restarted, as an orchestrator does."""
    rig.declare("orders")
    rig.send("orders", 0, 3000)

    def start() -> None:
        writer = rig.stream("orders", maxMessagesPerTrigger="300").writeStream.format("delta")
        writer.option("checkpointLocation", rig.path("checkpoint")).trigger(processingTime="0 seconds").start(rig.path("table"))

    start()
    for _ in range(3):
        before = rig.counts("orders")[2]
        more = lambda: rig.counts("orders")[2] > before or not rig.spark.streams.active  # noqa: B023, E731 (called at once)
        rig.until(more, "more is settled, or the query has ended")
        rig.broker.kill()
        rig.broker.start()
        if not rig.spark.streams.active:
            start()

    def is_done() -> bool:
        if not rig.spark.streams.active:  # also a query that fails only now
            start()
        return rig.counts("orders") == (0, 0, 3000)

    rig.until(is_done, "all are settled")
    for query in rig.spark.streams.active:
        query.stop()
    assert rig.table() == list(range(3000))

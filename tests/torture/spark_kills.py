"""S1 S7: one stream on any version of Spark, while its driver, its broker or both are killed at random: each message once.

`./dev torture` runs it on Spark 4.1, PENSTOCK_TORTURE_SPARK names another version. PENSTOCK_TORTURE_KILLS is the number of
kills, by default as many as PENSTOCK_TORTURE_S seconds allow. PENSTOCK_TORTURE_SEED chooses them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..spark_versions.environments import Environment, python_of, variables_for
from ..waiting import until

VERSION = os.environ.get("PENSTOCK_TORTURE_SPARK", "4.1.4")
SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261128"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "60"))
KILLS = int(os.environ.get("PENSTOCK_TORTURE_KILLS", "0"))
LEAST_KILLS = 3  # also if time is over
ROWS = 15_000  # sent before each kill
BATCH = 3_000  # messages of a trigger
LIMIT_S, LOOK_S = 600.0, 0.3

#: A driver: a stream from the queue into Parquet files, each batch once by the log of Spark's sink. `count` reads the files.
DRIVER = """
import json, os, sys
from pyspark.sql import SparkSession
import penstock
job, url, folder, most = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "300s",
}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
if job == "count":
    rows = spark.read.parquet(folder + "/table")
    counts = rows.selectExpr("count(*) rows", "count(distinct n) numbers", "min(n) first", "max(n) last").first().asDict()
    print(json.dumps({**counts, "spark": spark.version}))
else:
    penstock.register(spark)
    frame = spark.readStream.format("amqp").options(url=url, queue="orders", maxMessagesPerTrigger=most).load()
    writer = frame.selectExpr("cast(cast(body as string) as long) n").writeStream.format("parquet")
    writer = writer.option("path", folder + "/table").option("checkpointLocation", folder + "/checkpoint")
    writer.trigger(processingTime="0 seconds").start().awaitTermination()
"""


class Rig:
    """The broker, and at most one driver, which is started again when it has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent, self.drivers, self.python = folder, 0, 0, python_of(Environment(VERSION))
        (folder / "package").mkdir()
        (folder / "package" / "penstock").symlink_to(Path(penstock.__file__).resolve().parent)
        (folder / "driver.py").write_text(DRIVER)
        self.broker = Broker(folder / "broker").start()
        self.driver: subprocess.Popen[bytes] | None = None
        self.call("queue.declare", queue="orders")

    def call(self, action: str, **fields: Any) -> dict[str, Any]:
        with Client(self.broker.url) as client:
            return client.call(action, **fields)

    def send(self, count: int) -> None:
        bodies = [b"%d" % number for number in range(self.sent, self.sent + count)]
        batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        with Client(self.broker.url) as client:
            client.put({"op": "enqueue", "queue": "orders"}, batch.schema, [batch])
        self.sent += count

    @property
    def archived(self) -> int:
        return int(self.call("queue.stat", queue="orders")["archived"])

    def command(self, job: str) -> list[str]:
        return [str(self.python), str(self.folder / "driver.py"), job, self.broker.amqp_url, str(self.folder), str(BATCH)]

    @property
    def environment(self) -> dict[str, str]:
        return {**variables_for(self.python), "PYTHONPATH": str(self.folder / "package")}

    def has_settled(self, count: int) -> bool:
        """Start a driver if none runs: a query that loses its broker may fail, and is restarted like by an orchestrator."""
        if self.driver is None or self.driver.poll() is not None:
            self.drivers += 1
            with (self.folder / "driver.log").open("ab") as log:
                self.driver = subprocess.Popen(
                    self.command("stream"), stdout=log, stderr=log, env=self.environment, start_new_session=True
                )
        time.sleep(LOOK_S)  # a busier look would slow the driver down
        return self.archived >= count

    def kill_driver(self) -> None:
        """Kill the driver, its JVM and its Python workers together, as the loss of a machine does."""
        if self.driver is not None and self.driver.poll() is None:
            os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()

    def log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-3000:]


@pytest.mark.timeout(86_400)
def test_random_kills_of_driver_and_broker(tmp_path: Path) -> None:
    dice, end = Random(SEED), time.monotonic() + SECONDS
    kills: dict[str, int] = dict.fromkeys(("driver", "broker", "driver and broker"), 0)
    rig = Rig(tmp_path)
    try:
        while (done := sum(kills.values())) < (KILLS or LEAST_KILLS) or (not KILLS and time.monotonic() < end):
            rig.send(ROWS)
            before = rig.archived
            after = dice.randrange(1, 4 * BATCH)
            count = min(before + after, rig.sent)
            until(lambda count=count: rig.has_settled(count), lambda: f"kill {done} needs progress: {rig.log()}", limit_s=LIMIT_S)
            time.sleep(dice.random())
            victim = dice.choice(sorted(kills))
            kills[victim] += 1
            if "broker" in victim:
                rig.broker.kill()
            if "driver" in victim:
                rig.kill_driver()
            if "broker" in victim:
                rig.broker.start()
        until(lambda: rig.has_settled(rig.sent), lambda: f"not all is settled: {rig.log()}", limit_s=3 * LIMIT_S)
        rig.kill_driver()
        counted = subprocess.run(rig.command("count"), env=rig.environment, capture_output=True, text=True, check=True)
        table = json.loads(counted.stdout.splitlines()[-1])
        lost, doubled = rig.sent - table["numbers"], table["rows"] - table["numbers"]
        shown = f"{rig.drivers} drivers, {rig.sent} messages: {lost} lost, {doubled} doubled"
        print(f"seed {SEED}, Spark {table['spark']}: {kills}, {shown}")
        assert (lost, doubled, table["first"], table["last"]) == (0, 0, 0, rig.sent - 1)
    finally:
        rig.kill_driver()
        rig.broker.stop()

"""One SparkSession and one JVM for the whole run; a separate broker for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING

import pytest

from .. import waiting
from ..clients.building import MissingTool, command_of

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from penstock import Broker
    from penstock.broker_core.client.flight import Client

from penstock.jobs.session import DELTA  # after the check above

#: For every session of a test, in this process or another.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.authenticate.socketTimeout": "300s",  # for a worker's start: 15 s are not enough while other tests run
    "spark.sql.session.timeZone": "Europe/Berlin",  # not UTC: so that errors with zones are visible
    **DELTA,
    "spark.databricks.delta.snapshotPartitions": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from penstock import connector

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")  # Spark's workers do not look for credentials on the network
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with suppress(MissingTool, SubprocessError):  # the test that needs them names the missing tool
        builder = builder.config("spark.jars", ",".join(command_of("hadoop_aws")))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    connector.register(session)
    yield session
    session.stop()


@pytest.fixture
def settings() -> dict[str, str]:
    """Return the settings of a session in another process."""
    return SETTINGS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    from penstock import Broker

    with Broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    from penstock.broker_core.client.flight import Client

    with Client(broker.url) as connected:
        yield connected


class Rig:
    """A broker with a client, and a session."""

    def __init__(self, spark: SparkSession, broker: Broker, client: Client, folder: Path) -> None:
        self.spark, self.broker, self.client, self.folder = spark, broker, client, folder

    def declare(self, *queues: str) -> None:
        for queue in queues:
            self.client.call("queue.declare", queue=queue)

    def send(self, queue: str, first: int, count: int) -> None:
        """Send messages whose body is their number as text."""
        import pyarrow as pa

        batch = pa.record_batch({"body": pa.array([str(i).encode() for i in range(first, first + count)])})
        self.client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])

    def counts(self, queue: str) -> tuple[int, int, int]:
        """Return the numbers of available, acquired and archived messages."""
        stat = self.client.call("queue.stat", queue=queue)
        return stat["available"], stat["acquired"], stat["archived"]

    def stream(self, queue: str, **options: str) -> DataFrame:
        return self.spark.readStream.format("amqp").options(url=self.broker.url, queue=queue, **options).load()

    def look(self, queue: str, **options: str) -> DataFrame:
        return self.spark.read.format("amqp").options(url=self.broker.url, queue=queue, **options).load()

    def bodies(self, queue: str) -> list[str]:
        """Return the bodies of available messages, in order."""
        rows = self.look(queue).selectExpr("sequenceNumber", "cast(body as string) as body").collect()
        return [row.body for row in sorted(rows)]

    def write(self, frame: DataFrame, queue: str | None = None, **options: str) -> None:
        named = options if queue is None else {"queue": queue, **options}
        frame.write.format("amqp").options(url=self.broker.url, **named).mode("append").save()

    def drain(self, frame: DataFrame, table: str = "table", checkpoint: str = "checkpoint") -> StreamingQuery:
        """Drain a stream into a Delta table with availableNow."""
        writer = frame.writeStream.format("delta").option("checkpointLocation", self.path(checkpoint))
        query = writer.trigger(availableNow=True).start(self.path(table))
        query.awaitTermination()
        return query

    def table(self, name: str = "table") -> list[int]:
        """Return the numbers in a table, in order, with duplicates."""
        rows = self.spark.read.format("delta").load(self.path(name)).selectExpr("cast(cast(body as string) as int) n")
        return sorted(row.n for row in rows.collect())

    def path(self, *names: str) -> str:
        return str(self.folder.joinpath(*names))

    def until(self, condition: Callable[[], bool], event: str, limit_s: float = 200.0) -> None:
        """Wait for an effect of a query or the broker."""
        waiting.until(condition, event, limit_s=limit_s)


@pytest.fixture
def rig(spark: SparkSession, broker: Broker, client: Client, tmp_path: Path) -> Iterator[Rig]:
    yield Rig(spark, broker, client, tmp_path)
    for query in spark.streams.active:
        query.stop()

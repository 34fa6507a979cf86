"""One SparkSession and one JVM for the whole run; a broker of its own for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from broker_core import Broker
    from broker_core.client import Client

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
# What that jar names and Spark does not need here: two jars are enough.
EXCLUDED = (
    "io.unitycatalog:unitycatalog-client,io.unitycatalog:unitycatalog-hadoop,io.delta:delta-kernel-api,"
    "io.delta:delta-kernel-defaults,io.delta:delta-kernel-unitycatalog,org.slf4j:slf4j-api"
)

#: For every session a test starts, in this process or another.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "Europe/Berlin",  # not UTC: a mistake with zones shows
    "spark.jars.packages": DELTA,
    "spark.jars.excludes": EXCLUDED,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
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

    import connector

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    connector.register(session)
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    from broker_core import Broker

    with Broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    from broker_core.client import Client

    with Client(broker.url) as connected:
        yield connected

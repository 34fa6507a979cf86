"""The scenarios use the helpers of tests/spark. Their brokers record settled messages immediately."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock

from ..spark.conftest import SETTINGS, client, rig, settings

__all__ = ["broker", "client", "rig", "settings", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("penstock-scenarios")
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    for name, value in {**SETTINGS, "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    penstock.register(session)
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(tmp_path / "broker", archive_after_s=0.1) as running:
        yield running

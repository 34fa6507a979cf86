"""The Spark session of the jobs, the demo, the notebooks and the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.connector.spark_settings import delta_settings, recommended_settings

#: Of the installed Spark.
DELTA = delta_settings(pyspark.__version__)
RECOMMENDED = recommended_settings(pyspark.__version__)

#: For one machine: no web page, no progress bars in the output, no 200 tasks for a small shuffle.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def builder(app: str, confs: Mapping[str, str] | None = None, *, delta: bool = True) -> SparkSession.Builder:
    # Otherwise Spark's workers are the `python3` of PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Four attempts for a task, as on a cluster.
    building = SparkSession.builder.appName(app).master("local[*,4]")
    for name, value in {**LOCAL, **(DELTA if delta else {}), **RECOMMENDED, **(confs or {})}.items():
        building = building.config(name, value)
    return building


@contextmanager
def _output_in(log: Path) -> Iterator[None]:
    """Redirect stdout and stderr. A Spark that starts meanwhile keeps writing to the file."""
    saved = os.dup(1), os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for copy, descriptor in zip(saved, (1, 2), strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def session(app: str, confs: Mapping[str, str] | None = None, *, log: Path | None = None) -> SparkSession:
    """Return the session of spark-submit, otherwise a local one from `builder`.

    Args:
        app: Name of the application.
        confs: Further settings.
        log: File for the output of a local Spark. None: the output of this program.

    Raises:
        RuntimeError: A local Spark did not start; the text names the log.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        try:
            with nullcontext() if log is None else _output_in(log):
                return builder(app, confs).getOrCreate()
        except PySparkRuntimeError as error:
            if log is None:
                raise
            raise RuntimeError(f"Spark did not start: read its output in {log}") from error
    spark = SparkSession.builder.appName(app).getOrCreate()
    conf = spark.sparkContext.getConf()
    if DELTA and not conf.contains("spark.sql.extensions"):
        raise SystemExit(
            "this Spark was submitted without Delta; run `penstock conf spark > spark.conf` and submit it with"
            " --properties-file spark.conf, or with " + " ".join(f"--conf {name}={value}" for name, value in DELTA.items())
        )
    for name, value in {**RECOMMENDED, **(confs or {})}.items():
        # Others cannot change after Spark's start, and the right file manager depends on the checkpoint.
        if name.startswith(("spark.databricks.", "spark.sql.parquet.")) and not conf.contains(name):
            spark.conf.set(name, value)
    return spark

"""The Spark session that the jobs, the demo, the notebook and the tests share: Delta, and what makes small triggers quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    # Delta's other dependencies serve Unity Catalog; without them the jars resolve in seconds.
    "spark.jars.excludes": "io.unitycatalog:unitycatalog-client,io.unitycatalog:unitycatalog-hadoop,io.delta:delta-kernel-api,"
    "io.delta:delta-kernel-defaults,io.delta:delta-kernel-unitycatalog,org.slf4j:slf4j-api",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

#: Why, for each: conf/spark.conf.
RECOMMENDED = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    CHECKPOINT_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}

#: For one machine: no web page, no bars between our lines, no 200 tasks for a small shuffle.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def builder(app: str, confs: Mapping[str, str] | None = None, *, delta: bool = True) -> SparkSession.Builder:
    """A builder with Delta and the recommended confs; `confs` win. The master is local unless `confs` name one."""
    # Spark's workers would take the `python3` of PATH, which need not be the one that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Four attempts for a task, as on a cluster; plain local[*] fails the query at the first.
    building = SparkSession.builder.appName(app).master("local[*,4]")
    for name, value in {**LOCAL, **(DELTA if delta else {}), **RECOMMENDED, **(confs or {})}.items():
        building = building.config(name, value)
    return building


def session(app: str, confs: Mapping[str, str] | None = None) -> SparkSession:
    """The session of a job: under spark-submit what it was submitted with, otherwise a local one from `builder`."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return builder(app, confs).getOrCreate()
    spark = SparkSession.builder.appName(app).getOrCreate()
    conf = spark.sparkContext.getConf()
    if not conf.contains("spark.sql.extensions"):
        _require_delta_by_flags()
    for name, value in {**RECOMMENDED, **(confs or {})}.items():
        # The rest is fixed once Spark runs, and which file manager fits is for those who know where the checkpoint is.
        if name.startswith(("spark.databricks.", "spark.sql.parquet.")) and not conf.contains(name):
            spark.conf.set(name, value)
    return spark


def _require_delta_by_flags() -> None:
    raise SystemExit(
        "this Spark was submitted without Delta; run `penstock conf spark > spark.conf` and submit it with"
        " --properties-file spark.conf, or with " + " ".join(f"--conf {name}={value}" for name, value in DELTA.items())
    )

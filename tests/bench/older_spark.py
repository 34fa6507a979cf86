"""Runs in a Python with an older Spark: reads jobs as lines of JSON, and prints a figure for each.

A job is a stream from a queue or from the in-memory source. `drain` is one batch into noop, in seconds. `trigger` is the median
duration of triggers with one row, in milliseconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import pyspark
import spark_sources
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.connector.spark_settings import recommended_settings

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "4g",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def session() -> SparkSession:
    cloudpickle.register_pickle_by_value(spark_sources)
    building = SparkSession.builder.appName("penstock-bench").master("local[*]")
    for name, value in {**SETTINGS, **recommended_settings(pyspark.__version__)}.items():
        building = building.config(name, value)
    spark = building.getOrCreate()
    penstock.register(spark)
    spark_sources.register(spark)
    return spark


def drain(frame: DataFrame, folder: str, rows: int) -> float:
    begun = time.perf_counter()
    writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    seen = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert seen == rows, f"{seen} rows came, {rows} were sent"
    return seconds


def trigger(frame: DataFrame, folder: str) -> float:
    writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
    return spark_sources.trigger_ms(writer.trigger(processingTime="0 seconds").start())


def main() -> None:
    spark = session()
    jobs: dict[str, Any] = {"drain": drain, "trigger": trigger}
    for line in sys.stdin:
        job = json.loads(line)
        frame = spark.readStream.format(job["format"]).options(**job["options"]).load()
        with tempfile.TemporaryDirectory(dir=job["folder"]) as folder:
            print("figure", jobs[job["job"]](frame, folder, **job["arguments"]), flush=True)


if __name__ == "__main__":
    main()

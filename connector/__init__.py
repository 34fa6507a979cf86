"""Penstock's Spark connector: the data source `amqp`.

    from penstock import connector
    connector.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

Where the wheel is installed Spark finds the format by itself, and `register` is not needed. It is with `--py-files`
(see `connector.pyfiles`), and under Spark Connect, where it ships the connector to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("amqp")` known to this session. May be called again, and where Spark has found the format by itself."""
    from penstock.connector.registration import register_with

    register_with(spark)

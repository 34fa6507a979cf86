"""Penstock's Spark connector: the data source `amqp`.

    import penstock
    penstock.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

If the wheel is installed, Spark finds the format on its own. `register` is needed with `--py-files` (see
`penstock.connector.pyfiles`), and with Spark Connect, where it ships the connector to the server.

- source, registration: readers and writers for Spark's calls; registration of the format with a session
- options, schema, suggestions: the options, in one table; Spark's types of the columns; proposals for wrong names
- stream/, batch/, task/: planning of stream reads; batch reads; reads within a Spark task
- sink/: writes: stage, then publish once; outcomes of single messages
- brokers/, foreign/: several brokers behind one query and one write; brokers of other products
- offset, identity: the offset in Spark's checkpoint; identities of brokers
- access, backoff: a broker's address and credentials; waits for a broker that does not answer
- reporting, explanation: our errors in Spark's form; an error of Spark in one sentence
- workers: Spark's Python workers, with fewer tracebacks and shorter garbage collections
- pyfiles, _discovery: the zip for `--py-files`; the module by which Spark finds the format

The progress of a query is in Spark's checkpoint, and names durable data of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register `format("amqp")` with this session, and make the session active in this thread.

    It may be called again, also if Spark has found the format on its own.

    Args:
        spark: Session, of Spark's own or of Spark Connect.

    Raises:
        ImportError: PySpark is not installed.
    """
    from .registration import register_with

    register_with(spark)

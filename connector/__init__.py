"""Penstock's Spark connector: the data source `amqp`.

    import penstock
    penstock.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

If the wheel is installed, Spark finds the format by itself. `register` is needed with `--py-files` (see
`penstock.connector.pyfiles`), and with Spark Connect, where it ships the connector to the server.

source, registration   readers and writers for the calls of Spark; registration of the format with a session
options, schema        the options, in one table; Spark's types of the columns
suggestions            proposals for a wrong option or column, or a name in a selector
stream/                stream reads: planning, leases, replays
batch/                 batch reads, which acquire nothing
task/                  reads within a Spark task
sink/                  writes: stage, then publish once; outcomes of single messages
brokers/               several brokers behind one query and one write
foreign/               brokers of other products as source and sink
offset, identity       the offset in Spark's checkpoint; identities of brokers and leases
access, backoff        a broker's address and credentials; waits for a broker that does not answer
reporting, explanation our errors as Spark shows them; an error of Spark in one sentence
workers                Spark's Python workers: fewer tracebacks, shorter garbage collections
pyfiles, _discovery    the zip for `--py-files`; the module by which Spark finds the format

A query's progress is in Spark's checkpoint, and names durable data of the broker. A planner's epoch lives as long as its
process; a new planner has a new epoch. A task's connection is kept for half a minute, for another task with the same address
and login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("amqp")` known to this session, and to this thread, since a new Python thread knows of no session.

    It may be called again, and when Spark has found the format by itself.

    Args:
        spark: Session, of Spark's own or of Spark Connect.

    Raises:
        ImportError: PySpark is not installed.
    """
    from .registration import register_with

    register_with(spark)

"""Penstock's Spark connector: the data source `amqp`.

    import penstock
    penstock.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

If the wheel is installed, Spark finds the format by itself. `register` is needed with `--py-files` (see
`penstock.connector.pyfiles`), and with Spark Connect, where it ships the connector to the server.

source, registration   readers and writers for the calls of Spark; makes the format known to a session
options, schema        one table of options; Spark's types of the columns
suggestions            what was meant by an option or column that does not exist, or by a name in a selector
stream, consumer       a stream's planning; its offsets, on one queue or several
several, lease         several queues; the planner's side of one lease
backoff                waits for a broker that does not answer
offset, identity       what the checkpoint holds; what must not change under it
replay                 a stream out of the archive, which takes nothing
batch                  a batch read: looks, acquires nothing
partition, read        what the planner tells a task; a task's record batches, from the broker or from its files
recorded               messages in the archive's table: its files for the planner, their rows for a task
mapped, batching       files of the broker's journal, mapped; batches of the size that Spark wants
sink, settle           stage, then publish once; outcomes of single messages
access, connections    a broker's address and credentials; a task's connection, lent to the next task
context                query and attempt of a task
reporting, explanation our errors as Spark shows them; any of Spark's in one sentence
workers                Spark's Python workers: no traceback where Spark has closed the socket, short collections of garbage
brokers/               several brokers behind one query and one write
foreign/               any other AMQP 1.0 broker as the source of a stream
pyfiles, _discovery    the zip for `--py-files`; makes Spark find the format by itself

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

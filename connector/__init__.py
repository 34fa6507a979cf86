"""Penstock's Spark connector: the data source `amqp`.

    import penstock
    penstock.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

Where the wheel is installed Spark finds the format by itself, and `register` is not needed. It is with `--py-files`
(see `penstock.connector.pyfiles`), and under Spark Connect, where it ships the connector to the server.

source, registration   which reader or writer for which call of Spark; makes the format known to a session
options, schema        one table of options; Spark's types of the columns
stream, consumer       a stream's planning; its offsets, on one queue or several
several, lease         several queues; the planner's side of one lease
backoff                waits for a broker that is away
offset, identity       what the checkpoint holds; what must not change under it
batch                  a batch read: looks, acquires nothing
partition, read        what the planner tells a task; its record batches, from the broker or from files on its host
mapped, batching       files of the broker's journal, mapped; batches of the size that Spark wants
sink, settle           stage, then publish once; outcomes of single messages
access, connections    a broker's address and credentials; a task's connection, lent to the next task
context, explanation   which query and attempt a task is; the sentence that matters in an error of Spark's
pyfiles, _discovery    the zip for `--py-files`; makes Spark find the format by itself

A query's progress is in Spark's checkpoint, and names durable data of the broker. A planner's epoch lives as long as its
process; a new planner is a new epoch. A task's connection waits half a minute for another task with the same address and
login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("amqp")` known to this session. May be called again, and where Spark has found the format by itself."""
    from .registration import register_with

    register_with(spark)

"""Query, batch and attempt of a task, as Spark tells it."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from pyspark.taskcontext import TaskContext

# Where Spark's MicroBatchExecution tells its tasks whose they are; in `foreachBatch` too.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class SparkBatch(NamedTuple):
    """A micro-batch of a streaming query."""

    query: str
    number: int


def query_id() -> str | None:
    """The id of the streaming query that this task belongs to, if to any."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or None) if context else None


def spark_batch() -> SparkBatch | None:
    """The micro-batch that this task belongs to, if to any."""
    context, query = TaskContext.get(), query_id()
    batch = context.getLocalProperty(BATCH_ID) if context else None
    return SparkBatch(query, int(batch)) if query and batch else None


def attempt() -> int:
    """A number that no other attempt of a task of the same job has. Spark's own, which are near each other."""
    context = TaskContext.get()
    return secrets.randbits(53) if context is None else int(context.taskAttemptId())

"""Query, batch, partition and attempt of a task, as Spark tells it."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from pyspark.taskcontext import TaskContext

# Where Spark's MicroBatchExecution tells its tasks whose they are; in `foreachBatch` too.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class MicroBatch(NamedTuple):
    """A micro-batch of a streaming query."""

    query: str
    number: int


def query_id() -> str | None:
    """Return the id of the streaming query that this task belongs to; None if there is none."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or None) if context else None


def spark_batch() -> MicroBatch | None:
    """Return the micro-batch that this task belongs to; None if there is none."""
    context, query = TaskContext.get(), query_id()
    batch = context.getLocalProperty(BATCH_ID) if context else None
    return MicroBatch(query, int(batch)) if query and batch else None


def partition() -> int:
    """Return the number of the task's partition, the same in each of its attempts; 0 outside of a task."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def attempt() -> int:
    """Return a number that no other attempt of a task has: Spark's id of the attempt; outside of a task a random one."""
    context = TaskContext.get()
    return secrets.randbits(53) if context is None else int(context.taskAttemptId())

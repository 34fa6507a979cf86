"""Query, batch, partition and attempt of a task, from Spark's task context."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from pyspark.taskcontext import TaskContext

# Local properties that Spark's MicroBatchExecution sets for its tasks, and for those of `foreachBatch`.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class MicroBatch(NamedTuple):
    """A micro-batch of a streaming query."""

    query: str
    number: int


def query_id() -> str | None:
    """Return the id of the task's streaming query, or None."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or None) if context else None


def spark_batch() -> MicroBatch | None:
    """Return the task's micro-batch, or None."""
    context, query = TaskContext.get(), query_id()
    batch = context.getLocalProperty(BATCH_ID) if context else None
    return MicroBatch(query, int(batch)) if query and batch else None


def partition() -> int:
    """Return the number of the task's partition, the same in each of its attempts; 0 outside of a task."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def attempt() -> int:
    """Return a unique number of this attempt of a task: Spark's id of the attempt, outside of a task a random number."""
    context = TaskContext.get()
    return secrets.randbits(53) if context is None else int(context.taskAttemptId())

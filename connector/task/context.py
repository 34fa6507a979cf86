"""Query, batch, partition and attempt of a task, from Spark's task context."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from pyspark.taskcontext import TaskContext

# Local properties of the tasks of a micro-batch, and of those of its `foreachBatch`.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"  # of a micro-batch; its `foreachBatch` may set another one


class MicroBatch(NamedTuple):
    """Id of a streaming query, and number of its batch."""

    query: str
    number: int


def spark_batch() -> MicroBatch | None:
    context = TaskContext.get()
    query, batch = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)) if context else (None, None)
    return MicroBatch(query, int(batch)) if query and batch else None


def query_name() -> str | None:
    """Return the query's name from the description of a micro-batch, the only place that contains it."""
    context = TaskContext.get()
    query, text = (context.getLocalProperty(name) for name in (QUERY_ID, DESCRIPTION)) if context else (None, None)
    described = re.fullmatch(rf"(.+)\nid = {re.escape(query)}\nrunId = .*\nbatch = .*", text) if query and text else None
    return described[1] if described else None


def partition() -> int:
    """Return the number of the partition, the same in each attempt; 0 outside of a task."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def attempt() -> int:
    """Return Spark's unique number of this attempt; outside of a task, a random one."""
    context = TaskContext.get()
    return secrets.randbits(53) if context is None else int(context.taskAttemptId())

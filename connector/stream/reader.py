"""The stream reader: Spark's planning calls, translated into those of the consumer.

PySpark 4.2 calls `commit` only after it has planned the next batch. It never calls `commit` on an idle stream or for the last
batch of `availableNow`, and it does not call `stop`. Only `latestOffset(start)` shows that everything before `start` is finished.
So `latestOffset` settles, and `commit` is the same idempotent call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..brokers.consumer import BrokersConsumer
from ..foreign.partition import SpoolPartition
from ..foreign.reading import read_spooled
from ..offset import BROKERS, INITIAL
from ..options import STREAM, Options
from ..reporting import reports_errors
from ..schema import check_source
from ..task.batching import as_declared
from ..task.partition import LeasePartition
from ..task.reading import read_leased
from .consumer import StreamConsumer
from .credit import Credit
from .factory import consumer_of
from .lease import LONG_POLL_MS

_NO_LIMIT = 2**63 - 1


@reports_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one queue or several, exactly once.

    It connects at its first call, since it is constructed in planning workers too, and pickled into tasks.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(STREAM)
        check_source(schema, stream=True)
        self._options = options
        self._columns = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        self._kept: StreamConsumer | None = None
        self._ends = False  # an `availableNow` run

    # --- In the planner ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which every query begins."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return always the same kind of limit: then only the trigger `once` asks with ReadAllAvailable."""
        # The broker enforces the limits of the options, rows and bytes together. One read limit cannot express both.
        return ReadMaxRows(self._options["maxMessagesPerTrigger"] or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take no later messages: an `availableNow` run begins."""
        self._ends = True
        self._consumer().fix_tail()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Settle up to `start`, acquire the next batch, and return the offset after it."""
        credit = Credit(self._options["maxMessagesPerTrigger"], self._options["maxBytesPerTrigger"])
        once = isinstance(limit, ReadAllAvailable)
        return self._consumer(start).advance(start, wait_ms=0 if once else LONG_POLL_MS, credit=credit, once=once)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return `latestOffset` of the query's progress: the source, and the counts of its queues.

        Spark asks after each `latestOffset`, in the same process. The counts came with that answer, so no request is sent.
        """
        return {"source": self._options.description, "queues": self._consumer().counts()}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of the batch between two offsets."""
        return self._consumer(start, end).plan(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Settle up to `end`."""
        self._consumer(end).settle(end)

    def stop(self) -> None:
        """Close the connection. Spark 4.2 does not call this."""
        if self._kept is not None:
            self._kept.close()

    def _consumer(self, *offsets: Mapping[str, Any]) -> StreamConsumer:
        """Return the consumer. A checkpoint of several brokers keeps its kind, also if `url` now names one."""
        several = any(offset.get("kind") == BROKERS for offset in offsets)
        if several and self._kept is not None and not isinstance(self._kept, BrokersConsumer):
            self._kept.close()  # only `fix_tail` was called
            self._kept = None
        if self._kept is None:
            self._kept = consumer_of(self._options, several=several)
            if self._ends and offsets:
                self._kept.fix_tail()
        return self._kept

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        if isinstance(partition, SpoolPartition):
            return as_declared(read_spooled(partition, self._columns, self._options["failOnDataLoss"]), self._nullable)
        assert isinstance(partition, LeasePartition)
        batches = read_leased(partition, self._options.access.of(partition.url), self._columns, self._options["failOnDataLoss"])
        return as_declared(batches, self._nullable)

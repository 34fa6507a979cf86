"""The stream reader: Spark's planning calls, translated into those of the consumer.

What PySpark 4.2 really does: it calls `commit` only after the next batch was planned, never on an idle stream and never for the
last batch of `availableNow`; it does not call `stop`. `latestOffset(start)` is the only sign that everything before `start` is
finished. So `latestOffset` settles, and `commit` is the same idempotent call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from .batching import as_declared
from .consumer import Consumer, consumer_of
from .foreign.partition import SpoolPartition
from .foreign.reading import read_spooled
from .offset import INITIAL
from .options import STREAM, Options
from .partition import LeasePartition
from .read import read_leased
from .reporting import reports_errors
from .schema import check_source

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
        self._kept: Consumer | None = None

    # --- In the planner ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which every query begins."""
        return INITIAL.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return always the same kind of limit, so that the trigger `once` can be told from others."""
        # Always this kind, so that `once` shows: it alone then asks with ReadAllAvailable. The limits themselves are enforced
        # by the broker, from the options: rows and bytes together, which one read limit cannot say.
        return ReadMaxRows(self._options["maxMessagesPerTrigger"] or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take no messages that come from now on."""
        self._consumer.fix_tail()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Settle up to `start`, acquire the next batch, and return the offset after it."""
        return self._consumer.advance(start, wait=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return what the query's progress shows as `latestOffset`: the source, and the counts of its queues.

        Spark asks after each `latestOffset`, in the same process: the counts came with its answer, and nothing more is sent.
        """
        return {"source": self._options.description, "queues": self._consumer.counts()}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of the batch between two offsets."""
        return self._consumer.plan(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Settle up to `end`."""
        self._consumer.settle(end)

    def stop(self) -> None:
        """Close the connection. Spark 4.2 does not call this."""
        if self._kept is not None:
            self._kept.close()

    @property
    def _consumer(self) -> Consumer:
        if self._kept is None:
            self._kept = consumer_of(self._options)
        return self._kept

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        if isinstance(partition, SpoolPartition):
            return as_declared(read_spooled(partition, self._columns, self._options["failOnDataLoss"]), self._nullable)
        assert isinstance(partition, LeasePartition)
        batches = read_leased(partition, self._options.access, self._columns, self._options["failOnDataLoss"])
        return as_declared(batches, self._nullable)

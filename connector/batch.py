"""The batch reader: a look into a queue and its archive that acquires nothing and can be repeated.

Options bound what is read. Spark pushes filters into a Python source only if `spark.sql.python.filterPushdown.enabled` is on, and
fails every read of a source that takes filters if it is off. A reader cannot see that setting, so the reader that takes filters
is a class of its own, chosen by the option `pushdown=true`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from .batching import as_declared
from .options import OUTCOMES, READ, Options
from .partition import BrowsePartition
from .read import read_browsed
from .schema import check_source

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class BatchReader(DataSourceReader):
    """Reader of the messages that are in one queue or several now, within the options' bounds; planning fixes the range."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(READ)
        check_source(schema, stream=False)
        self._options = options
        self._columns = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        self._first: int = options["startingSequence"] or 0
        self._last: int | None = options["endingSequence"]
        self._since: int | None = options["startingTimestamp"]
        self._until: int | None = options["endingTimestamp"]
        self._outcome: str | None = options["outcome"]

    def partitions(self) -> list[InputPartition]:
        """Plan the ranges of all queues, and one partition for each range. Raises PenstockError."""
        queues = self._options["queue"]
        least = -(-self._options["minPartitions"] // len(queues))
        sizes = {"minPartitions": least, "maxMessages": self._options["maxMessagesPerPartition"]}
        more = {"selector": self._options["selector"], "columns": self._columns}
        with self._options.access.client() as client:
            # All ranges before any message is read; the bounds are those of each queue.
            parts = {queue: client.call("browse.plan", **self._asked(queue), **sizes)["parts"] for queue in queues}
            known = client.endpoint
        return [
            BrowsePartition(known, {"op": "browse", **self._asked(queue), **more, "first": first, "last": last})
            for queue in queues
            for first, last in parts[queue]
        ]

    def _asked(self, queue: str) -> dict[str, Any]:
        """Return the fields that name the messages to read, in the plan and in tickets."""
        return {
            "queue": queue,
            "states": list(self._options["states"]),
            "first": self._first,
            "last": self._last,
            "since": self._since,
            "until": self._until,
            "outcome": self._outcome,
        }

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        # Spark makes one partition of nothing where there is none.
        found = read_browsed(partition, self._options.access) if isinstance(partition, BrowsePartition) else iter(())
        return as_declared(found, self._nullable)


class PushdownBatchReader(BatchReader):
    """Reader that narrows the range by the query's filters, too. Spark applies them all again: a bound saves transfers."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the range by these filters; return all of them, so that Spark applies them too."""
        for filter_ in filters:
            self._narrow(filter_)
        return filters

    def _narrow(self, filter_: Filter) -> None:
        column = ".".join(getattr(filter_, "attribute", ()))
        value = getattr(filter_, "value", None)
        if column == "sequenceNumber" and isinstance(value, int):
            self._narrow_sequence(filter_, value)
        elif column == "enqueuedTime" and isinstance(value, datetime):
            self._narrow_time(filter_, value)
        elif column == "outcome" and isinstance(filter_, EqualTo) and value in OUTCOMES:
            self._outcome = self._outcome or value

    def _narrow_sequence(self, filter_: Filter, value: int) -> None:
        if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            self._first = max(self._first, value + isinstance(filter_, GreaterThan))
        if isinstance(filter_, (LessThan, LessThanOrEqual, EqualTo)):
            last = value - isinstance(filter_, LessThan)
            self._last = last if self._last is None else min(self._last, last)

    def _narrow_time(self, filter_: Filter, value: datetime) -> None:
        # Spark hands naive times over in the session's zone, which is not known here: those are left to Spark.
        if value.tzinfo is None:
            return
        at = (value - _EPOCH) // timedelta(microseconds=1)
        if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            self._since = max(self._since or at, at + isinstance(filter_, GreaterThan))
        if isinstance(filter_, (LessThan, LessThanOrEqual, EqualTo)):
            until = at + (not isinstance(filter_, LessThan))
            self._until = until if self._until is None else min(self._until, until)

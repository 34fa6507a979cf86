"""The stream reader for Spark 4.0 and 4.1, whose `latestOffset()` has no `start`: it adds `start` for the reader of Spark 4.2.

`start` is the end of the last batch that Spark has committed. The calls show it (`MicroBatchExecution`, 4.0.0 to 4.1.4):

- A query with a checkpoint first calls `partitions(X, X)`, with the last offset X of its log. If X is not committed, Spark plans
  its batch again before it asks for another offset. So a `latestOffset()` that follows is for `start` X.
- Otherwise the query begins, and `start` is the initial offset. Spark then plans its first batch from `initialOffset()`.
- Spark plans a batch, runs it and commits it before the next `latestOffset()`. So `start` is then the end of that batch.

Spark calls `commit(X)` late, after it has logged the next offset: `latestOffset()` settles, as on Spark 4.2.

With `spark.sql.streaming.triggerAvailableNowWrapper.enabled`, Spark asks for an offset before it calls `partitions(X, X)`. Such a
query is refused before it reads anything. By default, `availableNow` is one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ...broker_core.errors import LeaseInUse, SparkUnsupported, WrongOffset
from ..offset import INITIAL
from ..reporting import reports_errors
from ..spark_versions import DataSourceStreamReader, InputPartition, ReadAllAvailable, SupportsTriggerAvailableNow

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class TrackedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader for the calls of Spark 4.2, which `StartTracker` makes on older versions."""

    def has_begun(self) -> bool:
        """True if an earlier query has used the names of this one."""
        return False

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)


@reports_errors
class StartTracker(DataSourceStreamReader):
    """Reader that finds `start` on its own, of one run of a query."""

    def __init__(self, reader: TrackedReader) -> None:
        self._reader = reader
        self._start: dict[str, Any] | None = None  # None: not named so far
        self._was_asked = self._is_beginning = False

    def initialOffset(self) -> dict[str, Any]:
        """Spark asks for it when it plans the first batch of a query."""
        self._is_beginning = True
        return dict(INITIAL)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        is_first, self._was_asked = not self._was_asked, True
        if self._start is None:
            if self._is_beginning:
                raise _wrapped()  # it asks a second time before it plans the first batch
            if is_first and self._reader.has_begun():
                raise LeaseInUse(
                    "the query's lease belongs to a checkpoint, and this query begins without one: give it another name by the"
                    " option lease, or delete the lease with `penstock lease delete`. If the query has a checkpoint, set"
                    f" {WRAPPER} to false"
                )
        # The first trigger may be the only one: `once`, or `availableNow`.
        limit = ReadAllAvailable() if is_first else self._reader.getDefaultReadLimit()
        return self._reader.latestOffset(INITIAL if self._start is None else self._start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            if self._was_asked and not self._is_beginning and self._start is None:
                raise _wrapped()
            self._start = end
            return []
        expected = INITIAL if self._start is None else self._start
        if self._was_asked and start != expected and end != self._start:
            raise WrongOffset(
                f"Spark plans the batch from {start!r}, and asked for its end when the query was at {expected!r}:"
                " start the query again"
            )
        parts = self._reader.partitions(start, end)
        self._start = end
        return parts

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


def _wrapped() -> SparkUnsupported:
    return SparkUnsupported(
        f"Spark before 4.2 cannot run this stream with {WRAPPER}, because it then asks for messages before it reports how far"
        " the query has come: set it to false. The trigger availableNow is then one batch"
    )

"""The batch reader that takes filters of the query.

Spark pushes filters into a Python source only if `spark.sql.python.filterPushdown.enabled` is on. If it is off, Spark fails every
read of a source that takes filters. A reader cannot see that setting, so the option `pushdown=true` chooses this class.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from ..options import OUTCOMES
from ..reporting import reports_errors
from .reader import BatchReader

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@reports_errors
class PushdownBatchReader(BatchReader):
    """Reader that also narrows the range by the query's filters. Spark applies them again: they only save transfers."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the range by these filters; return all of them, so that Spark also applies them."""
        for filter_ in filters:
            self._narrow(filter_)
        return filters

    def _narrow(self, filter_: Filter) -> None:
        column = ".".join(getattr(filter_, "attribute", ()))
        value = getattr(filter_, "value", None)
        if column == "sequenceNumber" and isinstance(value, int):
            self._narrow_sequence(filter_, value)
        elif column == "enqueuedTime" and isinstance(value, datetime):
            self._since, self._until = _narrowed(self._since, self._until, filter_, value)
        elif column == "settledTime" and isinstance(value, datetime):
            self._settled_since, self._settled_until = _narrowed(self._settled_since, self._settled_until, filter_, value)
        elif column == "outcome" and isinstance(filter_, EqualTo) and value in OUTCOMES:
            self._outcome = self._outcome or value

    def _narrow_sequence(self, filter_: Filter, value: int) -> None:
        if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            self._first = max(self._first, value + isinstance(filter_, GreaterThan))
        if isinstance(filter_, (LessThan, LessThanOrEqual, EqualTo)):
            last = value - isinstance(filter_, LessThan)
            self._last = last if self._last is None else min(self._last, last)


def _narrowed(since: int | None, until: int | None, filter_: Filter, value: datetime) -> tuple[int | None, int | None]:
    """Return the bounds of a time, in microseconds since 1970, narrowed by a filter."""
    # Naive times are in the session's zone, which is unknown here: only Spark applies them.
    if value.tzinfo is None:
        return since, until
    at = (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, EqualTo)):
        least = at + isinstance(filter_, GreaterThan)
        since = least if since is None else max(since, least)
    if isinstance(filter_, (LessThan, LessThanOrEqual, EqualTo)):
        most = at + (not isinstance(filter_, LessThan))
        until = most if until is None else min(until, most)
    return since, until

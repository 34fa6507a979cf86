"""Rows of a table that somebody wants: by queue and pass, and by what a read asks for.

Files and row groups are judged by the least and the greatest value of a column in them (`Range`), rows one by one (`mask`). What
is not known of a file or row group is no reason to leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

#: The least and the greatest value of a column in a file or row group: numbers, times in microseconds since 1970, or texts.
Range = tuple["int | str | None", "int | str | None"]


#: Fields of a request, by the names of `Bounds`.
FIELDS = {
    **{name: name for name in ("passes", "first", "last", "since", "until", "outcome")},
    "after": "recordedAfter",
    "settled_since": "settledSince",
    "settled_until": "settledUntil",
}


class Bounds(NamedTuple):
    """The rows of one queue, by its id, of the passes above `after` up to `passes`. Numbers are included where nothing else is
    said; times are microseconds since 1970 UTC; None: no bound."""

    queue_id: int
    passes: int
    after: int = 0
    first: int = 0  # sequence numbers
    last: int | None = None
    since: int | None = None  # times of arrival
    until: int | None = None  # excluded
    settled_since: int | None = None
    settled_until: int | None = None  # excluded
    outcome: str | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of a request that names these rows; the queue's name and id stand beside them."""
        return {field: getattr(self, name) for name, field in FIELDS.items()}

    @classmethod
    def of_fields(cls, queue_id: int, fields: Mapping[str, Any]) -> Bounds:
        """Read the fields of a request."""
        found = cls(queue_id, **{name: fields[field] for name, field in FIELDS.items()})
        return found._replace(after=found.after or 0)

    def conditions(self) -> list[Condition]:
        """Name the columns that matter, and what is wanted of each."""
        found = [
            Condition("queueId", self.queue_id, self.queue_id),
            Condition("pass", self.after + 1, self.passes),
            Condition("sequenceNumber", self.first or None, self.last),
            Condition("enqueuedTime", self.since, _before(self.until)),
            Condition("settledTime", self.settled_since, _before(self.settled_until)),
            Condition("outcome", self.outcome, self.outcome),
        ]
        return [each for each in found if each.least is not None or each.most is not None]


class Condition(NamedTuple):
    """A column's value, from `least` to `most`."""

    column: str
    least: int | str | None
    most: int | str | None

    def may_hold(self, range_: Range) -> bool:
        """Say whether a row with a value in this range may be wanted."""
        low, high = range_
        if self.least is not None and high is not None and high < self.least:  # type: ignore[operator]
            return False
        return not (self.most is not None and low is not None and low > self.most)  # type: ignore[operator]

    def holds(self, range_: Range, *, nulls: bool = True) -> bool:
        """Say whether every row with a value in this range is wanted; of `nulls` none is."""
        low, high = range_
        if nulls or low is None or high is None:
            return False
        return (self.least is None or low >= self.least) and (self.most is None or high <= self.most)  # type: ignore[operator]

    def mask(self, values: pa.Array) -> pa.Array:
        """Say row by row which is wanted; null where the value is."""
        import pyarrow.compute as pc

        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz=values.type.tz)).view(pa.int64())
        if self.least == self.most:
            return pc.equal(values, self.least)
        found = None if self.least is None else pc.greater_equal(values, self.least)
        if self.most is None:
            return found
        below = pc.less_equal(values, self.most)
        return below if found is None else pc.and_(found, below)


def _before(until: int | None) -> int | None:
    return None if until is None else until - 1

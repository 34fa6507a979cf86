"""The rows of an archive table that a read wants.

Conditions are checked on the statistics of files and row groups, then on rows. Unknown values exclude nothing.

A restored data directory and its original give the same numbers to different recordings. Only the `lineage` distinguishes their
rows, so numbers of recordings come with their `Lineages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from ...errors import InvalidRequest

#: The lowest and highest value of a column: numbers, times in microseconds since 1970, or texts.
Range = tuple["int | str | None", "int | str | None"]
#: Takes the name of a column; returns its range, and whether it may contain nulls.
Ranges = Callable[[str], tuple[Range, bool]]

#: A lineage and the number of its last recording that counts, ascending. It begins after the last recording of the one before it.
Lineages = tuple[tuple[str, int], ...]

#: Attribute of `Bounds` → field of a request.
FIELDS = {
    **{name: name for name in ("lineages", "first", "last", "since", "until", "outcome")},
    "after": "recordedAfter",
    "settled_since": "settledSince",
    "settled_until": "settledUntil",
}


def common(left: Lineages, right: Lineages) -> int | None:
    """Return the last common recording, or 0; None for different queues."""
    if left[0][0] != right[0][0]:
        return None
    last = 0
    for (left_name, left_last), (right_name, right_last) in zip(left, right, strict=False):
        if left_name != right_name:
            break
        last = min(left_last, right_last)
        if left_last != right_last:
            break
    return last


class Bounds(NamedTuple):
    """The rows of one queue from the recordings of `lineages` above `after`.

    Bounds are inclusive unless stated otherwise. Times are microseconds since 1970 UTC. None: no bound.
    """

    queue_id: int
    lineages: Lineages
    after: int = 0
    first: int = 0  # sequence numbers
    last: int | None = None
    since: int | None = None  # times of arrival
    until: int | None = None  # excluded
    settled_since: int | None = None
    settled_until: int | None = None  # excluded
    outcome: str | None = None
    former: bool = False  # also the rows of former queues with this name, which have lower ids

    def to_fields(self) -> dict[str, Any]:
        fields = {field: getattr(self, name) for name, field in FIELDS.items()}
        return {**fields, "lineages": to_list(self.lineages), "queueId": self.queue_id}

    @classmethod
    def of_fields(cls, queue_id: int, fields: Mapping[str, Any]) -> Bounds:
        """`queue_id` applies if the fields contain none."""
        queue_id = queue_id if fields.get("queueId") is None else fields["queueId"]
        bounds = cls(queue_id, **{name: fields[field] for name, field in FIELDS.items()})
        return bounds._replace(after=bounds.after or 0, lineages=lineages_of(bounds.lineages))

    def conditions(self) -> list[ColumnRange | RecordingSpans]:
        own = ColumnRange("queueId", self.queue_id, self.queue_id)
        ranges = [
            *([] if self.former else [own]),
            ColumnRange("sequenceNumber", self.first or None, self.last),
            ColumnRange("enqueuedTime", self.since, _before(self.until)),
            ColumnRange("settledTime", self.settled_since, _before(self.settled_until)),
            ColumnRange("outcome", self.outcome, self.outcome),
        ]
        ends = [("", 0), *self.lineages]
        spans = [
            [ColumnRange("lineage", name, name), ColumnRange("pass", max(before, self.after) + 1, last)]
            for (_, before), (name, last) in pairwise(ends)
            if max(before, self.after) < last
        ]
        if self.former:
            spans = [*([own, *span] for span in spans), [ColumnRange("queueId", None, self.queue_id - 1)]]
        return [
            *(column_range for column_range in ranges if column_range.least is not None or column_range.most is not None),
            RecordingSpans(spans),
        ]


def to_list(lineages: Lineages) -> list[str | int]:
    return [item for pair in lineages for item in pair]


def lineages_of(value: Sequence[Any]) -> Lineages:
    names, numbers = value[::2], value[1::2]
    lineages = tuple(zip(names, numbers, strict=False))
    is_valid = all(type(name) is str for name in names) and all(type(number) is int for number in numbers)
    if not lineages or len(names) != len(numbers) or not is_valid or list(numbers) != sorted(numbers):
        raise InvalidRequest(f"field 'lineages' must be names and numbers by turns, the numbers ascending, not {value!r:.80}")
    return lineages


class ColumnRange(NamedTuple):
    """A condition on the values of one column."""

    column: str
    least: int | str | None
    most: int | str | None

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def may_hold(self, ranges: Ranges) -> bool:
        """Return True if rows with values in these ranges may fulfil the condition."""
        (low, high), _ = ranges(self.column)
        if self.least is not None and high is not None and high < self.least:  # type: ignore[operator]
            return False
        return not (self.most is not None and low is not None and low > self.most)  # type: ignore[operator]

    def holds(self, ranges: Ranges) -> bool:
        """Return True if all rows with values in these ranges fulfil the condition. Nulls never do."""
        (low, high), nulls = ranges(self.column)
        if nulls or low is None or high is None:
            return False
        return (self.least is None or low >= self.least) and (self.most is None or high <= self.most)  # type: ignore[operator]

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it fulfils the condition; null if its value is null."""
        import pyarrow.compute as pc

        values = rows.column(self.column)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz=values.type.tz)).view(pa.int64())
        if self.least == self.most:
            return pc.equal(values, self.least)
        above = None if self.least is None else pc.greater_equal(values, self.least)
        if self.most is None:
            return above
        below = pc.less_equal(values, self.most)
        return below if above is None else pc.and_(above, below)


class RecordingSpans(NamedTuple):
    """A row must fulfil all conditions of one of these spans."""

    spans: Sequence[Sequence[ColumnRange]]  # a lineage, and its recordings

    @property
    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(column_range.column for span in self.spans for column_range in span))

    def may_hold(self, ranges: Ranges) -> bool:
        return any(all(column_range.may_hold(ranges) for column_range in span) for span in self.spans)

    def holds(self, ranges: Ranges) -> bool:
        return any(all(column_range.holds(ranges) for column_range in span) for span in self.spans)

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        import pyarrow.compute as pc

        mask = pa.repeat(False, rows.num_rows)
        for span in self.spans:
            mask = pc.or_(mask, reduce(pc.and_, (column_range.mask(rows) for column_range in span)))
        return mask


def _before(until: int | None) -> int | None:
    return None if until is None else until - 1

"""Rows of a table that somebody wants: by queue and pass, and by what a read asks for.

Files and row groups are judged by the least and the greatest value of a column in them (`Range`), rows one by one (`mask`). What
is not known of a file or row group is no reason to leave it out.

A data directory that was restored from a backup gives the numbers of passes once more that its original gave since. The table
has the rows of both, and only the `lineage` tells them apart. So whoever names passes says whose they are: `Lineages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from ...errors import InvalidRequest

#: The least and the greatest value of a column in a file or row group: numbers, times in microseconds since 1970, or texts.
Range = tuple["int | str | None", "int | str | None"]
#: Such a range of the column of that name, and whether values may be null in it.
Ranges = Callable[[str], tuple[Range, bool]]

#: A lineage, and the last of its passes that counts, ascending; each lineage begins after the last pass of the one before it.
Lineages = tuple[tuple[str, int], ...]

#: Fields of a request, by the names of `Bounds`.
FIELDS = {
    **{name: name for name in ("lineages", "first", "last", "since", "until", "outcome")},
    "after": "recordedAfter",
    "settled_since": "settledSince",
    "settled_until": "settledUntil",
}


def common(one: Lineages, other: Lineages) -> int | None:
    """Return the last pass that is the same in both, 0 where none is; None where they are not even of one queue."""
    if one[0][0] != other[0][0]:
        return None
    found = 0
    for (mine, my_last), (its, its_last) in zip(one, other, strict=False):
        if mine != its:
            break
        found = min(my_last, its_last)
        if my_last != its_last:
            break
    return found


class Bounds(NamedTuple):
    """The rows of one queue, by its id, of those passes of `lineages` that are above `after`. Numbers are included where nothing
    else is said; times are microseconds since 1970 UTC; None: no bound."""

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

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of a request that names these rows; the queue's name stands beside them."""
        found = {field: getattr(self, name) for name, field in FIELDS.items()}
        return {**found, "lineages": to_list(self.lineages), "queueId": self.queue_id}

    @classmethod
    def of_fields(cls, queue_id: int, fields: Mapping[str, Any]) -> Bounds:
        """Read the fields of a request; `queue_id` counts where they name none. Raises InvalidRequest."""
        queue_id = queue_id if fields.get("queueId") is None else fields["queueId"]
        found = cls(queue_id, **{name: fields[field] for name, field in FIELDS.items()})
        return found._replace(after=found.after or 0, lineages=lineages_of(found.lineages))

    def conditions(self) -> list[ColumnRange | RecordingSpans]:
        """Name the columns that matter, and what is wanted of each."""
        found = [
            ColumnRange("queueId", self.queue_id, self.queue_id),
            ColumnRange("sequenceNumber", self.first or None, self.last),
            ColumnRange("enqueuedTime", self.since, _before(self.until)),
            ColumnRange("settledTime", self.settled_since, _before(self.settled_until)),
            ColumnRange("outcome", self.outcome, self.outcome),
        ]
        ends = [("", 0), *self.lineages]
        spans = [(name, max(before, self.after) + 1, last) for (_, before), (name, last) in pairwise(ends)]
        passes = [
            (ColumnRange("lineage", name, name), ColumnRange("pass", least, last)) for name, least, last in spans if least <= last
        ]
        return [*(each for each in found if each.least is not None or each.most is not None), RecordingSpans(passes)]


def to_list(lineages: Lineages) -> list[str | int]:
    """Return the form of requests and offsets: names and numbers by turns."""
    return [each for pair in lineages for each in pair]


def lineages_of(value: Sequence[Any]) -> Lineages:
    """Read what `to_list` gave. Raises InvalidRequest."""
    names, numbers = value[::2], value[1::2]
    found = tuple(zip(names, numbers, strict=False))
    right = all(type(name) is str for name in names) and all(type(number) is int for number in numbers)
    if not found or len(names) != len(numbers) or not right or list(numbers) != sorted(numbers):
        raise InvalidRequest(f"field 'lineages' must be names and numbers by turns, the numbers ascending, not {value!r:.80}")
    return found


class ColumnRange(NamedTuple):
    """A column's value, from `least` to `most`. None: no bound."""

    column: str
    least: int | str | None
    most: int | str | None

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it is about."""
        return (self.column,)

    def may_hold(self, ranges: Ranges) -> bool:
        """Say whether a row with values in these ranges may be wanted."""
        (low, high), _ = ranges(self.column)
        if self.least is not None and high is not None and high < self.least:  # type: ignore[operator]
            return False
        return not (self.most is not None and low is not None and low > self.most)  # type: ignore[operator]

    def holds(self, ranges: Ranges) -> bool:
        """Say whether every row with values in these ranges is wanted; of nulls none is."""
        (low, high), nulls = ranges(self.column)
        if nulls or low is None or high is None:
            return False
        return (self.least is None or low >= self.least) and (self.most is None or high <= self.most)  # type: ignore[operator]

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Say row by row which is wanted; null where the value is."""
        import pyarrow.compute as pc

        values = rows.column(self.column)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz=values.type.tz)).view(pa.int64())
        if self.least == self.most:
            return pc.equal(values, self.least)
        found = None if self.least is None else pc.greater_equal(values, self.least)
        if self.most is None:
            return found
        below = pc.less_equal(values, self.most)
        return below if found is None else pc.and_(found, below)


class RecordingSpans(NamedTuple):
    """RecordingSpans of one lineage after another: a row is wanted that is of any of them."""

    spans: Sequence[tuple[ColumnRange, ColumnRange]]  # a lineage, and its passes

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it is about."""
        return ("lineage", "pass")

    def may_hold(self, ranges: Ranges) -> bool:
        """Say whether a row with values in these ranges may be wanted."""
        return any(all(each.may_hold(ranges) for each in span) for span in self.spans)

    def holds(self, ranges: Ranges) -> bool:
        """Say whether every row with values in these ranges is wanted; of nulls none is."""
        return any(all(each.holds(ranges) for each in span) for span in self.spans)

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Say row by row which is wanted; null where a value is."""
        import pyarrow.compute as pc

        found = pa.repeat(False, rows.num_rows)
        for lineage, passes in self.spans:
            found = pc.or_(found, pc.and_(lineage.mask(rows), passes.mask(rows)))
        return found


def _before(until: int | None) -> int | None:
    return None if until is None else until - 1

"""Files of one version of a table that may have rows that somebody wants, and their division into tasks.

The table's log says of every file how many rows it has, and the least and greatest value of its columns. This needs `deltalake`
(delta-rs); who has it not lets the broker ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from ..errors import ArchiveUnreachable
from .bounds import Bounds, Lineages, Range, lineages_of, to_list
from .places import storage_options
from .scan import Share
from .table import DAY

OWNER = "penstock.broker"  # in a table's configuration: the id of the broker that writes it
_UNKNOWN_ROWS = 1 << 20  # of a file of which the log does not say it
_FIELDS = ("url", "broker", "queueId", "lineages", "version")  # of a table, in an answer of the broker
_TIMES = ("enqueuedTime", "settledTime")
_MILLISECOND = 999  # microseconds that a log leaves off the end of a time, which may have been rounded down


class File(NamedTuple):
    """A file below the table's folder: rows in it, wanted or not, and the sequence numbers of its first and last."""

    path: str
    rows: int
    first: int
    last: int

    @property
    def day(self) -> str | None:
        """The day of arrival of its messages, as ISO 8601 has it; None where the path does not say it."""
        name, _, day = self.path.split("/", 1)[0].partition("=")
        return day if name == DAY and day[:1].isdigit() else None


class Table(NamedTuple):
    """A queue's table, as the broker knows it when a read is planned."""

    url: str
    broker: str  # the id of the broker that writes it, which stands in the table's configuration
    queue_id: int
    lineages: Lineages  # all of these passes are in it
    version: int  # from which on they are

    @property
    def passes(self) -> int:
        """Number of the last pass."""
        return self.lineages[-1][1]

    @property
    def bounds(self) -> Bounds:
        """The bounds of all rows that the broker has recorded."""
        return Bounds(self.queue_id, self.lineages)

    def of_pass(self, number: int) -> Bounds:
        """Return the bounds of the rows of one pass."""
        lineages = tuple((name, min(last, number)) for name, last in self.lineages)
        return Bounds(self.queue_id, lineages, after=number - 1)

    def to_fields(self) -> dict[str, Any]:
        """Return what `archive.plan` says of the table."""
        return {**dict(zip(_FIELDS, self, strict=True)), "lineages": to_list(self.lineages)}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Table:
        """Read what `archive.plan` says of the table."""
        found = cls(*(fields[name] for name in _FIELDS))
        return found._replace(lineages=lineages_of(found.lineages))


class Version(NamedTuple):
    """One version of a table, and of its files those that may have wanted rows, by their first sequence number."""

    number: int
    files: list[File]


def version(table: Table, bounds: Bounds, number: int | None = None) -> Version:
    """Look up a version of a table, by default the newest: compactions and retention make others than passes do.

    Raises ArchiveUnreachable, also where it is another table or an older copy, and ImportError without deltalake.
    """
    import deltalake

    try:
        found = deltalake.DeltaTable(table.url, version=number, storage_options=storage_options(table.url))
        owner = found.metadata().configuration.get(OWNER)
        actions = pa.table(found.get_add_actions(flatten=True))
        at = found.version()
    except (deltalake.exceptions.DeltaError, OSError, pa.ArrowException) as error:
        raise ArchiveUnreachable(f"the archive's table {table.url} cannot be read here: {error}") from error
    if owner != table.broker:
        raise ArchiveUnreachable(
            f"the table {table.url} as it is seen here belongs to {owner or 'another program'}, and not to the broker"
            f" {table.broker}: mount the broker's folder, or call this one by another name"
        )
    if number is None and at < table.version:
        raise ArchiveUnreachable(
            f"the table {table.url} as it is seen here has version {at}, the broker's {table.version}: it is an older copy"
        )
    return Version(at, sorted(_wanted(actions, bounds), key=lambda file: (file.first, file.path)))


def _wanted(actions: pa.Table, bounds: Bounds) -> Iterator[File]:
    names = actions.schema.names

    def column(name: str) -> list[Any]:
        if name not in names:
            return [None] * actions.num_rows
        found = actions.column(name)
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.timestamp("us", tz=found.type.tz)).cast(pa.int64())
        return list(found.to_pylist())

    conditions = bounds.conditions()
    ranges: dict[str, list[Range]] = {
        name: list(zip(column(f"min.{name}"), _greatest(name, column(f"max.{name}")), strict=True))
        for each in conditions
        for name in each.columns
    }
    paths, rows = column("path"), column("num_records")
    firsts, lasts = column("min.sequenceNumber"), column("max.sequenceNumber")
    for index, path in enumerate(paths):
        mine = {name: (each[index], True) for name, each in ranges.items()}
        if all(each.may_hold(mine.__getitem__) for each in conditions):
            first = 0 if firsts[index] is None else firsts[index]
            last = 2**62 if lasts[index] is None else lasts[index]
            yield File(unquote(path), _UNKNOWN_ROWS if rows[index] is None else rows[index], first, last)


def _greatest(column: str, values: list[Any]) -> list[Any]:
    if column not in _TIMES:
        return values
    return [None if value is None else value + _MILLISECOND for value in values]


def tasks(files: Sequence[File], most: int, least_tasks: int = 1) -> list[list[Share]]:
    """Divide files into tasks of about as many rows, `most` at most or a little more: small neighbours together, large ones in
    shares. There are `least_tasks` where the files have as many row groups."""
    total = sum(file.rows for file in files)
    wanted = max(1, min(most, -(-total // least_tasks)))
    found: list[list[Share]] = []
    room = 0
    for file in files:
        if file.rows > wanted:
            parts = -(-file.rows // wanted)
            found += [[Share(file.path, number, parts, file.first, file.last)] for number in range(parts)]
            room = 0
        elif file.rows > room:
            found.append([Share(file.path, first=file.first, last=file.last)])
            room = wanted - file.rows
        else:
            found[-1].append(Share(file.path, first=file.first, last=file.last))
            room -= file.rows
    return found

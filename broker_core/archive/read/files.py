"""Files of one version of a table that may have rows that somebody wants, and their division into tasks.

The table's log says of every file how many rows it has, and the least and greatest value of its columns. This needs `deltalake`
(delta-rs); who has it not lets the broker ask.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from ...errors import ArchiveUnreachable
from ...stores.credentials import delta_options
from ..table import features
from ..table.layout import day_of
from .bounds import Bounds, Lineages, Range, lineages_of, to_list
from .scan import Deletions, FileShare

OWNER = "penstock.broker"  # in a table's configuration: the id of the broker that writes it
BROKER = "penstock"  # in each commit of the broker: what it does
#: Operations of other writers, by their names in Delta's log, that leave all rows as they are.
_OPERATIONS = frozenset(
    {
        *("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "FSCK", "COMPUTE STATS"),
        *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD FEATURE", "DROP FEATURE"),
        *("ADD COLUMN", "ADD COLUMNS", "CHANGE COLUMN", "ADD CONSTRAINT", "DROP CONSTRAINT", "CREATE TABLE"),
    }
)
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
    deletions: Deletions | None = None  # None: all of its rows are in the table

    def to_list(self) -> list[str | int | None]:
        """Return the form of answers: of deletions only the version of the table that has them."""
        return [*self[:4], None if self.deletions is None else self.deletions.version]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> File:
        """Read what `to_list` gave."""
        path, rows, first, last, version = values
        return cls(path, rows, first, last, None if version is None else Deletions(version))

    def share(self, number: int = 0, parts: int = 1) -> FileShare:
        """Return a share of the file: by default all of it."""
        return FileShare(self.path, number, parts, self.first, self.last, self.deletions)

    @property
    def day(self) -> str | None:
        """The day of arrival of its messages, as ISO 8601 has it; None where the path does not say it."""
        return day_of(self.path)


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
    is_outdated: bool = False  # other programs have deleted or changed rows since


def version(table: Table, bounds: Bounds, number: int | None = None) -> Version:
    """Look up a version of a table, by default the newest: compactions and retention make others than passes do.

    Raises ArchiveUnreachable, also if it is another table or an older copy; ArchiveUnsupported if the table has features of Delta
    that Penstock does not support; ImportError without deltalake.
    """
    import deltalake

    try:
        found = deltalake.DeltaTable(table.url, version=number, storage_options=delta_options(table.url))
        owner = found.metadata().configuration.get(OWNER)
        features.check_readable(found, table.url)
        actions = pa.table(found.get_add_actions(flatten=True))
        deletions = deletions_of(found)
        at = found.version()
    except (deltalake.exceptions.DeltaError, OSError, ValueError, pa.ArrowException) as error:
        if refusal := features.refusal_of(error, table.url):
            raise refusal from error
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
    wanted = (file._replace(deletions=deletions.get(file.path)) for file in _wanted(actions, bounds))
    return Version(at, sorted(wanted, key=lambda file: (file.first, file.path)))


def is_outdated(table: Table, number: int) -> bool:
    """Say whether other programs may have deleted or changed rows of a table since a version. Raises ArchiveUnreachable."""
    import deltalake

    try:
        found = deltalake.DeltaTable(table.url, storage_options=delta_options(table.url))
        since = found.history(max(1, found.version() - number))
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise ArchiveUnreachable(f"the log of the archive's table {table.url} cannot be read here: {error}") from error
    return any(entry["version"] > number and not _keeps_rows(entry) for entry in since)


def _keeps_rows(entry: Mapping[str, Any]) -> bool:
    """Say whether a commit is one of the broker's, or an operation that deletes and changes no row."""
    mode = (entry.get("operationParameters") or {}).get("mode")
    return BROKER in entry or entry.get("operation") in _OPERATIONS or (entry.get("operation") == "WRITE" and mode == "Append")


def deletions_of(found: Any) -> dict[str, Deletions]:
    """Return the rows that deletion vectors remove from files of an open table, by the files' paths below its folder.

    delta-rs holds the vectors of all files for this, a byte for each row of such a file.
    """
    if features.DELETION_VECTORS not in (found.protocol().reader_features or ()):
        return {}
    paths = {unquote(path) for path in pa.table(found.get_add_actions(flatten=True)).column("path").to_pylist()}
    deletions = {}
    for batch in pa.RecordBatchReader.from_stream(found.deletion_vectors()):
        for place, selection in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            deletions[_below(place, paths)] = Deletions.of(found.version(), selection.values)
    return deletions


def _below(place: str, paths: Container[str]) -> str:
    """Return which of these paths the URL of a file ends with. Raises ValueError, since no deletion may be left out."""
    parts = unquote(place).split("/")
    for count in range(1, len(parts)):
        if (path := "/".join(parts[-count:])) in paths:
            return path
    raise ValueError(f"the deletion vector of {place} belongs to no file of the table")


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


def tasks(files: Sequence[File], most: int, least_tasks: int = 1) -> list[list[FileShare]]:
    """Divide files into tasks of about as many rows, `most` at most or a little more: small neighbours together, large ones in
    shares. There are `least_tasks` where the files have as many row groups."""
    total = sum(file.rows for file in files)
    wanted = max(1, min(most, -(-total // least_tasks)))
    found: list[list[FileShare]] = []
    room = 0
    for file in files:
        if file.rows > wanted:
            parts = -(-file.rows // wanted)
            found += [[file.share(number, parts)] for number in range(parts)]
            room = 0
        elif file.rows > room:
            found.append([file.share()])
            room = wanted - file.rows
        else:
            found[-1].append(file.share())
            room -= file.rows
    return found

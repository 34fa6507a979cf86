"""The files of one table version that may have wanted rows, and their division into tasks.

The table's log has the row count and the column ranges of each file. A process without `deltalake` asks the broker to read it.
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
from .bounds import Bounds, Lineages, Range, Ranges, lineages_of, to_list
from .scan import Deletions, FileShare

OWNER = "penstock.broker"  # key in a table's configuration: the id of its broker
QUEUE = "penstock.queue"  # the same for the name of its queue
BROKER = "penstock"  # key in each commit of the broker: the purpose
#: Operations in Delta's log that keep all rows unchanged.
_OPERATIONS = frozenset(
    {
        *("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "FSCK", "COMPUTE STATS"),
        *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD FEATURE", "DROP FEATURE"),
        *("ADD COLUMN", "ADD COLUMNS", "CHANGE COLUMN", "ADD CONSTRAINT", "DROP CONSTRAINT", "CREATE TABLE"),
    }
)
_UNKNOWN_ROWS = 1 << 20  # of a file without a count in the log
_FIELDS = ("url", "broker", "queueId", "lineages", "version")  # of a table, in a reply of the broker
_MILLISECOND = 999  # microseconds that a log may cut off the end of a time


class File(NamedTuple):
    """A file of the table. Its counts include unwanted rows."""

    path: str
    rows: int
    first: int  # sequence numbers
    last: int
    deletions: Deletions | None = None  # None: all of its rows are in the table

    def to_list(self) -> list[str | int | None]:
        return [*self[:4], None if self.deletions is None else self.deletions.version]

    @classmethod
    def of_list(cls, values: Sequence[Any]) -> File:
        path, rows, first, last, version = values
        return cls(path, rows, first, last, None if version is None else Deletions(version))

    def share(self, number: int = 0, parts: int = 1) -> FileShare:
        return FileShare(self.path, number, parts, self.first, self.last, self.deletions)

    @property
    def day(self) -> str | None:
        return day_of(self.path)


class Table(NamedTuple):
    """A queue's table when a read is planned."""

    url: str
    broker: str  # id
    queue_id: int
    lineages: Lineages  # all of these recordings are in the table
    version: int  # the first version that has all of them

    @property
    def last_recording(self) -> int:
        return self.lineages[-1][1]

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.queue_id, self.lineages)

    def of_recording(self, number: int) -> Bounds:
        lineages = tuple((name, min(last, number)) for name, last in self.lineages)
        return Bounds(self.queue_id, lineages, after=number - 1)

    def to_fields(self) -> dict[str, Any]:
        return {**dict(zip(_FIELDS, self, strict=True)), "lineages": to_list(self.lineages)}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Table:
        table = cls(*(fields[name] for name in _FIELDS))
        return table._replace(lineages=lineages_of(table.lineages))


class Version(NamedTuple):
    """One version of a table, and those of its files that may have wanted rows."""

    number: int
    files: list[File]
    is_outdated: bool = False  # later versions lack rows, deleted or changed by other programs
    is_whole: bool = False  # all rows of the version are wanted
    queue: str | None = None  # name of the table's queue


class NoTable(ArchiveUnreachable):
    """No table of the broker is at the URL."""


def version(table: Table, bounds: Bounds, number: int | None = None) -> Version:
    """Look up a version of a table, by default the newest.

    Raises ArchiveUnreachable, also for an older copy; NoTable, also for the table of another broker; ArchiveUnsupported for
    unsupported features of Delta; ImportError without deltalake.
    """
    import deltalake

    try:
        delta_table = deltalake.DeltaTable(table.url, version=number, storage_options=delta_options(table.url))
        configuration = delta_table.metadata().configuration
        features.check_readable(delta_table, table.url)
        actions = pa.table(delta_table.get_add_actions(flatten=True))
        deletions = deletions_of(delta_table)
        newest = delta_table.version()
    except (deltalake.exceptions.DeltaError, OSError, ValueError, pa.ArrowException) as error:
        if refusal := features.refusal_of(error, table.url):
            raise refusal from error
        kind = NoTable if isinstance(error, deltalake.exceptions.TableNotFoundError) else ArchiveUnreachable
        raise kind(f"the archive's table {table.url} cannot be read here: {error}") from error
    owner = configuration.get(OWNER)
    if owner != table.broker:
        raise NoTable(
            f"the table {table.url} as it is seen here belongs to {owner or 'another program'}, and not to the broker"
            f" {table.broker}: mount the broker's folder, or call this one by another name"
        )
    if number is None and newest < table.version:
        raise ArchiveUnreachable(
            f"the table {table.url} as it is seen here has version {newest}, the broker's {table.version}: it is an older copy"
        )
    listed, conditions = list(_listed(actions, bounds)), bounds.conditions()
    is_whole = all(condition.holds(ranges) for _, ranges in listed for condition in conditions)
    files = [file for file, ranges in listed if is_whole or all(condition.may_hold(ranges) for condition in conditions)]
    files = [file._replace(deletions=deletions.get(file.path)) for file in files]
    files.sort(key=lambda file: (file.first, file.path))
    return Version(newest, files, is_whole=is_whole, queue=configuration.get(QUEUE))


def is_outdated(table: Table, number: int) -> bool:
    import deltalake

    try:
        delta_table = deltalake.DeltaTable(table.url, storage_options=delta_options(table.url))
        since = delta_table.history(max(1, delta_table.version() - number))
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise ArchiveUnreachable(f"the log of the archive's table {table.url} cannot be read here: {error}") from error
    return any(entry["version"] > number and not _keeps_rows(entry) for entry in since)


def _keeps_rows(entry: Mapping[str, Any]) -> bool:
    """Return True for a commit of the broker, or an operation that keeps all rows unchanged."""
    mode = (entry.get("operationParameters") or {}).get("mode")
    return BROKER in entry or entry.get("operation") in _OPERATIONS or (entry.get("operation") == "WRITE" and mode == "Append")


def deletions_of(delta_table: Any) -> dict[str, Deletions]:
    """Return the deleted rows by the path of their file. delta-rs loads all deletion vectors for this, with a byte for each
    row."""
    if features.DELETION_VECTORS not in (delta_table.protocol().reader_features or ()):
        return {}
    paths = {unquote(path) for path in pa.table(delta_table.get_add_actions(flatten=True)).column("path").to_pylist()}
    deletions = {}
    for batch in pa.RecordBatchReader.from_stream(delta_table.deletion_vectors()):
        for place, selection in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            deletions[_below(place, paths)] = Deletions.of(delta_table.version(), selection.values)
    return deletions


def _below(place: str, paths: Container[str]) -> str:
    """Return the path at the end of a file's URL. Raises ValueError: no deletion may be left out."""
    parts = unquote(place).split("/")
    for count in range(1, len(parts)):
        if (path := "/".join(parts[-count:])) in paths:
            return path
    raise ValueError(f"the deletion vector of {place} belongs to no file of the table")


def _listed(actions: pa.Table, bounds: Bounds) -> Iterator[tuple[File, Ranges]]:
    """Yield each file, with the ranges of the limited columns."""
    import pyarrow.compute as pc

    names = actions.schema.names

    def column(name: str, unknown: int | None = None) -> list[Any]:
        if name not in names:
            return [unknown] * actions.num_rows
        values = actions.column(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", tz=values.type.tz)).cast(pa.int64())
            if name.startswith("max."):
                values = pc.add(values, _MILLISECOND)
        return [unknown if value is None else value for value in values.to_pylist()]

    ranges: dict[str, list[tuple[Range, bool]]] = {}
    for name in {name for condition in bounds.conditions() for name in condition.columns}:
        has_nulls = [count != 0 for count in column(f"null_count.{name}")]
        ends = zip(column(f"min.{name}"), column(f"max.{name}"), strict=True)
        ranges[name] = list(zip(ends, has_nulls, strict=True))
    paths, rows = column("path"), column("num_records", _UNKNOWN_ROWS)
    firsts, lasts = column("min.sequenceNumber", 0), column("max.sequenceNumber", 2**62)
    for index, (path, *numbers) in enumerate(zip(paths, rows, firsts, lasts, strict=True)):
        mine = {name: by_file[index] for name, by_file in ranges.items()}
        yield File(unquote(path), *numbers), mine.__getitem__


def tasks(files: Sequence[File], most: int, least_tasks: int = 1) -> list[list[FileShare]]:
    """Divide files into at least `least_tasks` tasks of at most about `most` rows. Small neighbours share a task, and a large
    file is divided into shares."""
    total = sum(file.rows for file in files)
    wanted = max(1, min(most, -(-total // least_tasks)))
    divided: list[list[FileShare]] = []
    room = 0
    for file in files:
        if file.rows > wanted:
            parts = -(-file.rows // wanted)
            divided += [[file.share(number, parts)] for number in range(parts)]
            room = 0
        elif file.rows > room:
            divided.append([file.share()])
            room = wanted - file.rows
        else:
            divided[-1].append(file.share())
            room -= file.rows
    return divided

"""Small files of a table put together, in the order of their sequence numbers.

We do it ourselves, so that what a commit names is on the disk before the commit is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..archive import table
from . import parquet
from .stores import Store

SMALL = 4  # a file is small below this part of what a file should have
READ_ROWS = 1 << 16
Order = list[tuple[str, str]]
_ORDER: Order = [("queueId", "ascending"), ("sequenceNumber", "ascending"), ("pass", "ascending")]


class Member(NamedTuple):
    """A file of a table's newest version."""

    path: str  # below the table's folder
    bytes: int
    day: str


class Replaced(NamedTuple):
    """Files, and those with the same rows that take their place."""

    old: list[Member]
    new: list[parquet.File]


def small(members: Sequence[Member], file_bytes: int) -> list[list[Member]]:
    """Choose files to put together: small neighbours of one day, as many as make a file."""
    groups: list[list[Member]] = []
    by_day: dict[str, list[Member]] = {}
    for member in members:
        if member.bytes < file_bytes // SMALL:
            by_day.setdefault(member.day, []).append(member)
    for mine in by_day.values():
        group: list[Member] = []
        size = 0
        for member in mine:
            if group and size + member.bytes > file_bytes:
                groups.append(group)
                group, size = [], 0
            group.append(member)
            size += member.bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def put_together(store: Store, group: list[Member], file_bytes: int) -> Replaced | None:
    """Write the rows of a group to new files; None where one of them has columns that are not ours, so somebody else wrote it."""
    found = []
    for member in group:
        with store.open(member.path) as source, pq.ParquetFile(source) as file:
            names = set(file.schema_arrow.names)
            if not names <= set(table.FILE_SCHEMA.names) or not set(table.FILE_SCHEMA.names) - table.ADDED <= names:
                return None
            found.append(_with_all_columns(file.read()))
    rows = pa.concat_tables(found).sort_by(_ORDER)
    return Replaced(group, parquet.write(store, "compact", _with_day(rows, group[0].day), file_bytes))


def _with_all_columns(rows: pa.Table) -> pa.Table:
    """Rows of a file that may be of an earlier version, with every column of now."""
    names = set(rows.schema.names)
    columns = [rows.column(each.name) if each.name in names else pa.nulls(len(rows), each.type) for each in table.FILE_SCHEMA]
    return pa.table(columns, names=table.FILE_SCHEMA.names).cast(table.FILE_SCHEMA)


def _with_day(rows: pa.Table, day: str) -> Iterator[pa.Table]:
    value = pa.scalar(day).cast(pa.date32())
    for batch in rows.to_batches(READ_ROWS):
        days = pa.repeat(value, batch.num_rows)
        yield pa.Table.from_arrays([*batch.columns, days], schema=table.SCHEMA)

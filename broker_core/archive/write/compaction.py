"""Small files of a table put together, in the order of their sequence numbers.

We do it ourselves, so that what a commit names is on the disk before the commit is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from ..table import layout as table
from . import parquet
from .merging import Source, merged
from .stores import Store

SMALL = 4  # a file is small below this part of what a file should have
GROUP_FILES = 500  # of a group at most: all of them may be open at once


class Member(NamedTuple):
    """A file of a table's newest version."""

    path: str  # below the table's folder
    bytes: int
    day: str
    has_deletions: bool = False  # by a deletion vector, which delta-rs cannot name when it takes the file out


class Replaced(NamedTuple):
    """Files, and those with the same rows that take their place."""

    old: list[Member]
    new: list[parquet.File]


def small(members: Sequence[Member], file_bytes: int) -> list[list[Member]]:
    """Choose files to put together: small neighbours of one day, as many as make a file."""
    groups: list[list[Member]] = []
    by_day: dict[str, list[Member]] = {}
    for member in members:
        if member.bytes < file_bytes // SMALL and not member.has_deletions:
            by_day.setdefault(member.day, []).append(member)
    for mine in by_day.values():
        group: list[Member] = []
        size = 0
        for member in mine:
            if group and (size + member.bytes > file_bytes or len(group) == GROUP_FILES):
                groups.append(group)
                group, size = [], 0
            group.append(member)
            size += member.bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def put_together(store: Store, group: list[Member], file_bytes: int) -> Replaced | None:
    """Write the rows of a group to new files; None where one of them has columns that are not ours, so somebody else wrote it."""
    sources = []
    for member in group:
        sources.append(Source(store, member.path))
        names = sources[-1].names
        if not names <= set(table.FILE_SCHEMA.names) or not set(table.FILE_SCHEMA.names) - table.ADDED <= names:
            return None
    rows = (_with_day(part, group[0].day) for part in merged(sources))
    return Replaced(group, parquet.write(store, "compact", rows, file_bytes))


def _with_day(rows: pa.Table, day: str) -> pa.Table:
    days = pa.repeat(pa.scalar(day).cast(pa.date32()), rows.num_rows)
    return pa.table([*rows.columns, days], schema=table.SCHEMA)

"""Small files of a table put together, in the order of their sequence numbers.

We do it ourselves, so that what a commit names is on the disk before the commit is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..table import layout as table
from . import parquet
from .merging import MergeInput, merged
from .stores import TableStore

SMALL = 4  # a file is small below this part of what a file should have
GROUP_FILES = 500  # of a group at most: all of them may be open at once


class TableFile(NamedTuple):
    """A file of a table's newest version."""

    path: str  # below the table's folder
    bytes: int
    day: str
    has_deletions: bool = False  # by a deletion vector, which delta-rs cannot name when it takes the file out


class Replacement(NamedTuple):
    """Files, and those with the same rows that take their place."""

    old: list[TableFile]
    new: list[parquet.DataFile]


def small(members: Sequence[TableFile], file_bytes: int) -> list[list[TableFile]]:
    """Choose files to put together: small neighbours of one day, as many as make a file."""
    groups: list[list[TableFile]] = []
    by_day: dict[str, list[TableFile]] = {}
    for member in members:
        if member.bytes < file_bytes // SMALL and not member.has_deletions:
            by_day.setdefault(member.day, []).append(member)
    for mine in by_day.values():
        group: list[TableFile] = []
        size = 0
        for member in mine:
            if group and (size + member.bytes > file_bytes or len(group) == GROUP_FILES):
                groups.append(group)
                group, size = [], 0
            group.append(member)
            size += member.bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def put_together(store: TableStore, group: list[TableFile], file_bytes: int) -> Replacement | None:
    """Write the rows of a group to new files; None where one of them has columns that are not ours, so somebody else wrote it."""
    sources = []
    for member in group:
        sources.append(MergeInput(store, member.path))
        names = sources[-1].names
        if not names <= set(table.FILE_SCHEMA.names) or not set(table.FILE_SCHEMA.names) - table.ADDED <= names:
            return None
    rows = (table.with_day(part, group[0].day) for part in merged(sources))
    return Replacement(group, parquet.write(store, "compact", rows, file_bytes))

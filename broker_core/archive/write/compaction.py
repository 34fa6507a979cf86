"""Merges of small files into larger ones, in the order of their sequence numbers.

While a day lasts, many small files become files of the usual size. When it has ended, and nearly all of its messages are
recorded, its files become large ones. So a table of years has few files.

Penstock merges files itself, so that they are on the disk before the commit that names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from ..table import layout as table
from . import parquet
from .merging import MergeInput, merged
from .table_files import TableStore

SMALL = 4  # a file is small below this fraction of the target size
ENDED_FILE_BYTES = 256 << 20  # target size of an ended day
ENDED_SMALL = 2
ENDED_AFTER = timedelta(days=2)  # from the beginning of a day
MOST_BYTES = 1 << 30  # of files of ended days, about, that are merged in one go: recordings wait meanwhile
GROUP_FILES = 500  # of a group, whose files may all be open at the same time


class TableFile(NamedTuple):
    """A file in the newest version of a table."""

    path: str  # below the table's folder
    bytes: int
    day: str
    has_deletions: bool = False  # in a deletion vector; delta-rs cannot remove such a file from the table


def of_ended_days(members: Sequence[TableFile], now: datetime) -> list[list[TableFile]]:
    end = (now.astimezone(timezone.utc) - ENDED_AFTER).date().isoformat()
    return small([member for member in members if member.day <= end], ENDED_FILE_BYTES, ENDED_SMALL)


def small(members: Sequence[TableFile], file_bytes: int, fraction: int = SMALL) -> list[list[TableFile]]:
    groups: list[list[TableFile]] = []
    by_day: dict[str, list[TableFile]] = {}
    for member in members:
        if member.bytes < file_bytes // fraction and not member.has_deletions:
            by_day.setdefault(member.day, []).append(member)
    for files in by_day.values():
        group: list[TableFile] = []
        size = 0
        for member in files:
            if group and (size + member.bytes > file_bytes or len(group) == GROUP_FILES):
                groups.append(group)
                group, size = [], 0
            group.append(member)
            size += member.bytes
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def put_together(store: TableStore, group: Sequence[TableFile], file_bytes: int) -> list[parquet.DataFile] | None:
    """Write the rows of a group to new files. Return None if another program wrote a file, which then has foreign columns."""
    sources = []
    for member in group:
        sources.append(MergeInput(store, member.path))
        names = sources[-1].names
        if not names <= set(table.FILE_SCHEMA.names) or not set(table.FILE_SCHEMA.names) - table.ADDED <= names:
            return None
    rows = (table.with_day(part, group[0].day) for part in merged(sources))
    return parquet.write(store, "compact", rows, file_bytes)

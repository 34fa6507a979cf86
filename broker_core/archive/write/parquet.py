"""Parquet files of a pass: compressed, sorted by sequence number, a file for each day, with statistics for the table's log."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..table import layout as table
from .stores import Store

GROUP_BYTES = 64 << 20  # of a row group, before it is compressed, if those are fewer than `table.ROW_GROUP_ROWS`
COMPRESSION = "zstd"
LEVEL = 1  # half the time of Parquet's usual level, and files a few hundredths larger
#: Columns without a dictionary: where all values differ it makes the file larger, and this one took a quarter of all the time.
NO_DICTIONARY = frozenset({"sequenceNumber"})
#: Columns whose statistics say nothing to anybody: nearly all rows have a value, or they are maps, and of these not even nulls
#: are told from empty ones. Of the others a read learns at least that all are null.
NO_STATISTICS = frozenset({"body", "properties", "annotations"})
TABLE_COST = 32 << 10  # bytes that Arrow's objects of a table take, beside its values
_LEAVES_OF_MAP = (".key_value.key", ".key_value.value")
#: Columns whose least and greatest values the table's log gets, by file.
STATISTICS = ("sequenceNumber", "enqueuedTime", "settledTime", "outcome", "queueId", "pass", "lineage")


@dataclass
class File:
    """A file that is written and stored, and that no commit names yet."""

    path: str  # below the table's folder
    day: str  # value of the partition column
    rows: int
    bytes: int
    statistics: str  # as the table's log has them
    modified_ms: int = field(default=0)


def write(store: Store, name: str, tables: Iterable[pa.Table], file_bytes: int) -> list[File]:
    """Write rows of the table's schema to files named after `name`, of about `file_bytes`, and return when they are stored.

    Where it fails, files that are written so far are removed, if that can be done; if not, vacuum does it.
    """
    written: list[File] = []
    paths: list[str] = []
    writer: _Writer | None = None
    syncs: list[Future[None]] = []
    syncing = ThreadPoolExecutor(1, "sync")  # of one file, while the next one is written

    def finished(one: _Writer) -> None:
        written.append(one.finish())
        syncs.append(syncing.submit(store.sync, written[-1].path))

    try:
        for day, group in _groups(tables):
            if writer is not None and (writer.day != day or writer.bytes >= file_bytes):
                finished(writer)
                writer = None
            if writer is None:
                path = f"{table.DAY}={day}/{name}-{uuid.uuid4().hex}.parquet"
                paths.append(path)
                writer = _Writer(store, path, day, lambda path: syncing.submit(store.start_sync, path))
            writer.add(group)
        if writer is not None:
            finished(writer)
            writer = None
        for each in syncs:
            each.result()
    except BaseException:
        if writer is not None:
            writer.abandon()
        for path in paths:
            with contextlib.suppress(Exception):
                store.remove(path)
        raise
    finally:
        syncing.shutdown()
    return written


def _groups(tables: Iterable[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Row groups, each of one day."""
    waiting: list[pa.Table] = []
    day, rows, size = "", 0, 0
    for found in tables:
        for its_day, part in _by_day(found):
            while part.num_rows:
                piece = part.slice(0, table.ROW_GROUP_ROWS - (rows if its_day == day else 0))
                cost = piece.nbytes + TABLE_COST
                if waiting and (its_day != day or not piece.num_rows or size + cost > GROUP_BYTES):
                    yield day, pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
                    continue
                waiting.append(piece)
                day, rows, size = its_day, rows + piece.num_rows, size + cost
                part = part.slice(piece.num_rows)
    if waiting:
        yield day, pa.concat_tables(waiting)


def _by_day(found: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    rest, start = found.select(table.FILE_SCHEMA.names), 0
    for chunk in found.column(table.DAY).chunks:
        ends: Any = pc.run_end_encode(chunk)
        first = start
        for end, day in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            yield day.isoformat(), rest.slice(start, first + end - start)
            start = first + end


class _Writer:
    """A file that is being written; `written` hears its path after each row group."""

    def __init__(self, store: Store, path: str, day: str, written: Callable[[str], object]) -> None:
        self._path, self.day, self._written = path, day, written
        self._file = store.create(path)
        self._metadata: list[Any] = []
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._pending: Future[None] | None = None
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                table.FILE_SCHEMA,
                compression=COMPRESSION,
                compression_level=LEVEL,
                use_dictionary=leaves(NO_DICTIONARY),
                write_statistics=leaves(NO_STATISTICS),
                metadata_collector=self._metadata,
            )
        except BaseException:
            self.abandon()
            raise
        self.bytes = 0

    def add(self, group: pa.Table) -> None:
        """Write a row group, while the next one is read."""
        self._wait()
        self._pending = self._thread.submit(self._write, group)

    def _write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._written(self._path)

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()
            self.bytes = self._file.tell()

    def finish(self) -> File:
        self._wait()
        self._thread.shutdown()
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        metadata: Any = self._metadata[0]
        return File(self._path, self.day, metadata.num_rows, size, _statistics(metadata), _now_ms())

    def abandon(self) -> None:
        self._thread.shutdown()
        with contextlib.suppress(Exception):
            self._file.close()


def leaves(without: frozenset[str]) -> list[str]:
    """Return the columns of a file but for some, as Parquet calls them: a map has one for its keys and one for its values."""
    names = [name for name in table.FILE_SCHEMA.names if name not in without]
    is_map = {name: pa.types.is_map(table.FILE_SCHEMA.field(name).type) for name in names}
    return [f"{name}{leaf}" for name in names for leaf in (_LEAVES_OF_MAP if is_map[name] else ("",))]


def _now_ms() -> int:
    return int(datetime.now(timezone.utc).timestamp() * 1000)


def _statistics(metadata: Any) -> str:
    """Statistics of a file in the form of Delta's log: times are cut to milliseconds."""
    places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in STATISTICS:
        found = [metadata.row_group(number).column(places[name]).statistics for number in range(metadata.num_row_groups)]
        nulls[name] = sum(each.null_count for each in found)
        known = [each for each in found if each.has_min_max]
        if known and len(known) == len(found):
            least[name] = _said(min(each.min for each in known))
            most[name] = _said(max(each.max for each in known))
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _said(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    return value

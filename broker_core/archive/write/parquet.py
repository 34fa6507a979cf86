"""Parquet files of a recording: sorted by sequence number, one file for each day, with statistics for the table's log."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..table import layout as table
from .table_files import TableStore

TABLE_COST = 32 << 10  # bytes of a table in addition to its values


@dataclass
class DataFile:
    """A stored file that no commit names yet."""

    path: str  # below the table's folder
    day: str  # value of the partition column
    rows: int
    bytes: int
    statistics: str  # as the table's log has them
    modified_ms: int


def write(store: TableStore, name: str, tables: Iterable[pa.Table], file_bytes: int) -> list[DataFile]:
    """Write rows to files of about `file_bytes`, whose names begin with `name`. Return when they are stored.

    After a failure, the files are removed if possible, otherwise by vacuum.
    """
    written: list[DataFile] = []
    paths: list[str] = []
    writer: _FileWriter | None = None
    syncs: list[Future[None]] = []
    syncing = ThreadPoolExecutor(1, "sync")  # of a file, while the next one is written

    def finished(file_writer: _FileWriter) -> None:
        written.append(file_writer.finish())
        syncs.append(syncing.submit(store.sync, written[-1].path))

    try:
        for day, group in _groups(tables):
            if writer is not None and (writer.day != day or writer.bytes >= file_bytes):
                finished(writer)
                writer = None
            if writer is None:
                path = f"{table.partition_folder(day)}/{name}-{uuid.uuid4().hex}.parquet"
                paths.append(path)
                writer = _FileWriter(store, path, day, lambda path: syncing.submit(store.start_sync, path))
            writer.add(group)
        if writer is not None:
            finished(writer)
            writer = None
        for pending_sync in syncs:
            pending_sync.result()
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
    waiting: list[pa.Table] = []
    day, rows, size = "", 0, 0
    for rows_of_days in tables:
        for its_day, part in table.by_day(rows_of_days):
            while part.num_rows:
                piece = part.slice(0, table.ROW_GROUP_ROWS - (rows if its_day == day else 0))
                cost = piece.nbytes + TABLE_COST
                if waiting and (its_day != day or not piece.num_rows or size + cost > table.ROW_GROUP_BYTES):
                    yield day, pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
                    continue
                waiting.append(piece)
                day, rows, size = its_day, rows + piece.num_rows, size + cost
                part = part.slice(piece.num_rows)
    if waiting:
        yield day, pa.concat_tables(waiting)


class _FileWriter:
    """A file in writing; `written` is called with its path after each row group."""

    def __init__(self, store: TableStore, path: str, day: str, written: Callable[[str], object]) -> None:
        self._path, self.day, self._written = path, day, written
        self._file = store.create(path)
        self._metadata: list[Any] = []
        self._thread = ThreadPoolExecutor(1, "parquet")
        self._pending: Future[None] | None = None
        self._writer: Any = None
        self.bytes = 0

    def add(self, group: pa.Table) -> None:
        self._wait()
        self._pending = self._thread.submit(self._write, group)

    def _write(self, group: pa.Table) -> None:
        if self._writer is None:
            options = table.file_options(group)
            self._writer = pq.ParquetWriter(self._file, table.FILE_SCHEMA, metadata_collector=self._metadata, **options)
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self._written(self._path)

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()
            self.bytes = self._file.tell()

    def finish(self) -> DataFile:
        self._wait()
        self._thread.shutdown()
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        metadata: Any = self._metadata[0]
        now_ms = int(datetime.now(timezone.utc).timestamp() * 1000)
        return DataFile(self._path, self.day, metadata.num_rows, size, _statistics(metadata), now_ms)

    def abandon(self) -> None:
        self._thread.shutdown()
        with contextlib.suppress(Exception):
            self._file.close()


def _statistics(metadata: Any) -> str:
    """Return a file's statistics as in Delta's log: times are cut to milliseconds."""
    places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in table.LOG_STATISTICS:
        groups = [metadata.row_group(number).column(places[name]).statistics for number in range(metadata.num_row_groups)]
        nulls[name] = sum(group.null_count for group in groups)
        if groups and all(group.has_min_max for group in groups):
            least[name] = _in_log(min(group.min for group in groups))
            most[name] = _in_log(max(group.max for group in groups))
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _in_log(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    return value

"""The rows of several files in one order. If they interleave, only a part of each file is in memory.

The rows of our own files are in order. A file that another program has rewritten may not be, and is then read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..read import scan
from ..table import layout as table
from .table_files import TableStore

READ_ROWS = 1 << 16  # of a batch, at most
PARTS = 16  # a row group is read in this many parts, to limit memory
LEAST_ROWS = 64  # rows of such a part, at least
COLUMNS = ("queueId", "sequenceNumber", "pass")
_ORDER: list[tuple[str, str]] = [(name, "ascending") for name in COLUMNS]

Key = tuple[int, ...]  # values of `COLUMNS`
Keys = list[npt.NDArray[np.int64]]


class MergeInput:
    """A file, and the keys of its first and last rows."""

    def __init__(self, store: TableStore, path: str) -> None:
        self._store, self._path = store, path
        self.ends: tuple[Key, Key] | None = None  # the file has no rows
        self._is_sorted = True
        with store.open(path) as source, pq.ParquetFile(source, **scan.READ_OPTIONS) as file:
            self.names = set(file.schema_arrow.names)
            if self.names.issuperset(COLUMNS):
                for batch in file.iter_batches(READ_ROWS, columns=list(COLUMNS)):
                    self._note(_keys(batch))

    def _note(self, keys: Keys) -> None:
        if not len(keys[0]):
            return
        order = np.lexsort(keys[::-1])
        first, last = _key(keys, order[0]), _key(keys, order[-1])
        self._is_sorted = self._is_sorted and bool((order[1:] > order[:-1]).all())
        if self.ends is None:
            self.ends = first, last
        else:
            self._is_sorted = self._is_sorted and self.ends[1] <= first
            self.ends = min(self.ends[0], first), max(self.ends[1], last)

    def batches(self, *, alone: bool) -> Iterator[pa.Table]:
        """Yield the rows in order, with all columns; in small parts unless `alone`."""
        with self._store.open(self._path) as source, pq.ParquetFile(source, **scan.READ_OPTIONS) as file:
            if not self._is_sorted:
                # Converted first: Arrow cannot sort views, which other writers use for strings.
                for batch in _with_all_columns(file.read()).sort_by(_ORDER).to_batches(READ_ROWS):
                    yield pa.Table.from_batches([batch])
                return
            groups = range(file.metadata.num_row_groups)
            largest = max(file.metadata.row_group(number).num_rows for number in groups)
            for batch in file.iter_batches(READ_ROWS if alone else max(LEAST_ROWS, largest // PARTS)):
                if batch.num_rows:
                    yield _with_all_columns(pa.Table.from_batches([batch]))


class _OpenInput:
    """An input that is being read."""

    def __init__(self, batches: Iterator[pa.Table]) -> None:
        self._batches = batches
        self.rows: Any = None  # in memory, not taken yet; None at the end of the file
        self._follow()

    def _follow(self) -> None:
        self.rows = next(self._batches, None)
        self.last: Key = () if self.rows is None else _key(_keys(self.rows.slice(self.rows.num_rows - 1)), 0)

    def take(self, bound: Key) -> pa.Table:
        (queues, numbers, recordings), (queue, number, last) = _keys(self.rows), bound
        below = (queues < queue) | (queues == queue) & ((numbers < number) | (numbers == number) & (recordings <= last))
        count = int(below.sum())
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        if not self.rows.num_rows:
            self._follow()
        return taken


def merged(sources: Sequence[MergeInput]) -> Iterator[pa.Table]:
    waiting = sorted(((*source.ends, number) for number, source in enumerate(sources) if source.ends is not None), reverse=True)
    opened: list[_OpenInput] = []
    while waiting or opened:
        bound = min((source.last for source in opened), default=None)
        while waiting and (bound is None or waiting[-1][0] <= bound):
            _, last, number = waiting.pop()
            alone = not opened and (not waiting or last < waiting[-1][0])
            opened.append(_OpenInput(sources[number].batches(alone=alone)))
            bound = min(source.last for source in opened)
        assert bound is not None
        parts = [part for part in [source.take(bound) for source in opened] if part.num_rows]
        opened = [source for source in opened if source.rows is not None]
        yield parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by(_ORDER)


def _with_all_columns(rows: pa.Table) -> pa.Table:
    """Add the columns that an earlier version did not write."""
    names = set(rows.schema.names)
    columns = [rows.column(field.name) if field.name in names else pa.nulls(len(rows), field.type) for field in table.FILE_SCHEMA]
    return pa.table(columns, names=table.FILE_SCHEMA.names).cast(table.FILE_SCHEMA)


def _keys(rows: pa.RecordBatch | pa.Table) -> Keys:
    return [rows.column(name).to_numpy() for name in COLUMNS]


def _key(keys: Keys, index: int) -> Key:
    return tuple(int(values[index]) for values in keys)

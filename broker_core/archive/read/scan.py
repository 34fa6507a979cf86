"""Rows of a table's file, as record batches: row groups are left out by their statistics, rows by what is wanted.

A file of a table never changes, so a task may read it without a word to anybody: `FileShare` says which of its row groups.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pyarrow as pa

from ... import shipped
from ...errors import ArchiveUnreachable, InvalidRequest
from ...stores.credentials import arrow_file_system
from ...stores.folders import is_local, local_path
from ..table import layout as table
from .bounds import Bounds, ColumnRange, Range, RecordingSpans

BATCH_ROWS = 1 << 16
BATCH_BYTES = 9 << 20  # of a batch, or few rows: what Spark wants of one, so that nobody has to join two
#: Spark's writers may leave times as 96 bits, which would be read as nanoseconds: those end in 2262.
READ_OPTIONS: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Deletions(NamedTuple):
    """The rows of a file that a deletion vector removes in one version of the table."""

    version: int
    rows: int = 0  # of the file, as far as the vector goes: later ones are kept
    kept: bytes | None = None  # a bit for each of them, as Arrow has it, compressed; None: the broker knows

    @classmethod
    def of(cls, version: int, selection: pa.Array) -> Deletions:
        """Return the deletions of a vector that is true for rows that stay."""
        bits = pa.concat_arrays([selection, pa.array([], pa.bool_())]).buffers()[1]  # its first bit is that of the first row
        return cls(version, len(selection), zlib.compress(bits.to_pybytes(), 1))

    def applied(self) -> Callable[[int, pa.RecordBatch], pa.RecordBatch]:
        """Return the function that takes the deleted rows out of a batch, whose first row has this place in the file."""
        assert self.kept is not None
        mask = pa.Array.from_buffers(pa.bool_(), self.rows, [None, pa.py_buffer(zlib.decompress(self.kept))])

        def apply(first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
            mine = mask.slice(first, batch.num_rows)
            return batch.filter(pa.concat_arrays([mine, pa.repeat(True, batch.num_rows - len(mine))]))

        return apply


class FileShare(NamedTuple):
    """The row groups of a file that one task reads: those of the `number`-th of so many `parts` of equal length, from 0 on."""

    path: str  # below the table's folder
    number: int = 0
    parts: int = 1
    first: int = 0  # sequence numbers of the file
    last: int = 2**62
    deletions: Deletions | None = None  # None: all rows of the file are rows of the table

    def of(self, groups: int) -> range:
        """Number the row groups, of so many."""
        return range(groups * self.number // self.parts, groups * (self.number + 1) // self.parts)


def is_below(path: str) -> bool:
    """Say whether a path stays below the table's folder, and is one of a Parquet file."""
    return path.endswith(".parquet") and not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


def opened(url: str, path: str) -> Any:
    """Open a file of the table at `url`: a folder, or an object store's URL. Raises ArchiveUnreachable."""
    import pyarrow.parquet as pq

    try:
        if is_local(url):
            return pq.ParquetFile(f"{local_path(url)}/{path}", memory_map=True, **READ_OPTIONS)
        system, root = arrow_file_system(url)
        return pq.ParquetFile(system.open_input_file(f"{root}/{path}"), pre_buffer=True, **READ_OPTIONS)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveUnreachable(
            f"the archive's file {path} in {url} cannot be read here: {error}. A folder has to be mounted at the same path, and"
            " an object store needs this process's credentials"
        ) from error


def is_folder(url: str) -> bool:
    """Say whether a URL names a folder that this process sees."""
    return is_local(url) and os.path.isdir(local_path(url))


def batches(
    file: Any,
    share: FileShare,
    columns: Sequence[str],
    bounds: Bounds,
    selector: str | None = None,
    presence: Any = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of an open file within the bounds that the selector matches, as `table.rows_of_read` takes them, in the file's order;
    batches without rows, too, where nothing is found for long.

    A column is left out where it is null in all rows of a row group, as most columns of most messages are: to decode nulls takes
    nearly as long as to decode numbers.

    `file` is what `opened` gave. `presence` (a `selectors.Presence`) is told which lookalikes the compared rows have.
    Raises ArchiveUnreachable where it cannot be read any further.
    """
    names = {column: index for index, column in enumerate(_paths(file.metadata))}
    wanted = [name for name in table.needed(columns) if name in file.schema_arrow.names]
    apply = None if share.deletions is None else share.deletions.applied()
    for group in share.of(file.metadata.num_row_groups):
        conditions = bounds.conditions()
        found = {name: _range(file.metadata.row_group(group), names.get(name)) for each in conditions for name in each.columns}
        if not all(each.may_hold(found.__getitem__) for each in conditions):
            continue
        checked = [each for each in conditions if not each.holds(found.__getitem__)]
        more = {*(name for each in checked for name in each.columns), *_selected(selector)}
        given = [name for name in wanted if not _is_null(file.metadata.row_group(group), names.get(name))]
        read = [name for name in file.schema_arrow.names if name in {*given, *more}]
        place = sum(file.metadata.row_group(number).num_rows for number in range(group)) if apply is not None else 0
        for batch in _read(file, group, read):
            rows = batch if apply is None else apply(place, batch)
            place += batch.num_rows
            rows = _within(rows, checked)
            if selector is not None and rows.num_rows:
                rows = rows.filter(matching(selector, rows, presence))
            yield rows.select(given)


def _read(file: Any, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    # Not on Arrow's threads, which a process has once: a task has one processor, and waits for nobody else's work.
    try:
        most = _batch_rows(file.metadata.row_group(group), columns)
        for batch in file.iter_batches(most, row_groups=[group], columns=columns, use_threads=False):
            yield from _parts(batch)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnreachable(f"a file of the archive cannot be read: {error}") from error


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch that is far larger than its row group said: a value that repeats is small in the file only."""
    if batch.nbytes <= 2 * BATCH_BYTES:
        yield batch
        return
    rows = max(1, BATCH_BYTES * batch.num_rows // batch.nbytes)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _batch_rows(group: Any, columns: list[str]) -> int:
    """Rows of a row group that make a batch."""
    chunks = (group.column(index) for index in range(group.num_columns))
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)
    rows: int = min(BATCH_ROWS, 1 + BATCH_BYTES * group.num_rows // max(size, 1))
    return rows


def _within(batch: pa.RecordBatch, checked: Sequence[ColumnRange | RecordingSpans]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    if not checked:
        return batch
    mask = None
    for each in checked:
        mine = each.mask(batch)
        mask = mine if mask is None else pc.and_(mask, mine)
    return batch.filter(mask)


def _selected(selector: str | None) -> list[str]:
    """The columns that a selector may look at: of either form."""
    return [] if selector is None else list(shipped.module("selectors").parse(selector).columns())


def matching(selector: str, rows: pa.RecordBatch, presence: Any = None) -> pa.Array:
    """Say which rows of a table a selector matches; they may be of both forms. Raises InvalidRequest where numpy is missing."""
    import pyarrow.compute as pc

    selectors = shipped.module("selectors")
    parsed = selectors.parse(selector)

    def evaluated(mine: pa.RecordBatch) -> pa.Array:
        try:
            return pa.array(selectors.matches(parsed, mine, presence))
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "numpy":
                raise
        raise InvalidRequest(
            "a selector over the archive is evaluated by Spark's tasks, and that needs numpy, which this Python does not have:"
            " install numpy where Spark's executors run"
        )

    is_encoded = rows.column("message").is_valid()
    parts = [pa.array([], pa.int64())]
    for form, names in ((is_encoded, None), (pc.invert(is_encoded), [n for n in rows.schema.names if n != "message"])):
        numbers = pc.indices_nonzero(form).cast(pa.int64())
        if len(numbers):
            mine = rows.take(numbers)
            parts.append(numbers.filter(evaluated(mine if names is None else mine.select(names))))
    return pc.is_in(pc.add(pc.cumulative_sum(pa.repeat(1, rows.num_rows)), -1), value_set=pa.concat_arrays(parts))


def _paths(metadata: Any) -> list[str]:
    return [metadata.schema.column(index).path for index in range(metadata.num_columns)]


def _is_null(group: Any, column: int | None) -> bool:
    """Say whether a column is known to be null in every row of a row group."""
    statistics = None if column is None else group.column(column).statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == group.num_rows


def _range(group: Any, column: int | None) -> tuple[Range, bool]:
    """The least and greatest value in a row group, as far as known, and whether some may be null."""
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return (None, None), True
    nulls = not statistics.has_null_count or statistics.null_count > 0
    with contextlib.suppress(ValueError, OverflowError):  # a time that Python cannot say
        return (_plain(statistics.min), _plain(statistics.max)), nulls
    return (None, None), True


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, (int, str)) else None

"""The wanted rows of a table's file, as record batches.

A file never changes, so a task reads it without asking the broker.
"""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa

from ... import executor_modules
from ...errors import ArchiveUnreachable, InvalidRequest
from ...stores.credentials import arrow_file_system
from ...stores.folders import is_local, local_path
from ..table import layout as table
from .bounds import Bounds, Range

BATCH_ROWS = 1 << 16
BATCH_BYTES = 9 << 20  # of a batch, unless a few rows are larger: Spark need not join batches of this size
#: pyarrow would read times of 96 bits, which Spark may write, as nanoseconds. Those end in 2262.
READ_OPTIONS: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Deletions(NamedTuple):
    """The rows of a file that a deletion vector removes in one version of the table."""

    version: int
    rows: int = 0  # rows of the file that the vector covers; later ones stay
    remaining: bytes | None = None  # compressed Arrow bitmap of the rows that stay; None: only the broker has it

    @classmethod
    def of(cls, version: int, selection: pa.Array) -> Deletions:
        bits = pa.concat_arrays([selection, pa.array([], pa.bool_())]).buffers()[1]  # starts with the first row
        return cls(version, len(selection), zlib.compress(bits.to_pybytes(), 1))

    def applied(self) -> Callable[[int, pa.RecordBatch], pa.RecordBatch]:
        """Return a function that removes the deleted rows from a batch at a position in the file."""
        assert self.remaining is not None
        mask = pa.Array.from_buffers(pa.bool_(), self.rows, [None, pa.py_buffer(zlib.decompress(self.remaining))])

        def apply(first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
            selection = mask.slice(first, batch.num_rows)
            return batch.filter(pa.concat_arrays([selection, pa.repeat(True, batch.num_rows - len(selection))]))

        return apply


class FileShare(NamedTuple):
    """The row groups of a file that one task reads: part `number`, from 0, of `parts`."""

    path: str  # below the table's folder
    number: int = 0
    parts: int = 1
    first: int = 0  # sequence numbers in the file
    last: int = 2**62
    deletions: Deletions | None = None  # no row of the file is deleted

    def of(self, groups: int) -> range:
        return range(groups * self.number // self.parts, groups * (self.number + 1) // self.parts)


def is_below(path: str) -> bool:
    return path.endswith(".parquet") and not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


def opened(url: str, path: str) -> Any:
    """Open a Parquet file of the table at `url`. Raises ArchiveUnreachable."""
    return opened_with_source(url, path)[0]


def opened_with_source(url: str, path: str) -> tuple[Any, Any]:
    """Do as `opened`, and also return the file of its bytes."""
    import pyarrow.parquet as pq

    try:
        if is_local(url):
            source = pa.memory_map(f"{local_path(url)}/{path}")
        else:
            system, root = arrow_file_system(url)
            source = system.open_input_file(f"{root}/{path}")
        return pq.ParquetFile(source, pre_buffer=not is_local(url), **READ_OPTIONS), source
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveUnreachable(
            f"the archive's file {path} in {url} cannot be read here: {error}. A folder has to be mounted at the same path, and"
            " an object store needs this process's credentials"
        ) from error


def is_folder(url: str) -> bool:
    return is_local(url) and os.path.isdir(local_path(url))


def batches(
    file: Any, share: FileShare, columns: Sequence[str], bounds: Bounds, selector: str | None = None, presence: Any = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open file that are within the bounds and match the selector, in the file's order.

    Some batches have no rows, so that a caller regains control in a long search. A column that is null in a whole row group is
    left out, because decoding nulls takes nearly as long as decoding numbers.

    `presence` (a `selectors.Presence`) collects the lookalikes in the compared rows. Raises ArchiveUnreachable.
    """
    import pyarrow.compute as pc

    leaves = file.metadata.schema
    names = {leaves.column(index).path: index for index in range(file.metadata.num_columns)}
    wanted = [name for name in table.needed(columns) if name in file.schema_arrow.names]
    apply = None if share.deletions is None else share.deletions.applied()
    conditions = bounds.conditions()
    for group in share.of(file.metadata.num_row_groups):
        metadata = file.metadata.row_group(group)
        ranges = {name: _range(metadata, names.get(name)) for condition in conditions for name in condition.columns}
        if not all(condition.may_hold(ranges.__getitem__) for condition in conditions):
            continue
        checked = [condition for condition in conditions if not condition.holds(ranges.__getitem__)]
        compared = {*(name for condition in checked for name in condition.columns), *_selected(selector)}
        all_exact = sum(_values(metadata, names.get(name)) for name in ("message", table.ENVELOPE)) == metadata.num_rows
        present = [name for name in wanted if _values(metadata, names.get(name)) != 0]
        present = table.useful(present, columns, all_exact=all_exact)
        needed = [name for name in file.schema_arrow.names if name in {*present, *compared}]
        place = sum(file.metadata.row_group(number).num_rows for number in range(group)) if apply is not None else 0
        for batch in _read(file, group, needed):
            rows = batch if apply is None else apply(place, batch)
            place += batch.num_rows
            if checked:
                rows = rows.filter(reduce(pc.and_, (condition.mask(rows) for condition in checked)))
            if selector is not None and rows.num_rows:
                rows = rows.filter(matching(selector, rows, presence))
            yield rows.select(present)


def _read(file: Any, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    # Not on Arrow's threads, which all tasks of a process share: a task has one processor.
    try:
        metadata = file.metadata.row_group(group)
        chunks = (metadata.column(index) for index in range(metadata.num_columns))
        size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)
        most = min(BATCH_ROWS, 1 + BATCH_BYTES * metadata.num_rows // max(size, 1))
        for batch in file.iter_batches(most, row_groups=[group], columns=columns, use_threads=False):
            yield from _parts(batch)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnreachable(f"a file of the archive cannot be read: {error}") from error


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch that is far larger than in the file, where a repeated value is stored once."""
    if batch.nbytes <= 2 * BATCH_BYTES:
        yield batch
        return
    rows = max(1, BATCH_BYTES * batch.num_rows // batch.nbytes)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _selected(selector: str | None) -> list[str]:
    """Return the columns that a selector compares. Messages of AMQP clients are evaluated in their encoding."""
    return [] if selector is None else [*executor_modules.module("selectors").parse(selector).columns(), table.ENVELOPE, "body"]


def matching(selector: str, rows: pa.RecordBatch, presence: Any = None) -> pa.Array:
    """Return a mask of the matching rows. They may have both forms."""
    import pyarrow.compute as pc

    selectors = executor_modules.module("selectors")
    parsed = selectors.parse(selector)

    def evaluated(part: pa.RecordBatch) -> pa.Array:
        try:
            return pa.array(selectors.matches(parsed, part, presence))
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "numpy":
                raise
        raise InvalidRequest(
            "a selector over the archive is evaluated by Spark's tasks, and that needs numpy, which this Python does not have:"
            " install numpy where Spark's executors run"
        )

    names = [name for name in rows.schema.names if name not in ("message", table.ENVELOPE)]
    messages = table.exact_messages(rows)
    rows = rows.select(names).append_column("message", messages)
    is_encoded = messages.is_valid()
    parts = [pa.array([], pa.int64())]
    for form, columns in ((is_encoded, rows.schema.names), (pc.invert(is_encoded), names)):
        numbers = pc.indices_nonzero(form).cast(pa.int64())
        if len(numbers):
            parts.append(numbers.filter(evaluated(rows.select(columns).take(numbers))))
    return pc.is_in(pc.add(pc.cumulative_sum(pa.repeat(1, rows.num_rows)), -1), value_set=pa.concat_arrays(parts))


def _values(group: Any, column: int | None) -> float:
    """Return the number of rows with a value; not a number if unknown."""
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_null_count:
        return math.nan
    return int(group.num_rows - statistics.null_count)


def _range(group: Any, column: int | None) -> tuple[Range, bool]:
    statistics = None if column is None else group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return (None, None), True
    nulls = not statistics.has_null_count or statistics.null_count > 0
    with contextlib.suppress(ValueError, OverflowError):  # a time outside Python's range
        return (_plain(statistics.min), _plain(statistics.max)), nulls
    return (None, None), True


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, (int, str)) else None

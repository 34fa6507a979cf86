"""The rows of a table that have one of some ids.

A row group is read only if the statistics and the bloom filter of an id column admit one of the ids. Its id columns are read
first, and the wanted columns only if a row matches.

A filter has one false answer in a hundred, so 100 million rows cost about ten needless reads of an id column. Files of other
writers may have no filters. Then the statistics alone decide.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa

from ...errors import ArchiveUnreachable
from ...stores.folders import is_local
from ..table.layout import FILTERED
from .bounds import Bounds
from .files import File, Table
from .scan import opened_with_source

#: Files that are opened ahead. A request to an object store takes tens of milliseconds.
AHEAD_IN_STORE, AHEAD_IN_FOLDER = 16, 1

_HEADER_BYTES = 64  # read for the header of a filter, which has about 16
_BLOCK_BYTES = 32
_WORDS = range(8)  # of a block
#: Constants of Parquet's split-block bloom filters.
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_I32, _STRUCT = 5, 12  # types of Thrift's compact protocol
_ONLY_KIND = bytes((1 << 4 | _STRUCT, 0, 0))  # the one algorithm, hash and compression of Parquet: the first, an empty struct


class FilterHeader(NamedTuple):
    """The header of a bloom filter."""

    length: int  # of the header
    octets: int  # of the bits that follow it


class OpenFile(NamedTuple):
    """A file, and its row groups that may have one of the ids: number → the id columns to read."""

    listed: File
    parquet: Any
    groups: dict[int, list[str]]


def hash_of(text: str) -> int:
    import xxhash  # executors receive this module, but not xxhash

    return xxhash.xxh64_intdigest(text.encode(), 0)


def filter_header(octets: bytes) -> FilterHeader | None:
    """Parse a header in Thrift's compact protocol. Return None for another kind of filter, or damaged bytes."""
    try:
        return _filter_header(octets)
    except IndexError:
        return None


def _filter_header(octets: bytes) -> FilterHeader | None:
    position, field, size = 0, 0, 0
    while octets[position]:
        delta, type_ = octets[position] >> 4, octets[position] & 15
        field, position = field + delta, position + 1
        if field == 1 and type_ == _I32:
            shift = 0
            while True:
                octet, position = octets[position], position + 1
                size |= (octet & 127) << shift
                shift += 7
                if octet < 128:
                    break
            size >>= 1  # zigzag
        elif delta and type_ == _STRUCT and octets[position : position + 3] == _ONLY_KIND:
            position += 3
        else:
            return None
    return FilterHeader(position + 1, size) if field and size and not size % _BLOCK_BYTES else None


def block_of(hash_: int, octets: int) -> int:
    """Return the position of a hash's block in a filter of `octets` bytes."""
    return ((hash_ >> 32) * (octets // _BLOCK_BYTES) >> 32) * _BLOCK_BYTES


def is_in_block(hash_: int, block: bytes) -> bool:
    key = hash_ & 0xFFFFFFFF
    for word in _WORDS:
        bit = (key * _SALTS[word] & 0xFFFFFFFF) >> 27
        if not int.from_bytes(block[4 * word : 4 * word + 4], "little") >> bit & 1:
            return False
    return True


def batches(
    table: Table,
    listed: Sequence[File],
    ids: Sequence[str],
    columns: Sequence[str],
    bounds: Bounds,
    id_columns: Sequence[str] = FILTERED,
) -> Iterator[tuple[File, pa.RecordBatch | None]]:
    """Yield the rows within the bounds that have one of the ids, with their file. None follows the last rows of each file.

    Columns that a file lacks are left out. Raises ArchiveUnreachable.
    """
    for file in opened(table, listed, ids, id_columns):
        for group, names in file.groups.items():
            try:
                rows = _rows(file, group, names, ids, columns, bounds)
            except (OSError, pa.ArrowException) as error:
                raise ArchiveUnreachable(f"a file of the archive cannot be read: {error}") from error
            if rows is not None and rows.num_rows:
                yield file.listed, rows
        yield file.listed, None


def opened(table: Table, listed: Sequence[File], ids: Sequence[str], id_columns: Sequence[str] = FILTERED) -> Iterator[OpenFile]:
    """Open files in order, some of them ahead."""
    hashes = {text: hash_of(text) for text in ids}
    most = AHEAD_IN_FOLDER if is_local(table.url) else AHEAD_IN_STORE
    waiting: deque[Future[OpenFile]] = deque()
    with ThreadPoolExecutor(most, "penstock-archive-ids") as threads:
        try:
            for file in listed:
                waiting.append(threads.submit(_opened, table.url, file, hashes, id_columns))
                if len(waiting) > most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _opened(url: str, listed: File, hashes: dict[str, int], id_columns: Sequence[str]) -> OpenFile:
    file, source = opened_with_source(url, listed.path)
    try:
        return OpenFile(listed, file, _groups(file.metadata, source, hashes, id_columns))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveUnreachable(f"the archive's file {listed.path} in {url} cannot be read: {error}") from error


def _groups(metadata: Any, source: Any, hashes: dict[str, int], id_columns: Sequence[str]) -> dict[int, list[str]]:
    leaves = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    groups: dict[int, list[str]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        names = [name for name in id_columns if name in leaves and _may_have(group.column(leaves[name]), source, hashes)]
        if names:
            groups[number] = names
    return groups


def _may_have(chunk: Any, source: Any, hashes: dict[str, int]) -> bool:
    statistics = chunk.statistics
    ids = list(hashes)
    if statistics is not None:
        if statistics.has_null_count and statistics.null_count == chunk.num_values:
            return False
        if statistics.has_min_max and isinstance(statistics.min, str):
            ids = [text for text in ids if statistics.min <= text <= statistics.max]
    offset = getattr(chunk, "bloom_filter_offset", None)
    if not ids or offset is None:
        return bool(ids)
    header = filter_header(bytes(source.read_at(_HEADER_BYTES, offset)))
    if header is None:
        return True
    start = offset + header.length
    blocks = ((hashes[text], source.read_at(_BLOCK_BYTES, start + block_of(hashes[text], header.octets))) for text in ids)
    return any(len(block) < _BLOCK_BYTES or is_in_block(hash_, bytes(block)) for hash_, block in blocks)


def _rows(
    file: OpenFile, group: int, names: Sequence[str], ids: Sequence[str], columns: Sequence[str], bounds: Bounds
) -> pa.RecordBatch | None:
    import pyarrow.compute as pc

    wanted = pa.array(ids, pa.string())
    read = file.parquet.read_row_group(group, columns=list(names), use_threads=False)
    columns_of_ids = (column.cast(pa.string()) for column in read.columns)
    mask = reduce(pc.or_, (pc.is_in(column, value_set=wanted) for column in columns_of_ids))
    rows = pc.indices_nonzero(mask.combine_chunks())
    if not len(rows):
        return None
    rows = _remaining(file, group, rows)
    conditions = bounds.conditions()
    needed = {*columns, *(name for condition in conditions for name in condition.columns)}
    present = [name for name in file.parquet.schema_arrow.names if name in needed]
    read = file.parquet.read_row_group(group, columns=present, use_threads=False).take(rows)
    batch = pa.RecordBatch.from_arrays([column.combine_chunks() for column in read.columns], names=present)
    batch = batch.filter(reduce(pc.and_, (condition.mask(batch) for condition in conditions)))
    return batch.select([name for name in columns if name in present])


def _remaining(file: OpenFile, group: int, rows: pa.Array) -> pa.Array:
    """Leave out rows that a deletion vector removes."""
    if file.listed.deletions is None:
        return rows
    metadata = file.parquet.metadata
    first = sum(metadata.row_group(number).num_rows for number in range(group))
    apply = file.listed.deletions.applied()
    parts = [
        apply(first + row, pa.RecordBatch.from_arrays([rows.slice(at, 1)], ["row"])) for at, row in enumerate(rows.to_pylist())
    ]
    return pa.concat_arrays([part.column(0) for part in parts])

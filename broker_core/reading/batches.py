"""Slices of blocks as record batches of the columns that a reader wants."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine.columns.dictionary import distinct
from ..engine.columns.states import ARCHIVED, OUTCOME_CODES, Outcome, State
from ..messages import assembly
from ..messages.delivery_key import column as delivery_column
from ..messages.encoding.annotation import overlaid
from .failures import failures_of
from .gathering import gathered
from .records import SMALL_ROWS, RecordRows, read_extents, record_reader
from .slices import BlockSlice
from .stored import Records

JOINED_ROWS = 16_384  # approximate rows of a record batch: the reader works on one while the next is built
BATCH_BYTES = 8 << 20  # approximate bytes of payload
RECORD_COST = 1 << 10  # bytes of memory for a record until its rows are taken, without its payload, which is mapped

#: Columns that are always read: they determine the message's form, and annotations are added to them.
_ADDED_TO = ("annotations", "encodedAnnotations")
_ALWAYS = ("message", *_ADDED_TO)


class BatchRequest(NamedTuple):
    """The batches that a reader wants."""

    columns: Sequence[str]
    queue: str
    delivery: bytes = b""  # prefix of the column `delivery`
    stored: bool = False
    set_aside: Callable[[Mapping[int, str]], None] | None = None


def record_batches(journal: Records, slices: Iterable[BlockSlice], request: BatchRequest) -> Iterator[pa.RecordBatch]:
    """Yield record batches of exactly `columns.arrow_schema(columns, stored=stored)`, in the order of the slices.

    Columns that a message's form does not hold are converted, or with `stored` null. Messages that cannot be converted are
    passed to `set_aside`, as sequence number → reason, and left out. Without `set_aside` they have nulls and an `error`, as do
    archived messages whose record is damaged. Other damage raises DamagedMessages.
    """
    columns = {*assembly.needed(request.columns), *_ALWAYS}
    measured = _measured(journal, slices, columns, request.queue, SMALL_ROWS, ended=request.set_aside is None)
    for group in assembly.grouped(measured, JOINED_ROWS, BATCH_BYTES):
        yield _assembled(_joined(group, request.columns), group, request)


def record_tables(
    journal: Records, slices: Iterable[BlockSlice], columns: Sequence[str], queue: str, rows: int, size: int
) -> Iterator[pa.Table]:
    """Yield the rows as `record_batches` does with `stored`, in tables of about `rows` rows or `size` bytes of payload.

    A column of messages has a chunk for each record. Copies are made only of small records, of scattered rows, and of rows to
    which the broker adds annotations. A column of the broker has one chunk.
    """
    measured = _measured(journal, slices, {*assembly.needed(columns), *_ALWAYS}, queue, sys.maxsize, ended=True)
    weighed = ((item, count, octets + RECORD_COST, form, big) for item, count, octets, form, big in measured)
    for group in assembly.grouped(weighed, rows, size):
        yield _assembled(_stacked(group, columns), group, BatchRequest(columns, queue, stored=True))


def _columns_of_record(columns: Container[str], read: Callable[[int], pa.RecordBatch], position: int) -> pa.RecordBatch:
    """Read a record with only the wanted columns, and at least one, since it carries the number of rows."""
    record = read(position)
    names = record.schema.names
    wanted = [name for name in names if name in columns] or names[:1]
    return record if len(wanted) == len(names) else record.select(wanted)


def _measured(
    journal: Records, slices: Iterable[BlockSlice], columns: Container[str], queue: str, large: int, *, ended: bool
) -> Iterator[tuple[_Item, int, int, bool, bool]]:
    """Yield the rows of each record with their measures for `assembly.grouped`. With `ended`, damaged archived rows become
    nulls.

    A record counts as large from `large` rows on.
    """
    for block_slice in slices:
        read = partial(_columns_of_record, columns, record_reader(journal, block_slice.batches))
        for extent, record_rows in read_extents(block_slice.locations, read):
            rows = extent.indexes.stop - extent.indexes.start
            if isinstance(record_rows, RecordRows):
                size = record_rows.record.get_total_buffer_size() * rows // record_rows.record.num_rows
                yield (block_slice, record_rows), rows, size, record_rows.is_encoded, rows >= large
            elif ended and bool((np.asarray(block_slice.state)[extent.indexes] == ARCHIVED).all()):
                nulls = pa.RecordBatch.from_arrays([pa.nulls(rows, pa.string())], ["subject"])
                text = errors.DamagedMessages.text(record_rows)
                yield (block_slice, RecordRows(nulls, extent._replace(first=0), None, text)), rows, 0, False, True
            else:
                block_slice.refuse(queue, extent.indexes, record_rows)


def _assembled(payload: assembly.Payload, group: list[_Item], request: BatchRequest) -> assembly.Payload:
    columns, queue, delivery, stored, set_aside = request
    names, parts = set(columns), _parts(group)
    sequence: Any = parts[0][0].first_of(parts[0][1]) if len(parts) == 1 else None
    if sequence is None:
        sequence = _sequences(parts)
    time: Any = group[0][1].extent.time
    if len(group) > 1 and "enqueuedTime" in names:
        time = np.repeat([record_rows.extent.time for _, record_rows in group], [record_rows.rows for _, record_rows in group])
    malformed: dict[int, str] = {}
    batch = assembly.assemble(
        columns,
        payload,
        {
            "queue": queue,
            "sequenceNumber": sequence,
            "enqueuedTime": time,
            "deliveryCount": _join(parts, "attempts") if "deliveryCount" in names else None,
            "state": _names(_join(parts, "state"), _STATE_NAMES) if "state" in names else None,
            "outcome": _names(_join(parts, "outcome"), _OUTCOME_NAMES) if "outcome" in names else None,
            "settledTime": _settled(parts) if "settledTime" in names else None,
            "delivery": delivery_column(delivery, _sequences(parts)) if "delivery" in names and delivery else None,
            "error": _errors(parts, group[0][1].error) if "error" in names else None,
            "holder": _holders(parts) if "holder" in names else None,
            "failures": _failures(parts) if "failures" in names else None,
            "lockedUntil": _locked(parts) if "lockedUntil" in names else None,
        },
        stored=stored,
        malformed=malformed,
    )
    if not malformed or set_aside is None:
        return batch
    set_aside(malformed)
    return assembly.readable(batch, sequence, malformed)


_Item = tuple[BlockSlice, RecordRows]  # a record with wanted rows, and the slice that contains them
_Part = tuple[BlockSlice, slice]  # a slice of a block, and the indexes of neighbours in it


def _is_annotated(group: list[_Item], columns: Container[str]) -> bool:
    return any(name in columns for name in _ADDED_TO) and any(block_slice.annotated for block_slice, _ in group)


def _joined(group: list[_Item], columns: Container[str]) -> pa.RecordBatch:
    # All rows are taken together: one after another, between other work, they would miss the processor's caches.
    payload = _taken([record_rows for _, record_rows in group])
    return overlaid(payload, _overlays(group)) if _is_annotated(group, columns) else payload


def _stacked(group: list[_Item], columns: Container[str]) -> pa.Table:
    if _is_annotated(group, columns):
        return assembly.stacked([_joined(group, columns)])
    batches: list[pa.RecordBatch] = []
    for is_small, items in groupby(group, key=lambda item: item[1].rows < SMALL_ROWS):
        some = [record_rows for _, record_rows in items]
        batches += [_taken(some)] if is_small else [record_rows.taken() for record_rows in some]
    return assembly.stacked(batches)


def _taken(group: list[RecordRows]) -> pa.RecordBatch:
    if len(group) > 1:
        scattered = [(record_rows.record, record_rows.scattered) for record_rows in group if record_rows.scattered is not None]
        together = gathered(scattered) if len(scattered) == len(group) else None
        if together is not None:
            return together
    return assembly.joined([record_rows.taken() for record_rows in group])


def _parts(group: list[_Item]) -> list[_Part]:
    places: list[_Part] = []
    for block_slice, record_rows in group:
        indexes = record_rows.extent.indexes
        if places and places[-1][0] is block_slice and places[-1][1].stop == indexes.start:
            places[-1] = block_slice, slice(places[-1][1].start, indexes.stop)
        else:
            places.append((block_slice, indexes))
    return places


def _join(parts: list[_Part], name: str) -> Any:
    values = [getattr(block_slice, name) for block_slice, _ in parts]
    if all(isinstance(value, int) and value == values[0] for value in values):
        return values[0]
    return np.concatenate(
        [
            np.full(indexes.stop - indexes.start, value) if isinstance(value, int) else value[indexes]
            for (_, indexes), value in zip(parts, values, strict=True)
        ]
    )


def _overlays(group: list[_Item]) -> dict[int, list[bytes]]:
    overlays, first = dict[int, list[bytes]](), 0
    for block_slice, record_rows in group:
        added = block_slice.overlays_of(record_rows.extent.indexes, record_rows.extent.time)
        overlays |= {first + row: maps for row, maps in added.items()}
        first += record_rows.rows
    return overlays


_STATE_NAMES = pa.array([state.name.lower() for state in State])
_OUTCOMES = {o.value: o.name.lower().replace("_", "-") for o in Outcome if o is not Outcome.NONE}
_OUTCOME_NAMES = pa.array([_OUTCOMES.get(code) for code in range(OUTCOME_CODES)])


def _names(codes: Any, names: pa.Array) -> Any:
    if not isinstance(codes, int):
        if not len(codes) or (codes != codes[0]).any():
            return names.take(pa.array(codes))
        codes = int(codes[0])
    return names[codes].as_py()


def _settled(parts: list[_Part]) -> pa.Array:
    columns = []
    for block_slice, indexes in parts:
        archived = np.asarray(block_slice.state)[indexes] == ARCHIVED
        settled = block_slice.settled if isinstance(block_slice.settled, int) else block_slice.settled[indexes].astype(np.int64)
        times = np.broadcast_to((settled - 1) * 1000 + block_slice.begun, len(archived))
        columns.append(pa.array(times, mask=~archived))
    return pa.concat_arrays(columns)


def _failures(parts: list[_Part]) -> pa.Array | None:
    if all(block_slice.failures is None for block_slice, _ in parts):
        return None
    return pa.concat_arrays([failures_of(block_slice, indexes) for block_slice, indexes in parts])


def _rows_of(parts: list[_Part]) -> int:
    return sum(indexes.stop - indexes.start for _, indexes in parts)


def _errors(parts: list[_Part], otherwise: str | None) -> pa.Array | None:
    """Return the error texts: those of rejected messages, `otherwise` in all other rows."""
    texts = [otherwise]
    places = np.zeros(_rows_of(parts), np.int32)
    first = 0
    for block_slice, indexes in parts:
        for index, text in block_slice.errors.items():
            if indexes.start <= index < indexes.stop:
                places[first + index - indexes.start] = len(texts)
                texts.append(text)
        first += indexes.stop - indexes.start
    return None if texts == [None] else pa.array(texts, pa.string()).take(pa.array(places))


def _holders(parts: list[_Part]) -> str | pa.Array | None:
    """Return the last holders: one name, or None, if all rows have the same."""
    codes, names = _join(parts, "taker"), parts[0][0].takers
    if not isinstance(codes, int):
        distinct_codes = distinct(codes)
        if len(distinct_codes) > 1:
            texts = pa.array([names[code - 1] if code else None for code in distinct_codes.tolist()], pa.string())
            return texts.take(pa.array(np.searchsorted(distinct_codes, codes)))
        codes = int(distinct_codes[0]) if len(distinct_codes) else 0
    return names[codes - 1] if codes else None


def _locked(parts: list[_Part]) -> pa.Array | None:
    if all(block_slice.locked is None for block_slice, _ in parts):
        return None
    ends = [
        np.zeros(indexes.stop - indexes.start, np.int64) if block_slice.locked is None else block_slice.locked[indexes]
        for block_slice, indexes in parts
    ]
    times = np.concatenate(ends)
    return pa.array(times * 1000, mask=times == 0)


def _sequences(parts: list[_Part]) -> npt.NDArray[np.int64]:
    return np.concatenate([block_slice.sequences(indexes) for block_slice, indexes in parts])

"""Rows of journal records: the rows of a record that a slice needs, and these rows as a batch, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine.columns.runs import Extent, Locations
from ..engine.columns.series import Ints
from ..messages.encoding.uniform_messages import UniformMessages
from ..messages.payloads import Payload, as_batch
from .slices import BlockSlice
from .stored import Records, load

SMALL_ROWS = 4_096  # fewer rows of one record are joined with those of the next

#: Called with the indexes of rows whose record is damaged; these rows are left out.
OnDamage = Callable[[slice, errors.DamagedJournal], None]


class RecordRows(NamedTuple):
    """A record and the needed rows of it. Nothing is copied before `taken`."""

    record: pa.RecordBatch
    extent: Extent
    scattered: Ints | None  # row numbers in the record; None: consecutive ones from `extent.first` on
    error: str | None = None  # the damage, if nulls replace the record

    @property
    def rows(self) -> int:
        return int(self.extent.indexes.stop) - int(self.extent.indexes.start)

    @property
    def is_encoded(self) -> bool:
        return "message" in self.record.schema.names

    def taken(self) -> pa.RecordBatch:
        """Take the rows out of the record: a view if they are consecutive, otherwise a copy."""
        return _taken(self.record, self.extent, self.scattered)


def _taken(record: Any, extent: Extent, scattered: Ints | None) -> Any:
    if scattered is None:
        return record.slice(extent.first, extent.indexes.stop - extent.indexes.start)
    return record.take(pa.array(scattered))


def _extents(locations: Locations) -> Iterator[tuple[Extent, Ints | None]]:
    """Yield each extent, with the numbers of its rows in the record unless they are consecutive."""
    rows = None
    for extent in locations.extents():
        if extent.first is None and rows is None:
            rows = locations.payload_rows()
        yield extent, None if extent.first is not None or rows is None else rows[extent.indexes]


def record_rows(locations: Locations, read: Callable[[int], pa.RecordBatch], damaged: OnDamage) -> Iterator[RecordRows]:
    """Yield the rows of each record in turn; `read` returns the record at a log position."""
    for extent, rows in read_extents(locations, read):
        if isinstance(rows, RecordRows):
            yield rows
        else:
            damaged(extent.indexes, rows)


def read_extents(
    locations: Locations, read: Callable[[int], pa.RecordBatch]
) -> Iterator[tuple[Extent, RecordRows | errors.DamagedJournal]]:
    """Yield each extent with the rows of its record, or with the error if the record is damaged."""
    for extent, scattered in _extents(locations):
        record: RecordRows | errors.DamagedJournal
        try:
            record = RecordRows(read(extent.position), extent, scattered)
        except errors.DamagedJournal as error:
            record = error
        yield extent, record


def record_reader(journal: Records, batches: Mapping[int, Payload]) -> Callable[[int], pa.RecordBatch]:
    """Return a function that reads the record at a position from `batches` or the journal. It raises DamagedJournal.

    Each of the `batches` is converted once, however many extents it has.
    """

    @cache
    def converted(position: int) -> pa.RecordBatch:
        return as_batch(batches[position])

    return lambda position: converted(position) if position in batches else load(journal, position)


def _read(journal: Records, block_slice: BlockSlice, position: int) -> Payload:
    recent = block_slice.batches.get(position)
    return load(journal, position) if recent is None else recent


class RecordSlice(NamedTuple):
    """Messages of one record, in order, with the broker's columns of them. Each column is an array, or a number for all rows."""

    payload: Payload
    time: int  # microseconds since 1970: arrival of the messages
    indexes: slice  # of these rows in the block slice
    block_slice: BlockSlice

    def sequences(self) -> npt.NDArray[np.int64]:
        return self.block_slice.sequences(self.indexes)

    @property
    def attempts(self) -> Ints | int:
        attempts = self.block_slice.attempts
        return attempts if isinstance(attempts, int) else attempts[self.indexes]

    @property
    def returned(self) -> Ints | int:
        returned = self.block_slice.returned
        return returned if isinstance(returned, int) else returned[self.indexes]

    def ttl(self, now: int) -> npt.NDArray[np.int64] | None:
        """Return the milliseconds that each message has left at `now` (milliseconds since 1970), at least 1; 0: no expiry.

        None if no message has an expiry or was sent with a ttl. (An expired dead letter has a ttl, but no expiry any more.)
        """
        expiry = self.block_slice.expiry
        if expiry is None:
            if isinstance(self.payload, UniformMessages):
                return None
            return np.zeros(self.payload.num_rows, np.int64) if "ttl" in self.payload.schema.names else None
        expiry = expiry[self.indexes]
        return np.where(expiry > 0, np.maximum(expiry - now, 1), 0)

    @property
    def overlays(self) -> Mapping[int, list[bytes]]:
        return self.block_slice.overlays_of(self.indexes, self.time)


def record_slices(journal: Records, block_slice: BlockSlice, damaged: OnDamage) -> Iterator[RecordSlice]:
    """Yield the messages of a slice in order, in their stored form. A record that is not in memory is read, once the journal
    has written it."""
    locations = block_slice.locations
    if len(locations.row) == 1 and locations.scattered is None:  # nearly always if messages leave one by one
        _, count, position, first, time = [int(column[0]) for column in locations[:5]]
        try:
            record = _read(journal, block_slice, position)
        except errors.DamagedJournal as error:
            damaged(slice(0, count), error)
        else:
            yield RecordSlice(record.slice(first, count), time, slice(0, count), block_slice)
        return
    for extent, scattered in _extents(locations):
        try:
            record = _read(journal, block_slice, extent.position)
        except errors.DamagedJournal as error:
            damaged(extent.indexes, error)
        else:
            yield RecordSlice(_payload(record, extent, scattered), extent.time, extent.indexes, block_slice)


def _payload(record: Payload, extent: Extent, scattered: Ints | None) -> Payload:
    if isinstance(record, UniformMessages) and scattered is not None:
        return record.take(scattered.tolist())
    return _taken(record, extent, scattered)

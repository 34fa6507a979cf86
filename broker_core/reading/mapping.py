"""Locations of messages in the journal's files, for a reader on this host that maps them: `op=map` in the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..engine.columns.rowset import row_count
from ..engine.columns.runs import Locations
from ..errors import DamagedJournal
from ..journal import Journal
from ..messages.payloads import MASK_BYTES, mask_of
from .slices import BlockSlice

MAPPABLE_ROWS = 16  # average rows of a record, below which the messages themselves are sent

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("columns", pa.int64()),
        ("row", pa.int32()),
        ("count", pa.int32()),
        ("sequence", pa.int64()),
        ("time", pa.int64()),
        ("deliveryCount", pa.int32()),
        ("taken", pa.binary()),
        ("device", pa.uint64()),
        ("inode", pa.uint64()),
    ]
)


def unmappable(slices: Sequence[BlockSlice], columns: Sequence[str]) -> str | None:
    """Return why the messages must be sent, instead of their locations."""
    rows = sum(row_count(block_slice.rows) for block_slice in slices)
    if sum(len(block_slice.locations.row) for block_slice in slices) * MAPPABLE_ROWS > rows:
        return "the messages lie too scattered"
    if "annotations" in columns and any(block_slice.annotated for block_slice in slices):
        return "annotations were added to messages since they were sent"
    if any(not isinstance(block_slice.attempts, int) and len(np.unique(block_slice.attempts)) > 1 for block_slice in slices):
        return "the messages differ in their delivery counts"
    return None


def batch(journal: Journal, block_slice: BlockSlice, queue: str) -> pa.RecordBatch:
    """Return the locations of a slice's rows, by `SCHEMA`. The rows have one delivery count; their payloads are verified."""
    attempts = block_slice.attempts if isinstance(block_slice.attempts, int) else int(block_slice.attempts[0])
    locations = block_slice.locations
    where = {}
    for extent in locations.extents():
        if extent.position in where:
            continue
        try:
            where[extent.position] = _where(journal, extent.position)
        except DamagedJournal as error:
            block_slice.refuse(queue, extent.indexes, error)
    files = [where[at] for at in locations.position.tolist()]
    columns: list[Any] = [pa.array([file[i] for file in files], SCHEMA.field(i).type) for i in range(4)]
    columns += [
        pa.array(locations.payload_row, pa.int32()),
        pa.array(locations.rows, pa.int32()),
        pa.array(locations.row + block_slice.base),
        pa.array(locations.time),
        pa.array(np.full(len(locations.row), attempts, np.int32)),
        _taken_rows(locations),
    ]
    columns += [pa.array([file[i] for file in files], SCHEMA.field("device").type) for i in (4, 5)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _where(journal: Journal, position: int) -> tuple[str, int, int, int, int, int]:
    path, offset, length, device, inode = journal.locate(position)
    return path, offset + MASK_BYTES, length - MASK_BYTES, mask_of(journal.payload(position)), device, inode


def _taken_rows(locations: Locations) -> pa.Array:
    """Return for each location its rows in the record: 32-bit numbers, little-endian; null if they are consecutive."""
    encoded: list[bytes | None] = [None] * len(locations.row)
    if locations.scattered is not None:
        numbers, stop = locations.scattered.astype("<i4"), 0
        for i, count in enumerate(locations.rows.tolist()):
            own, stop = numbers[stop : stop + count], stop + count
            if int(own[-1]) - int(own[0]) + 1 != count:
                encoded[i] = own.tobytes()
    return pa.array(encoded, pa.binary())

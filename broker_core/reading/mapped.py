"""Places of messages, for a reader on this host that maps the journal's files itself: `op=map` of docs/protocols/flight.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..engine.columns.rowset import row_count
from ..engine.columns.runs import Pieces
from ..errors import DamagedJournal
from ..journal import Journal
from .stored import MASK_BYTES, Cut, mask_of, refuse

MAPPABLE_ROWS = 16  # rows of a record on average, below which the messages themselves are sent

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


def unmappable(cuts: Sequence[Cut], columns: Sequence[str]) -> str | None:
    """Why a reader on this host had better be sent the messages than told where they lie; None where it had not."""
    rows = sum(row_count(cut.rows) for cut in cuts)
    if sum(len(cut.pieces.row) for cut in cuts) * MAPPABLE_ROWS > rows:
        return "the messages lie too scattered"
    if "annotations" in columns and any(cut.annotated for cut in cuts):
        return "annotations were added to messages since they were sent"
    if any(not isinstance(cut.attempts, int) and len(np.unique(cut.attempts)) > 1 for cut in cuts):
        return "the messages differ in their delivery counts"
    return None


def batch(journal: Journal, cut: Cut, queue: str) -> pa.RecordBatch:
    """Say where the rows of a cut, of one delivery count, lie, as `SCHEMA` has it; the payloads are verified."""
    attempts = cut.attempts if isinstance(cut.attempts, int) else int(cut.attempts[0])
    pieces = cut.pieces
    where = {}
    for share in pieces.shares():
        if share.position in where:
            continue
        try:
            where[share.position] = _where(journal, share.position)
        except DamagedJournal as error:
            refuse(queue, cut, share.of, error)
    places = [where[at] for at in pieces.position.tolist()]
    columns: list[Any] = [pa.array([place[i] for place in places], SCHEMA.field(i).type) for i in range(4)]
    columns += [
        pa.array(pieces.payload_row, pa.int32()),
        pa.array(pieces.rows, pa.int32()),
        pa.array(pieces.row + cut.base),
        pa.array(pieces.time),
        pa.array(np.full(len(pieces.row), attempts, np.int32)),
        _taken_rows(pieces),
    ]
    columns += [pa.array([place[i] for place in places], SCHEMA.field("device").type) for i in (4, 5)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _where(journal: Journal, position: int) -> tuple[str, int, int, int, int, int]:
    path, offset, length, device, inode = journal.locate(position)
    return path, offset + MASK_BYTES, length - MASK_BYTES, mask_of(journal.payload(position)), device, inode


def _taken_rows(pieces: Pieces) -> pa.Array:
    """Of each piece, the rows of its record where they are not neighbours: 32-bit numbers, little-endian; else null."""
    found: list[bytes | None] = [None] * len(pieces.row)
    if pieces.scattered is not None:
        numbers, stop = pieces.scattered.astype("<i4"), 0
        for i, count in enumerate(pieces.rows.tolist()):
            mine, stop = numbers[stop : stop + count], stop + count
            if int(mine[-1]) - int(mine[0]) + 1 != count:
                found[i] = mine.tobytes()
    return pa.array(found, pa.binary())

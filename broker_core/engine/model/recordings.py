"""Recordings: settled messages that are written to the queue's table in the archive, one recording after another.

The column `recorded` of a block contains the number of the recording plus one; 0: not recorded. Rows that are settled while the
queue's option `archive` is false are NOT_WANTED there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns.blocks import Block
from ..columns.limits import NEVER
from ..columns.rowset import RowSet, as_array, head, row_count
from ..columns.series import Rows

if TYPE_CHECKING:
    from .queue import PackedBlock, Queue

MOST_BLOCKS = 64  # of one recording: their columns are copied, 15 bytes for each row
NO_TABLE = -1  # version of a table that does not exist yet
NOT_WANTED = 1


@dataclass
class Recording:
    """Rows that are added to a table together."""

    number: int  # 1, 2, 3 …
    rows: RowSet
    bytes: int
    since: int  # microseconds since 1970: none of the rows was settled before


class Backlog(NamedTuple):
    """Rows of a queue that are to be recorded. Some wait for the next recording."""

    queue_id: int
    queue: str
    rows: int
    bytes: int
    since: int  # as in `Recording`
    waiting_rows: int
    waiting_bytes: int
    waiting_since: int  # NEVER: no rows
    current: int | None  # number of the current recording
    departed: bool


class QueueRecordings:
    """The recordings of one queue, and its rows that are not recorded yet."""

    def __init__(self) -> None:
        # persisted
        self.finished = 0
        self.version = NO_TABLE  # of the table, after that recording
        self.current: Recording | None = None
        # derived
        self.rows = 0
        self.bytes = 0
        self.since = NEVER  # as in `Recording`, for rows outside the current one

    def settled(self, block: Block, rows: Rows, time: int, *, wanted: bool) -> None:
        if not wanted:
            block.recorded.set(rows, NOT_WANTED, len(block.state))
            return
        count = row_count(rows)
        block.unrecorded += count
        self.rows += count
        self.bytes += block.sizes.total(rows, count)
        self.since = min(self.since, time)

    def revived(self, block: Block, rows: Rows) -> None:
        """Forget the settlement of rows that become live again."""
        numbers, current = as_array(rows), self.current
        self._count_off(block, numbers[block.recorded.array(numbers) == 0])
        block.recorded.set(rows, 0, len(block.state))
        if current is not None and (mine := current.rows.rows(block.number)) is not None:
            gone = np.intersect1d(as_array(mine), numbers, assume_unique=True)
            current.rows = current.rows.minus(RowSet.of([(block.number, gone)]))
            current.bytes -= block.sizes.total(gone, len(gone))

    def _count_off(self, block: Block, rows: Rows) -> None:
        count = row_count(rows)
        block.unrecorded -= count
        self.rows -= count
        self.bytes -= block.sizes.total(rows, count)

    def adopt(self, block: Block) -> None:
        rows = block.unrecorded_rows()
        if block.unrecorded:
            self.rows += len(rows)
            self.bytes += block.sizes.total(rows, len(rows))
            settled = block.settled.array(rows)
            self.since = min(self.since, block.runs.time[0] + (max(1, int(settled.min())) - 1) * 1000)

    def adopt_packed(self, entry: PackedBlock) -> None:
        if entry.unrecorded:
            self.rows += entry.unrecorded.count
            self.bytes += entry.unrecorded_bytes
            self.since = min(self.since, entry.first_time)

    def next(self, queue: Queue, rows: RowSet) -> Recording:
        return Recording(self.finished + 1, rows, _bytes(queue, rows), self.since)

    def begin(self, queue: Queue, rows: RowSet) -> None:
        self.current = self.next(queue, rows)
        if rows.count == self.rows:
            self.since = NEVER

    def end(self, queue: Queue, version: int) -> None:
        """The rows of the current recording are in this version of the table; -1: it had no rows. A lower version than before
        belongs to a new table."""
        current = self.current
        assert current is not None
        for number, rows in current.rows.items():
            block, entry = queue.blocks.get(number), queue.packed.get(number)
            if block is not None:
                self._count_off(block, rows)
                block.recorded.set(rows, current.number + 1, len(block.state))
            elif entry is not None:
                self.rows -= entry.unrecorded.count
                self.bytes -= entry.unrecorded_bytes
                entry.unrecorded, entry.unrecorded_bytes, entry.recorded = RowSet(), 0, current.number + 1
        self.finished, self.version, self.current = current.number, self.version if version < 0 else version, None
        if not self.rows:
            self.since = NEVER

    def lost(self, entry: PackedBlock) -> None:
        self.rows -= entry.unrecorded.count
        self.bytes -= entry.unrecorded_bytes

    def is_recording(self, block: int) -> bool:
        return self.current is not None and self.current.rows.rows(block) is not None

    @property
    def last(self) -> int:
        """0: no recording has begun."""
        return self.finished if self.current is None else self.current.number

    @property
    def oldest(self) -> int:
        """As `since` in `Recording`, for all rows; NEVER: all are recorded."""
        if not self.rows:
            return NEVER
        return self.since if self.current is None or not self.current.rows else min(self.since, self.current.since)

    def to_json(self) -> list[Any]:
        current = self.current
        return [
            self.finished,
            self.version,
            None if current is None else [current.number, current.rows.to_json(), current.bytes, current.since],
        ]

    def restore(self, data: list[Any]) -> None:
        self.finished, self.version, current = data
        if current is not None:
            number, rows, size, since = current
            self.current = Recording(number, RowSet.from_json(rows), size, since)


def next_rows(queue: Queue, most_rows: int, most_bytes: int) -> RowSet:
    """Select about so many rows and stored bytes, in order, of at most `MOST_BLOCKS` blocks, and of packed blocks all rows."""
    parts: list[tuple[int, Rows]] = []
    for number in sorted({*queue.blocks, *queue.packed}):
        if most_rows <= 0 or most_bytes <= 0 or len(parts) >= MOST_BLOCKS:
            break
        block = queue.blocks.get(number)
        if block is None:
            entry = queue.packed[number]
            rows = entry.unrecorded.rows(number)
            if rows is not None:
                parts.append((number, rows))
                most_rows, most_bytes = most_rows - entry.unrecorded.count, most_bytes - entry.unrecorded_bytes
        elif block.unrecorded:
            rows = head(block.unrecorded_rows(), most_rows)
            sizes = block.sizes.get(rows)
            ends = np.cumsum(np.broadcast_to(sizes, row_count(rows)), dtype=np.int64)
            count = min(len(ends), int(np.searchsorted(ends, most_bytes)) + 1)  # one at least
            parts.append((number, head(rows, count)))
            most_rows, most_bytes = most_rows - count, most_bytes - int(ends[count - 1])
    return RowSet.of(parts)


def backlogs(queues: Iterable[Queue], departed: Container[int]) -> list[Backlog]:
    """`departed`: the ids of deleted queues."""
    unrecorded = (queue for queue in queues if queue.recordings.rows or queue.recordings.current is not None)
    return [_backlog(queue, queue.recordings, departed=queue.id in departed) for queue in unrecorded]


def _backlog(queue: Queue, recordings: QueueRecordings, *, departed: bool) -> Backlog:
    rows, size, current = recordings.rows, recordings.bytes, recordings.current
    begun, begun_rows, begun_bytes = (None, 0, 0) if current is None else (current.number, current.rows.count, current.bytes)
    waiting = (rows - begun_rows, size - begun_bytes, recordings.since)
    return Backlog(queue.id, queue.name, rows, size, recordings.oldest, *waiting, begun, departed)


def _bytes(queue: Queue, rows: RowSet) -> int:
    total = 0
    for number, part in rows.items():
        block, entry = queue.blocks.get(number), queue.packed.get(number)
        total += block.sizes.total(part, row_count(part)) if block is not None else entry.unrecorded_bytes if entry else 0
    return total

"""Copies of needed payloads, from segments that will be dropped to the end of the log.

A payload is copied once, even if several queues hold it. One event stores its new position for all messages in memory. Packed
blocks get new columns after all pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine import commands as c
from ..engine.columns.intervals import Intervals
from ..engine.columns.packing import pack
from ..engine.columns.rowset import BLOCK_BITS, RowSet, as_array
from ..engine.columns.runs import Locations
from ..engine.columns.series import Ints
from ..engine.model.retention import Keeping, needed
from ..journal import SegmentInfo
from ..messages.payloads import mask_of, store
from ..reading.records import record_rows
from ..reading.stored import load
from .journal_usage import ROW_BYTES, CleanerParts, Copies, Unrecorded, unrecorded

log = logging.getLogger("penstock")

PIECE_BYTES = 4 << 20  # or one message: about 10 ms of a disk
TOGETHER_BYTES = 64 << 20  # of the segments of one search for messages: at most two million messages
RESERVE_TIMEOUT_S = 60.0
NOT_COPIED = -1


class _Part(NamedTuple):
    """Messages of one block whose payloads lie in segments that will be dropped."""

    queue_id: int
    queue: str
    number: int
    rows: Ints
    sizes: npt.NDArray[np.int64]
    positions: Ints  # by row: log position of its payload's record
    payload_rows: Ints  # and its row there
    packed: Unrecorded | None = None  # set if the block left memory

    @property
    def sequences(self) -> Ints:
        return self.rows + (self.number << BLOCK_BITS)


class _Payloads:
    """The distinct payloads of messages, in the messages' order: neighbours stay neighbours."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = parts
        positions = np.concatenate([part.positions for part in parts])
        payload_rows = np.concatenate([part.payload_rows for part in parts])
        order = np.lexsort((payload_rows, positions))  # stable: the first message of a payload stays the first
        apart = (np.diff(positions[order]) != 0) | (np.diff(payload_rows[order]) != 0)
        starts = np.flatnonzero(np.concatenate([[True], apart]))[: len(positions)]  # possibly empty
        number = np.empty(len(starts), np.int64)
        number[np.argsort(order[starts])] = np.arange(len(starts))
        self.first = np.sort(order[starts])  # by payload: the index of its first message
        self.of = np.empty(len(positions), np.int64)  # by message: the number of its payload
        self.of[order] = np.repeat(number, np.diff(starts, append=len(positions)))
        self.positions, self.payload_rows = positions[self.first], payload_rows[self.first]
        self.sizes = np.concatenate([part.sizes for part in parts])[self.first]
        self._edges = np.concatenate([[0], np.cumsum([len(part.rows) for part in parts])])

    def messages(self, wanted: npt.NDArray[np.bool_]) -> Iterator[tuple[_Part, Ints, Ints]]:
        """Yield for each part the indices of its messages with `wanted` payloads, and the payloads' numbers."""
        for part, start, stop in zip(self.parts, self._edges[:-1], self._edges[1:], strict=True):
            payloads = self.of[start:stop]
            rows = np.flatnonzero(wanted[payloads])
            if len(rows):
                yield part, rows, payloads[rows]


class Relocation:
    """For one thread at a time, which holds no lock.

    `rest` does a piece of work, which returns the bytes written, and waits as the bandwidth requires. It returns False to stop
    the copy.
    """

    def __init__(self, broker: CleanerParts, rest: Callable[[Callable[[], int]], bool]) -> None:
        self._broker, self._rest = broker, rest
        self.damaged: dict[int, str] = {}  # base of a segment → why nothing can be copied out of it
        self.staged: set[int] = set()  # positions of stages' payloads that were copied
        self.written: dict[int, Copies] = {}  # base of a segment → copies in it

    def forget(self, bases: set[int]) -> None:
        self.written = {base: copies for base, copies in self.written.items() if base in bases}
        self.damaged = {base: error for base, error in self.damaged.items() if base in bases}

    def copy(self, victims: Sequence[SegmentInfo], needed_bytes: Sequence[float], keeping: Keeping) -> None:
        """`needed_bytes`: by segment."""
        for some in _together(victims, needed_bytes):
            going = Intervals((segment.base, segment.end) for segment in some)
            if not (self._copy_messages(going, keeping) and self._copy_stages(going)):
                return

    def _copy_messages(self, going: Intervals, keeping: Keeping) -> bool:
        hold = self._broker.journal.hold()
        parts = [*self._in_memory(going, keeping), *(self._out_of_memory(going) if keeping.unrecorded else ())]
        if not parts:
            return True
        payloads = _Payloads(parts)
        copied = np.full(len(payloads.first), NOT_COPIED), np.zeros(len(payloads.first), np.int64)
        for start, stop in _slices(payloads.sizes + ROW_BYTES):
            if not self._rest(partial(self._copy_piece, payloads, start, stop, copied)):
                return False
        del hold
        is_copied = copied[0] != NOT_COPIED
        new = {id(part): (rows, numbers) for part, rows, numbers in payloads.messages(is_copied) if part.packed is not None}
        for part in parts:
            if part.packed is not None:
                rows, numbers = new.get(id(part), (np.zeros(0, np.int64),) * 2)
                places = part.rows[rows], copied[0][numbers], copied[1][numbers]
                if not self._rest(partial(self._repack, part.packed, *places)):
                    return False
        return True

    def _in_memory(self, going: Intervals, keeping: Keeping) -> Iterator[_Part]:
        state, lock = self._broker.state, self._broker.lock
        with lock:
            blocks = sorted(
                (queue_id, number)
                for queue_id, queue in state.by_id.items()
                for number, block in queue.blocks.items()
                if going.meets(block.runs.low, block.runs.high)
            )
        for queue_id, number in blocks:
            with lock:
                queue = state.by_id.get(queue_id)
                block = None if queue is None else queue.blocks.get(number)
                if queue is None or block is None or not going.meets(block.runs.low, block.runs.high):
                    continue
                rows = np.flatnonzero(needed(block, keeping, departed=queue_id in state.departed))
                rows = rows[going.contains(block.positions(rows))]
                if not len(rows):
                    continue
                sizes, locations = np.broadcast_to(np.asarray(block.sizes.get(rows), np.int64), len(rows)), block.locations(rows)
            yield _Part(queue_id, queue.name, number, rows, sizes, locations.positions(), locations.payload_rows())

    def _out_of_memory(self, going: Intervals) -> Iterator[_Part]:
        with self._broker.lock:
            packed = unrecorded(self._broker.state, self._broker.journal)
        for packed_block in packed:
            entry = packed_block.entry
            columns_go = going.meets(packed_block.position, packed_block.position)
            if not columns_go and not going.meets(entry.lowest_payload, entry.highest_payload):
                continue
            try:
                contents = packed_block.read(self._broker.journal)
            except errors.DamagedJournal as error:
                self._leave(np.array([packed_block.position]), error)
                continue
            if contents is None:
                continue
            block, rows = contents[0], as_array(contents[1])
            rows = rows[going.contains(block.positions(rows))]
            if len(rows):
                sizes, locations = np.broadcast_to(np.asarray(block.sizes.get(rows), np.int64), len(rows)), block.locations(rows)
                where = locations.positions(), locations.payload_rows()
            elif columns_go:
                sizes = np.zeros(0, np.int64)
                where = sizes, sizes
            else:
                continue
            yield _Part(packed_block.queue.id, packed_block.queue.name, entry.number, rows, sizes, *where, packed_block)

    def _copy_piece(self, payloads: _Payloads, start: int, stop: int, copied: tuple[Ints, Ints]) -> int:
        """Copy the payloads from number `start` up to `stop`, and store their positions in `copied`. Return the bytes."""
        forms: dict[tuple[int, pa.Schema], list[tuple[Ints, pa.RecordBatch]]] = {}  # one record each; numbers of payloads
        masks: dict[int, int] = {}

        def record(position: int) -> pa.RecordBatch:
            masks[position] = mask_of(self._broker.journal.payload(position))
            return load(self._broker.journal, position)

        def damaged(part: slice, error: errors.DamagedJournal) -> None:
            positions = payloads.positions[start:stop][part]
            self._leave(positions, error)
            wanted = np.zeros(len(payloads.first), np.bool_)
            wanted[start:stop][part] = True
            for block, rows, _ in payloads.messages(wanted):
                sequences = block.sequences[rows]
                self._broker.damage.note(errors.DamagedMessages.of(block.queue, int(sequences[0]), int(sequences[-1]), error))

        locations = Locations.of(payloads.positions[start:stop], payloads.payload_rows[start:stop])
        for rows in record_rows(locations, record, damaged):
            batch = rows.taken()
            pieces = forms.setdefault((masks[rows.extent.position], batch.schema), [])
            pieces.append((np.arange(start, stop)[rows.extent.indexes], batch))
        written = 0
        for (mask, _), pieces in forms.items():
            stored = store(pa.concat_batches([batch for _, batch in pieces]), mask)
            numbers = np.concatenate([numbers for numbers, _ in pieces])
            self._broker.journal.reserve(stored.nbytes, RESERVE_TIMEOUT_S)
            position = self._relocate(payloads, numbers, stored)
            written += stored.nbytes
            if position is not None:
                copied[0][numbers], copied[1][numbers] = position, np.arange(len(numbers))
        self._note(written, int(payloads.sizes[start:stop].sum()) + ROW_BYTES * (stop - start))
        return written

    def _relocate(self, payloads: _Payloads, numbers: Ints, stored: Any) -> int | None:
        """Return the log position of the copies."""
        taken = np.full(len(payloads.first), -1)
        taken[numbers] = np.arange(len(numbers))
        by_queue: dict[int, list[tuple[Any, ...]]] = {}  # block, rows, positions, payload rows, rows of copies
        packed: set[int] = set()
        for part, indices, of in payloads.messages(taken >= 0):
            if part.packed is None:
                places = part.positions[indices], part.payload_rows[indices], taken[of]
                by_queue.setdefault(part.queue_id, []).append((part.number, part.rows[indices], *places))
            else:
                packed.add(part.queue_id)
        messages = []
        for queue_id, blocks in by_queue.items():
            block_numbers, rows, *columns = zip(*blocks, strict=True)
            relocated = RowSet.of(zip(block_numbers, rows, strict=True))
            messages.append(c.RelocatedRows(queue_id, relocated, *map(np.concatenate, columns)))
        moved, position = self._broker.submit(c.Relocate(messages, stored, sorted(packed)))
        return None if moved is None else position

    def _repack(self, packed: Unrecorded, rows: Ints, positions: Ints, taken: Ints) -> int:
        """Return the bytes written."""
        contents = packed.read(self._broker.journal)
        if contents is None:
            return 0
        block, wanted = contents
        if len(rows):
            block.relocate(rows, positions, taken)
        needed_at = block.positions(wanted)
        columns = pack(block.persisted())
        self._broker.journal.reserve(len(columns), RESERVE_TIMEOUT_S)
        command = c.Repack(
            packed.queue.id, packed.entry.number, packed.position, int(needed_at.min()), int(needed_at.max()), columns
        )
        self._broker.submit(command)
        self._note(len(columns), len(columns))
        return len(columns)

    def _copy_stages(self, going: Intervals) -> bool:
        for position in sorted(position for position in self._staged_positions() if going.meets(position, position)):
            if not self._rest(partial(self._copy_staged, position)):
                return False
        return True

    def _copy_staged(self, position: int) -> int:
        """Return the bytes written."""
        hold = self._broker.journal.hold()
        try:
            payload = self._broker.journal.payload(position)
        except errors.DamagedJournal as error:
            self._leave(np.array([position]), error)
            return 0
        except errors.DataLoss:
            return 0  # the stage is published or gone, and so is the record
        self._broker.journal.reserve(payload.size, RESERVE_TIMEOUT_S)
        del hold
        parts, copy = self._broker.submit(c.RelocateStaged(position, [payload]))
        if parts:
            self.staged &= self._staged_positions()
            self.staged.add(copy)
        return int(payload.size)

    def _staged_positions(self) -> set[int]:
        with self._broker.lock:
            return {part.position for stage in self._broker.state.stages.values() for part in stage.parts}

    def _leave(self, positions: Ints, error: errors.DamagedJournal) -> None:
        """Exclude the segments of damaged records from cleaning."""
        for segment in self._broker.journal.segments():
            if ((positions >= segment.base) & (positions < segment.end)).any() and segment.base not in self.damaged:
                self.damaged[segment.base] = str(error)
                log.error("the segment %s is not cleaned, since a record in it is damaged: %s", segment.path, error)

    def _note(self, written: int, counted: int) -> None:
        """Add to the copies of the last segment: their overhead must not cause another copy."""
        last = self._broker.journal.segments()[-1].base
        before = self.written.get(last, Copies(0, 0))
        self.written[last] = Copies(before.bytes + written, before.counted + counted)


def _together(victims: Sequence[SegmentInfo], needed_bytes: Sequence[float]) -> Iterator[list[SegmentInfo]]:
    """Yield groups of segments with about `TOGETHER_BYTES` needed bytes, or one segment."""
    some: list[SegmentInfo] = []
    octets = 0.0
    for segment, size in zip(victims, needed_bytes, strict=True):
        if some and octets + size > TOGETHER_BYTES:
            yield some
            some, octets = [], 0.0
        some.append(segment)
        octets += size
    if some:
        yield some


def _slices(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Yield begin and end of neighbours with about `PIECE_BYTES`, or of one payload."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield start, stop
        start = stop

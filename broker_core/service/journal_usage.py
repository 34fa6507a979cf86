"""Needed bytes of the journal. A payload in several queues counts once in its segment, and once in each queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import errors
from ..engine import BrokerState
from ..engine import commands as c
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import as_array, row_count
from ..engine.columns.runs import Locations
from ..engine.columns.series import Ints, Rows
from ..engine.columns.states import State
from ..engine.model.queue import PackedBlock, Queue
from ..engine.model.retention import Keeping, needed, needed_span
from ..engine.model.stages import write_of
from ..engine.model.state import StagedPart
from ..journal import Hold, Journal, SegmentInfo
from ..reading.stored import open_block
from ..settings.keys import Settings
from .damage import Damage

BLOCKS_AT_ONCE = 4  # read in one hold of the lock: about 300 µs each if rows arrived alone
ROW_BYTES = 32  # estimated overhead of a message in a record of many


class CleanerParts(NamedTuple):
    """The parts of the broker that the cleaner uses."""

    state: BrokerState
    journal: Journal
    settings: Callable[[], Settings]
    damage: Damage
    lock: threading.Lock
    submit: Callable[[c.Command[Any]], tuple[Any, int]]  # `BrokerService.submit_logged`
    take_snapshot: Callable[[], None]


class Copies(NamedTuple):
    """Copies that were written into a segment."""

    bytes: int  # in the journal
    counted: int  # by the rules of `JournalUsage`


@dataclass
class NeededPayload:
    """A payload that a message or a stage needs."""

    position: int  # log position of its record
    queue: str | None = None
    sequence: int | None = None
    state: str | None = None
    stage: str | None = None
    time: int | None = None  # microseconds since 1970: arrival of the message, or last addition to the stage

    def described(self, state: BrokerState) -> dict[str, Any]:
        """Add the message's holder. Called under the lock."""
        queue = state.queues.get(self.queue or "")
        holder = None if queue is None or self.sequence is None else state.holder_name(queue, self.sequence)
        return {name: value for name, value in {**vars(self), "holder": holder}.items() if value is not None}


class PayloadRuns:
    """Runs of needed payloads: consecutive rows of a record, and their bytes. Messages in several queues repeat them.

    The columns are as long as the run tables of the blocks, however many messages they have.
    """

    def __init__(self) -> None:
        self._columns: list[tuple[Ints, Ints, Ints, Ints]] = []

    def add(self, positions: Ints, firsts: Ints, counts: Ints, octets: Ints) -> None:
        """Each run has `counts` rows from row `firsts` of the record at log position `positions`."""
        self._columns.append((positions, firsts, counts, octets))

    def distinct(self) -> tuple[Ints, Ints]:
        """Return log positions and bytes without repetitions. A run that repeats a part of others counts in proportion to its
        other rows."""
        if not self._columns:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        positions, firsts, counts, octets = map(np.concatenate, zip(*self._columns, strict=True))
        if _are_apart(positions, firsts, counts):  # one queue without copies
            return positions, octets
        order = np.lexsort((firsts, positions))
        positions, firsts, counts, octets = (column[order] for column in (positions, firsts, counts, octets))
        ends = firsts + counts
        record = np.concatenate([[0], np.cumsum(positions[1:] != positions[:-1])]) * (int(ends.max()) + 2)
        reached = np.maximum.accumulate(record + ends)[:-1] - record[1:]  # below any row, if the last run is of another record
        new = counts.copy()
        new[1:] = np.clip(ends[1:] - np.maximum(firsts[1:], reached), 0, counts[1:])
        return positions, octets * new // counts


def _are_apart(positions: Ints, firsts: Ints, counts: Ints) -> bool:
    """Return True if the runs are in order, and no row repeats."""
    later, same = positions[1:] > positions[:-1], positions[1:] == positions[:-1]
    return bool((later | same & (firsts[1:] >= (firsts + counts)[:-1])).all())


class NeededMessages(NamedTuple):
    """Columns of needed messages of a block."""

    queue: str
    base: int  # sequence number of the block's first row
    rows: Rows
    sizes: Ints | int
    states: npt.NDArray[np.uint8]
    locations: Locations

    @classmethod
    def of(cls, queue: Queue, block: Block, rows: Rows) -> NeededMessages:
        sizes = block.sizes.get(rows)
        sizes = sizes if isinstance(sizes, int) else sizes.astype(np.int64)
        return cls(queue.name, block.base, rows, sizes, block.state[: block.filled][rows].copy(), block.locations(rows))

    def oldest(self) -> NeededPayload:
        positions = self.locations.positions()
        index = int(positions.argmin())
        time = int(np.repeat(self.locations.time, self.locations.rows)[index])
        sequence, state = self.base + int(as_array(self.rows)[index]), State(int(self.states[index])).name.lower()
        return NeededPayload(int(positions[index]), self.queue, sequence, state, None, time)


class JournalUsage:
    """Needed bytes of segments. Arrays are parallel to `segments`, which are in order. `copies`: by the cleaner, by the base of
    their segment. `sum_up` ends the counting."""

    def __init__(self, segments: Sequence[SegmentInfo], copies: Mapping[int, Copies]) -> None:
        self.segments = segments
        self._counted: npt.NDArray[np.float64] = np.zeros(len(segments))
        self._held: npt.NDArray[np.bool_] = np.zeros(len(segments), np.bool_)  # a part of it is needed
        self.pinned: npt.NDArray[np.bool_] = np.zeros(len(segments), np.bool_)  # nothing is copied out of them
        self.oldest: NeededPayload | None = None
        self.by_queue: dict[str, int] = {}  # needed bytes
        self.packed: dict[int, Ints] = {}  # for the command `Drop`
        self._bases: npt.NDArray[np.int64] = np.array([segment.base for segment in segments], np.int64)
        self._ends: npt.NDArray[np.int64] = np.array([segment.end for segment in segments], np.int64)
        known = [copies.get(segment.base, Copies(0, 0)) for segment in segments]
        self._copied: npt.NDArray[np.float64] = np.array([max(1, copy.counted) for copy in known], np.float64)
        self._beside: npt.NDArray[np.float64] = np.array([max(0, copy.bytes - copy.counted) for copy in known], np.float64)
        self._payloads = PayloadRuns()

    @property
    def bytes(self) -> npt.NDArray[np.float64]:
        """By segment: of the messages, and of the overhead of copies, so that copies are not copied again."""
        return self._counted + self._beside * np.minimum(1.0, self._counted / self._copied)

    def segments_of(self, positions: Ints) -> npt.NDArray[np.int64]:
        """Return the index of each position's segment; -1 outside."""
        indices = np.searchsorted(self._bases, positions, side="right") - 1
        return np.where((indices >= 0) & (positions < self._ends[indices]), indices, -1)

    @property
    def sizes(self) -> npt.NDArray[np.float64]:
        return np.array([segment.bytes for segment in self.segments], np.float64)

    @property
    def total(self) -> int:
        """At most the sizes of the segments. A pinned segment counts in whole."""
        sizes = self.sizes
        return int(np.where(self.pinned, sizes, np.minimum(sizes, self.bytes)).sum())

    def shares(self) -> npt.NDArray[np.float64]:
        sizes = np.maximum(self.sizes, 1)
        return np.where(self.pinned, 1.0, np.minimum(1.0, self.bytes / sizes))

    def unused(self) -> npt.NDArray[np.bool_]:
        return ~self._held & ~self.pinned

    def count(self, held: NeededMessages) -> None:
        positions, firsts, counts = held.locations.consecutive()
        octets = counts * ROW_BYTES
        octets += counts * held.sizes if isinstance(held.sizes, int) else np.add.reduceat(held.sizes, np.cumsum(counts) - counts)
        self._count(held.queue, positions, firsts, counts, octets)
        if self.oldest is None or int(positions.min()) < self.oldest.position:
            self.oldest = held.oldest()

    def count_packed(self, held: NeededMessages, position: int, octets: int) -> None:
        """Add messages of a packed block, and its columns: `octets` at a log position."""
        self.count(held)
        where = np.array([position])
        self._count(held.queue, where, np.array([-1]), np.array([1]), np.array([octets]))
        indices = np.unique(self.segments_of(np.concatenate([held.locations.position, where])))
        self.packed[position] = self._bases[indices[indices >= 0]]

    def count_staged(self, state: BrokerState, copied: Iterable[int]) -> None:
        """Add the payloads of stages. A payload at one of the positions in `copied` pins its segment."""
        pins = set(copied)
        for name, stage in state.stages.items():
            for part in stage.parts:
                if part.count:
                    self._count(part.queue, *_runs_of(part))
                self._mark(self._held, np.array([part.position]))
                if part.position in pins:
                    self.pin(np.array([part.position]))
                if self.oldest is None or part.position < self.oldest.position:
                    write = state.writes.get(write_of(name))
                    self.oldest = NeededPayload(part.position, part.queue, stage=name, time=None if write is None else write.time)

    def pin_packed(self, entry: PackedBlock, keeping: Keeping) -> None:
        """Pin the segments that a packed block may need, without reading it."""
        span = needed_span(entry, keeping)
        if span is not None:
            first = np.searchsorted(self._ends, span[0], side="right")
            last = np.searchsorted(self._bases, span[1], side="right")
            self.pinned[first:last] = True
            self.pin(np.array([entry.position]))

    def pin(self, positions: Ints) -> None:
        self._mark(self.pinned, positions)

    def _mark(self, segments: npt.NDArray[np.bool_], positions: Ints) -> None:
        indices = self.segments_of(positions)
        segments[indices[indices >= 0]] = True

    def sum_up(self) -> None:
        positions, octets = self._payloads.distinct()
        self._counted = np.bincount(self.segments_of(positions), octets, len(self.segments)).astype(np.float64)

    def _count(self, queue: str, positions: Ints, firsts: Ints, counts: Ints, octets: Ints) -> None:
        indices = self.segments_of(positions)
        inside = indices >= 0
        self._held[indices[inside]] = True
        self._payloads.add(positions[inside], firsts[inside], counts[inside], octets[inside])
        self.by_queue[queue] = self.by_queue.get(queue, 0) + int(octets[inside].sum())


def _runs_of(part: StagedPart) -> tuple[Ints, Ints, Ints, Ints]:
    octets = np.broadcast_to(np.asarray(part.sizes, np.int64), part.count) + ROW_BYTES
    if part.payload_rows is None:
        return np.array([part.position]), np.array([0]), np.array([part.count]), octets.sum(keepdims=True)
    return np.full(part.count, part.position), part.payload_rows, np.ones(part.count, np.int64), octets


def oldest_of(queue: Queue) -> NeededPayload | None:
    """Return the unsettled message with the oldest payload. Called under the lock."""
    oldest: NeededPayload | None = None
    for block in queue.blocks.values():
        if block.live and (oldest is None or block.runs.low < oldest.position):
            rows = np.flatnonzero(block.state[: block.filled] != State.ARCHIVED)
            candidate = NeededMessages.of(queue, block, rows).oldest()
            if oldest is None or candidate.position < oldest.position:
                oldest = candidate
    return oldest


class Unrecorded(NamedTuple):
    """A packed block with messages that are not recorded yet."""

    queue: Queue
    entry: PackedBlock
    position: int
    hold: Hold  # keeps the columns readable

    def read(self, journal: Journal) -> tuple[Block, Rows] | None:
        """Return the block and its unrecorded rows; None without any. Raises DamagedJournal."""
        rows = self.entry.unrecorded.rows(self.entry.number)
        return None if rows is None else (open_block(journal, self.entry), rows)


def unrecorded(state: BrokerState, journal: Journal) -> list[Unrecorded]:
    """Called under the lock."""
    hold = journal.hold()
    return [
        Unrecorded(queue, entry, entry.position, hold)
        for queue in state.by_id.values()
        for entry in queue.packed.values()
        if entry.unrecorded
    ]


def measure(
    broker: CleanerParts,
    segments: Sequence[SegmentInfo],
    keeping: Keeping,
    *,
    copies: Mapping[int, Copies],
    copied: Iterable[int],
) -> JournalUsage:
    """Measure a few blocks at a time under the lock. `copied`: positions of staged payloads that were copied before, and stay."""
    state, lock, journal = broker.state, broker.lock, broker.journal
    with lock:
        usage = JournalUsage(segments, copies)
        usage.count_staged(state, copied)
        packed = unrecorded(state, journal) if keeping.unrecorded else []
        if not keeping.unrecorded:
            for queue in state.by_id.values():
                for entry in queue.packed.values():
                    usage.pin_packed(entry, keeping)
        blocks = [(queue_id, number) for queue_id, queue in state.by_id.items() for number in queue.blocks]
    for first in range(0, len(blocks), BLOCKS_AT_ONCE):
        with lock:
            held = [_held(state, queue_id, number, keeping) for queue_id, number in blocks[first : first + BLOCKS_AT_ONCE]]
        for messages in filter(None, held):
            usage.count(messages)
    for block in packed:
        try:
            block_rows = block.read(journal)
        except errors.DamagedJournal:
            usage.pin_packed(block.entry, keeping)
            continue
        if block_rows is not None:
            messages, octets = NeededMessages.of(block.queue, *block_rows), journal.payload(block.position).size
            usage.count_packed(messages, block.position, octets)
    usage.sum_up()
    return usage


def _held(state: BrokerState, queue_id: int, number: int, keeping: Keeping) -> NeededMessages | None:
    """Called under the lock."""
    queue = state.by_id.get(queue_id)
    block = None if queue is None else queue.blocks.get(number)
    if queue is None or block is None or not block.filled:
        return None
    rows = rows_of(needed(block, keeping, departed=queue_id in state.departed))
    return NeededMessages.of(queue, block, rows) if row_count(rows) else None


def rows_of(mask: npt.NDArray[np.bool_]) -> Rows:
    """Return the rows of a mask; a slice for all rows."""
    return slice(0, len(mask)) if mask.all() else np.flatnonzero(mask)

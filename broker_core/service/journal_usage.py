"""Needed bytes of the journal, by segment and by queue: for the cleaner and for operators.

It is counted a few blocks at a time, so that nobody waits; the queues go on meanwhile, and nothing is decided here. A payload
that several queues hold counts once in its segment, and in each of these queues. Blocks that left memory are read for what they
have that is not recorded.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

BLOCKS_AT_ONCE = 4  # looked at in one hold of the lock: some 300 µs each where all of their rows came one by one
ROW_BYTES = 32  # what a message takes beside its own bytes, roughly, when many lie together
SLOTS_PER_ROW = 8  # of `CountedPayloads`: one row in sixteen, at most, is taken for one that was counted
LEAST_SLOTS, MOST_SLOTS = 1 << 16, 1 << 27  # bytes


class CleanerParts(NamedTuple):
    """The parts of the broker that the cleaner uses."""

    state: BrokerState
    journal: Journal
    settings: Callable[[], Settings]  # as they are now
    damage: Damage
    lock: threading.Lock  # the broker's
    submit: Callable[[c.Command[Any]], tuple[Any, int]]  # as `BrokerService.submit_logged`
    take_snapshot: Callable[[], None]


class Copies(NamedTuple):
    """Copies that were written into a segment."""

    bytes: int  # in the journal
    counted: int  # as `JournalUsage` counts it


@dataclass
class NeededPayload:
    """Somebody who needs a payload."""

    position: int  # log position of its record
    queue: str | None = None
    sequence: int | None = None
    state: str | None = None
    stage: str | None = None
    time: int | None = None  # microseconds since 1970: when the message came, or when something was last added to the stage

    def to_json(self) -> dict[str, Any]:
        """Return what is known, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


class CountedPayloads:
    """Payloads that were counted: a table of marks, addressed by a hash of a payload's record and row. Where two share a mark,
    the second counts as counted, so that needed bytes are a little too few, never too many."""

    def __init__(self, rows: int) -> None:
        """`rows`: about how many there will be."""
        bits = min(max(LEAST_SLOTS, SLOTS_PER_ROW * rows), MOST_SLOTS).bit_length() - 1
        self._marks: npt.NDArray[np.bool_] = np.zeros(1 << bits, np.bool_)
        self._shift = np.uint64(64 - bits)

    def add(self, positions: Ints, payload_rows: Ints) -> npt.NDArray[np.bool_]:
        """Mark rows of records; say which of them were not there. Of rows that come several times, the first was not."""
        keys = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # odd numbers that spread neighbours evenly
        keys += payload_rows.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        slots = (keys >> self._shift).astype(np.int64)
        fresh: npt.NDArray[np.bool_] = ~self._marks[slots]
        self._marks[slots] = True
        rising = (positions[1:] > positions[:-1]) | ((positions[1:] == positions[:-1]) & (payload_rows[1:] > payload_rows[:-1]))
        if not rising.all():  # else all are different; a queue may have copies of a message
            first = np.zeros(len(slots), np.bool_)
            first[np.unique(slots, return_index=True)[1]] = True
            fresh &= first
        return fresh


class NeededMessages(NamedTuple):
    """Needed messages of a block, copied from its columns."""

    queue: str
    base: int  # sequence number of the block's first row
    rows: Rows
    sizes: Ints | int
    states: npt.NDArray[np.uint8]
    locations: Locations

    @classmethod
    def of(cls, queue: Queue, block: Block, rows: Rows) -> NeededMessages:
        """Copy what is asked of some rows, at least one."""
        sizes = block.sizes.get(rows)
        sizes = sizes if isinstance(sizes, int) else sizes.astype(np.int64)
        return cls(queue.name, block.base, rows, sizes, block.state[: block.filled][rows].copy(), block.locations(rows))


class JournalUsage:
    """Needed bytes of some segments. Arrays are parallel to `segments`, which are in order."""

    def __init__(self, segments: Sequence[SegmentInfo], copies: Mapping[int, Copies] | None = None, rows: int = 0) -> None:
        """`copies`: by base of a segment, what the cleaner has copied into it, where that is known. `rows`: about how many
        messages will be counted."""
        self.segments = segments
        self._counted: npt.NDArray[np.float64] = np.zeros(len(segments))
        self._held: npt.NDArray[np.bool_] = np.zeros(len(segments), np.bool_)  # something of it is needed
        self.pinned: npt.NDArray[np.bool_] = np.zeros(
            len(segments), np.bool_
        )  # needed as they are: nothing is copied out of them
        self.oldest: NeededPayload | None = None
        self.by_queue: dict[str, int] = {}  # needed bytes
        self.packed: dict[int, Ints] = {}  # as the command `Drop` wants them
        self._bases: npt.NDArray[np.int64] = np.array([segment.base for segment in segments], np.int64)
        self._ends: npt.NDArray[np.int64] = np.array([segment.end for segment in segments], np.int64)
        found = [(copies or {}).get(segment.base, Copies(0, 0)) for segment in segments]
        self._copied: npt.NDArray[np.float64] = np.array([max(1, each.counted) for each in found], np.float64)
        self._beside: npt.NDArray[np.float64] = np.array([max(0, each.bytes - each.counted) for each in found], np.float64)
        self._payloads = CountedPayloads(rows)

    @property
    def bytes(self) -> npt.NDArray[np.float64]:
        """Needed bytes by segment: of the messages, and what copies of them take beside, so that they are not copied again."""
        found: npt.NDArray[np.float64] = self._counted + self._beside * np.minimum(1.0, self._counted / self._copied)
        return found

    def segments_of(self, positions: Ints) -> npt.NDArray[np.int64]:
        """By log position, the index of its segment; -1 for one that is in none of them."""
        found = np.searchsorted(self._bases, positions, side="right") - 1
        inside = (found >= 0) & (np.asarray(positions) < self._ends[found])
        indices: npt.NDArray[np.int64] = np.where(inside, found, -1)
        return indices

    @property
    def sizes(self) -> npt.NDArray[np.float64]:
        """Bytes of the segments' files."""
        return np.array([segment.bytes for segment in self.segments], np.float64)

    @property
    def total(self) -> int:
        """Needed bytes, at most the segments' sizes; of a pinned segment all."""
        sizes = self.sizes
        return int(np.where(self.pinned, sizes, np.minimum(sizes, self.bytes)).sum())

    def shares(self) -> npt.NDArray[np.float64]:
        """The share of each segment that is needed, at most 1."""
        sizes = np.maximum(self.sizes, 1)
        return np.where(self.pinned, 1.0, np.minimum(1.0, self.bytes / sizes))

    def unused(self) -> npt.NDArray[np.bool_]:
        """By segment, whether nobody needs anything of it."""
        unused: npt.NDArray[np.bool_] = ~self._held & ~self.pinned
        return unused

    def count(self, held: NeededMessages) -> None:
        """Add messages of a block."""
        positions, payload_rows = held.locations.positions(), held.locations.payload_rows()
        octets = np.broadcast_to(np.asarray(held.sizes, np.int64), len(positions)) + ROW_BYTES
        self._count(held.queue, positions, payload_rows, octets)
        lowest = int(positions.min())
        if self.oldest is None or lowest < self.oldest.position:
            index = int(positions.argmin())
            time = int(np.repeat(held.locations.time, held.locations.rows)[index])
            state = State(int(held.states[index])).name.lower()
            self.oldest = NeededPayload(lowest, held.queue, held.base + int(as_array(held.rows)[index]), state, None, time)

    def count_packed(self, held: NeededMessages, position: int, octets: int) -> None:
        """Add messages of a block that left memory, and its columns, so many bytes at a log position."""
        self.count(held)
        where = np.array([position])
        self._count(held.queue, where, np.array([-1]), np.array([octets]))
        indices = np.unique(self.segments_of(np.concatenate([held.locations.position, where])))
        self.packed[position] = self._bases[indices[indices >= 0]]

    def count_staged(self, state: BrokerState, copied: Iterable[int]) -> None:
        """Add what stages need; those with a payload at one of the positions in `copied` pin their segments."""
        pins = set(copied)
        for name, stage in state.stages.items():
            for part in stage.parts:
                self._count_part(part)
                if part.position in pins:
                    self.pin(np.array([part.position]))
                if self.oldest is None or part.position < self.oldest.position:
                    write = state.writes.get(write_of(name))
                    self.oldest = NeededPayload(part.position, part.queue, stage=name, time=None if write is None else write.time)

    def _count_part(self, part: StagedPart) -> None:
        rows = np.arange(part.count) if part.payload_rows is None else part.payload_rows
        if len(rows):
            octets = np.broadcast_to(np.asarray(part.sizes, np.int64), len(rows)) + ROW_BYTES
            self._count(part.queue, np.full(len(rows), part.position), rows, octets)
        self._hold(np.array([part.position]))

    def pin_packed(self, entry: PackedBlock, keeping: Keeping) -> None:
        """Pin the segments that hold something needed of a block that left memory, as far as is known without reading it."""
        span = needed_span(entry, keeping)
        if span is not None:
            first = np.searchsorted(self._ends, span[0], side="right")
            last = np.searchsorted(self._bases, span[1], side="right")
            self.pinned[first:last] = True
            self.pin(np.array([entry.position]))

    def pin(self, positions: Ints) -> None:
        """Pin the segments with these log positions."""
        found = self.segments_of(positions)
        self.pinned[found[found >= 0]] = True

    def _hold(self, positions: Ints) -> None:
        found = self.segments_of(positions)
        self._held[found[found >= 0]] = True

    def _count(self, queue: str, positions: Ints, payload_rows: Ints, octets: Ints) -> None:
        found = self.segments_of(positions)
        inside = found >= 0
        self._held[found[inside]] = True
        fresh = inside & self._payloads.add(positions, payload_rows)
        self._counted += np.bincount(found[fresh], weights=octets[fresh], minlength=len(self.segments))
        self.by_queue[queue] = self.by_queue.get(queue, 0) + int(octets[inside].sum())


def oldest_of(queue: Queue) -> NeededPayload | None:
    """Return the message of the queue that has not ended and whose payload is the oldest. Called under the broker's lock."""
    oldest: NeededPayload | None = None
    for block in queue.blocks.values():
        if block.live and (oldest is None or block.runs.low < oldest.position):
            rows = np.flatnonzero(block.state[: block.filled] != State.ARCHIVED)
            positions = block.positions(rows)
            first = int(positions.argmin())
            if oldest is None or int(positions[first]) < oldest.position:
                row = int(rows[first])
                state = State(int(block.state[row])).name.lower()
                time = block.runs.time[block.runs.row.run_of(row)]
                oldest = NeededPayload(int(positions[first]), queue.name, block.base + row, state, None, time)
    return oldest


class Unrecorded(NamedTuple):
    """A block that left memory with messages that are not recorded yet."""

    queue: Queue
    entry: PackedBlock
    position: int  # log position of its columns
    hold: Hold  # of the journal: as long as it is there, the columns are found

    def read(self, journal: Journal) -> tuple[Block, Rows] | None:
        """Read the block, and which of its rows are not recorded; None where all are by now. Without the broker's lock. Raises
        DamagedJournal."""
        rows = self.entry.unrecorded.rows(self.entry.number)
        return None if rows is None else (open_block(journal, self.entry), rows)


def unrecorded(state: BrokerState, journal: Journal) -> list[Unrecorded]:
    """Find the blocks that left memory with something that is not recorded. Called under the broker's lock."""
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
    copies: Mapping[int, Copies] | None = None,
    copied: Iterable[int] = (),
) -> JournalUsage:
    """Measure these segments. `copies`: as of `JournalUsage`. `copied`: positions of staged payloads that were
    copied before, and stay."""
    state, lock, journal = broker.state, broker.lock, broker.journal
    with lock:
        rows = sum(queue.live + queue.staged.messages + queue.recordings.rows for queue in state.by_id.values())
        usage = JournalUsage(segments, copies, rows)
        usage.count_staged(state, copied)
        packed = unrecorded(state, journal) if keeping.unrecorded else []
        if not keeping.unrecorded:
            for queue in state.by_id.values():
                for entry in queue.packed.values():
                    usage.pin_packed(entry, keeping)
        blocks = [(queue_id, number) for queue_id, each in state.by_id.items() for number in each.blocks]
    for some in _several(blocks, BLOCKS_AT_ONCE):
        with lock:
            found = [held for queue_id, number in some if (held := _held(state, queue_id, number, keeping)) is not None]
        for held in found:
            usage.count(held)
    for each in packed:
        try:
            found_block = each.read(journal)
        except errors.DamagedJournal:
            usage.pin_packed(each.entry, keeping)
            continue
        if found_block is not None:
            held, octets = NeededMessages.of(each.queue, *found_block), journal.payload(each.position).size
            usage.count_packed(held, each.position, octets)
    return usage


def _held(state: BrokerState, queue_id: int, number: int, keeping: Keeping) -> NeededMessages | None:
    """Copy what is needed of a block; None where nothing is. Called under the broker's lock."""
    queue = state.by_id.get(queue_id)
    block = None if queue is None else queue.blocks.get(number)
    if queue is None or block is None or not block.filled:
        return None
    rows = rows_of(needed(block, keeping, departed=queue_id in state.departed))
    return NeededMessages.of(queue, block, rows) if row_count(rows) else None


def rows_of(mask: npt.NDArray[np.bool_]) -> Rows:
    """The rows that a mask has; a slice for all of them."""
    return slice(0, len(mask)) if mask.all() else np.flatnonzero(mask)


def _several(blocks: Sequence[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    rest = iter(blocks)
    while some := list(itertools.islice(rest, most)):
        yield some

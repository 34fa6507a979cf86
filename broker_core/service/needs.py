"""Needed bytes of the journal, by segment and by queue: for the cleaner and for operators.

It is counted a few blocks at a time, so that nobody waits; the queues go on meanwhile, and nothing is decided here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..engine import BrokerState
from ..engine.columns.blocks import Block
from ..engine.columns.series import Ints
from ..engine.columns.states import State
from ..engine.model.queue import Queue
from ..engine.model.retention import Keeping, needed, needed_span
from ..engine.model.stages import write_of
from ..journal import SegmentInfo

BLOCKS_AT_ONCE = 4  # looked at in one hold of the lock: some 300 µs each where all of their rows came one by one
ROW_BYTES = 32  # what a message takes beside its own bytes, roughly, when many lie together


class Copies(NamedTuple):
    """Copies that were written into a segment."""

    bytes: int  # in the journal
    counted: int  # as `Needs` counts it


@dataclass
class Need:
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


class Needs:
    """Needed bytes of some segments. Arrays are parallel to `segments`, which are in order."""

    def __init__(self, segments: Sequence[SegmentInfo], copies: Mapping[int, Copies] | None = None) -> None:
        """`copies`: by base of a segment, what the cleaner has copied into it, where that is known."""
        self.segments = segments
        self._counted: npt.NDArray[np.float64] = np.zeros(len(segments))
        self.pinned: npt.NDArray[np.bool_] = np.zeros(
            len(segments), np.bool_
        )  # needed as they are: nothing is copied out of them
        self.oldest: Need | None = None
        self.by_queue: dict[str, int] = {}  # needed bytes
        self._bases: npt.NDArray[np.int64] = np.array([segment.base for segment in segments], np.int64)
        self._ends: npt.NDArray[np.int64] = np.array([segment.end for segment in segments], np.int64)
        found = [(copies or {}).get(segment.base, Copies(0, 0)) for segment in segments]
        self._copied: npt.NDArray[np.float64] = np.array([max(1, each.counted) for each in found], np.float64)
        self._beside: npt.NDArray[np.float64] = np.array([max(0, each.bytes - each.counted) for each in found], np.float64)

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
        unused: npt.NDArray[np.bool_] = (self._counted == 0) & ~self.pinned
        return unused

    def count_block(self, queue: Queue, block: Block, keeping: Keeping) -> None:
        """Add what is needed of a block."""
        if not block.filled:
            return
        mask = needed(block, keeping)
        first = block.runs.row.array()
        counts = np.add.reduceat(mask.astype(np.int64), first)
        held = np.flatnonzero(counts)
        if not len(held):
            return
        sizes = block.sizes.get(slice(0, block.filled))
        octets = counts * sizes if isinstance(sizes, int) else np.add.reduceat(np.where(mask, sizes, 0).astype(np.int64), first)
        positions = block.runs.position.take(held) << 3
        self._count(queue.name, positions, octets[held] + ROW_BYTES * counts[held])
        lowest = int(positions.min())
        if self.oldest is None or lowest < self.oldest.position:
            run = int(held[int(positions.argmin())])
            row = int(first[run] + mask[first[run] :].argmax())
            state = State(int(block.state[row])).name.lower()
            self.oldest = Need(lowest, queue.name, block.base + row, state, None, block.runs.time[run])

    def count_staged(self, state: BrokerState, copied: Iterable[int]) -> None:
        """Add what stages need; those with a payload at one of the positions in `copied` pin their segments."""
        pins = set(copied)
        for name, stage in state.stages.items():
            for part in stage.parts:
                at = np.array([part.position])
                self._count(part.queue, at, np.array([part.bytes + ROW_BYTES * part.count]))
                if part.position in pins:
                    self.pin(at)
                if self.oldest is None or part.position < self.oldest.position:
                    write = state.writes.get(write_of(name))
                    self.oldest = Need(part.position, part.queue, stage=name, time=None if write is None else write.time)

    def pin_packed(self, queue: Queue, keeping: Keeping) -> None:
        """Pin the segments that hold something needed of blocks that left memory."""
        for entry in queue.packed.values():
            span = needed_span(entry, keeping)
            if span is not None:
                first, last = (
                    np.searchsorted(self._ends, span[0], side="right"),
                    np.searchsorted(self._bases, span[1], side="right"),
                )
                self.pinned[first:last] = True
                self.pin(np.array([entry.position]))

    def pin(self, positions: Ints) -> None:
        """Pin the segments with these log positions."""
        found = self.segments_of(positions)
        self.pinned[found[found >= 0]] = True

    def _count(self, queue: str, positions: Ints, octets: Ints) -> None:
        found = self.segments_of(positions)
        inside = found >= 0
        self._counted += np.bincount(found[inside], weights=octets[inside], minlength=len(self.segments))
        self.by_queue[queue] = self.by_queue.get(queue, 0) + int(octets[inside].sum())


def oldest_of(queue: Queue) -> Need | None:
    """Return the message of the queue that has not ended and whose payload is the oldest. Called under the broker's lock."""
    oldest: Need | None = None
    for block in queue.blocks.values():
        if block.live and (oldest is None or block.runs.low < oldest.position):
            rows = np.flatnonzero(block.state[: block.filled] != State.ARCHIVED)
            positions = block.positions(rows)
            first = int(positions.argmin())
            if oldest is None or int(positions[first]) < oldest.position:
                row = int(rows[first])
                state = State(int(block.state[row])).name.lower()
                time = block.runs.time[block.runs.row.run_of(row)]
                oldest = Need(int(positions[first]), queue.name, block.base + row, state, None, time)
    return oldest


def measure(
    state: BrokerState,
    lock: threading.Lock,
    segments: Sequence[SegmentInfo],
    keeping: Keeping,
    *,
    copies: Mapping[int, Copies] | None = None,
    copied: Iterable[int] = (),
) -> Needs:
    """Count what is needed of these segments. `copies`: as `Needs` has them; `copied`: positions of staged payloads that were
    copied before, and stay."""
    needs = Needs(segments, copies)
    with lock:
        needs.count_staged(state, copied)
        for queue in state.by_id.values():
            needs.pin_packed(queue, keeping)
        blocks = [(queue_id, number) for queue_id, each in state.by_id.items() for number in each.blocks]
    for some in _several(blocks, BLOCKS_AT_ONCE):
        with lock:
            for queue_id, number in some:
                found = state.by_id.get(queue_id)
                block = None if found is None else found.blocks.get(number)
                if found is not None and block is not None:
                    needs.count_block(found, block, keeping)
    return needs


def _several(blocks: Sequence[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    rest = iter(blocks)
    while some := list(itertools.islice(rest, most)):
        yield some

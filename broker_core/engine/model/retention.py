"""Payloads: which of them somebody still needs, and which messages still have theirs.

A payload is needed by a message that has not ended; by a settled one that is not in the archive's table yet; by a dead letter
that no other queue could take, since a redrive brings it back to its place; and by a settled message, to be read, where there is
no archive. The journal keeps it as long as one of these needs it. `Keeping` says how far back the last two count.

Blocks that are full and done with stay in memory for dead letters that may be redriven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..columns.blocks import Block
from ..columns.intervals import Intervals
from ..columns.limits import MAX_KEPT_BLOCKS
from ..columns.series import Ints, Rows
from ..columns.states import ARCHIVED

if TYPE_CHECKING:
    from .queue import PackedBlock


class Keeping(NamedTuple):
    """Log positions from which on payloads are kept for messages that have ended; below, retention lets them go."""

    stayed: int = 0  # of dead letters that no other queue could take
    settled: int = 0  # of all others
    unrecorded: bool = False  # True: there is an archive, and what is not in its table yet is kept wherever it lies


def needed(block: Block, keeping: Keeping, *, departed: bool = False) -> npt.NDArray[np.bool_]:
    """By row of a block in memory, whether somebody needs its payload. `departed`: its queue was deleted, with what lived."""
    rows = slice(0, block.filled)
    found: npt.NDArray[np.bool_] = (block.state[rows] != ARCHIVED) & (not departed)
    if block.live == block.filled:
        return found
    if keeping.unrecorded and block.unrecorded:
        found[block.unrecorded_rows()] = True
    if block.runs.high >= keeping.settled:
        found |= block.positions(rows) >= keeping.settled
    if block.stayed.values is not None and block.runs.high >= keeping.stayed:
        found |= (block.stayed.values[rows] != 0) & (block.positions(rows) >= keeping.stayed)
    return found


def needed_span(entry: PackedBlock, keeping: Keeping) -> tuple[int, int] | None:
    """The lowest and the highest log position, both included, of what somebody may need of a block that left memory; None where
    nobody needs any of it. Beside these, its own record is needed."""
    if keeping.unrecorded and entry.unrecorded:
        return entry.lowest_payload, entry.highest_payload
    if entry.highest_payload < keeping.settled:
        return None
    return max(entry.lowest_payload, keeping.settled), entry.highest_payload


def with_payloads(block: Block, rows: Rows, dropped: Intervals) -> Rows:
    """The rows whose payloads are still there; `rows` itself when all are."""
    if not dropped or not dropped.meets(block.runs.low, block.runs.high):
        return rows
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    gone = dropped.contains(block.positions(numbers))
    return numbers[~gone] if gone.any() else rows


def stayed(block: Block, dropped: Intervals) -> Ints:
    """Dead letters of the block's own queue, ARCHIVED in it, whose payloads are still there."""
    if block.stayed.values is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(block.stayed.values[: block.filled])
    return np.asarray(with_payloads(block, rows, dropped))


class Finished:
    """Blocks that are full and have no live row, by queue and number: those that are to leave memory, and those that stay for
    what may be redriven, of all queues together the newest. Derived."""

    def __init__(self) -> None:
        self.leaving: list[tuple[str, int]] = []
        self._kept: dict[tuple[str, int], Block] = {}

    def add(self, queue: str, block: Block, dropped: Intervals) -> None:
        """Note a full block without a live row."""
        if not len(stayed(block, dropped)):
            self.leaving.append((queue, block.number))
            return
        self._kept[queue, block.number] = block
        if len(self._kept) > MAX_KEPT_BLOCKS:
            self._let_go(next(iter(self._kept)))

    def remove(self, queue: str, number: int | None = None) -> None:
        """One has a live row again, or has left; without a number all of a queue that is gone."""

        def is_meant(entry: tuple[str, int]) -> bool:
            return entry[0] == queue and number in (None, entry[1])

        self.leaving = [entry for entry in self.leaving if not is_meant(entry)]
        for entry in [entry for entry in self._kept if is_meant(entry)]:
            del self._kept[entry]

    def dropped(self, dropped: Intervals) -> None:
        """Payloads are gone, and with them a reason to stay."""
        for entry, block in list(self._kept.items()):
            if not len(stayed(block, dropped)):
                self._let_go(entry)

    def _let_go(self, entry: tuple[str, int]) -> None:
        del self._kept[entry]
        self.leaving.append(entry)

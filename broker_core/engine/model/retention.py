"""Retention: which payloads are still needed, and which messages still have theirs.

Live messages need their payload, and so do settled messages that are not recorded yet. Dead letters that stayed need it for a
redrive, and, without an archive, settled messages for readers. `Keeping` limits the last two kinds by age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..columns.blocks import Block
from ..columns.intervals import Intervals
from ..columns.limits import MAX_KEPT_BLOCKS
from ..columns.rowset import as_array
from ..columns.series import Ints, Rows
from ..columns.states import ARCHIVED

if TYPE_CHECKING:
    from .queue import PackedBlock


class Keeping(NamedTuple):
    """Log positions from which on the payloads of ended messages are kept."""

    stayed: int = 0
    settled: int = 0
    unrecorded: bool = False  # True: with an archive, those of unrecorded messages are kept at any position


def needed(block: Block, keeping: Keeping, *, departed: bool = False) -> npt.NDArray[np.bool_]:
    """`departed`: the queue was deleted, with its live messages."""
    rows = slice(0, block.filled)
    is_needed: npt.NDArray[np.bool_] = (block.state[rows] != ARCHIVED) & (not departed)
    if block.live == block.filled:
        return is_needed
    if keeping.unrecorded and block.unrecorded:
        is_needed[block.unrecorded_rows()] = True
    if block.runs.high >= keeping.settled:
        is_needed |= block.positions(rows) >= keeping.settled
    if block.stayed.values is not None and block.runs.high >= keeping.stayed:
        is_needed |= (block.stayed.values[rows] != 0) & (block.positions(rows) >= keeping.stayed)
    return is_needed


def needed_span(entry: PackedBlock, keeping: Keeping) -> tuple[int, int] | None:
    """Return the bounds, both included, of the log positions of the needed payloads."""
    if keeping.unrecorded and entry.unrecorded:
        return entry.lowest_payload, entry.highest_payload
    if entry.highest_payload < keeping.settled:
        return None
    return max(entry.lowest_payload, keeping.settled), entry.highest_payload


def with_payloads(block: Block, rows: Rows, dropped: Intervals) -> Rows:
    """Return the rows whose payloads still exist."""
    if not dropped or not dropped.meets(block.runs.low, block.runs.high):
        return rows
    numbers = as_array(rows)
    gone = dropped.contains(block.positions(numbers))
    return numbers[~gone] if gone.any() else rows


def stayed(block: Block, dropped: Intervals) -> Ints:
    if block.stayed.values is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(block.stayed.values[: block.filled])
    return np.asarray(with_payloads(block, rows, dropped))


class Finished:
    """Full blocks without a live row, by queue and number: they leave memory, but the newest ones with redrivable dead letters
    stay for now."""

    def __init__(self) -> None:
        self.leaving: list[tuple[str, int]] = []
        self._kept: dict[tuple[str, int], Block] = {}

    def add(self, queue: str, block: Block, dropped: Intervals) -> None:
        if not len(stayed(block, dropped)):
            self.leaving.append((queue, block.number))
            return
        self._kept[queue, block.number] = block
        if len(self._kept) > MAX_KEPT_BLOCKS:
            self._let_go(next(iter(self._kept)))

    def remove(self, queue: str, number: int | None = None) -> None:
        """The block has a live row again, or has left memory. Without a number: the queue was deleted."""

        def is_meant(entry: tuple[str, int]) -> bool:
            return entry[0] == queue and number in (None, entry[1])

        self.leaving = [entry for entry in self.leaving if not is_meant(entry)]
        for entry in [entry for entry in self._kept if is_meant(entry)]:
            del self._kept[entry]

    def dropped(self, dropped: Intervals) -> None:
        for entry, block in list(self._kept.items()):
            if not len(stayed(block, dropped)):
                self._let_go(entry)

    def _let_go(self, entry: tuple[str, int]) -> None:
        del self._kept[entry]
        self.leaving.append(entry)

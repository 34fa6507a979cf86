"""Messages of a block that still have their payloads: retention takes the oldest segments, whoever refers to them; and for which
of them a block that is full and done with stays in memory: dead letters that no other queue could take, since a redrive brings
them back to their places.
"""

from __future__ import annotations

import numpy as np

from ..columns.blocks import Block
from ..columns.limits import MAX_KEPT_BLOCKS
from ..columns.series import Ints, Rows


def within_retention(block: Block, rows: Rows, retained_from: int) -> Rows:
    """The rows whose payloads are still kept; `rows` itself when all are.

    Runs are not in the order of their payloads: a stage's are older than its publish, a dead letter's than its death.
    """
    positions = block.runs.position.array() << 3
    if not len(positions) or positions.min() >= retained_from:
        return rows
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    of = np.searchsorted(block.runs.row.array(), numbers, side="right") - 1
    kept = positions[of] >= retained_from
    return rows if kept.all() else numbers[kept]


def stayed(block: Block, retained_from: int) -> Ints:
    """Dead letters of the block's own queue, ARCHIVED in it, whose payloads are still kept."""
    if block.stayed.values is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(block.stayed.values[: block.filled])
    return np.asarray(within_retention(block, rows, retained_from))


class Finished:
    """Blocks that are full and have no live row, by queue and number: those that are to leave memory, and those that stay for
    what may be redriven, of all queues together the newest. Derived."""

    def __init__(self) -> None:
        self.leaving: list[tuple[str, int]] = []
        self._kept: dict[tuple[str, int], Block] = {}

    def add(self, queue: str, block: Block, retained_from: int) -> None:
        """Note a full block without a live row."""
        if not len(stayed(block, retained_from)):
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

    def retained(self, retained_from: int) -> None:
        """Payloads are gone, and with them a reason to stay."""
        for entry, block in list(self._kept.items()):
            if not len(stayed(block, retained_from)):
                self._let_go(entry)

    def _let_go(self, entry: tuple[str, int]) -> None:
        del self._kept[entry]
        self.leaving.append(entry)

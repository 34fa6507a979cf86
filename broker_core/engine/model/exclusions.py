"""Messages that one link cannot work on (*undeliverable here*): not offered to it again, and to all others as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints, Rows
from ..columns.states import ARCHIVED, AVAILABLE

if TYPE_CHECKING:
    from ..columns.blocks import Block
    from .queue import Queue


class Exclusions:
    """A sparse set of rows, by block in ascending order: what an acquisition pays for it is a search in what lies before it."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, Ints] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def rows(self, block: int) -> Ints | None:
        """Return the rows of a block that are not offered; None where there are none."""
        return self._blocks.get(block)

    def items(self) -> Iterator[tuple[int, Ints]]:
        """Iterate over blocks and their rows."""
        return iter(self._blocks.items())

    def add(self, rows: RowSet) -> None:
        """Rows that the link held, so none of them is in here yet."""
        for number, part in rows.items():
            new, known = as_array(part), self._blocks.get(number)
            self._blocks[number] = new if known is None else np.insert(known, np.searchsorted(known, new), new)
        self.count += rows.count

    def live(self, blocks: dict[int, Block]) -> int:
        """Count the rows that can ever be offered to anybody again."""
        return sum(len(_live(blocks[number], rows)) for number, rows in self._blocks.items() if number in blocks)

    def forget(self, blocks: dict[int, Block]) -> None:
        """Drop those that cannot."""
        kept = {number: _live(blocks[number], rows) for number, rows in self._blocks.items() if number in blocks}
        self._blocks = {number: rows for number, rows in kept.items() if len(rows)}
        self.count = sum(len(rows) for rows in self._blocks.values())


def _live(block: Block, rows: Ints) -> Ints:
    live: Ints = rows[block.state[rows] != ARCHIVED]
    return live


def refused_by_all(queue: Queue) -> int:
    """AVAILABLE messages that every link of the queue has refused, so that nobody there will ever take them."""
    sets = [subscription.excluded for subscription in queue.subscriptions.values()]
    return refused_by(sets, None, queue).count if sets else 0


def refused_by(sets: Sequence[Exclusions], among: RowSet | None, queue: Queue) -> RowSet:
    """The messages that are in each of these sets: of `among`, or of those that are AVAILABLE."""
    sets = sorted(sets, key=lambda each: each.count)
    if sets and not sets[0]:
        return RowSet()
    candidates = among.items() if among is not None else sets[0].items()
    found: list[tuple[int, Rows]] = []
    for number, part in candidates:
        rows, block = as_array(part), queue.blocks.get(number)
        if among is None:
            rows = rows[:0] if block is None else rows[block.state[rows] == AVAILABLE]
        for each in sets:
            if not len(rows):
                break
            theirs = each.rows(number)
            rows = rows[:0] if theirs is None else np.intersect1d(rows, theirs, assume_unique=True)
        found.append((number, rows))
    return RowSet.of(found)

"""Messages that a link refused (*undeliverable here*). They are not offered to it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints, Rows
from ..columns.states import ARCHIVED, AVAILABLE

if TYPE_CHECKING:
    from ..columns.blocks import Block


class Exclusions:
    """A sparse set of rows: by block, ascending."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, Ints] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def rows(self, block: int) -> Ints | None:
        return self._blocks.get(block)

    def items(self) -> Iterator[tuple[int, Ints]]:
        return iter(self._blocks.items())

    def add(self, rows: RowSet) -> None:
        """The link held the rows, so the set contains none of them."""
        for number, part in rows.items():
            new, known = as_array(part), self._blocks.get(number)
            self._blocks[number] = new if known is None else np.insert(known, np.searchsorted(known, new), new)
        self.count += rows.count

    def live(self, blocks: dict[int, Block]) -> int:
        return sum(len(_live(blocks[number], rows)) for number, rows in self._blocks.items() if number in blocks)

    def forget(self, blocks: dict[int, Block]) -> None:
        live = {number: _live(blocks[number], rows) for number, rows in self._blocks.items() if number in blocks}
        self._blocks = {number: rows for number, rows in live.items() if len(rows)}
        self.count = sum(len(rows) for rows in self._blocks.values())


def _live(block: Block, rows: Ints) -> Ints:
    live: Ints = rows[block.state[rows] != ARCHIVED]
    return live


def refused_by(sets: Sequence[Exclusions], among: RowSet | None, blocks: dict[int, Block]) -> RowSet:
    """Return the messages that are in each of these sets: of `among`, or of the AVAILABLE messages."""
    sets = sorted(sets, key=lambda exclusions: exclusions.count)
    if sets and not sets[0]:
        return RowSet()
    candidates = among.items() if among is not None else sets[0].items()
    refused: list[tuple[int, Rows]] = []
    for number, part in candidates:
        rows, block = as_array(part), blocks.get(number)
        if among is None:
            rows = rows[:0] if block is None else rows[block.state[rows] == AVAILABLE]
        for exclusions in sets:
            if not len(rows):
                break
            excluded = exclusions.rows(number)
            rows = rows[:0] if excluded is None else np.intersect1d(rows, excluded, assume_unique=True)
        refused.append((number, rows))
    return RowSet.of(refused)

"""Messages that a read needs and the journal no longer has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..engine.columns.rowset import BLOCK_BITS, BLOCK_ROWS, as_array
from ..engine.columns.series import Rows


class MissingRows:
    """Sequence numbers of one queue: whole blocks, and rows of others."""

    def __init__(self) -> None:
        self._blocks: set[int] = set()
        self._rows: list[npt.NDArray[np.int64]] = []

    def __bool__(self) -> bool:
        return bool(self._blocks or self._rows)

    def add(self, number: int, rows: Rows | None) -> None:
        """`rows`: ascending; None for the whole block."""
        if rows is None:
            self._blocks.add(number)
        else:
            self._rows.append(as_array(rows).astype(np.int64) + (number << BLOCK_BITS))

    @property
    def first(self) -> int:
        return min([*(number << BLOCK_BITS for number in self._blocks), *(int(rows[0]) for rows in self._rows)])

    @property
    def last(self) -> int:
        ends = [(number << BLOCK_BITS) + BLOCK_ROWS - 1 for number in self._blocks]
        return max([*ends, *(int(rows[-1]) for rows in self._rows)])

    def mask(self, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        mask = np.isin(sequences >> BLOCK_BITS, np.array(list(self._blocks), np.int64))
        if not len(sequences):
            return mask
        first, last = int(sequences.min()), int(sequences.max())
        for rows in self._rows:
            if rows[0] <= last and rows[-1] >= first:
                mask |= rows[np.minimum(np.searchsorted(rows, sequences), len(rows) - 1)] == sequences
        return mask

    def sequences(self) -> npt.NDArray[np.int64]:
        """Ascending. Whole blocks must not have been added."""
        return np.sort(np.concatenate([np.zeros(0, np.int64), *self._rows]))

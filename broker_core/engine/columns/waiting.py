"""Counts of AVAILABLE messages: how many per level and block, so that a search looks at blocks first and at rows second. And the
first messages that wait for their retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .series import Ints


class FirstRetries(NamedTuple):
    """Lowest sequence numbers of the messages that wait for their retry."""

    levels: list[int]  # by level; NEVER: none waits
    groups: Ints  # codes of groups of which some wait, ascending
    of_groups: Ints  # the lowest of each of these


class RetriesOfBlock(NamedTuple):
    """Lowest sequence numbers of such messages in one block."""

    levels: Ints  # of which some wait, ascending
    of_levels: Ints  # the lowest of each of these
    groups: Ints
    of_groups: Ints


class Waiting:
    """Counts of one level. Blocks are numbered from 0; the first ones empty for good, the last one fills."""

    __slots__ = ("_counts", "_low", "total")

    def __init__(self) -> None:
        self.total = 0
        self._counts: npt.NDArray[np.int32] = np.zeros(4, np.int32)  # by block number
        self._low = 0  # no block before this one has any

    def add(self, number: int, change: int) -> None:
        """Change the count of a block."""
        if number >= len(self._counts):
            grown = np.zeros(max(number + 1, 2 * len(self._counts)), np.int32)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self._counts[number] += change
        self.total += change
        if change > 0:
            self._low = min(self._low, number)

    @property
    def first(self) -> int | None:
        """The number of the first block that has some."""
        counts = self._counts
        while self._low < len(counts) and not counts[self._low]:
            step = int((counts[self._low :] > 0).argmax())
            self._low = self._low + step if step else len(counts)
        return self._low if self._low < len(counts) else None

    def blocks(self, first: int) -> Iterator[int]:
        """The numbers of the blocks from `first` on that have some."""
        lowest, counts = self.first, self._counts
        if lowest is None:
            return
        number, left = max(first, lowest), self.total
        while left > 0 and number < len(counts):
            if not counts[number]:  # nearly always the next one has some
                number += int((counts[number:] > 0).argmax())
                if not counts[number]:
                    return
            left -= int(counts[number])
            yield number
            number += 1

"""Indexes of waiting messages: the AVAILABLE messages by level and block, and the first messages that wait for their retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .series import Ints


class FirstRetries(NamedTuple):
    """Lowest sequence numbers of the messages of a queue that wait for their retry."""

    levels: list[int]  # by level; NEVER: no message waits
    groups: Ints
    of_groups: Ints  # the lowest number of each


class RetriesOfBlock(NamedTuple):
    """Lowest sequence numbers of the messages of one block that wait for their retry."""

    levels: Ints
    of_levels: Ints  # the lowest number of each
    groups: Ints
    of_groups: Ints


class Waiting:
    """Counts of the AVAILABLE messages of one level by block. The first blocks become empty and stay so; the last one fills."""

    __slots__ = ("_counts", "_low", "total")

    def __init__(self) -> None:
        self.total = 0
        self._counts: npt.NDArray[np.int32] = np.zeros(4, np.int32)
        self._low = 0  # no block before this one has AVAILABLE messages

    def add(self, number: int, change: int) -> None:
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
        counts = self._counts
        while self._low < len(counts) and not counts[self._low]:
            step = int((counts[self._low :] > 0).argmax())
            self._low = self._low + step if step else len(counts)
        return self._low if self._low < len(counts) else None

    def blocks(self, first: int) -> Iterator[int]:
        lowest, counts = self.first, self._counts
        if lowest is None:
            return
        number, left = max(first, lowest), self.total
        while left > 0 and number < len(counts):
            if not counts[number]:  # nearly always the next block has AVAILABLE messages
                number += int((counts[number:] > 0).argmax())
                if not counts[number]:
                    return
            left -= int(counts[number])
            yield number
            number += 1

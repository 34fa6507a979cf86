"""Indexes of waiting messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .series import Ints

RETURN_LOG_ENTRIES = 4096  # then the two oldest are joined: consumers search a little more, never less


class FirstRetries(NamedTuple):
    """Lowest sequence numbers of messages that wait for their retry, in a queue."""

    levels: list[int]  # by level; NEVER: no message waits
    groups: Ints
    of_groups: Ints  # the lowest number of each


class RetriesOfBlock(NamedTuple):
    """As `FirstRetries`, in one block."""

    levels: Ints
    of_levels: Ints
    groups: Ints
    of_groups: Ints


class Waiting:
    """Counts of the AVAILABLE messages of one level by block. Blocks become empty from the first one on."""

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
            if not counts[number]:  # which is rare
                number += int((counts[number:] > 0).argmax())
                if not counts[number]:
                    return
            left -= int(counts[number])
            yield number
            number += 1


class ReturnLog:
    """The lowest returned sequence number since each epoch, as a suffix minimum in two ascending lists.

    A return costs the same for one subscription and for a thousand: each reads the log at its next search.
    """

    __slots__ = ("_epochs", "_sequences", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self._epochs: list[int] = []
        self._sequences: list[int] = []

    def add(self, sequence: int) -> None:
        self.epoch += 1
        while self._sequences and self._sequences[-1] >= sequence:
            self._sequences.pop()
            self._epochs.pop()
        self._epochs.append(self.epoch)
        self._sequences.append(sequence)
        if len(self._sequences) > RETURN_LOG_ENTRIES:
            del self._epochs[0], self._sequences[1]  # the lower one at the later epoch

    def lowest_since(self, epoch: int) -> int | None:
        at = bisect_right(self._epochs, epoch)
        return self._sequences[at] if at < len(self._sequences) else None

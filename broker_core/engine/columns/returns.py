"""The return log of a queue: how far back each return moves the consumers."""

from __future__ import annotations

from bisect import bisect_right

RETURN_LOG_ENTRIES = 4096  # beyond this the two oldest entries are joined: consumers search a little more, never less


class ReturnLog:
    """Epoch → lowest returned sequence number, as a suffix minimum: the lowest one since an epoch is found by bisection.

    Both lists ascend: an entry is dropped as soon as a later one has a number that is not higher. A return costs the same for
    one subscription and for a thousand, because each reads the log at its next search.
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

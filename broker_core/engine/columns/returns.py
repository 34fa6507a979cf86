"""Returns to a queue, and how far back each sends those who look at it."""

from __future__ import annotations

from bisect import bisect_right

RETURN_LOG_ENTRIES = 4096  # beyond this the two oldest entries become one: a little more to search, never less


class ReturnLog:
    """Epoch → lowest sequence number returned, as a suffix minimum: what came back since an epoch is one bisection away.

    Both lists rise: an entry is dropped as soon as a later one names one that is not higher. So a return costs the same
    with one subscription and with a thousand: each looks here at its own next turn.
    """

    __slots__ = ("_epochs", "_sequences", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self._epochs: list[int] = []
        self._sequences: list[int] = []

    def add(self, sequence: int) -> None:
        """Note that a message with this sequence number came back."""
        self.epoch += 1
        while self._sequences and self._sequences[-1] >= sequence:
            self._sequences.pop()
            self._epochs.pop()
        self._epochs.append(self.epoch)
        self._sequences.append(sequence)
        if len(self._sequences) > RETURN_LOG_ENTRIES:
            del self._epochs[0], self._sequences[1]  # the lower one at the later epoch

    def lowest_since(self, epoch: int) -> int | None:
        """The lowest sequence number returned after `epoch`."""
        at = bisect_right(self._epochs, epoch)
        return self._sequences[at] if at < len(self._sequences) else None

"""Totals: counts of a queue since the broker started. They never decrease.

Arrived and ended messages are differences between numbers of the queue and their values at the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .blocks import Block
from .rowset import row_count
from .series import Rows
from .states import OUTCOME_CODES, Outcome

TOTALS = ("enqueued", "delivered", "redelivered", "redriven", "acknowledged", "rejected", "deadLettered", "expired", "removed")
_REMOVED = (Outcome.PURGED, Outcome.REPLACED, Outcome.MOVED, Outcome.DROPPED)


class Totals:
    """The totals of one queue. `enqueued + redriven` minus all ended messages is the growth of `live`."""

    __slots__ = ("_ended", "_live", "_next_sequence", "delivered", "redelivered", "redriven", "unlocked")

    def __init__(self) -> None:
        self.delivered = 0  # to links, and in batches of leases
        self.redelivered = 0
        self.unlocked = 0
        self.redriven = 0  # dead letters that had stayed here
        self._next_sequence = self._live = 0
        self._ended = [0] * OUTCOME_CODES

    def begin(self, next_sequence: int, live: int, ended: Sequence[int]) -> None:
        self.delivered = self.redelivered = self.redriven = self.unlocked = 0
        self._next_sequence, self._live, self._ended = next_sequence, live, list(ended)

    def acquired(self, block: Block, rows: Rows) -> None:
        self.delivered += row_count(rows)
        if block.returned.values is not None:
            self.redelivered += int(np.count_nonzero(block.returned.values[rows]))

    def row(self, next_sequence: int, ended: Sequence[int]) -> list[int]:
        """`ended`: the queue's ended messages by outcome. The result is in the order of `TOTALS`."""
        ended = [now - before for now, before in zip(ended, self._ended, strict=True)]
        return [
            next_sequence - self._next_sequence,
            self.delivered,
            self.redelivered,
            self.redriven,
            ended[Outcome.ACCEPTED],
            ended[Outcome.REJECTED],
            ended[Outcome.DEAD_LETTERED] + self.redriven,  # a redrive reduces the count of ended messages
            ended[Outcome.EXPIRED],
            sum(ended[outcome] for outcome in _REMOVED),
        ]

    def conserved(self, next_sequence: int, live: int, ended: Sequence[int]) -> bool:
        """Return True if the totals account for every live message."""
        enqueued, _, _, redriven, *gone = self.row(next_sequence, ended)
        return self._live + enqueued + redriven - sum(gone) == live

"""Totals: what has happened to the messages of a queue since the broker started. Derived, and never less than before.

What arrived and what ended is told by numbers that the queue has anyway, less what they were at the start; so only deliveries
and redrives are counted as they happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..columns.rowset import row_count
from ..columns.states import Outcome

if TYPE_CHECKING:
    from ..columns.blocks import Block
    from ..columns.series import Rows
    from .queue import Queue

TOTALS = ("enqueued", "delivered", "redelivered", "redriven", "acknowledged", "rejected", "deadLettered", "expired", "removed")
_REMOVED = (Outcome.PURGED, Outcome.REPLACED, Outcome.NOT_DELIVERED, Outcome.MOVED, Outcome.DROPPED)


class Totals:
    """The totals of one queue. `enqueued + redriven` less all that ended is how many more live messages there are."""

    __slots__ = ("_ended", "_live", "_next_sequence", "delivered", "redelivered", "redriven")

    def __init__(self) -> None:
        self.delivered = 0  # to a link, or in a batch to a lease; each time counts
        self.redelivered = 0  # of these, not for the first time
        self.redriven = 0  # dead letters of this queue's own that are AVAILABLE again, at their places
        self._next_sequence = self._live = 0  # of the queue when the broker started
        self._ended = [0] * len(Outcome)

    def begin(self, queue: Queue) -> None:
        """Begin at 0: the broker starts."""
        self.delivered = self.redelivered = self.redriven = 0
        self._next_sequence, self._live, self._ended = queue.next_sequence, queue.live, list(queue.ended)

    def acquired(self, block: Block, rows: Rows) -> None:
        """Count a delivery of each of the rows."""
        self.delivered += row_count(rows)
        if block.returned.values is not None:
            self.redelivered += int(np.count_nonzero(block.returned.values[rows]))

    def row(self, queue: Queue) -> list[int]:
        """Return the totals, in the order of `TOTALS`."""
        ended = [now - before for now, before in zip(queue.ended, self._ended, strict=True)]
        return [
            queue.next_sequence - self._next_sequence,
            self.delivered,
            self.redelivered,
            self.redriven,
            ended[Outcome.ACCEPTED],
            ended[Outcome.REJECTED],
            ended[Outcome.DEAD_LETTERED] + self.redriven,  # a redrive takes them off what has ended
            ended[Outcome.EXPIRED],
            sum(ended[outcome] for outcome in _REMOVED),
        ]

    def conserved(self, queue: Queue) -> bool:
        """Say whether the totals account for every live message."""
        enqueued, _, _, redriven, *ended = self.row(queue)
        return self._live + enqueued + redriven - sum(ended) == queue.live

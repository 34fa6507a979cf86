"""How what the turns carried out gets to the disk: at once where somebody waits for it, soon where nobody does.

A thread of the journal's does it, unless the turn was small: to wake that thread, and to be woken by it, takes longer than a
quick disk. Then the loop writes itself, and all others wait so long; the journal says no where that is not known to be short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.broker_core.journal import Journal

FEW = 4  # deliveries of a turn, in and out: with more there is something to do while the thread writes
REST_S = 0.002  # what nobody waits for is written with what somebody does, or after so long


class Writing:
    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._loop = loop
        self._rests = False

    def begin(self, end: int, deliveries: int, meanwhile: Callable[[], object]) -> bool:
        """Somebody waits for the log up to `end`, which a turn of so many deliveries has brought. Whether this thread has written
        it: then it is durable, or the journal has failed, and `meanwhile` may have been called: see `Journal.write_here`."""
        if end <= self._journal.durable:
            return False
        if deliveries <= FEW and self._journal.write_here(meanwhile):
            return True
        self._journal.hurry(end)
        return False

    def rest(self) -> None:
        """Nobody waits for the end of the log."""
        if not self._rests and self._journal.end > self._journal.durable:
            self._rests = True
            self._loop.call_later(REST_S, self._rested, self._journal.end)

    def _rested(self, end: int) -> None:
        self._rests = False
        if end > self._journal.durable:
            self._journal.hurry(end)
        self.rest()

"""Requests to the journal to write: immediately if an answer waits for the log, soon otherwise.

Waking the journal's thread, and being woken by it, takes longer than a fast disk. So after a small commit the loop writes itself,
if the journal expects that to be quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...journal import Journal

FEW = 4  # deliveries of a commit, in and out; with more, the loop has work while the thread writes
REST_S = 0.002  # the log may wait so long for a write that an answer needs


class Syncs:
    """The requests of one plane. Used in the loop's thread."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._rest = Deadline(loop, REST_S, self._rested)
        self._resting = 0  # the end of the log when the deadline was set
        self._asked = 0  # the position up to which the journal was asked to write

    def begin(self, end: int, deliveries: int, meanwhile: Callable[[], object]) -> bool:
        """Have the log written up to `end`, for a commit with this number of `deliveries`.

        Returns True if this thread has written it (`Journal.write_here`): then it is durable, or the journal has failed.
        """
        if end <= self._journal.durable:
            return False
        if deliveries <= FEW and self._journal.write_here(meanwhile):
            return True
        self._hurry(end)
        return False

    def rest(self) -> None:
        """Have the log written up to its end soon, although no answer waits for it."""
        sure, end = max(self._journal.durable, self._asked), self._journal.end
        if self._resting <= sure:  # or the deadline does not run
            self._rest.cancel()
            if end > sure:
                self._resting = end
                self._rest.set()

    def _rested(self) -> None:
        if self._resting > self._journal.durable:
            self._hurry(self._resting)
        self.rest()

    def _hurry(self, end: int) -> None:
        self._asked = max(self._asked, end)
        self._journal.hurry(end)


class Deadline:
    """Calls a function once, some time after it was set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._function = function
        self._handle: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Start the timer, unless it runs already."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self._reached)

    def cancel(self) -> None:
        """A timer that fires costs a round of the event loop."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _reached(self) -> None:
        self._handle = None
        self._function()

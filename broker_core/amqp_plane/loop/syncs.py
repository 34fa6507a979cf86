"""Writing what the passes carried out: at once where somebody waits for it, soon where nobody does.

A thread of the journal's does it, unless the pass was small: to wake that thread, and to be woken by it, takes longer than a
quick disk. Then the loop writes itself, and all others wait so long; the journal says no where that is not known to be short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...journal import Journal

FEW = 4  # deliveries of a pass, in and out: with more there is something to do while the thread writes
REST_S = 0.002  # what nobody waits for is written with what somebody does, or after so long


class Syncs:
    """Requests to the journal to write. Used in the loop's thread."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._rest = Deadline(loop, REST_S, self._rested)
        self._resting = 0  # the log's end when the deadline was set
        self._asked = 0  # the journal was told that somebody waits for the log up to here

    def begin(self, end: int, deliveries: int, meanwhile: Callable[[], object]) -> bool:
        """Have the log written up to `end`, which somebody waits for; a pass of so many `deliveries` has brought it.

        Returns whether this thread has written it: then it is durable, or the journal has failed, and `meanwhile` may have
        been called: see `Journal.write_here`.
        """
        if end <= self._journal.durable:
            return False
        if deliveries <= FEW and self._journal.write_here(meanwhile):
            return True
        self._hurry(end)
        return False

    def rest(self) -> None:
        """See to it that the log is written up to its end soon, though nobody waits for it."""
        sure, end = max(self._journal.durable, self._asked), self._journal.end
        if self._resting <= sure:  # or it does not run
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
    """Calls a function once, some time after it was set, unless it is cancelled before. Used in the loop's thread."""

    __slots__ = ("_function", "_handle", "_loop", "_seconds")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, function: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._function = function
        self._handle: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Let it run from now on. One that runs already is left as it is."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self._reached)

    def cancel(self) -> None:
        """Stop it, if it runs. The event loop drops cancelled timers without waking for them."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _reached(self) -> None:
        self._handle = None
        self._function()

"""A timer that is taken back when its reason is gone: one that fires with nothing to do costs a round of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


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

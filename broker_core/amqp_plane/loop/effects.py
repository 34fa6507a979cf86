"""Effects: answers that may leave when the log is durable up to their position.

An effect writes frames into its peer's protocol machine. The octets leave at the end of the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

Effect = Callable[[], None]

log = logging.getLogger("penstock.amqp")


def call(loop: asyncio.AbstractEventLoop, function: Effect) -> None:
    """Have the event loop call `function`, from any thread. Does nothing after the end of the loop."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


class EffectQueue:
    """Effects in their order. Used in the loop's thread; other threads may ask whether it contains effects."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, Effect]] = deque()
        self._immediate: list[Effect] = []

    def __bool__(self) -> bool:
        """True if any effect waits for the disk."""
        return bool(self._line)

    @property
    def end(self) -> int:
        """The log position that the last effect waits for."""
        return self._line[-1][0] if self._line else 0

    @property
    def idle(self) -> bool:
        return not (self._line or self._immediate)

    def when_durable(self, end: int, effect: Effect) -> None:
        """Run `effect` when the log is durable up to `end`, after all effects before it.

        With an `end` of 0 it does not wait: the message that it confirms need not survive a crash.
        """
        if end:
            self._line.append((end, effect))
        else:
            self._immediate.append(effect)

    def behind_all(self, end: int, effect: Effect) -> None:
        self._line.append((max(end, self.end), effect))

    def happen(self, durable: int) -> bool:
        """Run the effects whose position is at most `durable`. Returns whether there were any."""
        line = self._line
        ready, self._immediate = self._immediate, []
        while line and line[0][0] <= durable:
            ready.append(line.popleft()[1])
        for effect in ready:
            try:
                effect()
            except Exception:
                log.exception("an effect failed; the connection it belongs to may hang until it times out")
        return bool(ready)

"""Effects, which may be told when the disk has what they tell: a line of them, each behind a log position, in order.

An effect writes what a peer is told (dispositions, transfers, the answer to an attach) into its protocol machine; the octets
leave at the end of a pass. None overtakes another that stands in the line.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

Effect = Callable[[], None]

log = logging.getLogger("penstock.amqp")


class EffectQueue:
    """The line of one plane. Used in the loop's thread; other threads may ask whether anything stands in it."""

    __slots__ = ("_immediate", "_line")

    def __init__(self) -> None:
        self._line: deque[tuple[int, Effect]] = deque()
        self._immediate: list[Effect] = []

    def __bool__(self) -> bool:
        """Say whether anything waits for the disk."""
        return bool(self._line)

    @property
    def end(self) -> int:
        """The log position that the last of them waits for; 0 where none waits."""
        return self._line[-1][0] if self._line else 0

    @property
    def idle(self) -> bool:
        """Say whether there is no effect at all."""
        return not (self._line or self._immediate)

    def when_durable(self, end: int, effect: Effect) -> None:
        """Let `effect` happen when the log is durable up to `end` and every effect before it has happened.

        With an `end` of 0 it waits for nothing: the sender of a message that need not survive a crash is told at once.
        """
        if end:
            self._line.append((end, effect))
        else:
            self._immediate.append(effect)

    def behind_all(self, end: int, effect: Effect) -> None:
        """Let `effect` happen when the log is durable up to `end`, and behind every effect so far."""
        self._line.append((max(end, self.end), effect))

    def happen(self, durable: int) -> bool:
        """Carry out the effects that wait for no more than `durable`. Returns whether there were any. One that raises is
        logged."""
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

"""Effects, which may be told when the disk has what they tell: a line of them, each behind a log position, in order.

An effect writes what a peer is told (dispositions, transfers, the answer to an attach) into its protocol machine; the octets
leave at the end of a pass. None overtakes another that stands in the line. Each belongs to a connection, which ends when one of
its effects fails: its client may wait for what was not told.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

Effect = Callable[[], None]

log = logging.getLogger("penstock.amqp")


class Owner(Protocol):
    """A connection that effects belong to."""

    def broken(self) -> None:
        """End the connection, because a mistake of the broker's may have left its client without an answer."""


def attempt(action: Effect, owner: Owner | None) -> bool:
    """Do something for a connection. If that raises, log it and end the connection; everybody else is served. Returns whether it
    was done. `owner`: None for an action that sees to its connections itself."""
    try:
        action()
    except Exception:
        log.exception("a mistake of the broker's, which ends one connection: %s", owner)
        if owner is not None:
            owner.broken()
        return False
    return True


class Effects:
    """The line of one plane. Used in the loop's thread; other threads may ask whether anything stands in it."""

    __slots__ = ("_immediate", "_line")

    def __init__(self) -> None:
        self._line: deque[tuple[int, Effect, Owner | None]] = deque()
        self._immediate: list[tuple[Effect, Owner | None]] = []

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

    def when_durable(self, end: int, effect: Effect, owner: Owner | None) -> None:
        """Let `effect` happen when the log is durable up to `end` and every effect before it has happened.

        With an `end` of 0 it waits for nothing: the sender of a message that need not survive a crash is told at once.
        """
        if end:
            self._line.append((end, effect, owner))
        else:
            self._immediate.append((effect, owner))

    def behind_all(self, end: int, effect: Effect, owner: Owner | None) -> None:
        """Let `effect` happen when the log is durable up to `end`, and behind every effect so far."""
        self._line.append((max(end, self.end), effect, owner))

    def happen(self, durable: int) -> bool:
        """Carry out the effects that wait for no more than `durable`. Returns whether there were any. One that raises
        ends the connection that it belongs to."""
        line = self._line
        ready, self._immediate = self._immediate, []
        while line and line[0][0] <= durable:
            ready.append(line.popleft()[1:])
        for effect, owner in ready:
            attempt(effect, owner)
        return bool(ready)

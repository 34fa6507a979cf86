"""Acknowledge modes, and the rule that gathers acknowledgements: 65 % of the window, or a time."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker_core.messaging.received import ReceivedMessage

#: Gathered acknowledgements leave when they are so much of the consumer's window.
SHARE = 0.65
#: Seconds after which they leave though they are fewer.
DELAY_S = 0.3


class AcknowledgeMode(Enum):
    """Who says that a message is done, and how often the broker is told."""

    #: The client itself, after each message: when `receive` returns it, or when its callback has returned.
    AUTO = "auto"
    #: The application; `acknowledge` is for all messages of the session up to that one.
    CLIENT = "client"
    #: The application, for each message by itself.
    INDIVIDUAL = "individual"
    #: The client itself, many at a time: what was not told when a connection breaks is delivered again.
    DUPS_OK = "dups-ok"
    #: The transaction: all that was received since the last `commit` is done with the next one.
    TRANSACTED = "transacted"

    @property
    def by_itself(self) -> bool:
        """Whether the client acknowledges without being told."""
        return self in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)


class Gathered:
    """Outcomes of one consumer that have not left yet. `window` is its prefetch in messages; times are seconds of any clock."""

    def __init__(self, window: int, delay_s: float) -> None:
        self._most = max(1.0, window * SHARE)
        self._delay = delay_s
        self._entries: list[tuple[ReceivedMessage, Any]] = []
        self.deadline: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, message: ReceivedMessage, outcome: Any, now: float) -> None:
        """One more. A message that expired counts like any other: else a consumer of nothing but those would wait for ever."""
        if not self._entries:
            self.deadline = now + self._delay
        self._entries.append((message, outcome))

    def due(self, now: float) -> bool:
        return len(self._entries) >= self._most or (self.deadline is not None and now >= self.deadline)

    def take(self) -> list[tuple[ReceivedMessage, Any]]:
        """All of them, oldest first."""
        found, self._entries, self.deadline = self._entries, [], None
        return found

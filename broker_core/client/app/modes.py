"""Acknowledge modes. Acknowledgements are gathered until 65 % of the window, or for a time."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

M = TypeVar("M")

#: Share of the window at which gathered acknowledgements are sent.
ACKNOWLEDGE_RATIO = 0.65
#: Seconds until fewer are sent.
ACKNOWLEDGE_DELAY_S = 0.3


class AcknowledgeMode(Enum):
    """Side that acknowledges a message, and when."""

    #: The client, when `receive` returns the message, or when its callback has returned.
    AUTO = "auto"
    #: The application; `acknowledge` covers all messages of the session up to that one.
    CLIENT = "client"
    #: The application, each message alone.
    INDIVIDUAL = "individual"
    #: The client, many messages at a time. They are delivered again if the connection breaks before.
    DUPS_OK = "dups-ok"
    #: The next `commit`, for all messages received since the last one.
    TRANSACTED = "transacted"

    @property
    def automatic(self) -> bool:
        """True if the client acknowledges without the application."""
        return self in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)


class PendingAcknowledgements(Generic[M]):
    """Unsent acknowledgements of one consumer. `window`: its prefetch in messages. `now`: seconds of any clock."""

    def __init__(self, window: int, delay_s: float) -> None:
        self._threshold = max(1.0, window * ACKNOWLEDGE_RATIO)
        self._delay = delay_s
        self._entries: list[tuple[M, Any]] = []
        self.deadline: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, message: M, outcome: Any, now: float) -> None:
        """Expired messages count as well: a consumer that receives no other must not wait forever."""
        if not self._entries:
            self.deadline = now + self._delay
        self._entries.append((message, outcome))

    def due(self, now: float) -> bool:
        return len(self._entries) >= self._threshold or (self.deadline is not None and now >= self.deadline)

    def take(self) -> list[tuple[M, Any]]:
        entries, self._entries, self.deadline = self._entries, [], None
        return entries

"""What was decided of messages that change their queue, and of queues altered while they live. See `queues` for the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.events.codec import Event, know


@dataclass(frozen=True)
class Moved(Event):
    """ARCHIVED in their queue and AVAILABLE at the tail of the target, in order, which refers to the same payloads; DELAYED where
    they are not due yet.

    With a reason they are dead letters. Without a target these stay: nobody could take them.
    """

    kind = "moved"
    queue: str
    rows: RowSet
    target: str | None
    outcome: int
    time: int
    reason: int = 0
    holder: int = 0  # of those that were ACQUIRED, if it is a link
    lease: str | None = None  # an operator ended these rows of its batch
    error: str | None = None  # what the one who rejected them said
    redriven: bool = False  # dead letters no longer: they are where they came from


@dataclass(frozen=True)
class Copied(Event):
    """AVAILABLE or DELAYED there too: the same payloads, at the tail of the target."""

    kind = "copied"
    queue: str
    rows: RowSet
    target: str
    time: int


@dataclass(frozen=True)
class Redriven(Event):
    """ARCHIVED → AVAILABLE, at their places: dead letters that had stayed, with a delivery count of 0."""

    kind = "redriven"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class QueueAltered(Event):
    """The options named have these values from now on; None: their defaults."""

    kind = "queue.altered"
    queue: str
    options: dict[str, Any]


@dataclass(frozen=True)
class QueuePaused(Event):
    kind = "queue.paused"
    queue: str
    paused: bool


know(Moved, Copied, Redriven, QueueAltered, QueuePaused)

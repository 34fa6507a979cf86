"""Events of messages that change their queue."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from .codec import Event, know


@dataclass(frozen=True)
class Moved(Event):
    """Messages ARCHIVED in their queue and AVAILABLE at the tail of the target, in order, with the same payloads; DELAYED where
    they are not due yet.

    With a reason they are dead letters. Without a target these stay: nobody could take them."""

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
    taker: str | None = None  # of dead letters: as of `Settled`, also where they had just come back


@dataclass(frozen=True)
class Copied(Event):
    """Messages that are also AVAILABLE, or DELAYED, at the tail of the target, with the same payloads."""

    kind = "copied"
    queue: str
    rows: RowSet
    target: str
    time: int


@dataclass(frozen=True)
class Redriven(Event):
    """Dead letters that had stayed, ARCHIVED → AVAILABLE, at their sequence numbers, with a delivery count of 0."""

    kind = "redriven"
    queue: str
    rows: RowSet
    time: int


know(Moved, Copied, Redriven)

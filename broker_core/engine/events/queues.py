"""Events of queues and the messages that come into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..columns.rowset import RowSet
from ..columns.series import Ints
from .codec import Event, know, stored_as
from .links import Acquired


@dataclass(frozen=True)
class QueueDeclared(Event):
    """A new queue, with the options that differ from their defaults."""

    kind = "queue.declared"
    queue: str
    type: str
    options: dict[str, Any]
    user: str | None = None  # whose link has made it
    defaults: int | None = None  # version of the options' defaults; None: the first


@dataclass(frozen=True)
class QueueDeleted(Event):
    """The end of a queue with its messages and bindings."""

    kind = "queue.deleted"
    queue: str
    departs: bool | None = None  # True: what is settled and not recorded yet still goes to the archive's table


@dataclass(frozen=True)
class QueueAltered(Event):
    """New values of the options named; None: their defaults."""

    kind = "queue.altered"
    queue: str
    options: dict[str, Any]


@dataclass(frozen=True)
class QueuePaused(Event):
    """A queue paused, or resumed where `paused` is False."""

    kind = "queue.paused"
    queue: str
    paused: bool


@dataclass(frozen=True)
class Enqueued(Event):
    """Messages with a payload, at the sequence numbers from `first` on. `time`: microseconds since 1970."""

    kind = "enqueued"
    queue: str
    first: int
    count: int
    sizes: int | Ints
    time: int
    attributes: dict[str, Any] | None = field(default=None, metadata=stored_as("traits"))  # see `Attributes.journaled`
    kept: Ints | None = None  # which of the payload's rows they are; None: all of them, in order
    acquired: tuple[Acquired, ...] | None = None  # *immediate* messages: the links that hold them from their arrival on


@dataclass(frozen=True)
class Purged(Event):
    """Messages AVAILABLE or DELAYED → ARCHIVED: an operator did not want them."""

    kind = "purged"
    queue: str
    rows: RowSet
    time: int
    error: str | None = None  # why an operator has discarded them


@dataclass(frozen=True)
class BlockPacked(Event):
    """A packed block as payload, which leaves memory. Its times are microseconds since 1970."""

    kind = "block.archived"
    queue: str
    number: int
    highest_payload: int
    first_time: int
    last_time: int
    outcomes: list[int]


@dataclass(frozen=True)
class Retained(Event):
    """The log position below which nothing is kept any longer. Of older versions; now it is `Dropped`."""

    kind = "retained"
    position: int


know(QueueDeclared, QueueDeleted, QueueAltered, QueuePaused, Enqueued, Purged, BlockPacked, Retained)

"""Commands that explain why consumers do not receive the next message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..columns.obstacles import Obstacle
from .command import Command

if TYPE_CHECKING:
    from ..model.search import Matching


class ConsumerState(NamedTuple):
    """A link, or a lease, of a queue."""

    holder: int  # 0: a lease without a batch
    lease: str | None = None  # None: a link
    taker: str | None = None
    selector: str | None = None
    priority: int = 0
    held: int = 0  # messages


class QueueState(NamedTuple):
    """A queue with its first consumers: links, then leases."""

    paused: bool
    available: int
    acquired: int
    delayed: int
    deferred: int
    due: int | None  # of the first delayed message, or earlier: milliseconds since 1970
    consumers: tuple[ConsumerState, ...]
    total: int  # number of consumers


@dataclass(frozen=True)
class DescribeConsumers(Command[QueueState]):
    """At most `most` consumers."""

    queue: str
    most: int


class Hindrance(NamedTuple):
    """An obstacle with its details."""

    obstacle: Obstacle
    messages: int | None = None  # excluded among the examined
    holder: int | None = None  # the other consumer
    group: str | None = None  # of the first excluded message
    until: int | None = None  # milliseconds since 1970
    locked: bool = False  # the other consumer has locked the group


class Explained(NamedTuple):
    """Without hindrances, `next` is the sequence number of the consumer's next message."""

    hindrances: tuple[Hindrance, ...]
    next: int | None = None
    looked: int = 0  # messages that were examined here
    passed_all: bool = False  # the consumer has examined all waiting messages


@dataclass(frozen=True)
class Explain(Command[Explained]):
    """`matching` and `behind` are as in `Acquire`."""

    queue: str
    holder: int
    lease: str | None = None
    obstacle: Obstacle | None = None  # of the link itself, as the plane sees it
    matching: Matching | None = None
    behind: tuple[int, ...] = ()

"""Commands that explain why consumers do not receive the next message. They change nothing."""

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
    """Waiting messages of a queue, and its first consumers: links, then leases."""

    paused: bool
    available: int
    acquired: int
    delayed: int
    deferred: int
    due: int | None  # of the first delayed message, or earlier: milliseconds since 1970
    consumers: tuple[ConsumerState, ...]
    total: int  # of all its consumers


@dataclass(frozen=True)
class DescribeConsumers(Command[QueueState]):
    """At most `most` consumers of a queue."""

    queue: str
    most: int


class Hindrance(NamedTuple):
    """An obstacle with its details, as far as it has any."""

    obstacle: Obstacle
    messages: int | None = None  # the excluded ones among the examined ones
    holder: int | None = None  # the other consumer
    group: str | None = None  # of the first excluded message
    until: int | None = None  # milliseconds since 1970
    locked: bool = False  # the other consumer has locked the group


class Explained(NamedTuple):
    """The hindrances of a consumer. Without any, `next` is the sequence number of its next message."""

    hindrances: tuple[Hindrance, ...]
    next: int | None = None
    looked: int = 0  # messages that were examined for this answer
    passed_all: bool = False  # the consumer itself has examined all waiting messages


@dataclass(frozen=True)
class Explain(Command[Explained]):
    """Why a link, or a lease, does not receive the next message. `matching` and `behind` are as in `Acquire`."""

    queue: str
    holder: int
    lease: str | None = None
    obstacle: Obstacle | None = None  # of the link itself, as the plane sees it
    matching: Matching | None = None
    behind: tuple[int, ...] = ()

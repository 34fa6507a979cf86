"""Commands of operators: move, copy, redrive, discard and replace messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..columns.limits import MAX_MOVED
from .command import Command
from .queues import Enqueue


class Shifted(NamedTuple):
    """Reply of `Move`, `Copy` and `Redrive`."""

    messages: int
    next: int | None  # sequence number to continue from; None: there are no more
    stayed: int = 0  # messages that cannot go: the target is full, or their queue is gone or has a newer value


class DeathGroup(NamedTuple):
    """Dead letters with one reason and one error text."""

    reason: int  # a `Reason`
    error: str | None = None  # empty: they have none; None: any


@dataclass(frozen=True)
class Move(Command[Shifted]):
    """At most MAX_MOVED messages that no consumer holds. DELAYED ones keep their time, DEFERRED ones become AVAILABLE."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    user: str | None = None


@dataclass(frozen=True)
class Copy(Command[Shifted]):
    """Copies of messages, as by `Move`."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class DiscardMessages(Command[int]):
    """The end of damaged or useless messages, also held ones. A query that holds one is fenced. Reply: how many."""

    queue: str
    first: int
    last: int
    error: str
    user: str | None = None


@dataclass(frozen=True)
class Replace(Command[int]):
    """The end of a message that no consumer holds, and the arrival of its edited copy, perhaps in another queue. Either both
    happen or nothing. Reply: the sequence number of the copy."""

    queue: str
    sequence: int
    copy: Enqueue  # of one message
    user: str | None = None


@dataclass(frozen=True)
class Redrive(Command[Shifted]):
    """The return of dead letters: AVAILABLE ones move to the queue that they came from. ARCHIVED ones, which had stayed, become
    AVAILABLE at their sequence numbers. One command examines at most MAX_MOVED of each kind."""

    queue: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    ranges: tuple[int, ...] | None = None  # only these: first, last, first, last …, in any order
    group: DeathGroup | None = None
    user: str | None = None

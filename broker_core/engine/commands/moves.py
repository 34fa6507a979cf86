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
    stayed: int = 0  # messages that cannot go: the target is full, or the queue of a dead letter is gone or has a newer value


class DeathGroup(NamedTuple):
    """Dead letters with one reason and one error text."""

    reason: int  # a `Reason`
    error: str | None = None  # empty: they have none; None: any


@dataclass(frozen=True)
class Move(Command[Shifted]):
    """Messages that no consumer holds, at most MAX_MOVED, moved in order. DELAYED ones keep their time, DEFERRED ones become
    AVAILABLE."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    user: str | None = None  # for the archive


@dataclass(frozen=True)
class Copy(Command[Shifted]):
    """Copies of messages, selected as by `Move`."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class DiscardMessages(Command[int]):
    """The end of damaged or useless messages, also held ones. A query whose lease holds one is fenced. Reply: how many."""

    queue: str
    first: int
    last: int
    error: str
    user: str | None = None  # for the archive


@dataclass(frozen=True)
class Replace(Command[int]):
    """The end of a message that no consumer holds, and the arrival of its edited copy, which may be in another queue. Either both
    happen or nothing. Reply: the sequence number of the copy."""

    queue: str
    sequence: int
    copy: Enqueue  # of one message
    user: str | None = None  # for the archive


@dataclass(frozen=True)
class Redrive(Command[Shifted]):
    """The return of dead letters. AVAILABLE ones move to the tail of the queue that they came from. ARCHIVED ones, which had
    stayed, become AVAILABLE at their sequence numbers. One command examines at most MAX_MOVED of each kind."""

    queue: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    ranges: tuple[int, ...] | None = None  # only these: first, last, first, last …, in any order, both included
    group: DeathGroup | None = None  # only its dead letters
    user: str | None = None  # for the archive

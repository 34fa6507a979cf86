"""Commands about messages that change their queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..columns.limits import MAX_MOVED
from .command import Command


class Shifted(NamedTuple):
    """Reply of `Move`, `Copy` and `Redrive`."""

    messages: int  # messages that were moved, copied or redriven
    next: int | None  # sequence number to continue from; None: there are no more
    stayed: int = 0  # messages that cannot go: the target is full, or the queue of a dead letter is gone or has a newer value


@dataclass(frozen=True)
class Move(Command[Shifted]):
    """AVAILABLE or DELAYED messages from `first` to `last`, moved in order. DELAYED ones keep their time. One command moves at
    most MAX_MOVED messages."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None


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
    """The end of messages from `first` to `last`, by an operator, because they are damaged or useless. A query whose lease
    holds one is fenced. Reply: the number of ended messages."""

    queue: str
    first: int
    last: int
    error: str


@dataclass(frozen=True)
class Redrive(Command[Shifted]):
    """The return of dead letters from `first` to `last`. AVAILABLE dead letters move to the tail of the queue that they came
    from. Dead letters that had stayed become AVAILABLE at their sequence numbers. One command examines at most MAX_MOVED of
    each kind."""

    queue: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    ranges: tuple[int, ...] | None = None  # only these ranges: first, last, first, last …, in any order, both included

"""Commands about messages that change their queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..columns.limits import MAX_MOVED
from .command import Command


class Shifted(NamedTuple):
    """The reply to `Move`, `Copy` and `Redrive`, with the sequence number to go on from."""

    messages: int  # so many were moved, copied or redriven
    next: int | None  # the sequence number to go on from; None: there are no more
    stayed: int = 0  # so many cannot go: the target is full; for dead letters also: their queue is gone, or has a newer value


@dataclass(frozen=True)
class Move(Command[Shifted]):
    """Messages that nobody has taken (AVAILABLE or DELAYED), in order, from `first` to `last`; DELAYED ones keep their time.
    Reply: `Shifted`. One command moves at most MAX_MOVED."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class Copy(Command[Shifted]):
    """Copies of messages, selected as by `Move`; the originals stay."""

    queue: str
    target: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class DiscardMessages(Command[int]):
    """An operator ends messages from `first` to `last`, whoever holds them: they are damaged, or nobody can use them. A query
    whose lease holds one is fenced. Reply: how many have ended."""

    queue: str
    first: int
    last: int
    error: str


@dataclass(frozen=True)
class Redrive(Command[Shifted]):
    """Dead letters from `first` to `last` go back to where they came from: those that are AVAILABLE in this queue to the tail of
    the queue that each was sent to, those of this queue that its dead-letter queue could not take to their sequence numbers.
    Reply: `Shifted`. One command looks at no more than MAX_MOVED of each kind."""

    queue: str
    messages: int = MAX_MOVED
    first: int = 0
    last: int | None = None
    ranges: tuple[int, ...] | None = None  # only these: first, last, first, last …, in any order, both included

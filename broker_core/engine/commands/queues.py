"""Commands about queues, and messages that arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.limits import MAX_PURGED
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.admission import Candidates
from .command import Command, Maker, R

if TYPE_CHECKING:
    from ..model.search import Matching


@dataclass(frozen=True)
class DeclareQueue(Command[bool]):
    """The declaration of a queue. Repeating it changes nothing. Reply: whether the queue is new."""

    queue: str
    type: str = "fifo"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None  # None: the queue is declared by name, and does not count towards a user's limit


@dataclass(frozen=True)
class DeleteQueue(Command[int]):
    """The deletion of a queue with its messages. Reply: the number of messages that were not settled."""

    queue: str
    force: bool = False  # also if consumers hold messages
    if_empty: bool = False  # only if every message is settled
    if_unused: bool = False  # only if it has no consumers and no leases


@dataclass(frozen=True)
class AlterQueue(Command[bool]):
    """New values of a queue's options. Reply: whether an option changed."""

    queue: str
    options: dict[str, Any] = field(default_factory=dict)  # options to change; None: the default


@dataclass(frozen=True)
class PauseQueue(Command[bool]):
    """The pause of a queue's deliveries. Messages still arrive. Reply: whether it was not paused."""

    queue: str


@dataclass(frozen=True)
class ResumeQueue(Command[bool]):
    """The end of a queue's pause. Reply: whether it was paused."""

    queue: str


class EnqueueReply(NamedTuple):
    """Reply of `Enqueue`: the stored messages, and the others."""

    next: int  # sequence number of the next message
    refused: Sequence[int] = ()  # indexes of messages that the queue's limits refuse
    duplicates: int = 0  # number of messages that had arrived before
    stored: Sequence[int] | None = None  # indexes of the stored messages, numbered up to `next`; None: all


class Stores(Command[R]):
    """Messages that need capacity of a queue."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of every message
    attributes: Attributes

    @property
    def candidates(self) -> Candidates:
        """The messages, for the check of the queue's limits."""
        return Candidates(self.count, self.sizes, self.attributes)


@dataclass(frozen=True)
class Enqueue(Stores[EnqueueReply]):
    """One block of messages. Its payload is stored with the event."""

    queue: str
    count: int
    sizes: int | Ints  # as in `Stores`
    payload: Any = None  # a buffer, or several
    durable: bool = True  # a message asks for it; only for a queue with durability=header
    attributes: Attributes = NO_ATTRIBUTES  # see `Attributes`
    whole: bool = False  # raise QueueFull instead of refusing some; otherwise the overflow *block* refuses none


@dataclass(frozen=True)
class Purge(Command[int]):
    """The end of AVAILABLE and DELAYED messages before `until`, the oldest first. Reply: how many. If it is `messages`, there
    may be more."""

    queue: str
    messages: int = MAX_PURGED
    until: int | None = None


class Offer(NamedTuple):
    """A link that can take arriving messages immediately."""

    holder: int
    messages: int  # the link's capacity
    budgets: tuple[int, ...] = ()  # indexes into the command's `budgets`: limits that the link shares with other links
    matching: Matching | None = None  # the known matches of its selector in the queue; None: it has no selector
    matches: Ints | None = None  # by arriving message, whether its selector matches (bool); None: it has no selector


class ImmediateReply(NamedTuple):
    """Reply of `EnqueueImmediate`: indexes of its messages, ascending. The remaining messages were taken, or are duplicates."""

    taken: Sequence[tuple[int, RowSet]]  # each holder and its messages, in the order of delivery
    undelivered: Sequence[int]  # no link could take them
    refused: Sequence[int]  # the queue's limits refuse them


@dataclass(frozen=True)
class EnqueueImmediate(Stores[ImmediateReply]):
    """*Immediate* messages: each is stored and acquired in one step, or leaves no trace. The links of `offers` take messages in
    this order. A link may have several offers."""

    queue: str
    count: int
    sizes: int | Ints  # as in `Stores`
    payload: Any = None  # as in `Enqueue`
    durable: bool = True
    attributes: Attributes = NO_ATTRIBUTES
    offers: Sequence[Offer] = ()
    budgets: Sequence[int] = ()  # by index: messages that the offers with this index may take together


@dataclass(frozen=True)
class Stat(Command[list[dict[str, Any]]]):
    """Descriptions of one queue, or of all: counts, bytes, options, leases."""

    queue: str | None = None  # None: all queues


@dataclass(frozen=True)
class PackBlock(Command[None]):
    """The move of a full block without live messages from memory to the journal."""

    queue: str
    number: int

"""Commands about queues and the messages that come into them."""

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
    """The declaration of a queue; the same again changes nothing. Reply: whether it is new."""

    queue: str
    type: str = "fifo"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None  # None: a user asked for this queue by name, and may ask for it again


@dataclass(frozen=True)
class DeleteQueue(Command[int]):
    """The deletion of a queue with its messages. Reply: how many messages were not settled, and are lost."""

    queue: str
    force: bool = False  # also while consumers hold some of them
    if_empty: bool = False  # only when every message is settled
    if_unused: bool = False  # only when nobody consumes from it, and no lease is on it


@dataclass(frozen=True)
class AlterQueue(Command[bool]):
    """New values of a queue's options. Reply: whether anything was changed."""

    queue: str
    options: dict[str, Any] = field(default_factory=dict)  # those to be changed; None: back to the default


@dataclass(frozen=True)
class PauseQueue(Command[bool]):
    """A stop of delivery until the queue is resumed; what is sent still comes in. Reply: whether anything was changed."""

    queue: str


@dataclass(frozen=True)
class ResumeQueue(Command[bool]):
    """The end of a queue's pause. Reply: whether anything was changed."""

    queue: str


class Appended(NamedTuple):
    """Results of enqueueing: the messages that were stored, and those that were not."""

    next: int  # the sequence number that the next message will get
    refused: Sequence[int] = ()  # which of them the queue's limits keep out
    duplicates: int = 0  # how many had come before: they are in the queue, or were
    kept: Sequence[int] | None = None  # which of them were stored, in order, at the sequence numbers before `next`; None: all


class Stores(Command[R]):
    """Messages that a queue has to have capacity for."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of every message
    attributes: Attributes

    @property
    def candidates(self) -> Candidates:
        """The messages, as the check of the queue's limits sees them."""
        return Candidates(self.count, self.sizes, self.attributes)


@dataclass(frozen=True)
class Enqueue(Stores[Appended]):
    """One block of messages; its payload is stored with the event. Reply: `Appended`."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of all alike
    payload: Any = None  # a buffer, or several
    durable: bool = True  # does any of the messages ask for it? Matters where the queue follows the header
    attributes: Attributes = NO_ATTRIBUTES  # what of the messages' insides the queue wants to know
    whole: bool = False  # all of them or none: QueueFull where some would be refused. Else an overflow *block* refuses none


@dataclass(frozen=True)
class Purge(Command[int]):
    """Messages that nobody has taken (AVAILABLE or DELAYED) before `until`, from the first on. Reply: how many; if so many as
    `messages`, there may be more."""

    queue: str
    messages: int = MAX_PURGED
    until: int | None = None


class Offer(NamedTuple):
    """A link that can take arriving messages immediately."""

    holder: int
    messages: int  # at most so many
    budgets: tuple[int, ...] = ()  # indexes into the command's `budgets`: limits that the link shares with other links
    matching: Matching | None = None  # what its selector is known to match in the queue; None: it has no selector
    matches: Ints | None = None  # by arriving message, whether its selector matches (bool); None: it has no selector


class Delivered(NamedTuple):
    """Result of `EnqueueImmediate`: indexes among its messages, ascending. The remaining messages were taken, or are duplicates
    of messages that the queue has or had."""

    taken: Sequence[tuple[int, RowSet]]  # holder and what it acquired, in the order in which it has to leave
    undelivered: Sequence[int]  # no link could take them
    refused: Sequence[int]  # the queue's limits keep them out


@dataclass(frozen=True)
class EnqueueImmediate(Stores[Delivered]):
    """*Immediate* messages: each is stored and acquired in one step, or leaves no trace. The links of `offers` take them in this
    order; a link may have several offers."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of all alike
    payload: Any = None  # as of `Enqueue`
    durable: bool = True
    attributes: Attributes = NO_ATTRIBUTES
    offers: Sequence[Offer] = ()
    budgets: Sequence[int] = ()  # messages that the offers naming an index may take together


@dataclass(frozen=True)
class Stat(Command[list[dict[str, Any]]]):
    """The descriptions of one queue, or of all: counts, bytes, options, leases."""

    queue: str | None = None  # None: all queues


@dataclass(frozen=True)
class PackBlock(Command[None]):
    """The move of a full block without live messages from memory to the journal."""

    queue: str
    number: int

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
    """A repetition changes nothing. Reply: whether the queue is new."""

    queue: str
    type: str = "fifo"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None  # None: it does not count towards a user's limit


@dataclass(frozen=True)
class DeleteQueue(Command[int]):
    """Reply: the number of unsettled messages."""

    queue: str
    force: bool = False  # also if consumers hold messages
    if_empty: bool = False
    if_unused: bool = False  # without consumers and leases


@dataclass(frozen=True)
class AlterQueue(Command[bool]):
    """Reply: whether an option changed."""

    queue: str
    options: dict[str, Any] = field(default_factory=dict)  # None: the default


@dataclass(frozen=True)
class PauseQueue(Command[bool]):
    """A pause of deliveries, or its end. Messages still arrive. Reply: whether the queue has changed."""

    queue: str
    paused: bool = True


class EnqueueReply(NamedTuple):
    """Reply of `Enqueue`, with indexes of messages."""

    next: int  # sequence number of the next message
    refused: Sequence[int] = ()  # by the queue's limits
    duplicates: int = 0
    stored: Sequence[int] | None = None  # numbered up to `next`; None: all


class Stores(Command[R]):
    """Messages that need capacity of a queue."""

    queue: str
    count: int
    sizes: int | Ints  # as in `Candidates`
    attributes: Attributes

    @property
    def candidates(self) -> Candidates:
        return Candidates(self.count, self.sizes, self.attributes)


@dataclass(frozen=True)
class Enqueue(Stores[EnqueueReply]):
    """Messages to append."""

    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None  # a buffer, or several
    durable: bool = True  # for a queue with durability=header
    attributes: Attributes = NO_ATTRIBUTES
    whole: bool = False  # raise QueueFull instead of refusing some; otherwise the overflow *block* refuses none


@dataclass(frozen=True)
class Purge(Command[int]):
    """The end of messages before sequence number `end` that no consumer holds, the oldest first. Reply: how many."""

    queue: str
    messages: int = MAX_PURGED
    end: int | None = None
    user: str | None = None  # for the archive


@dataclass(frozen=True)
class CancelDelayed(Command[None]):
    """The end of messages that their sender delayed. Raises IllegalTransition if one is not DELAYED, or waits for its retry."""

    queue: str
    rows: RowSet
    user: str | None = None


class Offer(NamedTuple):
    """A link that can take arriving messages."""

    holder: int
    messages: int
    budgets: tuple[int, ...] = ()  # indexes into the command's `budgets`
    matching: Matching | None = None  # None: no selector
    matches: Ints | None = None  # by arriving message, whether the selector matches; None: no selector


class ImmediateReply(NamedTuple):
    """Reply of `EnqueueImmediate`, with indexes of messages. The remaining ones are duplicates."""

    taken: Sequence[tuple[int, RowSet]]  # holders and their messages, in the order of delivery
    undelivered: Sequence[int]  # no link could take them
    refused: Sequence[int]  # by the queue's limits


@dataclass(frozen=True)
class EnqueueImmediate(Stores[ImmediateReply]):
    """*Immediate* messages, which the links of `offers` take in this order. A link may have several offers."""

    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    durable: bool = True
    attributes: Attributes = NO_ATTRIBUTES
    offers: Sequence[Offer] = ()
    budgets: Sequence[int] = ()  # messages that the offers with this index may take together


@dataclass(frozen=True)
class Stat(Command[list[dict[str, Any]]]):
    """Descriptions as JSON objects."""

    queue: str | None = None  # None: all queues


@dataclass(frozen=True)
class PackBlock(Command[None]):
    """The move of a full block without live messages to the journal."""

    queue: str
    number: int

"""Commands of the engine. A single message is a batch of one; a link takes three as a lease takes a million."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..columns.attributes import NO_TRAITS, Traits
from ..columns.limits import MAX_PURGED
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..columns.states import Cause, Outcome
from ..model.dispositions import Ending
from ..model.publish_keys import PublishKey as PublishKey  # part of what is asked
from ..model.reads import SparkBatch

if TYPE_CHECKING:
    from ..model.search import Matching


class Now(NamedTuple):
    """Time is an argument. `wall` is microseconds since 1970; `up` is monotonic, in microseconds, anew after each start, without
    the time in which the broker stood still; `resumed` is the `up` at which it last went on after that, 0 where it never did."""

    wall: int
    up: int
    resumed: int = 0


R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Command(Generic[R]):
    """A request to the engine. `R` is the type of its reply."""


class Maker(NamedTuple):
    """The user who makes queues and exchanges by links or first uses, or publish keys, and how many that user may have."""

    user: str
    most: int


@dataclass(frozen=True)
class DeclareQueue(Command[bool]):
    """The declaration of a queue; the same again changes nothing. Reply: whether it is new."""

    queue: str
    type: str = "fifo"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None  # None: it is somebody's wish that there be such a queue, and he may ask for it again


@dataclass(frozen=True)
class DeleteQueue(Command[None]):
    """The deletion of a queue with its messages; `force`: also while consumers hold some."""

    queue: str
    force: bool = False


class Placed(NamedTuple):
    """Results of enqueueing: the messages that were stored, and those that were not."""

    next: int  # the sequence number that the next message will get
    refused: Sequence[int] = ()  # which of them the queue's limits keep out
    duplicates: int = 0  # how many had come before: they are in the queue, or were
    kept: Sequence[int] | None = None  # which of them have places, in order, the last ones before `next`; None: all


class Stores(Command[R]):
    """Messages that a queue has to have room for."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of all alike


@dataclass(frozen=True)
class Enqueue(Stores[Placed]):
    """One block of messages; its payload is stored with the event. Reply: `Placed`."""

    queue: str
    count: int
    sizes: int | Ints  # stored bytes of each message, or of all alike
    payload: Any = None  # a buffer, or several
    durable: bool = True  # does any of the messages ask for it? Matters where the queue follows the header
    traits: Traits = NO_TRAITS  # what of the messages' insides the queue wants to know
    whole: bool = False  # all of them or none: QueueFull where some would be refused. Else an overflow *block* refuses none


@dataclass(frozen=True)
class StageMessages(Stores[None]):
    """Messages that wait in a stage, unseen, until it is published. The fields are as of `Enqueue`."""

    stage: str  # a name, or `stages.attempt_name`
    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    traits: Traits = NO_TRAITS


@dataclass(frozen=True)
class Publish(Command[tuple[int, bool]]):
    """Stages by name, or these attempts of a write. Reply: how many messages, and whether it was done before."""

    stages: list[str]
    key: PublishKey | None = None
    write: str | None = None
    attempts: Sequence[int] = ()
    reader: SparkBatch | None = None  # the batch of Spark's that is written
    maker: Maker | None = None  # whose key it is, and how many that user may have


@dataclass(frozen=True)
class IsPublished(Command[bool]):
    """A question: would a publish with this key be a repetition?"""

    key: PublishKey


@dataclass(frozen=True)
class Discard(Command[int]):
    """Stages by name, or all attempts of a write, those too that come later. Reply: how many there were."""

    stages: list[str]
    write: str | None = None


@dataclass(frozen=True)
class ListStages(Command[list[dict[str, Any]]]):
    """The descriptions, by write, of the stages that wait for a publish."""


@dataclass(frozen=True)
class Purge(Command[int]):
    """Messages that nobody has taken (AVAILABLE or DELAYED) before `until`, from the first on. Reply: how many; if so many as
    `messages`, there may be more."""

    queue: str
    messages: int = MAX_PURGED
    until: int | None = None


@dataclass(frozen=True)
class Withdraw(Command[RowSet]):
    """Take back those of the rows that nobody has acquired: *immediate* messages in the turn in which they came. Reply: which."""

    queue: str
    rows: RowSet


@dataclass(frozen=True)
class Stat(Command[list[dict[str, Any]]]):
    """The descriptions of one queue, or of all: counts, bytes, options, leases."""

    queue: str | None = None  # None: all queues


@dataclass(frozen=True)
class Subscribe(Command[int]):
    """Open a holder that ends with its link, or with the broker. InUse where it may not consume beside others: `consumers`."""

    queue: str
    priority: int = 0  # among the queue's consumers; a higher one goes first
    exclusive: bool = False
    selector: str | None = None  # the canonical text; `Acquire` then brings what is known of it


@dataclass(frozen=True)
class Unsubscribe(Command[RowSet]):
    """The end of a link's subscription. Reply: the rows that it held."""

    queue: str
    holder: int
    cause: Cause = Cause.LINK_LOST  # how what the link still holds comes back, unless
    outcome: Outcome | None = None  # the source's default outcome ends it: ACCEPTED or REJECTED


class Taken(NamedTuple):
    """Messages that a link got. If there are none, `unevaluated` is the block for which its selector must be evaluated first."""

    rows: RowSet
    unevaluated: int | None = None


@dataclass(frozen=True)
class Acquire(Command[Taken]):
    """The next messages for a link, at most up to the first that nobody has evaluated its selector for: see `Matching`."""

    queue: str
    holder: int
    messages: int  # the link's credit
    max_bytes: int | None = None
    matching: Matching | None = None
    behind: tuple[int, ...] = ()  # holders of links that go first: what they have not passed is left to them


class Browsed(NamedTuple):
    """Messages found, and the sequence number to go on from; `unevaluated` as of `Taken`."""

    rows: RowSet
    place: int
    unevaluated: int | None = None


@dataclass(frozen=True)
class Browse(Command[Browsed]):
    """Messages that are AVAILABLE from `place` on, which stay so. Reply: the rows, and the sequence number to go on from."""

    queue: str
    place: int
    messages: int
    max_bytes: int | None = None
    matching: Matching | None = None


@dataclass(frozen=True)
class Settle(Command[None]):
    """The end of messages that a link holds, with an outcome; `error` says why they are rejected."""

    queue: str
    holder: int
    rows: RowSet
    outcome: Outcome = Outcome.ACCEPTED
    error: str | None = None


@dataclass(frozen=True)
class Release(Command[None]):
    """The return of messages that a link holds to their queue."""

    queue: str
    holder: int
    rows: RowSet
    cause: Cause = Cause.RELEASED
    exclude: bool = False  # undeliverable here: do not offer them to this link again
    annotations: bytes | None = None  # an encoded map, to be merged into the messages' annotations


def command_of(ending: Ending, queue: str, holder: int, rows: RowSet) -> Settle | Release:
    """The command that ends the delivery of messages that `holder` has, in this way."""
    if ending.outcome is not None:
        return Settle(queue, holder, rows, ending.outcome, ending.error)
    assert ending.cause is not None
    return Release(queue, holder, rows, ending.cause, ending.exclude, ending.annotations)


@dataclass(frozen=True)
class EnterLease(Command[int | None]):
    """First part of every planner's request: may this planner speak for the lease? See docs/protocols/flight.md."""

    queue: str
    lease: str
    run: str
    epoch: int | None
    fresh: bool = False
    timeout: int | None = None  # microseconds
    keep_timeout: bool = False  # the request says nothing of it, nor of the selector
    selector: str | None = None  # the canonical text
    signs: tuple[tuple[int, str], ...] = ()  # batches that the checkpoint names, with the signs it has of them
    head: tuple[str, int] | None = None  # of a planner with several leases: the one it took up first, and its epoch of that


@dataclass(frozen=True)
class FinishBatches(Command[tuple[int | None, int, int]]):
    """Spark has finished every batch up to `finished`: settle what was read, give back what was not."""

    lease: str
    finished: int
    strict: bool = True  # refuse a number lower than what the lease has finished
    exclude: bool = False
    fail_on_data_loss: bool = True


class LeasedBatch(NamedTuple):
    """Reply of AcquireBatch: the lease's epoch, None where there is no lease yet; the batch that it holds, or the finished one
    where it holds none; this batch's sign, None where the lease remembers none; and how many batches in a row its query has
    finished without reading them."""

    epoch: int | None
    batch: int
    sign: str | None = None
    unread: int = 0
    unevaluated: int | None = None  # as of `Taken`


@dataclass(frozen=True)
class AcquireBatch(Command[LeasedBatch]):
    """The next batch for a lease: at most `messages` and `max_bytes`, before `until`; `timeout` in microseconds."""

    queue: str
    lease: str
    run: str
    finished: int
    messages: int | None = None
    max_bytes: int | None = None
    until: int | None = None
    exclude: bool = False
    timeout: int | None = None
    fail_on_data_loss: bool = True
    selector: str | None = None
    matching: Matching | None = None  # of the selector
    alone: bool = True  # one message larger than `max_bytes` is taken alone; else nothing is


@dataclass(frozen=True)
class MeasureBatch(Command[tuple[int, int]]):
    """The size of a batch that a lease holds. Reply: messages and bytes, 0 and 0 where it holds no such batch."""

    lease: str
    batch: int


@dataclass(frozen=True)
class PlanBatches(Command[tuple[int, list[list[int]]]]):
    """A plan of the batches after `after` up to `batch`. Reply: the lease's epoch, and the parts that tasks read."""

    lease: str
    after: int
    batch: int
    min_partitions: int = 1
    max_messages: int | None = None
    fail_on_data_loss: bool = True


@dataclass(frozen=True)
class ReadBatch(Command[tuple[str, RowSet]]):
    """The read of a part of a batch, sequence numbers `first` to `last`. Reply: the queue and the rows."""

    lease: str
    run: str
    epoch: int
    batch: int
    first: int
    last: int
    fail_on_data_loss: bool = True
    reader: SparkBatch | None = None  # the batch of Spark's that it is read for


@dataclass(frozen=True)
class RenewLease(Command[None]):
    """A sign of life of the planner or task with this epoch: the lease's timeout starts anew."""

    lease: str
    epoch: int


@dataclass(frozen=True)
class ListLeases(Command[list[dict[str, Any]]]):
    """The descriptions of all leases."""


@dataclass(frozen=True)
class ReleaseLease(Command[int]):
    """An operator ends the batch that a lease holds."""

    lease: str
    settle: bool


@dataclass(frozen=True)
class SettleRow(Command[None]):
    """An operator ends one poisonous message of a lease; the running query is fenced and plans again without it."""

    lease: str
    sequence: int
    outcome: str
    error: str | None = None


@dataclass(frozen=True)
class DeleteLease(Command[None]):
    """The deletion of a lease that holds no batch."""

    lease: str


@dataclass(frozen=True)
class Tick(Command[None]):
    """Time has passed."""


@dataclass(frozen=True)
class Recovered(Command[dict[str, int]]):
    """The broker has started: links of the last life have ended, leases count time anew."""

    nonce: str = ""  # drawn for this start; without one batches have no sign


@dataclass(frozen=True)
class PackBlock(Command[None]):
    """The move of a full block without live messages from memory to the journal."""

    queue: str
    number: int


@dataclass(frozen=True)
class Retain(Command[None]):
    """The log position below which nothing is kept any longer."""

    position: int

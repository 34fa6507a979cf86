"""Events are decisions: which rows, which outcome, at what time. They are what the journal holds and `apply` replays.

How they are written stands in `codec`. To change an event: add a field with a default (old journals lack it), or a new kind;
never give a field a new meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.publish_keys import PublishKey
from ..model.stages import attempt_name
from .codec import Event as Event  # the type of all of them
from .codec import know


@dataclass(frozen=True)
class QueueDeclared(Event):
    """A new queue, with the options that differ from their defaults."""

    kind = "queue.declared"
    queue: str
    type: str
    options: dict[str, Any]
    user: str | None = None  # whose link has made it


@dataclass(frozen=True)
class QueueDeleted(Event):
    """The end of a queue with its messages and bindings."""

    kind = "queue.deleted"
    queue: str
    departs: bool | None = None  # True: what is settled and not recorded yet still goes to the archive's table


@dataclass(frozen=True)
class Enqueued(Event):
    """Messages with a payload, at the sequence numbers from `first` on. `time`: microseconds since 1970."""

    kind = "enqueued"
    queue: str
    first: int
    count: int
    sizes: int | Ints
    time: int
    traits: dict[str, Any] | None = None  # see `Traits.journaled`
    kept: Ints | None = None  # which of the payload's rows they are; None: all of them, in order


@dataclass(frozen=True)
class Staged(Event):
    """Messages with a payload that wait, unseen, for a publish. `up`: microseconds of uptime."""

    kind = "staged"
    stage: str
    queue: str
    count: int
    sizes: int | Ints
    up: int
    traits: dict[str, Any] | None = None
    kept: Ints | None = None  # as of Enqueued
    exchange: str | None = None  # they came by this one: a queue that is gone when they are published takes its own along
    time: int | None = None  # None: an old journal's


@dataclass(frozen=True)
class Published(Event):
    """All messages of the stages, in this order, take their places in their queues: all at once or never. Of a write, the stages
    are those of `attempts`, and all others of it go."""

    kind = "published"
    stages: list[str]
    key: PublishKey | None
    time: int
    makes_room: bool | None = None  # they count as staged no more when they take their places; None: an old journal's still do
    write: str | None = None
    attempts: Ints | None = None
    sent: list[list[Any]] | None = None  # leases and numbers of the batches that were read for this
    user: str | None = None  # whose key it is; None: an old journal's

    @property
    def names(self) -> list[str]:
        """The stages, in order."""
        if self.write is None or self.attempts is None:
            return self.stages
        return [attempt_name(self.write, attempt) for attempt in self.attempts.tolist()]


@dataclass(frozen=True)
class Discarded(Event):
    """Stages dropped without a publish."""

    kind = "discarded"
    stages: list[str]
    write: str | None = None  # all stages of this one, which has ended


@dataclass(frozen=True)
class ReadDropped(Event):
    """A batch was read for a write that turned out to be a repetition, and that had not sent it before."""

    kind = "read.dropped"
    lease: str
    batch: int
    series: str  # see `reads.series_of`


@dataclass(frozen=True)
class Acquired(Event):
    """Messages AVAILABLE → ACQUIRED by a link, or by a lease as a new batch."""

    kind = "acquired"
    queue: str
    holder: int
    rows: RowSet
    lease: str | None = None
    batch: int | None = None
    sign: str | None = None  # of the batch; None: an older version's


@dataclass(frozen=True)
class Settled(Event):
    """Messages ACQUIRED → ARCHIVED. With a lease: an operator ended these rows of its batch."""

    kind = "settled"
    queue: str
    holder: int
    rows: RowSet
    outcome: int
    time: int
    error: str | None = None
    lease: str | None = None
    reason: int | None = None  # MALFORMED: nobody could decode them


@dataclass(frozen=True)
class Returned(Event):
    """Messages ACQUIRED → AVAILABLE, at their sequence numbers."""

    kind = "returned"
    queue: str
    holder: int
    rows: RowSet
    cause: int
    lease: str | None = None
    annotations: bytes | None = None  # added to those of the messages


@dataclass(frozen=True)
class HoldersLost(Event):
    """Messages that come back after a restart, since the links that held them are gone."""

    kind = "holders.lost"
    rows: dict[str, RowSet]
    cause: int


@dataclass(frozen=True)
class Purged(Event):
    """Messages AVAILABLE or DELAYED → ARCHIVED: an operator did not want them, or nobody took them at once."""

    kind = "purged"
    queue: str
    rows: RowSet
    time: int
    outcome: int | None = None  # None: PURGED
    error: str | None = None  # why an operator has discarded them


@dataclass(frozen=True)
class Expired(Event):
    """Messages AVAILABLE or DELAYED → ARCHIVED: their time has passed."""

    kind = "expired"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class CameDue(Event):
    """Messages DELAYED → AVAILABLE, at their sequence numbers: their delay is over."""

    kind = "came.due"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class LeaseBegun(Event):
    """A query without a checkpoint begins: a new lease, or an old name under a new run."""

    kind = "lease.begun"
    lease: str
    queue: str
    run: str
    epoch: int
    timeout: int | None
    up: int
    selector: str | None = None


@dataclass(frozen=True)
class LeaseTaken(Event):
    """A lease taken up by a planner: its epoch; `timeout` in microseconds, `up` in microseconds of uptime."""

    kind = "lease.taken"
    lease: str
    epoch: int
    timeout: int | None
    up: int


@dataclass(frozen=True)
class BatchRead(Event):
    """A task is about to read: from here on a sink may hold the batch."""

    kind = "batch.read"
    lease: str
    batch: int
    query: str | None = None  # of Spark, and the number of its batch; None: nobody said
    number: int | None = None


@dataclass(frozen=True)
class BatchEnded(Event):
    """The batch's rows are settled (stage SETTLED) or given back (VOID, LOST)."""

    kind = "batch.ended"
    lease: str
    batch: int
    stage: str
    time: int
    exclude: bool = False
    done: RowSet | None = None  # of those that are settled: not these, whose own outcomes stand beside this event


@dataclass(frozen=True)
class LeaseFinished(Event):
    """The number of the last batch that a lease has finished."""

    kind = "lease.finished"
    lease: str
    finished: int


@dataclass(frozen=True)
class LeaseFenced(Event):
    """An operator changed what the lease holds: whoever planned before must plan again."""

    kind = "lease.fenced"
    lease: str
    epoch: int


@dataclass(frozen=True)
class LeaseDeleted(Event):
    """The end of a lease."""

    kind = "lease.deleted"
    lease: str


@dataclass(frozen=True)
class BlockPacked(Event):
    """A packed block as payload, which leaves memory. Its times are microseconds since 1970."""

    kind = "block.archived"
    queue: str
    number: int
    highest_payload: int
    first_time: int
    last_time: int
    outcomes: list[int]


@dataclass(frozen=True)
class Retained(Event):
    """The log position below which nothing is kept any longer."""

    kind = "retained"
    position: int


# Ephemeral events change derived state only and are never journaled.
@dataclass(frozen=True)
class ClockStarted(Event):
    """A new life of the broker: leases and stages count its uptime from here."""

    kind = "clock.started"
    journaled = False
    up: int
    nonce: str = ""


@dataclass(frozen=True)
class Renewed(Event):
    """A sign of life for a lease; `up` is microseconds of uptime."""

    kind = "renewed"
    journaled = False
    lease: str
    up: int


@dataclass(frozen=True)
class LeftUnread(Event):
    """Batches in a row that were given back unread: the lease gets no other before `until`, microseconds of uptime."""

    kind = "left.unread"
    journaled = False
    lease: str
    times: int
    until: int


@dataclass(frozen=True)
class Subscribed(Event):
    """A new subscription of a link to a queue."""

    kind = "subscribed"
    journaled = False
    queue: str
    holder: int
    priority: int = 0
    exclusive: bool = False
    selector: str | None = None


@dataclass(frozen=True)
class Looked(Event):
    """A subscription went as far as `places`, and has seen the return logs up to `epochs`: one each a level."""

    kind = "looked"
    journaled = False
    queue: str
    holder: int
    places: list[int]
    epochs: list[int]


@dataclass(frozen=True)
class Locked(Event):
    """Time until which messages acquired just now may be held, in milliseconds of uptime."""

    kind = "locked"
    journaled = False
    queue: str
    rows: RowSet
    until: int


@dataclass(frozen=True)
class TimePassed(Event):
    """Times up to which all that was due is done: delays and expiry in milliseconds since 1970, locks in those of uptime."""

    kind = "time.passed"
    journaled = False
    due: int
    expiry: int
    lock: int


@dataclass(frozen=True)
class Excluded(Event):
    """Messages not to be offered to this link again."""

    kind = "excluded"
    journaled = False
    queue: str
    holder: int
    rows: RowSet


@dataclass(frozen=True)
class Unsubscribed(Event):
    """The end of a link's subscription."""

    kind = "unsubscribed"
    journaled = False
    queue: str
    holder: int


@dataclass(frozen=True)
class Together(Event):
    """Several events, decided on one state: all of them happened, or none. None of them has a payload."""

    kind = "together"
    parts: tuple[Event, ...]


know(*(cls for cls in Event.__subclasses__() if cls.journaled))

"""Events of Spark's leases."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from .codec import Event, know


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
class BatchPlanned(Event):
    """Spark plans the tasks of a run's first batch. It has written the batch's offset before.

    `batch` is for people who read the journal.
    """

    kind = "batch.planned"
    lease: str
    batch: int


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
    """The batch's rows are settled (SETTLED) or given back (VOID, LOST)."""

    kind = "batch.ended"
    lease: str
    batch: int
    stage: str  # a `BatchState` that holds no messages
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


know(LeaseBegun, LeaseTaken, BatchPlanned, BatchRead, BatchEnded, LeaseFinished, LeaseFenced, LeaseDeleted)

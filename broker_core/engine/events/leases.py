"""Events of Spark's leases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome, Verb
from ..model.lease import BatchState, Lease
from ..model.reads import Reads, SparkBatch
from ..model.state import BrokerState
from .event import Event
from .lifetimes import UNTIL_EMPTY, UNTIL_UNUSED, with_lifetime
from .transitions import Ending, Failure, archive, give_back


@dataclass(frozen=True)
class LeaseBegun(Event, kind="lease.begun"):
    """A lease of a query without a checkpoint: a new name, or a new run of a known one."""

    lease: str
    queue: str
    run: str
    epoch: int
    timeout: int | None  # microseconds
    up: int
    selector: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        lease = Lease(self.lease, self.queue, self.run, self.epoch, timeout=self.timeout, selector=self.selector)
        lease.renewed = self.up
        if self.lease in state.leases:
            state.forget_reads(state.leases[self.lease])
        state.leases[self.lease] = lease


@dataclass(frozen=True)
class LeaseTaken(Event, kind="lease.taken"):
    """A new epoch ends exclusions and pauses."""

    lease: str
    epoch: int
    timeout: int | None  # microseconds
    up: int

    def apply(self, state: BrokerState, position: int) -> None:
        lease = state.leases[self.lease]
        if self.epoch != lease.epoch:
            lease.excluded, lease.unread, lease.waits_until = RowSet(), 0, 0
        lease.epoch, lease.timeout, lease.renewed = self.epoch, self.timeout, self.up


@dataclass(frozen=True)
class BatchPlanned(Event, kind="batch.planned"):
    """Spark plans tasks of a run for the first time, so its checkpoint names the lease."""

    lease: str
    batch: int  # only for readers of the journal

    def apply(self, state: BrokerState, position: int) -> None:
        state.leases[self.lease].planned = True


@dataclass(frozen=True)
class BatchRead(Event, kind="batch.read"):
    """A task begins to read a batch: a sink may have the messages."""

    lease: str
    batch: int
    query: str | None = None  # of Spark, with the number of its batch and its name; None: unknown
    number: int | None = None
    name: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        lease = state.leases[self.lease]
        lease.note_query(self.query, self.name)
        batch = lease.batches[self.batch]
        batch.state = BatchState.READ
        state.note_read(lease, batch, None if self.query is None else SparkBatch(self.query, self.number or 0))


@dataclass(frozen=True)
class BatchEnded(Event, kind="batch.ended"):
    """The end of a batch."""

    lease: str
    batch: int
    ended_as: str  # value of a `BatchState`
    time: int
    exclude: bool = False
    done: RowSet | None = None  # SETTLED: messages with own outcomes, in other events of the `Together`

    def apply(self, state: BrokerState, position: int) -> None:
        lease = state.leases[self.lease]
        batch = lease.batches[self.batch]
        queue = state.queues[lease.queue]
        ended_as = BatchState(self.ended_as)
        state.forget_reads(lease)
        if ended_as is BatchState.SETTLED:
            rest = batch.rows if self.done is None else batch.rows.minus(self.done)
            archive(state, queue, rest, Verb.SETTLE, Ending(Outcome.ACCEPTED, self.time, taker=lease.taker))
            if self.done is not None and self.exclude:
                lease.excluded = lease.excluded.plus(self.done).packed()
        else:
            cause = Cause.LEASE_UNREAD if ended_as is BatchState.VOID else Cause.LEASE_READ
            give_back(state, queue, batch.rows, cause, Failure(self.time, lease.taker))
        if ended_as is BatchState.VOID:
            queue.unread += batch.rows.count
            if self.exclude:
                lease.excluded = lease.excluded.plus(batch.rows).packed()
        batch.state, batch.rows = ended_as, batch.rows.packed()  # a remembered batch can be read again
        batch.reads = Reads()
        queue.consumers.end_batch(batch.holder)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        queue = state.queues[state.leases[self.lease].queue]
        frees = queue.consumers.active is not None or queue.groups is not None
        return (queue.name,) if self.ended_as != BatchState.SETTLED.value or frees else ()

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return with_lifetime(state, state.leases[self.lease].queue, UNTIL_EMPTY)


@dataclass(frozen=True)
class LeaseFinished(Event, kind="lease.finished"):
    """The number of the last finished batch."""

    lease: str
    finished: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.leases[self.lease].finished = self.finished


@dataclass(frozen=True)
class LeaseFenced(Event, kind="lease.fenced"):
    """An operator changed the held messages: earlier planners must plan again."""

    lease: str
    epoch: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.leases[self.lease].epoch = self.epoch


@dataclass(frozen=True)
class LeaseDeleted(Event, kind="lease.deleted"):
    """The end of a lease."""

    lease: str

    def apply(self, state: BrokerState, position: int) -> None:
        state.delete_lease(self.lease)

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return with_lifetime(state, state.leases[self.lease].queue, UNTIL_UNUSED)


@dataclass(frozen=True)
class Renewed(Event, kind="renewed", journaled=False):
    """A sign of life for a lease."""

    lease: str
    up: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.leases[self.lease].renewed = self.up


@dataclass(frozen=True)
class LeftUnread(Event, kind="left.unread", journaled=False):
    """The number of consecutive batches that returned unread, and the end of the pause."""

    lease: str
    times: int
    until: int  # microseconds of uptime

    def apply(self, state: BrokerState, position: int) -> None:
        lease = state.leases[self.lease]
        lease.unread, lease.waits_until = self.times, self.until

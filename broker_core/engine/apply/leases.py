"""State changes by the events of leases."""

from __future__ import annotations

from .. import events as e
from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome, Verb
from ..model import consumers
from ..model.lease import BatchState, Lease
from ..model.reads import Reads, SparkBatch
from ..model.state import BrokerState
from .transitions import archive, give_back


def lease_begun(state: BrokerState, event: e.LeaseBegun, position: int) -> None:
    """Add a lease, or replace the one of an earlier run."""
    lease = Lease(event.lease, event.queue, event.run, event.epoch, timeout=event.timeout, selector=event.selector)
    lease.renewed = event.up
    if event.lease in state.leases:
        state.forget_reads(state.leases[event.lease])
    state.leases[event.lease] = lease


def lease_taken(state: BrokerState, event: e.LeaseTaken, position: int) -> None:
    """Set a lease's epoch, timeout and renewal time; a new epoch forgets exclusions and pauses."""
    lease = state.leases[event.lease]
    if event.epoch != lease.epoch:
        lease.excluded, lease.unread, lease.waits_until = RowSet(), 0, 0
    lease.epoch, lease.timeout, lease.renewed = event.epoch, event.timeout, event.up


def batch_planned(state: BrokerState, event: e.BatchPlanned, position: int) -> None:
    """Note that a checkpoint names the lease."""
    state.leases[event.lease].planned = True


def batch_read(state: BrokerState, event: e.BatchRead, position: int) -> None:
    """Mark a batch as read, and note its reader."""
    lease = state.leases[event.lease]
    batch = lease.batches[event.batch]
    batch.state = BatchState.READ
    state.note_read(lease, batch, None if event.query is None else SparkBatch(event.query, event.number or 0))


def batch_ended(state: BrokerState, event: e.BatchEnded, position: int) -> None:
    """Archive the rest of a batch as accepted, or give its rows back."""
    lease = state.leases[event.lease]
    batch = lease.batches[event.batch]
    queue = state.queues[lease.queue]
    ended_as = BatchState(event.stage)
    state.forget_reads(lease)
    if ended_as is BatchState.SETTLED:
        rest = batch.rows if event.done is None else batch.rows.minus(event.done)
        archive(state, queue, rest, Verb.SETTLE, Outcome.ACCEPTED, event.time, taker=lease.name)
        if event.done is not None and event.exclude:
            lease.excluded = lease.excluded.plus(event.done).packed()
    else:
        give_back(state, queue, batch.rows, Cause.LEASE_UNREAD if ended_as is BatchState.VOID else Cause.LEASE_READ)
    if ended_as is BatchState.VOID:
        queue.unread += batch.rows.count
        if event.exclude:
            lease.excluded = lease.excluded.plus(batch.rows).packed()
    batch.state, batch.rows = ended_as, batch.rows.packed()  # for as long as it can still be read again
    batch.reads = Reads()
    consumers.ended(queue, batch.holder)


def lease_finished(state: BrokerState, event: e.LeaseFinished, position: int) -> None:
    """Set the last batch that a lease has finished."""
    state.leases[event.lease].finished = event.finished


def lease_fenced(state: BrokerState, event: e.LeaseFenced, position: int) -> None:
    """Set a lease's epoch, so that earlier planners are refused."""
    state.leases[event.lease].epoch = event.epoch


def lease_deleted(state: BrokerState, event: e.LeaseDeleted, position: int) -> None:
    """Remove a lease."""
    state.delete_lease(event.lease)


def renewed(state: BrokerState, event: e.Renewed, position: int) -> None:
    """Set a lease's renewal time."""
    state.leases[event.lease].renewed = event.up


def left_unread(state: BrokerState, event: e.LeftUnread, position: int) -> None:
    """Set how many batches in a row a lease has left unread, and until when it waits."""
    lease = state.leases[event.lease]
    lease.unread, lease.waits_until = event.times, event.until

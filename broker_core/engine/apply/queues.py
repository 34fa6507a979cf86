"""State changes by the events of queues, links, leases and stages."""

from __future__ import annotations

from ..columns.attributes import Traits
from ..columns.limits import MAX_EXCLUDED
from ..columns.rowset import RowSet
from ..columns.runs import Run
from ..columns.states import Cause, Outcome, Reason, Verb
from ..events import queues as e
from ..model import consumers
from ..model.lease import Batch, Lease, Stage
from ..model.queue import PackedBlock
from ..model.reads import Reads, SparkBatch, series_of
from ..model.state import DISCARDED, NEXT_HOLDER, BrokerState, StagedPart
from ..model.transaction import is_transactional
from .transitions import acquire, archive, give_back, let_go, place, runs_of, take_out


def queue_declared(state: BrokerState, event: e.QueueDeclared, position: int) -> None:
    """Add a queue."""
    state.add_queue(event.queue, event.type, event.options, event.user)


def queue_deleted(state: BrokerState, event: e.QueueDeleted, position: int) -> None:
    """Remove a queue with its messages."""
    state.delete_queue(event.queue, departs=event.departs)


def enqueued(state: BrokerState, event: e.Enqueued, position: int) -> None:
    """Append messages to a queue."""
    runs = [Run(event.count, position, 0)] if event.kept is None else runs_of(event.kept, position)
    place(state, state.queues[event.queue], event.sizes, runs, event.time, Traits.of_journal(event.traits))


def staged(state: BrokerState, event: e.Staged, position: int) -> None:
    """Add messages to a stage, and count them for their queue."""
    stage = state.begin_stage(event.stage, _time_of(state, event.time))
    traits = Traits.of_journal(event.traits)
    part = StagedPart(event.queue, position, event.count, event.sizes, traits, event.kept, event.exchange)
    stage.parts.append(part)
    state.count_staged(part, 1)


def _time_of(state: BrokerState, time: int | None) -> int:
    """Return an event's time, or the state's time for an event of an old journal that has none."""
    return state.time if time is None else time


def published(state: BrokerState, event: e.Published, position: int) -> None:
    """Append staged messages to their queues, pass staged outcomes to their batches, end the stages, note the key."""
    names = event.names
    stages = [state.stages[name] for name in names]
    gone = names if event.write is None else state.stages_of(event.write)
    if event.makes_room:
        state.end_stages(gone)
    for stage in stages:
        for part in stage.parts:
            if part.exchange is not None and part.queue not in state.queues:
                continue
            runs = [Run(part.count, part.position, 0)] if part.kept is None else runs_of(part.kept, part.position)
            place(state, state.queues[part.queue], part.sizes, runs, event.time, part.traits)
        for waiting in stage.outcomes:
            batch = state.leases[waiting.lease].batches[waiting.batch]
            if batch.stage is Stage.READ:  # else it is done, and this a repetition
                batch.outcomes.say(waiting.said)
    if not event.makes_room:
        state.end_stages(gone)
    write = event.write if event.write is not None else next(iter(names), None)
    if write is not None and not is_transactional(write):
        state.end_write(write, sum(part.count for stage in stages for part in stage.parts))
    if event.key is not None:
        state.publish_keys.note(event.key, event.time, event.user or "")
        for name, number in event.sent or ():
            state.leases[name].batches[number].reads.note_sent(series_of(event.key.kind, event.key.id))


def discarded(state: BrokerState, event: e.Discarded, position: int) -> None:
    """Remove stages, and remember a discarded write."""
    state.end_stages(event.stages)
    if event.write is not None:
        state.end_stages(state.stages_of(event.write))
        state.end_write(event.write, DISCARDED)


def read_dropped(state: BrokerState, event: e.ReadDropped, position: int) -> None:
    """Note that a batch's read for a repeated write has no effect."""
    state.leases[event.lease].batches[event.batch].reads.note_dropped(event.series)


def acquired(state: BrokerState, event: e.Acquired, position: int) -> None:
    """Make rows ACQUIRED by a link, or by a lease as its new batch."""
    queue = state.queues[event.queue]
    acquire(queue, event.rows, event.holder, None if event.lease is None else state.leases[event.lease])
    if event.lease is not None and event.batch is not None:
        consumers.began(queue, event.holder)
        state.next_holder = event.holder + NEXT_HOLDER
        state.leases[event.lease].remember(Batch(event.batch, event.holder, event.rows, sign=event.sign))


def settled(state: BrokerState, event: e.Settled, position: int) -> None:
    """Archive rows with their outcome, and take them from their holder."""
    queue = state.queues[event.queue]
    archive(state, queue, event.rows, Verb.SETTLE, event.outcome, event.time, event.error)
    queue.malformed += event.rows.count * (event.reason == Reason.MALFORMED)
    let_go(state, queue, event.holder, event.rows)
    take_out(state, event.lease, event.rows)


def returned(state: BrokerState, event: e.Returned, position: int) -> None:
    """Make rows AVAILABLE again, with added annotations, and take them from their holder."""
    queue = state.queues[event.queue]
    give_back(state, queue, event.rows, event.cause)
    if event.annotations:
        for number, part in event.rows.items():
            queue.overlay_bytes += queue.blocks[number].overlays.add(part, event.annotations)
    late = event.cause == Cause.LOCK_TIMED_OUT
    queue.unlocked += event.rows.count * late
    let_go(state, queue, event.holder, event.rows, lost=late)
    take_out(state, event.lease, event.rows)


def holders_lost(state: BrokerState, event: e.HoldersLost, position: int) -> None:
    """Make rows AVAILABLE again that links held before a restart."""
    for name, rows in event.rows.items():
        give_back(state, state.queues[name], rows, event.cause)


def purged(state: BrokerState, event: e.Purged, position: int) -> None:
    """Archive rows as purged, or as not delivered."""
    queue, verb = state.queues[event.queue], Verb.WITHDRAW if event.outcome == Outcome.NOT_DELIVERED else Verb.PURGE
    archive(state, queue, queue.allowed(event.rows, verb), verb, event.outcome or Outcome.PURGED, event.time, event.error)


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


def batch_read(state: BrokerState, event: e.BatchRead, position: int) -> None:
    """Mark a batch as read, and note its reader."""
    lease = state.leases[event.lease]
    batch = lease.batches[event.batch]
    batch.stage = Stage.READ
    state.note_read(lease, batch, None if event.query is None else SparkBatch(event.query, event.number or 0))


def batch_ended(state: BrokerState, event: e.BatchEnded, position: int) -> None:
    """Archive the rest of a batch as accepted, or give its rows back."""
    lease = state.leases[event.lease]
    batch = lease.batches[event.batch]
    queue = state.queues[lease.queue]
    stage = Stage(event.stage)
    state.forget_reads(lease)
    if stage is Stage.SETTLED:
        rest = batch.rows if event.done is None else batch.rows.minus(event.done)
        archive(state, queue, rest, Verb.SETTLE, Outcome.ACCEPTED, event.time)
        if event.done is not None and event.exclude:
            lease.excluded = lease.excluded.plus(event.done).packed()
    else:
        give_back(state, queue, batch.rows, Cause.LEASE_UNREAD if stage is Stage.VOID else Cause.LEASE_READ)
    if stage is Stage.VOID:
        queue.unread += batch.rows.count
        if event.exclude:
            lease.excluded = lease.excluded.plus(batch.rows).packed()
    batch.stage, batch.rows = stage, batch.rows.packed()  # for as long as it can still be read again
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
    state.forget_reads(state.leases[event.lease])
    del state.leases[event.lease]


def block_packed(state: BrokerState, event: e.BlockPacked, position: int) -> None:
    """Replace a block in memory by the log position of its packed columns."""
    queue = state.queues[event.queue]
    block = queue.blocks[event.number]
    entry = queue.packed[event.number] = PackedBlock(
        event.number, position, event.highest_payload, event.first_time, event.last_time, event.outcomes
    )
    if block.unrecorded:
        rows = block.unrecorded_rows()
        entry.unrecorded = RowSet.of([(block.number, rows)]).packed()
        entry.unrecorded_bytes = block.sizes.total(rows, len(rows))
        entry.lowest_payload = block.lowest_unrecorded_position() or 0
    queue.drop(block)
    state.finished.remove(event.queue, event.number)


def retained(state: BrokerState, event: e.Retained, position: int) -> None:
    """Set the lowest kept log position, and drop packed blocks whose payloads all lie below it."""
    state.retained_from = event.position
    state.finished.retained(event.position)
    for queue in state.by_id.values():
        for entry in [entry for entry in queue.packed.values() if entry.highest_payload < event.position]:
            queue.passes.lost(entry)
            del queue.packed[entry.number]


def clock_started(state: BrokerState, event: e.ClockStarted, position: int) -> None:
    """Count the uptime of leases and groups anew after a start."""
    state.started, state.nonce = event.up, event.nonce
    for queue in state.queues.values():
        if queue.grouping is not None:
            queue.grouping.restarted()
    for lease in state.leases.values():
        lease.renewed = event.up


def renewed(state: BrokerState, event: e.Renewed, position: int) -> None:
    """Set a lease's renewal time."""
    state.leases[event.lease].renewed = event.up


def left_unread(state: BrokerState, event: e.LeftUnread, position: int) -> None:
    """Set how many batches in a row a lease has left unread, and until when it waits."""
    lease = state.leases[event.lease]
    lease.unread, lease.waits_until = event.times, event.until


def subscribed(state: BrokerState, event: e.Subscribed, position: int) -> None:
    """Add a subscription to a queue."""
    queue = state.queues[event.queue]
    queue.subscriptions[event.holder] = queue.subscription(event.holder, event.priority, event.selector)
    consumers.joined(queue, event.holder, event.exclusive)
    state.next_link = event.holder + NEXT_HOLDER


def looked(state: BrokerState, event: e.Looked, position: int) -> None:
    """Set how far a subscription has searched at each level."""
    subscription = state.queues[event.queue].subscriptions[event.holder]
    subscription.places, subscription.epochs = event.places, event.epochs


def excluded(state: BrokerState, event: e.Excluded, position: int) -> None:
    """Exclude messages from a subscription; archived ones are dropped when there are too many."""
    queue = state.queues[event.queue]
    excluded = queue.subscriptions[event.holder].excluded
    excluded.add(event.rows)
    if excluded.count > MAX_EXCLUDED:
        excluded.forget(queue.blocks)


def unsubscribed(state: BrokerState, event: e.Unsubscribed, position: int) -> None:
    """Remove a subscription from a queue."""
    queue = state.queues[event.queue]
    held = sum(queue.subscriptions[event.holder].held.values())
    queue.unsubscribe(event.holder)
    consumers.left(queue, event.holder, held)

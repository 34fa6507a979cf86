"""`apply(state, event, position)`: the only code that changes the broker's state, live and at recovery.

It trusts its event: everything was decided, checked and journaled before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.broker_core.engine.columns.attributes import NO_TRAITS, Traits
from penstock.broker_core.engine.columns.limits import MAX_ERROR_TEXT, MAX_EXCLUDED
from penstock.broker_core.engine.columns.rowset import RowSet, row_count
from penstock.broker_core.engine.columns.runs import Run
from penstock.broker_core.engine.columns.series import Ints
from penstock.broker_core.engine.columns.states import LIMITED_BY_RULE, Cause, Outcome, Reason, Verb
from penstock.broker_core.engine.events import queues as e
from penstock.broker_core.engine.model import consumers
from penstock.broker_core.engine.model.admission import fresh
from penstock.broker_core.engine.model.last_values import stale, superseded, surplus
from penstock.broker_core.engine.model.lease import Batch, Lease, Stage
from penstock.broker_core.engine.model.queue import ArchivedBlock, Queue
from penstock.broker_core.engine.model.reads import Reads, SparkBatch, series_of
from penstock.broker_core.engine.model.state import DISCARDED, NEXT_HOLDER, BrokerState, StagedPart
from penstock.broker_core.engine.model.transaction import is_transactional

_E = TypeVar("_E", bound=e.Event)
_Applier = Callable[[BrokerState, Any, int], None]
_APPLIERS: dict[type[e.Event], _Applier] = {}


def on_event(kind: type[_E]) -> Callable[[Callable[[BrokerState, _E, int], None]], Callable[[BrokerState, _E, int], None]]:
    """Register the function that applies one kind of event."""

    def register(function: Callable[[BrokerState, _E, int], None]) -> Callable[[BrokerState, _E, int], None]:
        _APPLIERS[kind] = function
        return function

    return register


def apply(state: BrokerState, event: e.Event, position: int) -> None:
    """Change `state` as `event` says. `position` is the event's place in the log, where its payload can be found."""
    if event.time is not None and event.time > state.time:
        state.time = event.time
    _APPLIERS[type(event)](state, event, position)


# Rows change state by `Queue.move`: in these three functions, and where a delay ends or a dead letter is redriven.
def _acquire(queue: Queue, rows: RowSet, holder: int, lease: Lease | None) -> None:
    subscription = queue.subscriptions.get(holder)
    taker = subscription or lease
    chose = taker is not None and bool(taker.selector is not None or taker.excluded)
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.ACQUIRE)
        queue.acquired(block, part, holder, chose=chose)
        block.lock.set(part, 0, len(block.state))
        if subscription is not None:
            subscription.held[number] = subscription.held.get(number, 0) + row_count(part)


def archive(
    state: BrokerState, queue: Queue, rows: RowSet, verb: Verb, outcome: int, time: int, error: str | None = None
) -> None:
    """Put rows into the archive by one of the verbs that lead there, and note their outcome."""
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, verb)
        block.archive(part, outcome, time)
        if error:
            for row in range(part.start, part.stop) if isinstance(part, slice) else part.tolist():
                block.errors[row] = error[:MAX_ERROR_TEXT]
        state.note_finished(queue, block)
    queue.ended[outcome] += rows.count


def _give_back(state: BrokerState, queue: Queue, rows: RowSet, cause: int) -> None:
    if not rows:
        return
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.RETURN)
        block.returned.set(part, 1, len(block.state))
        if queue.counts_attempt(Cause(cause)):
            block.attempts.increment(part, len(block.state))
            if cause in LIMITED_BY_RULE:
                block.defaulted.increment(part, len(block.state))
        if block.expiry.values is not None:  # its time may have come, or come nearer than that of the others
            block.look_ahead()
            queue.note_times(block)
    queue.came_back(rows)
    if queue.rules.key:
        archive(state, queue, stale(queue, rows), Verb.REPLACE, Outcome.REPLACED, state.time)


def place(
    state: BrokerState, queue: Queue, sizes: int | Ints, runs: Sequence[Run], time: int, traits: Traits = NO_TRAITS
) -> None:
    """Messages take the next places of a queue, but for those that came before."""
    first = queue.next_sequence
    if traits.ids is not None and queue.rules.duplicate_window:
        rows = np.flatnonzero(fresh(queue, traits.ids, time // 1000))
        if len(rows) < len(traits.ids):
            sizes, runs, traits = sizes if isinstance(sizes, int) else sizes[rows], _only(runs, rows), traits.take(rows)
        assert traits.ids is not None
        queue.remembered.remember(traits.ids, time // 1000, queue.rules.duplicate_window)
    queue.append(sizes, runs, time, traits)
    settle_in(state, queue, first, time)


def settle_in(state: BrokerState, queue: Queue, first: int, time: int) -> None:
    """What follows from the messages that have places from `first` on."""
    if queue.rules.key:
        older = queue.allowed(superseded(queue, first), Verb.REPLACE)
        archive(state, queue, older, Verb.REPLACE, Outcome.REPLACED, time)
    if queue.rules.overflow == "ring":
        archive(state, queue, surplus(queue), Verb.DROP, Outcome.DROPPED, time)


def _only(runs: Sequence[Run], rows: Ints) -> list[Run]:
    """Some of the messages of runs: `rows` are their indices, ascending."""
    found: list[Run] = []
    start = 0
    for run in runs:
        mine = rows[(rows >= start) & (rows < start + run.rows)]
        if len(mine):
            found += runs_of(mine - start + run.skip, run.position)
        start += run.rows
    return found


def let_go(state: BrokerState, queue: Queue, holder: int, rows: RowSet, *, lost: bool = False) -> None:
    """A link holds fewer rows; `lost`: they were taken from it."""
    state.transactions.take_back(holder, rows, lost=lost)
    subscription = queue.subscriptions.get(holder)
    if subscription is None:
        consumers.let_go(queue, holder, rows.count)
        return
    for number, part in rows.items():
        subscription.held[number] -= row_count(part)
        if not subscription.held[number]:
            del subscription.held[number]


@on_event(e.QueueDeclared)
def queue_declared(state: BrokerState, event: e.QueueDeclared, position: int) -> None:
    state.add_queue(event.queue, event.type, event.options, event.user)


@on_event(e.QueueDeleted)
def queue_deleted(state: BrokerState, event: e.QueueDeleted, position: int) -> None:
    state.delete_queue(event.queue)


@on_event(e.Enqueued)
def enqueued(state: BrokerState, event: e.Enqueued, position: int) -> None:
    runs = [Run(event.count, position, 0)] if event.kept is None else runs_of(event.kept, position)
    place(state, state.queues[event.queue], event.sizes, runs, event.time, Traits.of_journal(event.traits))


def runs_of(kept: Ints, position: int) -> list[Run]:
    """Rows of one payload, in ascending order, as runs of neighbours."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kept) != 1) + 1])
    lengths = np.diff(np.append(starts, len(kept)))
    return [Run(rows, position, skip) for rows, skip in zip(lengths.tolist(), kept[starts].tolist(), strict=True)]


@on_event(e.Staged)
def staged(state: BrokerState, event: e.Staged, position: int) -> None:
    stage = state.begin_stage(event.stage, _time_of(state, event.time))
    traits = Traits.of_journal(event.traits)
    part = StagedPart(event.queue, position, event.count, event.sizes, traits, event.kept, event.exchange)
    stage.parts.append(part)
    state.count_staged(part, 1)


def _time_of(state: BrokerState, time: int | None) -> int:
    """Of an event that in an old journal has none: it came after those before it."""
    return state.time if time is None else time


@on_event(e.Published)
def published(state: BrokerState, event: e.Published, position: int) -> None:
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


@on_event(e.Discarded)
def discarded(state: BrokerState, event: e.Discarded, position: int) -> None:
    state.end_stages(event.stages)
    if event.write is not None:
        state.end_stages(state.stages_of(event.write))
        state.end_write(event.write, DISCARDED)


@on_event(e.ReadDropped)
def read_dropped(state: BrokerState, event: e.ReadDropped, position: int) -> None:
    state.leases[event.lease].batches[event.batch].reads.note_dropped(event.series)


@on_event(e.Together)
def together(state: BrokerState, event: e.Together, position: int) -> None:
    for part in event.parts:
        apply(state, part, position)


@on_event(e.Acquired)
def acquired(state: BrokerState, event: e.Acquired, position: int) -> None:
    queue = state.queues[event.queue]
    _acquire(queue, event.rows, event.holder, None if event.lease is None else state.leases[event.lease])
    if event.lease is not None and event.batch is not None:
        consumers.began(queue, event.holder)
        state.next_holder = event.holder + NEXT_HOLDER
        state.leases[event.lease].remember(Batch(event.batch, event.holder, event.rows, sign=event.sign))


@on_event(e.Settled)
def settled(state: BrokerState, event: e.Settled, position: int) -> None:
    queue = state.queues[event.queue]
    archive(state, queue, event.rows, Verb.SETTLE, event.outcome, event.time, event.error)
    queue.malformed += event.rows.count * (event.reason == Reason.MALFORMED)
    let_go(state, queue, event.holder, event.rows)
    take_out(state, event.lease, event.rows)


@on_event(e.Returned)
def returned(state: BrokerState, event: e.Returned, position: int) -> None:
    queue = state.queues[event.queue]
    _give_back(state, queue, event.rows, event.cause)
    if event.annotations:
        for number, part in event.rows.items():
            queue.overlay_bytes += queue.blocks[number].overlays.add(part, event.annotations)
    late = event.cause == Cause.LOCK_TIMED_OUT
    queue.unlocked += event.rows.count * late
    let_go(state, queue, event.holder, event.rows, lost=late)
    take_out(state, event.lease, event.rows)


def take_out(state: BrokerState, lease: str | None, rows: RowSet) -> None:
    """An operator ended single rows of a lease's batch."""
    if lease is not None:
        batch = state.leases[lease].current
        assert batch is not None
        batch.rows = batch.rows.minus(rows)


@on_event(e.HoldersLost)
def holders_lost(state: BrokerState, event: e.HoldersLost, position: int) -> None:
    for name, rows in event.rows.items():
        _give_back(state, state.queues[name], rows, event.cause)


@on_event(e.Purged)
def purged(state: BrokerState, event: e.Purged, position: int) -> None:
    queue, verb = state.queues[event.queue], Verb.WITHDRAW if event.outcome == Outcome.NOT_DELIVERED else Verb.PURGE
    archive(state, queue, queue.allowed(event.rows, verb), verb, event.outcome or Outcome.PURGED, event.time, event.error)


@on_event(e.LeaseBegun)
def lease_begun(state: BrokerState, event: e.LeaseBegun, position: int) -> None:
    lease = Lease(event.lease, event.queue, event.run, event.epoch, timeout=event.timeout, selector=event.selector)
    lease.renewed = event.up
    if event.lease in state.leases:
        state.forget_reads(state.leases[event.lease])
    state.leases[event.lease] = lease


@on_event(e.LeaseTaken)
def lease_taken(state: BrokerState, event: e.LeaseTaken, position: int) -> None:
    lease = state.leases[event.lease]
    if event.epoch != lease.epoch:
        lease.excluded, lease.unread, lease.waits_until = RowSet(), 0, 0
    lease.epoch, lease.timeout, lease.renewed = event.epoch, event.timeout, event.up


@on_event(e.BatchRead)
def batch_read(state: BrokerState, event: e.BatchRead, position: int) -> None:
    lease = state.leases[event.lease]
    batch = lease.batches[event.batch]
    batch.stage = Stage.READ
    state.note_read(lease, batch, None if event.query is None else SparkBatch(event.query, event.number or 0))


@on_event(e.BatchEnded)
def batch_ended(state: BrokerState, event: e.BatchEnded, position: int) -> None:
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
        _give_back(state, queue, batch.rows, Cause.LEASE_UNREAD if stage is Stage.VOID else Cause.LEASE_READ)
    if stage is Stage.VOID:
        queue.unread += batch.rows.count
        if event.exclude:
            lease.excluded = lease.excluded.plus(batch.rows).packed()
    batch.stage, batch.rows = stage, batch.rows.packed()  # for as long as it can still be read again
    batch.reads = Reads()
    consumers.ended(queue, batch.holder)


@on_event(e.LeaseFinished)
def lease_finished(state: BrokerState, event: e.LeaseFinished, position: int) -> None:
    state.leases[event.lease].finished = event.finished


@on_event(e.LeaseFenced)
def lease_fenced(state: BrokerState, event: e.LeaseFenced, position: int) -> None:
    state.leases[event.lease].epoch = event.epoch


@on_event(e.LeaseDeleted)
def lease_deleted(state: BrokerState, event: e.LeaseDeleted, position: int) -> None:
    state.forget_reads(state.leases[event.lease])
    del state.leases[event.lease]


@on_event(e.BlockArchived)
def block_archived(state: BrokerState, event: e.BlockArchived, position: int) -> None:
    queue = state.queues[event.queue]
    queue.archive[event.number] = ArchivedBlock(
        event.number, position, event.highest_payload, event.first_time, event.last_time, event.outcomes
    )
    queue.drop(queue.blocks[event.number])
    state.finished.remove(event.queue, event.number)


@on_event(e.Retained)
def retained(state: BrokerState, event: e.Retained, position: int) -> None:
    state.retained_from = event.position
    state.finished.retained(event.position)
    for queue in state.queues.values():
        queue.archive = {n: a for n, a in queue.archive.items() if a.highest_payload >= event.position}


@on_event(e.ClockStarted)
def clock_started(state: BrokerState, event: e.ClockStarted, position: int) -> None:
    state.started, state.nonce = event.up, event.nonce
    for queue in state.queues.values():
        if queue.grouping is not None:
            queue.grouping.restarted()
    for lease in state.leases.values():
        lease.renewed = event.up


@on_event(e.Renewed)
def renewed(state: BrokerState, event: e.Renewed, position: int) -> None:
    state.leases[event.lease].renewed = event.up


@on_event(e.LeftUnread)
def left_unread(state: BrokerState, event: e.LeftUnread, position: int) -> None:
    lease = state.leases[event.lease]
    lease.unread, lease.waits_until = event.times, event.until


@on_event(e.Subscribed)
def subscribed(state: BrokerState, event: e.Subscribed, position: int) -> None:
    queue = state.queues[event.queue]
    queue.subscriptions[event.holder] = queue.subscription(event.holder, event.priority, event.selector)
    consumers.joined(queue, event.holder, event.exclusive)
    state.next_link = event.holder + NEXT_HOLDER


@on_event(e.Looked)
def looked(state: BrokerState, event: e.Looked, position: int) -> None:
    subscription = state.queues[event.queue].subscriptions[event.holder]
    subscription.places, subscription.epochs = event.places, event.epochs


@on_event(e.Excluded)
def excluded(state: BrokerState, event: e.Excluded, position: int) -> None:
    queue = state.queues[event.queue]
    excluded = queue.subscriptions[event.holder].excluded
    excluded.add(event.rows)
    if excluded.count > MAX_EXCLUDED:
        excluded.forget(queue.blocks)


@on_event(e.Unsubscribed)
def unsubscribed(state: BrokerState, event: e.Unsubscribed, position: int) -> None:
    queue = state.queues[event.queue]
    held = sum(queue.subscriptions[event.holder].held.values())
    queue.unsubscribe(event.holder)
    consumers.left(queue, event.holder, held)

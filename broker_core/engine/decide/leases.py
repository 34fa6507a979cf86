"""Decisions about leases, as docs/protocols/flight.md describes them."""

from __future__ import annotations

from typing import Any

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import (
    ALIVE,
    LISTED_GROUPS,
    MAX_ACQUIRE,
    MAX_LEASES,
    MAX_PARTS,
    SECOND,
    UNREAD_FREE,
    UNREAD_PAUSE,
    UNREAD_PAUSE_MOST,
    UNREAD_TIMEOUT,
)
from ..columns.rowset import RowSet
from ..columns.states import Cause
from ..model.batch_outcomes import DISPOSITIONS
from ..model.capacity import bytes_of
from ..model.groups import FreeGroup
from ..model.lease import HOLDING, Batch, BatchState, Lease, signed
from ..model.names import check_name, shortened, taker_name
from ..model.queue import Queue
from ..model.search import Filter, Search, Unexpired, Without, find_all, in_turn
from ..model.state import BrokerState
from . import dead_letters
from .decision import Basis, Decision, Holding, decides, need_lease, need_queue
from .lifetimes import check_owner
from .outcomes import settle_batch


def check_epoch(lease: Lease, epoch: int) -> None:
    if epoch != lease.epoch:
        raise errors.Fenced(
            f"lease {lease.name!r} was taken up by another reader (epoch {lease.epoch}, this one has {epoch}), or an operator "
            "ended messages that it holds: then start the query again. Another reader is a newer run of the query, a second "
            "driver on the same checkpoint, or the other side of a self-join. Two load() calls need two leases: give each its "
            "own option `lease`, look with mode=browse, or fan out inside foreachBatch"
        )


def check_run(lease: Lease, run: str | None) -> None:
    if run is not None and lease.run != run:
        raise errors.Fenced(f"lease {lease.name!r} was begun again by another query since this task was planned")


def _data_loss(lease: Lease, number: int, why: str) -> errors.DataLoss:
    return errors.DataLoss(
        f"batch {number} of lease {lease.name!r} {why}. The query cannot continue exactly once. With failOnDataLoss=false the "
        "batch reads as empty, the query continues, and delivery is at least once"
    )


_GIVEN_BACK = (
    "was given back after a task had read it (leaseTimeout, or `penstock lease release --return`), so its messages may be "
    "delivered again"
)


def _end(lease: Lease, batch: Batch, ended_as: BatchState, now: c.Now, *, exclude: bool = False) -> e.BatchEnded:
    return e.BatchEnded(lease.name, batch.number, ended_as.value, now.wall, exclude)


@decides(c.EnterLease)
def enter_lease(state: BrokerState, command: c.EnterLease, now: c.Now) -> Decision[int | None]:
    check_name("lease", command.lease)
    check_name("run", command.run)
    need_queue(state, command.queue)
    check_owner(state, command.queue, None)
    lease = state.leases.get(command.lease)
    if lease is None:
        _check_head(state, command)
        if command.fresh and command.epoch is None:
            return Decision([], None)  # the first acquisition makes the lease, so an idle query leaves nothing behind
        raise errors.WrongOffset(
            f"queue {command.queue!r} has no lease {command.lease!r}, which the query's checkpoint names: the queue was deleted "
            "and declared again, or an operator deleted the lease, or this is another data directory, or a restored one. Start "
            "the query with a new checkpoint: it reads the messages that wait in the queue now"
        )
    if lease.queue != command.queue:
        raise errors.WrongOffset(
            f"lease {lease.name!r} belongs to queue {lease.queue!r}, not {command.queue!r}: put the option `queue` (or "
            "`lease`) back as it was, or start with a new checkpoint and another `lease`"
        )
    if command.epoch is not None:
        check_epoch(lease, command.epoch)
    _check_head(state, command)
    if lease.run != command.run:
        if not command.fresh:
            raise errors.WrongOffset(
                f"the checkpoint belongs to an earlier run of lease {lease.name!r}: a query without a checkpoint has begun it "
                "again since. Start with a new checkpoint"
            )
        return _begin_again(lease, command, now)
    _check_signs(lease, command.signs)
    if not command.keep_timeout and lease.selector != command.selector:
        raise errors.WrongOffset(
            f"lease {lease.name!r} began with the selector {lease.selector or 'none'!r}, not {command.selector or 'none'!r}: put "
            "`selector` back as it was, or start with a new checkpoint"
        )
    timeout = lease.timeout if command.keep_timeout else command.timeout
    if command.epoch is not None and timeout == lease.timeout:
        return Decision([], lease.epoch)
    epoch = lease.epoch + 1 if command.epoch is None else lease.epoch
    return Decision([(e.LeaseTaken(lease.name, epoch, timeout, now.up), None)], epoch)


def _check_head(state: BrokerState, command: c.EnterLease) -> None:
    """A query takes up all its leases together, also missing ones: the first one decides."""
    if command.head is None:
        return
    name, epoch = command.head
    head = state.leases.get(name)
    if head is None:
        raise errors.Fenced(
            f"lease {name!r}, which this query over several queues took up first, was deleted by an operator, or with its queue: "
            "start the query again, which then names the queue"
        )
    if head.run != command.run or head.epoch != epoch:
        raise errors.Fenced(
            f"lease {name!r}, which this query over several queues took up first, is another reader's now, or an operator ended "
            "it, or messages that it holds: then start the query again. Another reader is a newer run of the query, or a second "
            "driver on the same checkpoint"
        )


def _check_signs(lease: Lease, signs: tuple[tuple[int, str], ...]) -> None:
    for number, sign in signs:
        if number in lease.batches and lease.sign_of(number) != sign:
            raise errors.WrongOffset(
                f"the checkpoint names batch {number} of lease {lease.name!r}, but that of this data directory holds other "
                "messages: the directory was copied or restored, and both copies were used since. Point the query at "
                "the broker with the directory that it read last, or start with a new checkpoint"
            )


def _begin_again(lease: Lease, command: c.EnterLease, now: c.Now) -> Decision[int | None]:
    """Begin a lease again for a query without a checkpoint, under a name that an earlier run used.

    If no checkpoint is known to name a batch of that run, it may be the same query, restarted before it wrote an offset. A
    planner that has waited since before that run is another query.
    """
    batch = lease.current
    if lease.checkpointed or command.waiting:
        _check_silent(lease, now)
    if batch is not None and batch.state is BatchState.READ:
        raise errors.LeaseInUse(
            f"lease {lease.name!r} holds batch {batch.number} ({batch.rows.count} messages), which an earlier run has read "
            f"and not finished: continue with that run's checkpoint, or end it with `penstock lease release {lease.name} "
            "--settle` (its sink has the rows) or `--return` (it has not)"
        )
    decision = Decision[int | None]([], lease.epoch + 1)
    if batch is not None:
        decision.add(_end(lease, batch, BatchState.VOID, now))
    epoch, selector = lease.epoch + 1, command.selector
    decision.add(e.LeaseBegun(lease.name, lease.queue, command.run, epoch, command.timeout, now.up, selector))
    return decision


def silence(lease: Lease, now: c.Now) -> int | None:
    """Return the microseconds since the last request of the lease's query; None if this life of the broker had no request."""
    return None if lease.renewed is None else now.up - max(lease.renewed, now.resumed)


def _check_silent(lease: Lease, now: c.Now) -> None:
    silent = silence(lease, now)
    if silent is None or silent > ALIVE:
        return
    readers = [] if lease.current is None else lease.current.reads.queries
    query = f"query {', '.join(readers)}, " if readers else ""
    raise errors.LeaseInUse(
        f"another query uses lease {lease.name!r} now ({query}renewed {silent / SECOND:.1f} s ago): give this one "
        f"another name by the option lease, or no name. If you have just stopped the other, or started the broker, "
        f"wait {ALIVE // SECOND} s, or end its lease with `penstock lease delete {lease.name}` (`penstock lease "
        "release` first, if it holds a batch)"
    )


@decides(c.FinishBatches)
def finish_batches(state: BrokerState, command: c.FinishBatches, now: c.Now) -> Decision[tuple[int | None, int, int]]:
    lease = state.leases.get(command.lease)
    if lease is None:
        return Decision([], (None, 0, 0))
    if command.finished < lease.finished and command.strict and command.fail_on_data_loss:
        raise errors.DataLoss(
            f"the checkpoint is older than lease {lease.name!r}: it is at batch {command.finished}, while batch "
            f"{lease.finished} is finished. It may be a restored backup. With failOnDataLoss=false the query continues, "
            "reads the remembered batches again, and delivers at least once; exactly once if it writes to queues of this broker "
            "with format('amqp')"
        )
    _check_number(lease, command.finished)
    basis, events = Basis(state, now), list[e.Event]()
    settled = unread = 0
    for batch in lease.batches.values():
        if not lease.finished < batch.number <= command.finished:
            continue
        if batch.state is BatchState.READ and not batch.reads.lost:
            events.append(settle_batch(basis, lease, batch, exclude=command.exclude))
            settled += batch.rows.count
        elif batch.state in HOLDING:  # unread, or read and dropped
            events.append(_end(lease, batch, BatchState.VOID, now, exclude=command.exclude))
            unread += batch.rows.count
        elif batch.state is BatchState.LOST and command.fail_on_data_loss:
            raise _data_loss(lease, batch.number, _GIVEN_BACK)
    if command.finished > lease.finished:
        events.append(e.LeaseFinished(lease.name, command.finished))
    if unread or (settled and lease.unread):
        times = lease.unread + 1 if unread else 0
        events.append(e.LeftUnread(lease.name, times, now.up + _pause(times)))
    return Decision([(event, None) for event in events], (lease.epoch, settled, unread))


def _check_number(lease: Lease, number: int) -> None:
    if number > lease.last_number:
        raise errors.WrongOffset(
            f"the checkpoint names batch {number} of lease {lease.name!r}, whose last batch is {lease.last_number}: "
            "the broker's data directory was restored from an older state. Start with a new checkpoint"
        )


def _pause(times: int) -> int:
    """Microseconds after so many consecutive unread batches."""
    return 0 if times < UNREAD_FREE else min(UNREAD_PAUSE << min(times - UNREAD_FREE, 16), UNREAD_PAUSE_MOST)


@decides(c.AcquireBatch)
def acquire_batch(state: BrokerState, command: c.AcquireBatch, now: c.Now) -> Decision[c.LeasedBatch]:
    queue = need_queue(state, command.queue)
    lease = state.leases.get(command.lease)
    if lease is not None:
        if lease.current is not None:
            return Decision([], _leased(lease, lease.current.number))
        last = next(reversed(lease.batches.values()), None)
        if last is not None and last.number > lease.finished and last.state is BatchState.LOST and command.fail_on_data_loss:
            raise _data_loss(lease, last.number, _GIVEN_BACK)
        if now.up < lease.waits_until and not command.exclude:  # `availableNow` does not take the messages again
            return Decision([], _leased(lease, max(command.finished, lease.finished)))
    queue.consumers.check_lease()
    if command.selector is not None and command.matching is None:
        raise errors.InvalidRequest(f"lease {command.lease!r} has a selector: the request needs its matches")
    filters = lease_filters(state, queue, RowSet() if lease is None or not command.exclude else lease.excluded, now)
    most = min(command.messages or MAX_ACQUIRE, MAX_ACQUIRE)
    # Messages for which the selector is not evaluated are invisible to a lease.
    rows, _, unevaluated = find_all(queue, Search(most, command.max_bytes, command.until, filters, command.matching))
    if not command.alone and command.max_bytes is not None and bytes_of(queue, rows) > command.max_bytes:
        rows = RowSet()  # a larger message needs its own batch
    if not rows or not queue.consumers.may_take(0):
        if lease is None:
            return Decision([], c.LeasedBatch(None, command.finished, unevaluated=unevaluated))
        return Decision([], _leased(lease, max(command.finished, lease.finished))._replace(unevaluated=unevaluated))
    events: list[tuple[e.Event, Any]] = []
    epoch, number = state.past_epoch + 1, 1
    if lease is None:
        if len(state.leases) >= MAX_LEASES:
            raise errors.ResourceLimit(
                f"the broker keeps {MAX_LEASES} leases, which is its limit: delete old ones with `penstock lease delete`"
            )
        begun = e.LeaseBegun(command.lease, command.queue, command.run, epoch, command.timeout, now.up, command.selector)
        events.append((begun, None))
    else:
        epoch, number = lease.epoch, lease.last_number + 1
    sign = signed(state.nonce, command.lease, command.run, number, rows, now.wall)
    events.append((e.Acquired(queue.name, state.next_holder, rows, command.lease, number, sign), None))
    return Decision(events, c.LeasedBatch(epoch, number, sign, 0 if lease is None else lease.unread))


def lease_filters(state: BrokerState, queue: Queue, excluded: RowSet, now: c.Now) -> list[Filter]:
    filters: list[Filter] = [Unexpired(now.wall // 1000)]
    if excluded:
        filters.append(Without(excluded))
    if queue.groups is not None:
        filters += [FreeGroup(queue.groups, state.next_holder), *in_turn(queue)]
    return filters


def _leased(lease: Lease, number: int) -> c.LeasedBatch:
    return c.LeasedBatch(lease.epoch, number, lease.sign_of(number), lease.unread)


@decides(c.MeasureBatch)
def measure_batch(state: BrokerState, command: c.MeasureBatch, now: c.Now) -> Decision[tuple[int, int]]:
    lease = state.leases.get(command.lease)
    batch = None if lease is None else lease.current
    if lease is None or batch is None or batch.number != command.batch:
        return Decision([], (0, 0))
    return Decision([], (batch.rows.count, bytes_of(need_queue(state, lease.queue), batch.rows)))


@decides(c.PlanBatches)
def plan_batches(state: BrokerState, command: c.PlanBatches, now: c.Now) -> Decision[tuple[int, list[list[int]]]]:
    lease = need_lease(state, command.lease)
    _check_number(lease, command.batch)
    first, remembered = max(command.after, 0) + 1, next(iter(lease.batches), lease.last_number + 1)
    if first < remembered and first <= command.batch:
        _readable(lease, first, command.fail_on_data_loss)  # if one forgotten batch reads as lost, all do
    parts: list[list[int]] = []
    grouped = need_queue(state, lease.queue).groups is not None
    for number in range(max(first, remembered), command.batch + 1):
        batch = _readable(lease, number, command.fail_on_data_loss)
        if batch is None:
            continue
        count = batch.rows.count
        wanted = max(-(-count // command.max_messages) if command.max_messages else 1, command.min_partitions)
        if len(parts) + min(wanted, count) > MAX_PARTS:
            raise errors.ResourceLimit(
                f"a plan has at most {MAX_PARTS} parts: raise maxMessagesPerPartition, or lower minPartitions or "
                "maxMessagesPerTrigger"
            )
        if grouped:
            # The groups of settled messages are forgotten, and their codes reused, so one task reads them all.
            wanted, rows = min(wanted, count) if batch.state in HOLDING else 1, batch.rows
            parts += [[number, rows.first, rows.last, count, bucket, wanted] for bucket in range(wanted)]
        else:
            parts += [[number, *part] for part in batch.rows.split(wanted)]
    planned = Decision[tuple[int, list[list[int]]]]([], (lease.epoch, parts))
    if command.written and command.batch > 0 and not lease.checkpointed:
        planned.add(e.BatchPlanned(lease.name, command.batch))
    return planned


def _readable(lease: Lease, number: int, fail_on_data_loss: bool) -> Batch | None:
    """None: the batch reads as empty."""
    batch = lease.batches.get(number)
    if batch is not None and batch.state is BatchState.VOID:
        return None
    if batch is None or batch.state is BatchState.LOST:
        if fail_on_data_loss:
            raise _data_loss(lease, number, "is not remembered any longer" if batch is None else _GIVEN_BACK)
        return None
    return batch


@decides(c.ReadBatch)
def read_batch(state: BrokerState, command: c.ReadBatch, now: c.Now) -> Decision[tuple[str, RowSet]]:
    lease = need_lease(state, command.lease)
    check_run(lease, command.run)
    check_epoch(lease, command.epoch)
    batch = _readable(lease, command.batch, command.fail_on_data_loss)
    if batch is None:
        return Decision([], (lease.queue, RowSet()))
    decision = Decision([], (lease.queue, batch.rows.between(command.first, command.last)))
    reader = command.reader
    if batch.state is BatchState.ACQUIRED or (batch.state is BatchState.READ and not batch.reads.knows(reader)):
        query, number = reader or (None, None)
        name = None if command.query_name is None else shortened(command.query_name)
        decision.add(e.BatchRead(lease.name, batch.number, query, number, name))
    return decision


@decides(c.RenewLease)
def renew_lease(state: BrokerState, command: c.RenewLease, now: c.Now) -> Decision[None]:
    lease = need_lease(state, command.lease)
    check_run(lease, command.run)
    check_epoch(lease, command.epoch)
    return Decision([(e.Renewed(lease.name, now.up), None)], None)


@decides(c.ListLeases)
def list_leases(state: BrokerState, command: c.ListLeases, now: c.Now) -> Decision[list[dict[str, Any]]]:
    return Decision([], [_describe(state, lease, now) for lease in state.leases.values()])


def _describe(state: BrokerState, lease: Lease, now: c.Now) -> dict[str, Any]:
    batch, groups = lease.current, state.queues[lease.queue].groups
    return {
        "lease": lease.name,
        "query": None if lease.reader is None else shortened(lease.reader),
        "queue": lease.queue,
        "run": lease.run,
        "selector": lease.selector,
        "epoch": lease.epoch,
        "finished": lease.finished,
        "checkpointed": lease.checkpointed,
        "stage": batch.state.value if batch else "idle",
        "batch": batch.number if batch else None,
        "messages": batch.rows.count if batch else 0,
        "groups": groups.held_by(batch.holder)[:LISTED_GROUPS] if batch and groups else [],
        "renewed": None if lease.renewed is None else (now.up - lease.renewed) / SECOND,
    }


def _need_batch(lease: Lease) -> Batch:
    batch = lease.current
    if batch is None:
        raise errors.InvalidRequest(f"lease {lease.name!r} holds nothing: there is no batch to end, see `penstock lease list`")
    return batch


@decides(c.ReleaseLease)
def release_lease(state: BrokerState, command: c.ReleaseLease, now: c.Now) -> Decision[int]:
    lease = need_lease(state, command.lease)
    batch = _need_batch(lease)
    decision = Decision([], batch.rows.count)
    if command.settle:
        decision.add(settle_batch(Basis(state, now), lease, batch))
        decision.add(e.LeaseFinished(lease.name, batch.number))
    else:
        decision.add(_give_back(Basis(state, now), lease, batch))
        decision.add(e.LeaseFenced(lease.name, lease.epoch + 1))
    return decision


@decides(c.SettleRow)
def settle_row(state: BrokerState, command: c.SettleRow, now: c.Now) -> Decision[None]:
    lease = need_lease(state, command.lease)
    batch = _need_batch(lease)
    if command.outcome not in DISPOSITIONS:
        raise errors.InvalidRequest(f"outcome {command.outcome!r}: allowed are {', '.join(DISPOSITIONS)}")
    if command.sequence not in batch.rows:
        raise errors.MessageNotFound(
            f"message {command.sequence} is not in batch {batch.number}, which lease {lease.name!r} holds: name one of it"
        )
    rows = RowSet.single(command.sequence)
    queue = need_queue(state, lease.queue)
    disposition = DISPOSITIONS[command.outcome]._replace(error=command.error)
    holding = Holding(batch.holder, taker_name(None, command.user) or lease.taker, lease.name)
    events = dead_letters.end(Basis(state, now), queue, rows, holding, disposition)
    # Fenced first: after a crash between the events, the query only plans again.
    return Decision([(e.LeaseFenced(lease.name, lease.epoch + 1), None), (dead_letters.as_one(events), None)], None)


@decides(c.DeleteLease)
def delete_lease(state: BrokerState, command: c.DeleteLease, now: c.Now) -> Decision[None]:
    lease = need_lease(state, command.lease)
    if lease.current is not None:
        raise errors.LeaseInUse(
            f"lease {lease.name!r} holds batch {lease.current.number}: end it first with `penstock lease release {lease.name} "
            "--settle|--return`"
        )
    return Decision([(e.LeaseDeleted(lease.name), None)], None)


def overdue(basis: Basis) -> list[e.Event]:
    now, events = basis.now, list[e.Event]()
    for lease in basis.state.leases.values():
        batch = lease.current
        if batch is None or lease.renewed is None or batch.state not in HOLDING:
            continue
        silent = now.up - max(lease.renewed, now.resumed)
        if batch.state is BatchState.ACQUIRED and silent > UNREAD_TIMEOUT:
            events.append(_end(lease, batch, BatchState.VOID, now))
        elif batch.state is BatchState.READ and lease.timeout is not None and silent > lease.timeout:
            events.append(_give_back(basis, lease, batch))
    return events


def _give_back(basis: Basis, lease: Lease, batch: Batch) -> e.Event:
    """End a batch whose query will not finish it. A sink may have used a batch that was read."""
    if batch.state is not BatchState.READ:
        return _end(lease, batch, BatchState.VOID, basis.now)
    queue, event = need_queue(basis.state, lease.queue), _end(lease, batch, BatchState.LOST, basis.now)
    events = [event, *dead_letters.after_return(basis, queue, batch.rows, Cause.LEASE_READ, lease.taker)]
    return dead_letters.as_one(events)

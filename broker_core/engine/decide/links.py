"""Decisions about links: holders that end with their connection.

The forced deletion of a queue removes its subscriptions. Commands of their links are then refused with NotFound, also if a new
queue has the name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.blocks import Block
from ..columns.limits import (
    MAX_ACQUIRE,
    MAX_ANNOTATIONS,
    MAX_EXCLUDED,
    MAX_LINK_TAKERS,
    MAX_OVERLAY_BYTES,
    MAX_ROW_OVERLAYS,
    MAX_SUBSCRIPTIONS,
    NEVER,
)
from ..columns.overlays import ROW_BYTES
from ..columns.rowset import RowSet, as_array
from ..columns.states import ACQUIRED, AVAILABLE, Cause, Outcome, Verb
from ..model.capacity import bytes_of
from ..model.consumers import Subscription
from ..model.dispositions import DeliveryEnd, deferred_among
from ..model.groups import FreeGroup, OfGroup
from ..model.names import taker_name
from ..model.queue import Queue
from ..model.search import Filter, Matching, Search, Unexpired, Without, barrier, find, in_turn, open_levels
from ..model.state import BrokerState
from . import dead_letters
from .decision import Basis, Decision, Holding, check_rows, decides, need_queue


def need_subscription(queue: Queue, holder: int) -> Subscription:
    subscription = queue.consumers.link(holder)
    if subscription is None:
        raise errors.NotFound(f"holder {holder} has no subscription to {queue.name!r}: its link has ended")
    return subscription


@decides(c.Subscribe)
def subscribe(state: BrokerState, command: c.Subscribe, now: c.Now) -> Decision[int]:
    queue = need_queue(state, command.queue)
    if len(queue.consumers.subscriptions) + len(queue.consumers.by_number) >= MAX_SUBSCRIPTIONS:
        raise errors.ResourceLimit(f"queue {queue.name!r} has {MAX_SUBSCRIPTIONS} subscriptions, which is the limit: end some")
    if not command.by_number:
        queue.consumers.check_link(command.exclusive)
    if command.one_group and (queue.groups is None or command.selector is not None):
        raise errors.InvalidRequest(
            f"queue {queue.name!r} has no message groups: delete it, and declare it again with `--option groups=held`"
            if queue.groups is None
            else "a link that takes the messages of one group has no selector"
        )
    taker = _taker_name(queue, command)
    settings = command.priority, command.exclusive, command.selector, taker, command.by_number, command.one_group
    event = e.Subscribed(queue.name, state.next_link, *settings)
    return Decision([(event, None)], state.next_link)


def _taker_name(queue: Queue, command: c.Subscribe) -> str | None:
    """Many containers have random ids: they leave codes for the names of users and leases."""
    name = taker_name(command.container, command.user)
    is_new = name is not None and not queue.takers.knows(name)
    return taker_name(None, command.user) if is_new and len(queue.takers.names) >= MAX_LINK_TAKERS else name


def lacks_group(queue: Queue, subscription: Subscription) -> bool:
    """Return True if the link takes the messages of one group, and has locked none."""
    return subscription.one_group and queue.groups is not None and subscription.holder not in queue.groups.locks


@decides(c.Acquire)
def acquire(state: BrokerState, command: c.Acquire, now: c.Now) -> Decision[c.Taken]:
    queue = need_queue(state, command.queue)
    subscription = need_subscription(queue, command.holder)
    if command.messages <= 0 or not queue.consumers.may_take(command.holder) or lacks_group(queue, subscription):
        return Decision([], c.Taken(RowSet()))
    if subscription.selector is not None and command.matching is None:
        raise errors.InvalidRequest(f"holder {command.holder} has a selector: the request needs its matches")
    filters = link_filters(queue, subscription, now)
    search = Search(min(command.messages, MAX_ACQUIRE), command.max_bytes, filters=filters, matching=command.matching)
    # Of one level, so that they are delivered in the order of their sequence numbers.
    rows, unevaluated = RowSet(), None
    positions, epochs = subscription.positions.copy(), subscription.epochs.copy()
    for level in open_levels(queue):
        position, stop = queue.position_of(subscription, level), barrier(queue, level)
        rows, unknown, unevaluated = find(queue, position, search, level)
        if rows and command.behind:
            rows = rows.between(0, lowest_position_of(queue, command.behind, level) - 1)
            if not rows:
                break  # they are offered to it again
        # Without a result, no message before the next arrival is for this link, until the return log names an earlier place. So
        # excluded messages are not examined again. The search continues where the selector is not evaluated yet, or a message
        # waits for its retry.
        nothing = min(queue.next_sequence, max(position, stop)) if unknown is None else unknown
        positions[level] = rows.last + 1 if rows else nothing
        epochs[level] = queue.returns[level].epoch
        if rows or unknown is not None:
            break
    decision = Decision([], c.Taken(rows, unevaluated))
    if rows:
        decision.add(e.Acquired(queue.name, command.holder, rows))
        decision.extend(locked(state, queue, command.holder, rows, now))
    if positions != subscription.positions or epochs != subscription.epochs:
        decision.add(e.Looked(queue.name, command.holder, positions, epochs))
    return decision


def locked(state: BrokerState, queue: Queue, holder: int, rows: RowSet, now: c.Now) -> list[e.Event]:
    """Lock messages of a link, if the queue limits this time, and the link has not locked their group."""
    link = queue.consumers.link(holder)
    if not queue.rules.lock_timeout or (link is not None and link.one_group):
        return []
    return [e.Locked(queue.name, rows, end_of_lock(state, queue, now))]


def end_of_lock(state: BrokerState, queue: Queue, now: c.Now) -> int:
    return state.uptime(now.up) + queue.rules.lock_timeout if queue.rules.lock_timeout else NEVER


def link_filters(queue: Queue, subscription: Subscription, now: c.Now) -> list[Filter]:
    filters: list[Filter] = [Unexpired(now.wall // 1000)]
    if subscription.excluded:
        filters.append(Without(subscription.excluded))
    if queue.groups is not None:
        if subscription.one_group:
            lock = queue.groups.locks.get(subscription.holder)
            filters.append(OfGroup(None if lock is None else queue.group_names.get(lock.group)))
        filters += [FreeGroup(queue.groups, subscription.holder), *in_turn(queue)]
    return filters


def has_waiting(queue: Queue, subscription: Subscription, matching: Matching | None, now: c.Now) -> bool:
    """Return True if the link can take waiting messages, or might when its selector is evaluated."""
    if not queue.counts[AVAILABLE]:
        return False
    search = Search(1, filters=link_filters(queue, subscription, now), matching=matching)
    for level in open_levels(queue):
        match = find(queue, queue.position_of(subscription, level), search, level)
        if match.rows or (match.unknown is not None and find(queue, match.unknown, search._replace(matching=None), level).rows):
            return True
    return False


def lowest_position_of(queue: Queue, holders: tuple[int, ...], level: int) -> int:
    subscriptions = [queue.consumers.subscriptions[holder] for holder in holders if holder in queue.consumers.subscriptions]
    return min((queue.position_of(subscription, level) for subscription in subscriptions), default=queue.next_sequence)


@decides(c.AcquireDeferred)
def acquire_deferred(state: BrokerState, command: c.AcquireDeferred, now: c.Now) -> Decision[RowSet]:
    queue = need_queue(state, command.queue)
    need_subscription(queue, command.holder)
    if queue.paused:
        raise errors.InUse(f"queue {queue.name!r} is paused: nothing was changed. Try again when it is resumed")
    deferred = [(queue.blocks[number], as_array(part)) for number, part in queue.deferred_rows(command.rows).items()]
    expired = RowSet.of((block.number, part[block.expired(part, now.wall // 1000)]) for block, part in deferred)
    rows = RowSet.of((block.number, part) for block, part in deferred).minus(expired)
    decision = Decision([], command.rows.minus(rows))
    if expired:
        decision.extend(dead_letters.expire(Basis(state, now), queue, expired))
    if decision.reply or not rows:
        return decision
    size = bytes_of(queue, rows)
    if command.max_bytes is not None and rows.count > 1 and size > command.max_bytes:
        raise errors.ResourceLimit(
            f"{rows.count} messages of {queue.name!r} have {size:,} bytes, and one request gets at most {command.max_bytes:,}: "
            "nothing was changed. Ask for fewer messages"
        )
    decision.add(e.Acquired(queue.name, command.holder, rows))
    decision.extend(locked(state, queue, command.holder, rows, now))
    return decision


@decides(c.Browse)
def browse(state: BrokerState, command: c.Browse, now: c.Now) -> Decision[c.Browsed]:
    queue = need_queue(state, command.queue)
    filters: list[Filter] = [Unexpired(now.wall // 1000)]
    search = Search(min(command.messages, MAX_ACQUIRE), command.max_bytes, filters=filters, matching=command.matching)
    rows, _, unevaluated = find(queue, max(0, command.first), search, level=None)
    # Without a result the position stays, so that messages that return after it are still browsed.
    return Decision([], c.Browsed(rows, rows.last + 1 if rows else command.first, unevaluated))


@decides(c.Settle)
def settle(state: BrokerState, command: c.Settle, now: c.Now) -> Decision[None]:
    disposition = DeliveryEnd(command.outcome, error=command.error, annotations=command.annotations)
    return Decision(end_delivery(Basis(state, now), command.queue, command.holder, command.rows, disposition), None)


@decides(c.Release)
def release(state: BrokerState, command: c.Release, now: c.Now) -> Decision[None]:
    disposition = DeliveryEnd(None, command.cause, None, command.exclude, command.annotations, command.retry)
    return Decision(end_delivery(Basis(state, now), command.queue, command.holder, command.rows, disposition), None)


@decides(c.RenewLock)
def renew_lock(state: BrokerState, command: c.RenewLock, now: c.Now) -> Decision[None]:
    queue = need_queue(state, command.queue)
    check_rows(queue, command.rows, Verb.RETURN, command.holder)
    if need_subscription(queue, command.holder).one_group:
        return Decision([], None)
    return Decision([(e.Locked(queue.name, command.rows, end_of_lock(state, queue, now)), None)], None)


def end_delivery(basis: Basis, name: str, holder: int, rows: RowSet, disposition: DeliveryEnd) -> list[tuple[e.Event, Any]]:
    queue = need_queue(basis.state, name)
    check_rows(queue, rows, Verb.SETTLE if disposition.cause is None else Verb.RETURN, holder)
    if not rows:
        return []
    if disposition.annotations:
        _check_annotations(queue, rows, disposition.annotations)
    holding = Holding(holder, basis.state.taker_of(queue, holder))
    events = dead_letters.end(basis, queue, rows, holding, disposition)
    cause = disposition.cause
    refused = RowSet() if cause is None or not disposition.exclude else rows.minus(deferred_among(queue, rows, cause))
    if cause is None or not refused:
        return [(dead_letters.as_one(events), None)]
    excluded = need_subscription(queue, holder).excluded
    if excluded.count + refused.count > MAX_EXCLUDED and excluded.live(queue.blocks) + refused.count > MAX_EXCLUDED:
        raise errors.ResourceLimit(
            f"this link calls more than {MAX_EXCLUDED} messages of {queue.name!r} undeliverable, which is the limit: nothing "
            "was changed. Let it release or reject them, or use a selector or another queue"
        )
    left = refused.minus(dead_letters.last_attempts(queue, refused, cause))
    events += dead_letters.refuse(basis, queue, holder, left)
    return [(dead_letters.as_one(events), None), (e.Excluded(queue.name, holder, refused), None)]


def _check_annotations(queue: Queue, rows: RowSet, annotations: bytes) -> None:
    if len(annotations) > MAX_ANNOTATIONS:
        raise errors.ResourceLimit(
            f"the annotations added to messages of {queue.name!r} have {len(annotations)} bytes; at most {MAX_ANNOTATIONS} are "
            "kept: nothing was changed. Add less"
        )
    if queue.overlay_bytes + rows.count * (len(annotations) + ROW_BYTES) > MAX_OVERLAY_BYTES:
        raise errors.ResourceLimit(
            f"annotations added to messages of {queue.name!r} take {MAX_OVERLAY_BYTES >> 20} MiB, which is the limit: nothing "
            "was changed. Let such messages be settled"
        )
    for number, part in rows.items():
        if queue.blocks[number].overlays.most(part, annotations) > MAX_ROW_OVERLAYS:
            raise errors.ResourceLimit(
                f"the annotations added to a message of {queue.name!r} take {MAX_ROW_OVERLAYS >> 10} KiB, which is the limit: "
                "nothing was changed. Let it be settled, or released without more of them"
            )


_ENDS = (Outcome.ACCEPTED, Outcome.REJECTED)  # default outcomes of a source that settle


@decides(c.Unsubscribe)
def unsubscribe(state: BrokerState, command: c.Unsubscribe, now: c.Now) -> Decision[RowSet]:
    if command.outcome is not None and command.outcome not in _ENDS:
        raise errors.InvalidRequest(f"a default outcome that settles is accepted or rejected, not {command.outcome.name.lower()}")
    queue = need_queue(state, command.queue)
    subscription = need_subscription(queue, command.holder)
    rows = held_by(queue, subscription)
    if retired := state.transactions.retired(command.holder):
        rows = rows.minus(retired)  # they end with their transactions
    decision = Decision([], rows)
    basis, holding = Basis(state, now), Holding(command.holder, subscription.taker)
    events: list[e.Event] = []
    back = RowSet()
    if rows and command.outcome is not None:
        disposition = DeliveryEnd(command.outcome)
        events += dead_letters.end(basis, queue, rows, holding, disposition, Cause.REJECTED_BY_DEFAULT)
    else:
        ahead = RowSet() if command.begun is None else rows.minus(command.begun)
        for cause, part in ((command.cause, rows.minus(ahead)), (Cause.PREFETCHED, ahead)):
            if not part:
                continue
            events += dead_letters.end(basis, queue, part, holding, DeliveryEnd(cause=cause))
            again = part.minus(dead_letters.last_attempts(queue, part, cause))
            back = back.plus(again.minus(deferred_among(queue, again, cause)))
    events += dead_letters.leave(basis, queue, command.holder, back)
    if events:
        decision.add(dead_letters.as_one(events))
    decision.add(e.Unsubscribed(queue.name, command.holder))
    return decision


def held_by(queue: Queue, subscription: Subscription) -> RowSet:
    return RowSet.of((number, _held_by(queue.blocks[number], subscription.holder)) for number in sorted(subscription.held))


def _held_by(block: Block, holder: int) -> Any:
    mine = block.holder.get(slice(0, block.filled)) == np.int64(holder)
    return np.flatnonzero((block.state[: block.filled] == ACQUIRED) & mine)

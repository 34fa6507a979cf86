"""Decisions about one message group: its lock by a link, and its state.

A link that has subscribed with `one_group` takes only messages of the group that it has locked. A locked group has no other
consumer. Its messages have no locks of their own: they return when the lock of the group ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_GROUP_STATE, MAX_GROUP_STATES
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet
from ..columns.states import Cause
from ..model.dispositions import DeliveryEnd
from ..model.groups import GroupLock, Groups
from ..model.queue import Queue
from ..model.search import Search, barrier, find, open_levels
from ..model.state import BrokerState
from . import dead_letters
from .decision import Basis, Decision, Holding, decides, need_queue
from .links import end_of_lock, held_by, link_filters, need_subscription


def need_groups(queue: Queue) -> Groups:
    if queue.groups is None:
        raise errors.InvalidRequest(
            f"queue {queue.name!r} has no message groups: delete it, and declare it again with `--option groups=held`"
        )
    return queue.groups


def _need_lock(queue: Queue, holder: int) -> GroupLock:
    lock = need_groups(queue).locks.get(holder)
    if lock is None:
        raise errors.Fenced(f"this link has no lock of a group of {queue.name!r}, or its lock has ended: lock the group again")
    return lock


@decides(c.LockGroup)
def lock_group(state: BrokerState, command: c.LockGroup, now: c.Now) -> Decision[str | None]:
    queue = need_queue(state, command.queue)
    groups, subscription = need_groups(queue), need_subscription(queue, command.holder)
    if not subscription.one_group or subscription.holder in groups.locks:
        raise errors.InvalidRequest(f"holder {command.holder} locks one group, if it has subscribed for one")
    if command.group is None:
        return _lock_next(state, queue, command.holder, now)
    if rival := groups.holder_of(command.group):
        name = state.name_of(queue, rival) or "another consumer"
        raise errors.InUse(f"group {command.group!r:.80} of queue {queue.name!r} is held by {name}: try again when it is free")
    if not queue.consumers.may_take(command.holder):
        raise errors.InUse(
            f"queue {queue.name!r} has a single active consumer, which is another one: this link would receive no message of "
            f"group {command.group!r:.80}. Try again when that consumer has ended"
        )
    lock = GroupLock(command.group, command.holder, end_of_lock(state, queue, now), queue.first_available())
    return Decision([(e.GroupLocked(queue.name, lock), None)], command.group)


def _lock_next(state: BrokerState, queue: Queue, holder: int, now: c.Now) -> Decision[str | None]:
    """Lock the group of the first message that the link may take. The search continues where its last one ended."""
    subscription = queue.consumers.subscriptions[holder]
    if not queue.consumers.may_take(holder):
        return Decision([], None)
    search = Search(1, filters=link_filters(queue, subscription, now))
    positions, epochs = subscription.positions.copy(), subscription.epochs.copy()
    decision = Decision[str | None]([], None)
    for level in open_levels(queue):
        position = queue.position_of(subscription, level)
        rows = find(queue, position, search, level).rows
        nothing = min(queue.next_sequence, max(position, barrier(queue, level)))  # as in `links.acquire`
        positions[level], epochs[level] = rows.first if rows else nothing, queue.returns[level].epoch
        if rows:
            decision.reply = _group_of(queue, rows)
            passed_none = queue.rules.levels == 1 and not subscription.excluded  # no earlier message of the group
            first = rows.first if passed_none else queue.first_available()
            lock = GroupLock(decision.reply, holder, end_of_lock(state, queue, now), first)
            decision.add(e.GroupLocked(queue.name, lock))
            break
    if positions != subscription.positions or epochs != subscription.epochs:
        decision.add(e.Looked(queue.name, holder, positions, epochs))
    return decision


def _group_of(queue: Queue, rows: RowSet) -> str:
    codes = queue.blocks[rows.first >> BLOCK_BITS].group.get(np.array([rows.first % BLOCK_ROWS]))
    name = queue.group_names.name(int(np.broadcast_to(codes, 1)[0]))
    assert name is not None
    return name


@decides(c.RenewGroupLock)
def renew_group_lock(state: BrokerState, command: c.RenewGroupLock, now: c.Now) -> Decision[None]:
    queue = need_queue(state, command.queue)
    lock = _need_lock(queue, command.holder)._replace(until=end_of_lock(state, queue, now))
    return Decision([(e.GroupLocked(queue.name, lock), None)], None)


@decides(c.SetGroupState)
def set_group_state(state: BrokerState, command: c.SetGroupState, now: c.Now) -> Decision[None]:
    queue = need_queue(state, command.queue)
    group, octets = _need_lock(queue, command.holder).group, command.state
    if octets is not None and len(octets) > MAX_GROUP_STATE:
        raise errors.ResourceLimit(
            f"the state of group {group!r:.80} has {len(octets):,} bytes, and at most {MAX_GROUP_STATE:,} are kept: nothing was "
            "changed. Store it elsewhere, and keep its place as the state"
        )
    growth = queue.states.growth(group, octets)
    if growth > 0 and queue.states.bytes + growth > MAX_GROUP_STATES:
        raise errors.ResourceLimit(
            f"the states of the groups of {queue.name!r} take {MAX_GROUP_STATES >> 20} MiB, which is the limit: nothing was "
            "changed. Remove the states of groups that have ended"
        )
    if octets is None and queue.states.get(group) is None:
        return Decision([], None)
    return Decision([(e.GroupStateSet(queue.name, group, now.wall, octets), None)], None)


def locks_that_end(basis: Basis) -> Iterator[e.Event]:
    """Yield the ends of locks of groups, each with the return of its messages."""
    up = basis.state.uptime(basis.now.up)
    for name, holder in basis.state.clocks.group.due(up):
        queue = basis.state.queues.get(name)
        lock = None if queue is None or queue.groups is None else queue.groups.locks.get(holder)
        if queue is None or lock is None or lock.until > up:
            continue
        if rows := held_by(queue, queue.consumers.subscriptions[holder]):
            holding, late = Holding(holder, basis.state.taker_of(queue, holder)), DeliveryEnd(cause=Cause.LOCK_TIMED_OUT)
            yield dead_letters.as_one(dead_letters.end(basis, queue, rows, holding, late))
        yield e.GroupUnlocked(name, holder)

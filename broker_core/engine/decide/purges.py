"""Purged messages: all waiting ones of a queue, named ones, and delayed ones that their sender cancels."""

from __future__ import annotations

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_PURGED
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints
from ..columns.states import Outcome, Verb
from ..model.names import taker_name
from ..model.queue import Queue
from ..model.state import BrokerState
from .dead_letters import as_one
from .decision import Decision, check_rows, decides, need_queue


@decides(c.Purge)
def purge(state: BrokerState, command: c.Purge, now: c.Now) -> Decision[int]:
    queue = need_queue(state, command.queue)
    rows = _waiting(queue, command.end, command.messages)
    event = e.Purged(queue.name, rows, now.wall, taker=taker_name(None, command.user))
    return Decision([(event, None)] if rows else [], rows.count)


@decides(c.CancelDelayed)
def cancel_delayed(state: BrokerState, command: c.CancelDelayed, now: c.Now) -> Decision[None]:
    queue = need_queue(state, command.queue)
    check_rows(queue, command.rows, Verb.DUE)
    if any(queue.blocks[number].awaits_retry(part).any() for number, part in command.rows.items()):
        raise errors.IllegalTransition(f"cannot cancel messages of {queue.name!r}: some were delivered, and wait for their retry")
    event = e.Purged(queue.name, command.rows, now.wall, taker=taker_name(None, command.user))
    return Decision([(event, None)] if command.rows else [], None)


@decides(c.DiscardMessages)
def discard_messages(state: BrokerState, command: c.DiscardMessages, now: c.Now) -> Decision[int]:
    queue = need_queue(state, command.queue)
    if not 0 <= command.first <= command.last < queue.next_sequence:
        raise errors.MessageNotFound(
            f"queue {queue.name!r} has messages 0 to {queue.next_sequence - 1}, not {command.first} to {command.last}: name"
            " some of them"
        )
    if command.last - command.first >= MAX_PURGED:
        raise errors.ResourceLimit(f"{MAX_PURGED} messages are the limit of one request: name fewer, and then the rest")
    named = RowSet.range(command.first, command.last + 1)
    named = RowSet.of((number, as_array(part)) for number, part in named.items() if number in queue.blocks)
    waiting, user = queue.allowed(named, Verb.PURGE), taker_name(None, command.user)
    events: list[e.Event] = [e.Purged(queue.name, waiting, now.wall, command.error, user)] if waiting else []
    leases = {lease.current.holder: lease for lease in state.leases.values() if lease.current and lease.queue == queue.name}
    held = queue.allowed(named, Verb.SETTLE)
    decision = Decision([], waiting.count + held.count)
    for holder in _holders(queue, held):
        rows, lease = queue.held_by(holder, held), leases.get(holder)
        if lease is not None:  # fenced first: after a crash between the two events, the query only plans again
            decision.add(e.LeaseFenced(lease.name, lease.epoch + 1))
        name = None if lease is None else lease.name
        taker = user or (state.taker_of(queue, holder) if lease is None else lease.taker)
        events.append(e.Settled(queue.name, holder, rows, int(Outcome.PURGED), now.wall, command.error, name, taker=taker))
    if events:
        decision.add(as_one(events))
    return decision


def _waiting(queue: Queue, end: int | None, messages: int) -> RowSet:
    parts: list[tuple[int, Ints]] = []
    for number in sorted(queue.blocks):
        block = queue.blocks[number]
        if messages <= 0 or (end is not None and end <= block.base):
            break
        rows = block.waiting()[:messages]
        if end is not None:
            rows = rows[rows < end - block.base]
        parts.append((number, rows))
        messages -= len(rows)
    return RowSet.of(parts)


def _holders(queue: Queue, rows: RowSet) -> list[int]:
    parts = [np.unique(queue.blocks[number].holder.get(part)).tolist() for number, part in rows.items()]
    return sorted(set().union(*parts))

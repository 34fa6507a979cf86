"""Decisions about queues and arriving messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_QUEUES
from ..columns.losses import DUPLICATE, FULL, QUEUE_DROPPED, QUEUE_REFUSED
from ..columns.packing import pack
from ..columns.states import Outcome, State
from ..model.admission import admit, fill
from ..model.names import EVENTS, check_node_name
from ..model.options import OPTIONS, check_names, checked
from ..model.queue import Queue
from ..model.state import BrokerState
from .decision import Decision, decides, need_queue
from .lifetimes import departure
from .losses import losses


@decides(c.DeclareQueue)
def declare_queue(state: BrokerState, command: c.DeclareQueue, now: c.Now) -> Decision[bool]:
    check_node_name("queue", command.queue)
    policy = state.policies.options_of(command.queue, command.type)
    check_names(command.options)
    options = checked(command.type, {**policy, **command.options})
    _check_events(command.queue, options)
    if command.queue in state.exchanges.by_name:
        raise errors.AlreadyExists(f"{command.queue!r} is an exchange: a queue needs a name that no exchange has")
    queue = state.queues.get(command.queue)
    if queue is not None:
        # A policy may have changed since the queue was declared: only the other options must be the same.
        asked = {name for name in (*options, *queue.options) if name in command.options or name not in policy}
        same = all(options.get(name) == queue.options.get(name) for name in asked)
        if queue.kind != command.type or not same:
            raise errors.AlreadyExists(
                f"queue {queue.name!r} exists with type {queue.kind!r} and {_shown(queue.options)}, not with type "
                f"{command.type!r} and {_shown(options)}: declare it as it is, alter it (`penstock queue alter`), or delete it"
            )
        return Decision([], False)
    if len(state.queues) >= MAX_QUEUES:
        raise errors.ResourceLimit(f"the broker has {MAX_QUEUES} queues, which is its limit: delete one first")
    user = user_of(state, command.maker)
    return Decision([(e.QueueDeclared(command.queue, command.type, options, user), None)], True)


def _check_events(queue: str, options: dict[str, Any]) -> None:
    if queue == EVENTS and not (options.get("overflow") == "ring" and options.get("maxMessages")):
        raise errors.InvalidRequest(
            f"queue {EVENTS!r} gets the broker's event messages and must be a bounded ring: set maxMessages and overflow=ring"
        )


def user_of(state: BrokerState, maker: c.Maker | None) -> str | None:
    if maker is None:
        return None
    if state.made[maker.user] >= maker.most:
        raise errors.ResourceLimit(
            f"user {maker.user!r} has made {maker.most} queues and exchanges (dynamic nodes, subscriptions, first uses) that are "
            "still there, which is the limit: end or delete some"
        )
    return maker.user


def _shown(options: dict[str, Any]) -> str:
    return "options " + ", ".join(f"{name}={value}" for name, value in sorted(options.items())) if options else "default options"


@decides(c.DeleteQueue)
def delete_queue(state: BrokerState, command: c.DeleteQueue, now: c.Now) -> Decision[int]:
    queue = need_queue(state, command.queue)
    if command.if_empty and queue.live + queue.staged.messages:
        raise errors.InUse(
            f"queue {queue.name!r} is not empty: it has {queue.live} messages, and {queue.staged.messages} staged ones"
        )
    leases = sum(lease.queue == queue.name for lease in state.leases.values())
    if command.if_unused and (queue.consumers.subscriptions or leases):
        raise errors.InUse(
            f"queue {queue.name!r} is used: it has {len(queue.consumers.subscriptions)} consumers and {leases} leases"
        )
    if queue.counts[State.ACQUIRED] and not command.force:
        raise errors.InUse(
            f"queue {queue.name!r}: {queue.counts[State.ACQUIRED]} messages are held by consumers; end them (`penstock lease "
            "release`), or delete with --force, which forgets them"
        )
    return Decision([(departure(state, queue), None)], queue.live)


@decides(c.AlterQueue)
def alter_queue(state: BrokerState, command: c.AlterQueue, now: c.Now) -> Decision[bool]:
    queue = need_queue(state, command.queue)
    check_names(command.options)
    options = checked(queue.kind, {**queue.options, **command.options})
    _check_events(queue.name, options)
    changed = {name: options.get(name) for name in command.options if options.get(name) != queue.options.get(name)}
    for name in changed:
        _check_alterable(queue, name)
    return Decision([(e.QueueAltered(queue.name, changed), None)] if changed else [], bool(changed))


def _check_alterable(queue: Queue, name: str) -> None:
    if not OPTIONS[name].alterable:
        now: Any = queue.options.get(name, OPTIONS[name].default)
        can = [alterable for alterable, option in OPTIONS.items() if option.alterable and option.type in (None, queue.kind)]
        raise errors.InvalidRequest(
            f"option {name!r} of queue {queue.name!r} is {now!r} for as long as it lives, since its messages lie by it: nothing "
            f"was changed. Delete the queue, or alter one of {', '.join(can)}"
        )


@decides(c.PauseQueue)
def pause_queue(state: BrokerState, command: c.PauseQueue, now: c.Now) -> Decision[bool]:
    changed = need_queue(state, command.queue).paused != command.paused
    return Decision([(e.QueuePaused(command.queue, command.paused), None)] if changed else [], changed)


@decides(c.Enqueue)
def enqueue(state: BrokerState, command: c.Enqueue, now: c.Now) -> Decision[c.EnqueueReply]:
    queue = need_queue(state, command.queue)
    if command.count <= 0:
        return Decision([], c.EnqueueReply(queue.next_sequence))
    first, candidates, payload_rows = queue.next_sequence, command.candidates, None
    waits = command.durable or queue.rules.durability == "all"
    placed, lost = c.EnqueueReply(first + command.count), list[e.Event]()
    if not queue.rules.unrestricted:
        admission = admit(queue, candidates, now.wall // 1000, whole=command.whole)
        payload_rows = admission.rows
        if payload_rows is not None:
            candidates, stored = candidates.take(payload_rows), tuple(payload_rows.tolist())
            placed = c.EnqueueReply(first + len(stored), tuple(admission.refused.tolist()), admission.duplicates, stored)
            lost += losses(queue.name, {FULL: len(admission.refused), DUPLICATE: admission.duplicates})
            if not stored:
                return Decision([(event, None) for event in lost], placed)
    attributes = candidates.attributes.journaled()
    event = e.Enqueued(queue.name, first, candidates.messages, candidates.sizes, now.wall, attributes, payload_rows)
    decision = Decision([(event, command.payload)], placed, waits)
    decision.extend(lost)
    return decision


@decides(c.Stat)
def stat(state: BrokerState, command: c.Stat, now: c.Now) -> Decision[list[dict[str, Any]]]:
    queues = state.queues.values() if command.queue is None else [need_queue(state, command.queue)]
    leases: dict[str, list[str]] = {}
    for lease in state.leases.values():
        leases.setdefault(lease.queue, []).append(lease.name)
    return Decision([], [_stat(queue, leases.get(queue.name, [])) for queue in queues])


def _stat(queue: Queue, leases: list[str]) -> dict[str, Any]:
    used = fill(queue)
    return {
        "queue": queue.name,
        "type": queue.kind,
        "options": {"durability": queue.rules.durability, **queue.options},
        "paused": queue.paused,
        "nextSequence": queue.next_sequence,
        "enqueued": queue.next_sequence,
        "available": queue.counts[State.AVAILABLE],
        "acquired": queue.counts[State.ACQUIRED],
        "delayed": queue.counts[State.DELAYED],
        "deferred": queue.counts[State.DEFERRED],
        "staged": queue.staged.messages,
        "stagedBytes": queue.staged.bytes,
        "archived": queue.archived,
        "bytes": queue.bytes,
        "unread": queue.unread,
        "leases": leases,
        "consumers": len(queue.consumers.subscriptions),
        "refused": queue.consumers.refused_by_all(queue.blocks).count,
        "expired": queue.ended[Outcome.EXPIRED],
        "deadLettered": queue.ended[Outcome.DEAD_LETTERED],
        "stayed": queue.stayed,
        "malformed": queue.malformed,
        "unrecorded": queue.recordings.rows,
        "unrecordedBytes": queue.recordings.bytes,
        "groupStates": len(queue.states),
        "groupStateBytes": queue.states.bytes,
        "fill": None if used is None else used / 1000,
        "refusedMessages": queue.losses.among(QUEUE_REFUSED),
        "droppedMessages": queue.losses.among(QUEUE_DROPPED),
    }


@decides(c.PackBlock)
def pack_block(state: BrokerState, command: c.PackBlock, now: c.Now) -> Decision[None]:
    queue = state.queues.get(command.queue)
    block = queue.blocks.get(command.number) if queue is not None else None
    if queue is None or block is None or not block.full or block.live or queue.recordings.is_recording(block.number):
        return Decision([], None)
    times = block.runs.time.array()
    outcomes = np.unique(block.outcome.get(slice(0, block.filled))).tolist()
    event = e.BlockPacked(command.queue, command.number, block.runs.high, int(times.min()), int(times.max()), outcomes)
    return Decision([(event, pack(block.persisted()))], None)

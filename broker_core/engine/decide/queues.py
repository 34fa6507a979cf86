"""Decisions about queues, stages and publishing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import errors
from ..columns.blocks import Block
from ..columns.limits import (
    MAX_ENDED_WRITES,
    MAX_PUBLISH_KEYS,
    MAX_QUEUES,
    MAX_STAGED_BYTES,
    MAX_STAGES,
    SECOND,
    STAGE_AGE,
)
from ..columns.packing import pack
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..columns.states import ACQUIRED, Cause, Outcome, State
from ..commands import queues as c
from ..events import queues as e
from ..model.admission import admit, admit_stage
from ..model.capacity import Coming
from ..model.exclusions import refused_by_all
from ..model.lease import Batch, Lease
from ..model.names import check_name, check_node_name
from ..model.options import check_names, checked
from ..model.queue import Queue
from ..model.reads import SparkBatch, series_of
from ..model.stages import attempt_name, check_stage, is_attempt, write_of
from ..model.state import DISCARDED, LINK_HOLDER, BrokerState
from ..model.transaction import is_transactional
from . import dead_letters
from .decision import Decision, need_queue
from .lifetimes import departure, gone_at_start
from .unsettled_batches import check_outcomes


def declare_queue(state: BrokerState, command: c.DeclareQueue, now: c.Now) -> Decision[bool]:
    """Add a queue; False if the same is there. Raises AlreadyExists, InvalidRequest, ResourceLimit."""
    check_node_name("queue", command.queue)
    said = state.policies.options_of(command.queue, command.type)
    check_names(command.options)
    options = checked(command.type, {**said, **command.options})
    if command.queue in state.exchanges.by_name:
        raise errors.AlreadyExists(f"{command.queue!r} is an exchange: a queue needs a name that no exchange has")
    queue = state.queues.get(command.queue)
    if queue is not None:
        # What a policy says is its own business: it may have changed since.
        asked = {name for name in (*options, *queue.options) if name in command.options or name not in said}
        if queue.kind != command.type or any(queue.options.get(name) != options.get(name) for name in asked):
            raise errors.AlreadyExists(
                f"queue {queue.name!r} exists with type {queue.kind!r} and {_said(queue.options)}, not with type "
                f"{command.type!r} and {_said(options)}: declare it as it is, alter it (`penstock queue alter`), or delete it"
            )
        return Decision([], False)
    if len(state.queues) >= MAX_QUEUES:
        raise errors.ResourceLimit(f"the broker has {MAX_QUEUES} queues, which is its limit: delete one first")
    user = user_of(state, command.maker)
    return Decision([(e.QueueDeclared(command.queue, command.type, options, user), None)], True)


def user_of(state: BrokerState, maker: c.Maker | None) -> str | None:
    """Return the user who makes one more queue or exchange; raise ResourceLimit if that is one too many."""
    if maker is None:
        return None
    if state.made[maker.user] >= maker.most:
        raise errors.ResourceLimit(
            f"user {maker.user!r} has made {maker.most} queues and exchanges (dynamic nodes, subscriptions, first uses) that are "
            "still there, which is the limit: end or delete some"
        )
    return maker.user


def _said(options: dict[str, Any]) -> str:
    return "options " + ", ".join(f"{name}={value}" for name, value in sorted(options.items())) if options else "default options"


def delete_queue(state: BrokerState, command: c.DeleteQueue, now: c.Now) -> Decision[None]:
    """End a queue. Raises NotFound, and InUse while messages are held, unless forced."""
    queue = need_queue(state, command.queue)
    if queue.counts[State.ACQUIRED] and not command.force:
        raise errors.InUse(
            f"queue {queue.name!r}: {queue.counts[State.ACQUIRED]} messages are held by consumers; end them (`penstock lease "
            "release`), or delete with --force, which forgets them"
        )
    return Decision([(departure(state, queue), None)], None)


def enqueue(state: BrokerState, command: c.Enqueue, now: c.Now) -> Decision[c.Placed]:
    """Append messages that the queue's limits admit, without duplicates. Raises NotFound, QueueFull with `whole`."""
    queue = need_queue(state, command.queue)
    if command.count <= 0:
        return Decision([], c.Placed(queue.next_sequence))
    first, count, sizes, traits = queue.next_sequence, command.count, command.sizes, command.traits
    waits = command.durable or queue.rules.durability == "all"
    kept = None
    placed = c.Placed(first + count)
    if not queue.rules.open:
        found = admit(queue, count, sizes, traits, now.wall // 1000, whole=command.whole)
        kept = found.kept
        if kept is not None:
            sizes, traits, count = sizes if isinstance(sizes, int) else sizes[kept], traits.take(kept), len(kept)
            placed = c.Placed(first + count, tuple(found.refused.tolist()), found.duplicates, tuple(kept.tolist()))
        if not count:
            return Decision([], placed)
    event = e.Enqueued(queue.name, first, count, sizes, now.wall, traits.journaled(), kept)
    return Decision([(event, command.payload)], placed, waits)


def stage_messages(state: BrokerState, command: c.StageMessages, now: c.Now) -> Decision[None]:
    """Put messages into a stage. Raises NotFound, Fenced if the write has ended, QueueFull, ResourceLimit."""
    check_stage(command.stage)
    check_not_ended(state, command.stage)
    return stage(state, command, now)


def check_not_ended(state: BrokerState, stage: str) -> None:
    """Raise Fenced for a task's attempt whose write has ended: nobody would publish its messages, or discard them."""
    write = write_of(stage)
    if is_attempt(stage) and write in state.ended_writes:
        how = "discarded" if state.ended_writes[write] == DISCARDED else "published"
        raise errors.Fenced(
            f"write {write!r} was {how} already, and this attempt of one of its tasks comes too late: nothing of it was stored. "
            "Spark has given it up, or somebody has discarded the write; then write the data again"
        )


def stage(state: BrokerState, command: c.StageMessages, now: c.Now) -> Decision[None]:
    """Put messages into a stage of the sink or of a transaction. Raises NotFound, QueueFull, ResourceLimit."""
    queue = need_queue(state, command.queue)
    if command.stage not in state.stages and len(state.stages) >= MAX_STAGES:
        raise too_many_stages()
    if state.staged_bytes >= MAX_STAGED_BYTES:
        raise errors.ResourceLimit(
            f"{MAX_STAGED_BYTES} bytes wait in stages for a publish, which is the limit: end the jobs that left them "
            "(`penstock stage list`, `penstock stage discard`)"
        )
    if command.count <= 0:
        return Decision([], None)
    admit_stage(queue, command.count, command.sizes, command.traits)
    traits = command.traits.journaled()
    staged = e.Staged(command.stage, command.queue, command.count, command.sizes, now.up, traits, time=now.wall)
    return Decision([(staged, command.payload)], None)


def too_many_stages() -> errors.ResourceLimit:
    """Make the error for one stage more than MAX_STAGES."""
    return errors.ResourceLimit(
        f"{MAX_STAGES} stages wait for a publish, which is the limit, and a write has one for each task: end the jobs that left "
        "them (`penstock stage list`, `penstock stage discard`), or write with fewer tasks (coalesce)"
    )


def publish(state: BrokerState, command: c.Publish, now: c.Now) -> Decision[tuple[int, bool]]:
    """Publish stages once per key. Reply: messages, and whether it repeats. NotFound, Fenced, DataLoss, ResourceLimit."""
    key = command.key
    if command.write is not None:
        check_name("write", command.write)
        named = [attempt_name(command.write, attempt) for attempt in command.attempts]
        command = replace(command, stages=named)
    done = _done_before(state, command)
    if done is not None:
        return Decision([], (done, True))
    if key is not None:
        check_name("publish key", key.id)
        known = state.publish_keys.last(key, now.wall)
        if known is not None and key.number <= known:
            return _repeated(state, command, key)
        if known is None:
            _check_keys(state, command.maker)
    _check_stages(state, command.stages)
    return publish_stages(state, command, now)


def _check_keys(state: BrokerState, maker: c.Maker | None) -> None:
    """Raise ResourceLimit where another key is one too many."""
    way_out = "write under a known one, or without txnAppId; a key is forgotten a year after its last write"
    if maker is not None and state.publish_keys.count(maker.user) >= maker.most:
        raise errors.ResourceLimit(
            f"user {maker.user!r} has {maker.most} publish keys (a txnAppId or a query's id, for each queue), which is the limit "
            f"max_publish_keys_per_user: {way_out}"
        )
    if len(state.publish_keys) >= MAX_PUBLISH_KEYS:
        raise errors.ResourceLimit(f"{MAX_PUBLISH_KEYS} publish keys are kept, which is the limit: {way_out}")


def _done_before(state: BrokerState, command: c.Publish) -> int | None:
    """Return how many messages this same publish has published already, if it is remembered; its answer was lost."""
    known = command.key is not None or not command.stages or any(name in state.stages for name in command.stages)
    if command.write is None and known:  # by its key, or not done yet; else its first stage speaks for all, which are gone
        return None
    published = state.ended_writes.get(command.stages[0] if command.write is None else command.write, DISCARDED)
    return None if published == DISCARDED else published


def _repeated(state: BrokerState, command: c.Publish, key: c.PublishKey) -> Decision[tuple[int, bool]]:
    """Another write has published this key. Batches of leases that were read for this write, and never sent, come back."""
    decision, series = Decision([], (0, True)), series_of(key.kind, key.id)
    again = [name for name in command.stages if name in state.stages and not is_transactional(name)]
    if again or command.write is not None:
        decision.add(e.Discarded(again if command.write is None else [], command.write))
    for lease, batch in _read_for(state, command):
        if series not in batch.reads.sent and series not in batch.reads.dropped:
            decision.add(e.ReadDropped(lease.name, batch.number, series))
    return decision


def _read_for(state: BrokerState, command: c.Publish) -> list[tuple[Lease, Batch]]:
    """The batches of leases that hold messages and were read for what is written."""
    key, reader = command.key, command.reader
    if reader is None and key is not None and key.kind == "stream":
        reader = SparkBatch(key.id, key.number)
    return [] if reader is None else state.read_for(reader)


def is_published(state: BrokerState, command: c.IsPublished, now: c.Now) -> Decision[bool]:
    """Reply whether a publish with this key has been done."""
    check_name("publish key", command.key.id)
    known = state.publish_keys.last(command.key, now.wall)
    return Decision([], known is not None and command.key.number <= known)


def _check_stages(state: BrokerState, stages: list[str]) -> None:
    missing = [stage for stage in stages if stage not in state.stages or is_transactional(stage)]
    if missing or len(set(stages)) != len(stages):
        write = write_of((missing or stages)[0])
        published = state.ended_writes.get(write)
        if published is not None and published != DISCARDED:
            raise errors.NotFound(
                f"stage {write!r} was published already, {published} messages with what was named beside it then: nothing of "
                "this publish was done, which names other stages or another key"
            )
        if published is not None:
            raise errors.NotFound(
                f"write {write!r} was discarded, by its job or an operator (`penstock stage discard`), or because nobody had "
                f"published it for {STAGE_AGE // (3600 * SECOND)} hours: nothing of it was published; write the data again"
            )
        raise errors.NotFound(
            f"stage {write!r} is not there (any more), so nothing of this publish was done. If it repeats one whose answer was "
            f"lost more than {MAX_ENDED_WRITES} writes ago, that one may have been sent: look, and write the data again"
        )


def publish_stages(state: BrokerState, command: c.Publish, now: c.Now) -> Decision[tuple[int, bool]]:
    """Publish stages that exist, of the sink or of a transaction. Raises NotFound, Fenced, DataLoss."""
    check_outcomes(state, command.stages)
    parts = [part for stage in command.stages for part in state.stages[stage].parts]
    for part in parts:
        if part.exchange is None:
            need_queue(state, part.queue)
    sent = [[lease.name, batch.number] for lease, batch in _read_for(state, command)] if command.key is not None else []
    event = e.Published(
        command.stages if command.write is None else [],
        command.key,
        now.wall,
        makes_room=True,
        write=command.write,
        attempts=None if command.write is None else np.array(command.attempts, np.int64),
        sent=sent or None,
        user=None if command.key is None or command.maker is None else command.maker.user,
    )
    return Decision([(event, None)], (sum(part.count for part in parts), False))


def discard(state: BrokerState, command: c.Discard, now: c.Now) -> Decision[int]:
    """Drop stages, or a write with all its attempts; a published write stays. Reply: how many stages."""
    if command.write is not None:
        check_name("write", command.write)
        if state.ended_writes.get(command.write, DISCARDED) != DISCARDED:
            return Decision([], 0)  # it was published
        return Decision([(e.Discarded([], command.write), None)], len(state.stages_of(command.write)))
    known = [name for name in dict.fromkeys(command.stages) if name in state.stages and not is_transactional(name)]
    return Decision([(e.Discarded(known), None)] if known else [], len(known))


def list_stages(state: BrokerState, command: c.ListStages, now: c.Now) -> Decision[list[dict[str, Any]]]:
    """Describe the writes that wait for a publish, without transactions."""
    return Decision([], [_describe(state, name, now) for name in state.writes if not is_transactional(name)])


def _describe(state: BrokerState, name: str, now: c.Now) -> dict[str, Any]:
    write = state.writes[name]
    stages = [state.stages[stage] for stage in write.stages]
    parts = [part for stage in stages for part in stage.parts]
    leases = {waiting.lease for stage in stages for waiting in stage.outcomes}
    said = {state.leases[lease].queue for lease in leases if lease in state.leases}
    return {
        "stage": name,
        "queues": sorted({part.exchange or part.queue for part in parts} | said),
        "attempts": len(stages),
        "messages": sum(part.count for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "age": (now.wall - write.time) / SECOND,
    }


def purge(state: BrokerState, command: c.Purge, now: c.Now) -> Decision[int]:
    """Archive waiting messages, the oldest first. Reply: how many. Raises NotFound."""
    queue = need_queue(state, command.queue)
    rows = _waiting(queue, command.until, command.messages)
    return Decision([(e.Purged(queue.name, rows, now.wall), None)] if rows else [], rows.count)


def _waiting(queue: Queue, until: int | None, messages: int) -> RowSet:
    """The first that are AVAILABLE or DELAYED, before the sequence number `until`."""
    parts: list[tuple[int, Ints]] = []
    for number in sorted(queue.blocks):
        block = queue.blocks[number]
        if messages <= 0 or (until is not None and until <= block.base):
            break
        rows = block.waiting()[:messages]
        if until is not None:
            rows = rows[rows < until - block.base]
        parts.append((number, rows))
        messages -= len(rows)
    return RowSet.of(parts)


def stat(state: BrokerState, command: c.Stat, now: c.Now) -> Decision[list[dict[str, Any]]]:
    """Describe one queue, or all, with their counts. Raises NotFound."""
    queues = state.queues.values() if command.queue is None else [need_queue(state, command.queue)]
    leases: dict[str, list[str]] = {}
    for lease in state.leases.values():
        leases.setdefault(lease.queue, []).append(lease.name)
    return Decision([], [_stat(queue, leases.get(queue.name, [])) for queue in queues])


def _stat(queue: Queue, leases: list[str]) -> dict[str, Any]:
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
        "staged": queue.staged,
        "stagedBytes": queue.staged_bytes,
        "archived": queue.archived,
        "bytes": queue.bytes,
        "unread": queue.unread,
        "leases": leases,
        "consumers": len(queue.subscriptions),
        "refused": refused_by_all(queue),
        "expired": queue.ended[Outcome.EXPIRED],
        "deadLettered": queue.ended[Outcome.DEAD_LETTERED],
        "stayed": queue.stayed,
        "malformed": queue.malformed,
        "unrecorded": queue.passes.rows,
        "unrecordedBytes": queue.passes.bytes,
    }


def recovered(state: BrokerState, command: c.Recovered, now: c.Now) -> Decision[dict[str, int]]:
    """End what a restart ends: messages held by links come back, transactions roll back, link-bound nodes go."""
    lost: dict[str, RowSet] = {}
    for queue in state.queues.values():
        if not queue.counts[State.ACQUIRED]:
            continue
        blocks = (block for _, block in sorted(queue.blocks.items()) if block.counts[State.ACQUIRED])
        rows = RowSet.of((block.number, _held_by_links(block)) for block in blocks)
        if rows:
            lost[queue.name] = rows
    decision = Decision([], {name: rows.count for name, rows in lost.items()})
    if lost:
        events: list[e.Event] = [e.HoldersLost(lost, int(Cause.BROKER_LOST))]
        coming: Coming = {}
        for name, rows in lost.items():
            events += dead_letters.last_failed(state, state.queues[name], rows, Cause.BROKER_LOST, now, coming)
        decision.add(dead_letters.as_one(events))
    left = [name for name in state.stages if is_transactional(name)]
    if left:
        decision.add(e.Discarded(left))
    decision.add(e.ClockStarted(now.up, command.nonce))
    for event in gone_at_start(state):
        decision.add(event)
    return decision


def _held_by_links(block: Block) -> Any:
    link = np.asarray(block.holder.get(slice(0, block.filled))) & 1 == LINK_HOLDER
    return np.flatnonzero((block.state[: block.filled] == ACQUIRED) & link)


# Housekeeping.
def pack_block(state: BrokerState, command: c.PackBlock, now: c.Now) -> Decision[None]:
    """Pack a full block without live messages, to leave memory; nothing for any other block."""
    queue = state.queues.get(command.queue)
    block = queue.blocks.get(command.number) if queue is not None else None
    if queue is None or block is None or not block.full or block.live or queue.passes.is_passing(block.number):
        return Decision([], None)
    times, positions = block.runs.time.array(), block.runs.position.array()
    outcomes = block.outcome.get(slice(0, block.filled))
    event = e.BlockPacked(
        command.queue,
        command.number,
        int(positions.max()) << 3,
        int(times.min()),
        int(times.max()),
        [outcomes] if isinstance(outcomes, int) else np.unique(outcomes).tolist(),
    )
    return Decision([(event, pack(block.persisted()))], None)


def retain(state: BrokerState, command: c.Retain, now: c.Now) -> Decision[None]:
    """Raise the lowest log position that is kept, unless a live message's payload lies below it."""
    live = state.lowest_needed_position()
    if command.position <= state.retained_from or (live is not None and live < command.position):
        return Decision([], None)
    return Decision([(e.Retained(command.position), None)], None)

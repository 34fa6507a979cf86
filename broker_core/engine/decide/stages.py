"""Decisions about stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_ELSEWHERE, MAX_ENDED_WRITES, MAX_PUBLISH_KEYS, MAX_STAGED_BYTES, MAX_STAGES, SECOND, STAGE_AGE
from ..model.admission import admit_stage
from ..model.lease import Batch, Lease
from ..model.names import check_name
from ..model.reads import SparkBatch, series_of
from ..model.stages import attempt_name, check_stage, is_attempt, write_of
from ..model.state import DISCARDED, BrokerState
from ..model.transaction import is_transactional
from .decision import Decision, decides, need_batch_for_outcomes, need_queue


@decides(c.StageMessages)
def stage_messages(state: BrokerState, command: c.StageMessages, now: c.Now) -> Decision[None]:
    check_stage(command.stage)
    check_not_ended(state, command.stage)
    return stage(state, command, now)


def check_not_ended(state: BrokerState, stage: str) -> None:
    """Messages of an ended write would never be published or discarded."""
    write = write_of(stage)
    if is_attempt(stage) and write in state.ended_writes:
        how = "discarded" if state.ended_writes[write] == DISCARDED else "published"
        raise errors.Fenced(
            f"write {write!r} was {how} already, and this attempt of one of its tasks comes too late: nothing of it was stored. "
            "Spark has given it up, or the write was discarded; then write the data again"
        )


def stage(state: BrokerState, command: c.StageMessages, now: c.Now) -> Decision[None]:
    queue = need_queue(state, command.queue)
    check_count(state, command.stage)
    if state.staged_bytes >= MAX_STAGED_BYTES:
        raise errors.ResourceLimit(
            f"{MAX_STAGED_BYTES} bytes wait in stages for a publish, which is the limit: end the jobs that left them "
            "(`penstock stage list`, `penstock stage discard`)"
        )
    if command.count <= 0:
        return Decision([], None)
    admit_stage(queue, command.candidates)
    attributes = command.attributes.journaled()
    staged = e.Staged(command.stage, command.queue, command.count, command.sizes, now.wall, attributes)
    return Decision([(staged, command.payload)], None)


def check_count(state: BrokerState, stage: str) -> None:
    if stage not in state.stages and len(state.stages) >= MAX_STAGES:
        raise errors.ResourceLimit(
            f"{MAX_STAGES} stages wait for a publish, which is the limit, and a write has one for each task: end the jobs that "
            "left them (`penstock stage list`, `penstock stage discard`), or write with fewer tasks (coalesce)"
        )


@decides(c.Publish)
def publish(state: BrokerState, command: c.Publish, now: c.Now) -> Decision[tuple[int, bool]]:
    key = command.key
    if command.write is not None:
        check_name("write", command.write)
        named = [attempt_name(command.write, attempt) for attempt in command.attempts]
        command = replace(command, stages=named)
    done = _done_before(state, command)
    if done is not None:
        return Decision([], (done, True))
    _check_elsewhere(command)
    if key is not None:
        check_name("publish key", key.id)
        known = state.last_published(key, now.wall)
        if known is not None and key.number <= known:
            return _repeated(state, command, key)
        if known is None:
            _check_keys(state, command.maker)
    _check_stages(state, command.stages, command.write)
    return publish_stages(state, command, now)


def _check_elsewhere(command: c.Publish) -> None:
    if command.elsewhere is not None and command.key is None:
        raise errors.InvalidRequest("field 'elsewhere' is stored with a publish key: name the key")
    if command.elsewhere is not None and len(command.elsewhere) > MAX_ELSEWHERE:
        raise errors.InvalidRequest(
            f"field 'elsewhere' has {len(command.elsewhere)} characters, {MAX_ELSEWHERE} are the limit: write with fewer tasks"
            " (coalesce)"
        )


def _check_keys(state: BrokerState, maker: c.Maker | None) -> None:
    way_out = "write under a known one, or without txnAppId; a key is forgotten a year after its last write"
    if maker is not None and state.publish_keys.count(maker.user) >= maker.most:
        raise errors.ResourceLimit(
            f"user {maker.user!r} has {maker.most} publish keys (a txnAppId or a query's id, for each queue), which is the limit "
            f"max_publish_keys_per_user: {way_out}"
        )
    if len(state.publish_keys) >= MAX_PUBLISH_KEYS:
        raise errors.ResourceLimit(f"{MAX_PUBLISH_KEYS} publish keys are kept, which is the limit: {way_out}")


def _done_before(state: BrokerState, command: c.Publish) -> int | None:
    """Return the number of messages if this publish was done before: its reply was lost."""
    present = any(name in state.stages for name in command.stages)
    if command.write is None and (command.key is not None or not command.stages or present):
        return None  # the checks of `publish` that follow decide
    # Single stages of an earlier publish are gone: the first one stands for all.
    published = state.ended_writes.get(command.stages[0] if command.write is None else command.write, DISCARDED)
    return None if published == DISCARDED else published


def _repeated(state: BrokerState, command: c.Publish, key: c.PublishKey) -> Decision[tuple[int, bool]]:
    """Another write was published with this key. Batches that were read for this one, and never sent, return."""
    decision, series = Decision([], (0, True)), series_of(key.kind, key.id)
    again = [name for name in command.stages if name in state.stages and not is_transactional(name)]
    if again or command.write is not None:
        decision.add(e.Discarded(again if command.write is None else [], command.write))
    for lease, batch in _read_for(state, command):
        if series not in batch.reads.sent and series not in batch.reads.dropped:
            decision.add(e.ReadDropped(lease.name, batch.number, series))
    return decision


def _read_for(state: BrokerState, command: c.Publish) -> list[tuple[Lease, Batch]]:
    """Return the unsettled batches that the micro-batch of this write has read."""
    key, reader = command.key, command.reader
    if reader is None and key is not None and key.kind == "stream":
        reader = SparkBatch(key.id, key.number)
    return [] if reader is None else state.read_for(reader)


@decides(c.IsPublished)
def is_published(state: BrokerState, command: c.IsPublished, now: c.Now) -> Decision[tuple[bool, str | None]]:
    check_name("publish key", command.key.id)
    known = state.last_published(command.key, now.wall)
    published = known is not None and command.key.number <= known
    return Decision([], (published, state.publish_keys.elsewhere(command.key) if published else None))


def _check_stages(state: BrokerState, stages: list[str], write: str | None) -> None:
    missing = [stage for stage in stages if stage not in state.stages or is_transactional(stage)]
    late = write is not None and write in state.ended_writes  # also without stages here: its key would count as published
    if missing or late or len(set(stages)) != len(stages):
        write = write_of((missing or stages)[0]) if write is None else write
        published = state.ended_writes.get(write)
        if published is not None and published != DISCARDED:
            raise errors.StageNotFound(
                f"stage {write!r} was published already, {published} messages with the other stages of that publish. "
                "Nothing of this publish was done, because it names other stages or another key"
            )
        if published is not None:
            raise errors.StageNotFound(
                f"write {write!r} was discarded, by its job or an operator (`penstock stage discard`), or because it was not "
                f"published for {STAGE_AGE // (3600 * SECOND)} hours: nothing of it was published; write the data again"
            )
        raise errors.StageNotFound(
            f"stage {write!r} does not exist (any more), so nothing of this publish was done. If it repeats one whose reply was "
            f"lost more than {MAX_ENDED_WRITES} writes ago, that one may have been sent: look, and write the data again"
        )


def publish_stages(state: BrokerState, command: c.Publish, now: c.Now) -> Decision[tuple[int, bool]]:
    for outcomes in (outcomes for stage in command.stages for outcomes in state.stages[stage].outcomes):
        need_batch_for_outcomes(state, outcomes.lease, outcomes.batch, outcomes.epoch)
    parts = [part for stage in command.stages for part in state.stages[stage].parts]
    for part in parts:
        if part.exchange is None:
            need_queue(state, part.queue)
    sent = [[lease.name, batch.number] for lease, batch in _read_for(state, command)] if command.key is not None else []
    stages, attempts = (command.stages, None) if command.write is None else ([], np.array(command.attempts, np.int64))
    user = None if command.key is None or command.maker is None else command.maker.user
    event = e.Published(stages, command.key, now.wall, command.write, attempts, sent or None, user, command.elsewhere)
    return Decision([(event, None)], (sum(part.count for part in parts), False))


@decides(c.Discard)
def discard(state: BrokerState, command: c.Discard, now: c.Now) -> Decision[int]:
    if command.write is not None:
        check_name("write", command.write)
        if state.ended_writes.get(command.write, DISCARDED) != DISCARDED:
            return Decision([], 0)  # it was published
        return Decision([(e.Discarded([], command.write), None)], len(state.stages_of(command.write)))
    known = [name for name in dict.fromkeys(command.stages) if name in state.stages and not is_transactional(name)]
    return Decision([(e.Discarded(known), None)] if known else [], len(known))


@decides(c.ListStages)
def list_stages(state: BrokerState, command: c.ListStages, now: c.Now) -> Decision[list[dict[str, Any]]]:
    return Decision([], [_describe(state, name, now) for name in state.writes if not is_transactional(name)])


def _describe(state: BrokerState, name: str, now: c.Now) -> dict[str, Any]:
    write = state.writes[name]
    stages = [state.stages[stage] for stage in write.stages]
    parts = [part for stage in stages for part in stage.parts]
    leases = {waiting.lease for stage in stages for waiting in stage.outcomes}
    outcome_queues = {state.leases[lease].queue for lease in leases if lease in state.leases}
    return {
        "stage": name,
        "queues": sorted({part.exchange or part.queue for part in parts} | outcome_queues),
        "attempts": len(stages),
        "messages": sum(part.count for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "age": (now.wall - write.time) / SECOND,
    }

"""State changes by the events of stages."""

from __future__ import annotations

from .. import events as e
from ..columns.attributes import Attributes
from ..columns.runs import Run
from ..model.lease import BatchState
from ..model.reads import series_of
from ..model.state import DISCARDED, BrokerState, StagedPart
from ..model.transaction import is_transactional
from .transitions import append, runs_of


def staged(state: BrokerState, event: e.Staged, position: int) -> None:
    """Add messages to a stage, and count them for their queue."""
    stage = state.begin_stage(event.stage, _time_of(state, event.time))
    attributes = Attributes.of_journal(event.attributes)
    part = StagedPart(event.queue, position, event.count, event.sizes, attributes, event.kept, event.exchange)
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
            append(state, state.queues[part.queue], part.sizes, runs, event.time, part.attributes)
        for waiting in stage.outcomes:
            batch = state.leases[waiting.lease].batches[waiting.batch]
            if batch.state is BatchState.READ:  # else it is done, and this a repetition
                batch.outcomes.add(waiting.outcomes)
    if not event.makes_room:
        state.end_stages(gone)
    write = event.write if event.write is not None else next(iter(names), None)
    if write is not None and not is_transactional(write):
        state.end_write(write, sum(part.count for stage in stages for part in stage.parts))
    if event.key is not None:
        state.publish_keys.note(event.key, event.time, event.user or "", event.elsewhere)
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

"""State changes by the events of the cleaner."""

from __future__ import annotations

import numpy as np

from .. import events as e
from ..columns.rowset import row_count
from ..model.state import BrokerState


def relocated(state: BrokerState, event: e.Relocated, position: int) -> None:
    """Set where the payloads of messages are."""
    queue = state.by_id[event.queue_id]
    taken = np.arange(event.rows.count) if event.taken is None else event.taken.astype(np.int64)
    start = 0
    for number, part in event.rows.items():
        stop = start + row_count(part)
        queue.blocks[number].relocate(part, position, taken[start:stop])
        start = stop
    for each in event.also or ():
        assert isinstance(each, e.Relocated)
        relocated(state, each, position)


def repacked(state: BrokerState, event: e.Repacked, position: int) -> None:
    """Set where the columns of a packed block are, and the span of its payloads."""
    entry = state.by_id[event.queue_id].packed[event.number]
    entry.position = position
    entry.lowest_payload, entry.highest_payload = event.lowest_payload, event.highest_payload


def staged_relocated(state: BrokerState, event: e.StagedRelocated, position: int) -> None:
    """Set where the payload of staged messages is."""
    for stage in state.stages.values():
        for part in stage.parts:
            if part.position == event.position:
                part.position = position


def dropped(state: BrokerState, event: e.Dropped, position: int) -> None:
    """Forget what had its payload in these parts of the log."""
    state.drop(event.intervals)

"""Laws of conservation: every message of a queue is in one state, and every count agrees with the columns."""

from __future__ import annotations

import numpy as np

from penstock.broker_core.engine.columns.limits import NEVER
from penstock.broker_core.engine.columns.rowset import as_array
from penstock.broker_core.engine.columns.states import ARCHIVED, State
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.state import BrokerState


def conserved(queue: Queue) -> bool:
    """Return True if the messages by state, the totals, and the rows to be recorded are all accounted for."""
    totals = queue.totals.conserved(queue.next_sequence, queue.live, queue.ended)
    return counted(queue) and totals and recordings_conserved(queue)


def counted(queue: Queue) -> bool:
    """Return True if delayed + available + acquired + archived = enqueued, in the counts and in the columns."""
    for block in queue.blocks.values():
        for state in State:
            if block.counts[state] != np.count_nonzero(block.state[: block.filled] == state):
                return False
    return sum(queue.counts) + queue.packed_rows == queue.next_sequence


def recordings_conserved(queue: Queue) -> bool:
    """Return True if all counts are right, and the current recording contains only settled rows that are not recorded."""
    rows = size = 0
    recordings = queue.recordings
    current = recordings.current
    for block in queue.blocks.values():
        unrecorded = block.unrecorded_rows()
        if block.unrecorded != len(unrecorded):
            return False
        mine = None if current is None else current.rows.rows(block.number)
        if mine is not None and not np.isin(as_array(mine), unrecorded).all():
            return False
        rows, size = rows + len(unrecorded), size + block.sizes.total(unrecorded, len(unrecorded))
    for entry in queue.packed.values():
        rows, size = rows + entry.unrecorded.count, size + entry.unrecorded_bytes
    waiting = rows - (0 if current is None else current.rows.count)
    return (recordings.rows, recordings.bytes) == (rows, size) and (waiting == 0 or recordings.since < NEVER)


def lowest_live_position(state: BrokerState) -> int | None:
    """Return the log position of the oldest payload of a live message."""
    positions = [part.position for stage in state.stages.values() for part in stage.parts]
    for queue in state.queues.values():
        for block in queue.blocks.values():
            live = np.flatnonzero(block.state[: block.filled] != ARCHIVED)
            positions += block.positions(live).tolist()
    return min(positions, default=None)

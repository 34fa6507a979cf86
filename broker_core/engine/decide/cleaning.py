"""Decisions of the cleaner: copies and drops, by what is needed at that moment, since queues change while it works."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.intervals import Intervals
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.series import Ints
from ..model.queue import Queue
from ..model.retention import Keeping, needed, needed_span
from ..model.state import BrokerState
from .decision import Decision


def relocate(state: BrokerState, command: c.Relocate, now: c.Now) -> Decision[int]:
    """Give messages another payload, as far as theirs is where it was copied from.

    A log position belongs to one record for ever, so rows that have it, and the same row of it, have the same payload.
    """
    queue = state.by_id.get(command.queue_id)
    if queue is None:
        return Decision([], 0)
    parts: list[tuple[int, Ints]] = []
    kept: list[Ints] = []
    start = 0
    for number, part in command.rows.items():
        stop = start + row_count(part)
        same = _are_there(queue, number, as_array(part), command.positions[start:stop], command.payload_rows[start:stop])
        if same is not None:
            parts.append((number, as_array(part)[same]))
            kept.append(np.flatnonzero(same) + start)
        start = stop
    taken = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    if not len(taken):
        return Decision([], 0)
    event = e.Relocated(queue.id, RowSet.of(parts), None if len(taken) == start else taken)
    return Decision([(event, command.payload)], len(taken))


def _are_there(queue: Queue, number: int, rows: Ints, positions: Ints, payload_rows: Ints) -> Ints | None:
    """By row, whether its payload is still that row of the record at that position; None where none is."""
    block = queue.blocks.get(number)
    if block is None or int(rows[-1]) >= block.filled:
        return None
    run = block.runs.row.runs_of(rows)
    same: Ints = block.runs.position.take(run) << 3 == positions
    same &= block.runs.skip.take(run) + rows - block.runs.row.take(run) == payload_rows
    return same if same.any() else None


def relocate_staged(state: BrokerState, command: c.RelocateStaged, now: c.Now) -> Decision[int]:
    """Give staged messages another payload, if they are still staged."""
    count = sum(part.position == command.position for stage in state.stages.values() for part in stage.parts)
    if not count:
        return Decision([], 0)
    return Decision([(e.StagedRelocated(command.position), command.payload)], count)


def drop(state: BrokerState, command: c.Drop, now: c.Now) -> Decision[list[list[int]]]:
    """Drop those of the intervals that hold nothing needed."""
    asked = sorted(interval for interval in command.intervals if not state.dropped.covers(interval[0], interval[1] - 1))
    if not asked:
        return Decision([], [])
    used = {index for found in _needed(state, Intervals.apart(asked), command.keeping) for index in np.unique(found).tolist()}
    free = [interval for index, interval in enumerate(asked) if index not in used]
    return Decision([(e.Dropped(free), None)] if free else [], free)


def _needed(state: BrokerState, asked: Intervals, keeping: Keeping) -> Iterator[Ints]:
    """Yield the numbers of the intervals that hold something needed, with -1 for what lies elsewhere."""
    yield asked.index(np.array([part.position for stage in state.stages.values() for part in stage.parts], np.int64))
    for queue in state.by_id.values():
        for entry in queue.packed.values():
            span = needed_span(entry, keeping)
            if span is not None:
                yield asked.overlapping(*span)
                yield asked.index(np.array([entry.position]))
        for block in queue.blocks.values():
            if asked.meets(block.runs.low, block.runs.high):
                yield asked.index(block.positions(np.flatnonzero(needed(block, keeping))))

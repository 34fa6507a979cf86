"""Decisions of the cleaner: queues change while it works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.intervals import Intervals
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.series import Ints
from ..model.queue import Queue
from ..model.retention import needed, needed_span
from ..model.state import BrokerState
from .decision import Decision, decides


@decides(c.Relocate)
def relocate(state: BrokerState, command: c.Relocate, now: c.Now) -> Decision[int | None]:
    """A log position belongs to one record forever, so an equal position and row mean the same payload."""
    events = [event for copied in command.messages if (event := _relocated(state, copied)) is not None]
    if not events:  # packed blocks may use the payload: it is stored with the first existing queue
        events = [e.Relocated(queue_id, RowSet()) for queue_id in command.packed if queue_id in state.by_id][:1]
    if not events:
        return Decision([], None)
    event = replace(events[0], also=tuple(events[1:]) or None)
    return Decision([(event, command.payload)], sum(relocated.rows.count for relocated in events))


def _relocated(state: BrokerState, copied: c.RelocatedRows) -> e.Relocated | None:
    queue = state.by_id.get(copied.queue_id)
    if queue is None:
        return None
    parts: list[tuple[int, Ints]] = []
    indexes: list[Ints] = []
    start = 0
    for number, part in copied.rows.items():
        stop = start + row_count(part)
        same = _are_there(queue, number, as_array(part), copied.positions[start:stop], copied.payload_rows[start:stop])
        if same is not None:
            parts.append((number, as_array(part)[same]))
            indexes.append(np.flatnonzero(same) + start)
        start = stop
    if not parts:
        return None
    rows = np.concatenate(indexes)
    payload_rows = rows if copied.copy_rows is None else copied.copy_rows[rows]
    in_order = np.array_equal(payload_rows, np.arange(len(payload_rows)))
    return e.Relocated(queue.id, RowSet.of(parts), None if in_order else payload_rows)


def _are_there(queue: Queue, number: int, rows: Ints, positions: Ints, payload_rows: Ints) -> Ints | None:
    """Return by row whether its payload is still at that position and row; None: not for any row."""
    block = queue.blocks.get(number)
    if block is None or int(rows[-1]) >= block.filled:
        return None
    run = block.runs.row.runs_of(rows)
    same: Ints = block.runs.position.take(run) << 3 == positions
    same &= block.runs.skip.take(run) + rows - block.runs.row.take(run) == payload_rows
    return same if same.any() else None


@decides(c.Repack)
def repack(state: BrokerState, command: c.Repack, now: c.Now) -> Decision[bool]:
    queue = state.by_id.get(command.queue_id)
    entry = None if queue is None else queue.packed.get(command.number)
    if entry is None or entry.position != command.position:
        return Decision([], False)
    event = e.Repacked(command.queue_id, command.number, command.lowest_payload, command.highest_payload)
    return Decision([(event, command.payload)], True)


@decides(c.RelocateStaged)
def relocate_staged(state: BrokerState, command: c.RelocateStaged, now: c.Now) -> Decision[int]:
    count = sum(part.position == command.position for stage in state.stages.values() for part in stage.parts)
    if not count:
        return Decision([], 0)
    return Decision([(e.StagedRelocated(command.position), command.payload)], count)


@decides(c.Drop)
def drop(state: BrokerState, command: c.Drop, now: c.Now) -> Decision[list[list[int]]]:
    asked = sorted(interval for interval in command.intervals if not state.dropped.covers(interval[0], interval[1] - 1))
    if not asked:
        return Decision([], [])
    used = {index for needed in _needed(state, Intervals.apart(asked), command) for index in np.unique(needed).tolist()}
    free = [interval for index, interval in enumerate(asked) if index not in used]
    return Decision([(e.Dropped(free), None)] if free else [], free)


def _needed(state: BrokerState, asked: Intervals, command: c.Drop) -> Iterator[Ints]:
    """Yield the numbers of needed intervals; -1: a place outside."""
    keeping, packed = command.keeping, command.packed
    yield asked.index(np.array([part.position for stage in state.stages.values() for part in stage.parts], np.int64))
    for queue in state.by_id.values():
        for entry in queue.packed.values():
            span = needed_span(entry, keeping)
            if span is not None and entry.position in packed:
                yield asked.index(packed[entry.position])
            elif span is not None:
                yield asked.overlapping(*span)
                yield asked.index(np.array([entry.position]))
        for block in queue.blocks.values():
            if asked.meets(block.runs.low, block.runs.high):
                rows = np.flatnonzero(needed(block, keeping, departed=queue.id in state.departed))
                yield asked.index(block.positions(rows))

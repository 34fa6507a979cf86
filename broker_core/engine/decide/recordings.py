"""Decisions about recordings."""

from __future__ import annotations

from .. import commands as c
from .. import events as e
from ..model.recordings import Backlog, Recording, backlogs, next_rows
from ..model.state import BrokerState
from .decision import Decision, decides


@decides(c.BeginRecording)
def begin_recording(state: BrokerState, command: c.BeginRecording, now: c.Now) -> Decision[Recording | None]:
    queue = state.by_id.get(command.queue_id)
    if queue is None:
        return Decision([], None)
    recordings = queue.recordings
    if recordings.current is not None or not recordings.rows:
        return Decision([], recordings.current)
    rows = next_rows(queue, command.rows, command.bytes)
    begun = recordings.next(queue, rows)
    return Decision([(e.RecordingBegun(queue.id, begun.number, rows), None)], begun)


@decides(c.EndRecording)
def end_recording(state: BrokerState, command: c.EndRecording, now: c.Now) -> Decision[bool]:
    queue = state.by_id.get(command.queue_id)
    current = None if queue is None else queue.recordings.current
    if current is None or current.number != command.number:
        return Decision([], False)
    return Decision([(e.RecordingEnded(command.queue_id, command.number, command.version), None)], True)


@decides(c.ListBacklogs)
def list_backlogs(state: BrokerState, command: c.ListBacklogs, now: c.Now) -> Decision[list[Backlog]]:
    return Decision([], backlogs(state.by_id.values(), state.departed), waits=False)

"""Events of recordings."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from ..model.state import BrokerState
from .event import Event


@dataclass(frozen=True)
class RecordingBegun(Event, kind="recording.begun"):
    """The rows of a recording stay the same, however often its commit is tried."""

    queue_id: int
    number: int
    rows: RowSet

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.by_id[self.queue_id]
        queue.recordings.begin(queue, self.rows)


@dataclass(frozen=True)
class RecordingEnded(Event, kind="recording.ended"):
    """The rows are in the queue's table, from this version on."""

    queue_id: int
    number: int
    version: int

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.by_id.get(self.queue_id)
        if queue is not None and self.number > queue.recordings.finished:
            queue.recordings.end(queue, self.version)
            state.forget_departed(queue)

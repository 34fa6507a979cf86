"""State changes by passes that begin and end."""

from __future__ import annotations

from .. import events as e
from ..model.state import BrokerState


def pass_begun(state: BrokerState, event: e.PassBegun, position: int) -> None:
    """Set the rows of a queue's next pass."""
    queue = state.by_id[event.queue_id]
    queue.passes.begin(queue, event.rows)


def pass_ended(state: BrokerState, event: e.PassEnded, position: int) -> None:
    """Mark the rows of a queue's pass as recorded; forget a deleted queue with its last one."""
    queue = state.by_id.get(event.queue_id)
    if queue is not None and event.number > queue.passes.finished:
        queue.passes.end(queue, event.version)
        state.forget_departed(queue)

"""Reads of queues within a turn. A queue that is gone has no holder, no limit and no groups."""

from __future__ import annotations

from ..engine.columns.rowset import RowSet
from ..engine.columns.states import AVAILABLE
from ..engine.decide.decision import need_queue
from ..service.turn import Turn


def available(turn: Turn, queue_name: str) -> int:
    """Count the AVAILABLE messages. Raises NotFound."""
    return need_queue(turn.state, queue_name).counts[AVAILABLE]


def is_limited(turn: Turn, queue_name: str) -> bool:
    """Return True if messages in the queue may keep out new ones."""
    queue = turn.state.queues.get(queue_name)
    return queue is not None and bool(queue.rules.max_messages or queue.rules.max_bytes or queue.rules.key)


def is_freed_by_outcomes(turn: Turn, queue_name: str) -> bool:
    """Return True if the end of a message may make a message available: the next of its group, or itself."""
    queue = turn.state.queues.get(queue_name)
    return queue is not None and (queue.rules.groups != "none" or queue.rules.rejected == "return")


def is_grouped(turn: Turn, queue_name: str) -> bool:
    queue = turn.state.queues.get(queue_name)
    return queue is not None and queue.groups is not None


def unlocked(turn: Turn, queue_name: str) -> int:
    """Count the messages that were returned because a lock expired."""
    queue = turn.state.queues.get(queue_name)
    return 0 if queue is None else queue.totals.unlocked


def held(turn: Turn, queue_name: str, holder: int, rows: RowSet) -> RowSet:
    """Return the rows among these that this holder has."""
    queue = turn.state.queues.get(queue_name)
    return RowSet() if queue is None else queue.held_by(holder, rows)


def active_holder(turn: Turn, queue_name: str) -> int | None:
    """Return the active holder of the queue, 0 without one; None if all holders receive, or if the queue is gone."""
    queue = turn.state.queues.get(queue_name)
    return None if queue is None else queue.consumers.active


def has_passed_all(turn: Turn, queue_name: str, holder: int) -> bool:
    """Return True if this link has looked at every message in the queue."""
    queue = turn.state.queues.get(queue_name)
    link = None if queue is None else queue.consumers.subscriptions.get(holder)
    if queue is None or link is None:
        return True
    return all(queue.position_of(link, level) >= queue.next_sequence for level in range(queue.rules.levels))


def lifetime(turn: Turn, node: str) -> str:
    """Return the lifetime of a queue or exchange; `permanent` also for an unknown name."""
    queue, exchange = turn.state.queues.get(node), turn.state.exchanges.by_name.get(node)
    if queue is not None:
        return queue.rules.lifetime
    return "permanent" if exchange is None else exchange.lifetime

"""State changes by time, and by the start of the clock."""

from __future__ import annotations

from .. import events as e
from ..columns.limits import NEVER
from ..columns.states import Outcome, Verb
from ..model.state import BrokerState
from .transitions import archive, replace_values


def expired(state: BrokerState, event: e.Expired, position: int) -> None:
    """Archive rows as expired."""
    queue = state.queues[event.queue]
    archive(state, queue, queue.allowed(event.rows, Verb.EXPIRE), Verb.EXPIRE, Outcome.EXPIRED, event.time)


def delayed(state: BrokerState, event: e.Delayed, position: int) -> None:
    """Delay rows that came back."""
    queue = state.queues[event.queue]
    for number, rows in queue.allowed(event.rows, Verb.DELAY).items():  # not those that a newer value replaced as they came back
        block = queue.blocks[number]
        block.delay_until(rows, event.until)
        queue.move(block, rows, Verb.DELAY)
        queue.note_times(block)


def came_due(state: BrokerState, event: e.CameDue, position: int) -> None:
    """Make delayed rows AVAILABLE, and archive last values that have a newer one."""
    queue = state.queues[event.queue]
    for number, rows in event.rows.items():
        queue.move(queue.blocks[number], rows, Verb.DUE)
    queue.came_back(event.rows)
    if queue.rules.key:
        replace_values(state, queue, event.rows, event.time)


def locked(state: BrokerState, event: e.Locked, position: int) -> None:
    """Set the time until which rows are locked."""
    queue = state.queues[event.queue]
    for number, rows in event.rows.items():
        block = queue.blocks[number]
        block.lock_until(rows, event.until)
        queue.note_times(block)


def time_passed(state: BrokerState, event: e.TimePassed, position: int) -> None:
    """Advance the timetables: find the next time of each block that was due."""
    if event.expiry:
        state.expired_at = event.expiry
    for clock, until, noted in (
        (state.clocks.due, event.due, "noted_due"),
        (state.clocks.expiry, event.expiry, "noted_expiry"),
        (state.clocks.lock, event.lock, "noted_lock"),
    ):
        for name, number in clock.passed(until):
            queue = state.queues.get(name)
            block = queue.blocks.get(number) if queue is not None else None
            if queue is not None and block is not None:
                block.look_ahead(event.due)
                setattr(block, noted, NEVER)
                queue.note_times(block)


def clock_started(state: BrokerState, event: e.ClockStarted, position: int) -> None:
    """Count the uptime of leases and groups, and the totals of queues, anew after a start."""
    state.started, state.nonce = event.up, event.nonce
    for queue in state.queues.values():
        queue.changes += 1
        queue.totals.begin(queue.next_sequence, queue.live, queue.ended)
        if queue.grouping is not None:
            queue.grouping.restarted()
    for lease in state.leases.values():
        lease.renewed = event.up

"""Decisions about what goes to the archive's table."""

from __future__ import annotations

from .. import commands as c
from .. import events as e
from ..model.passes import Backlog, Pass, backlogs, next_rows
from ..model.state import BrokerState
from .decision import Decision


def begin_pass(state: BrokerState, command: c.BeginPass, now: c.Now) -> Decision[Pass | None]:
    """Begin the next pass of a queue, unless one has begun."""
    queue = state.by_id.get(command.queue_id)
    if queue is None:
        return Decision([], None)
    passes = queue.passes
    if passes.current is not None or not passes.rows:
        return Decision([], passes.current)
    rows = next_rows(queue, command.rows, command.bytes)
    begun = passes.next(queue, rows)
    return Decision([(e.PassBegun(queue.id, begun.number, rows), None)], begun)


def end_pass(state: BrokerState, command: c.EndPass, now: c.Now) -> Decision[bool]:
    """End the pass of this number; nothing where another has begun, or none."""
    queue = state.by_id.get(command.queue_id)
    current = None if queue is None else queue.passes.current
    if current is None or current.number != command.number:
        return Decision([], False)
    return Decision([(e.PassEnded(command.queue_id, command.number, command.version), None)], True)


def list_backlogs(state: BrokerState, command: c.ListBacklogs, now: c.Now) -> Decision[list[Backlog]]:
    """Describe what is not recorded yet."""
    return Decision([], backlogs(state.by_id.values(), state.departed), waits=False)

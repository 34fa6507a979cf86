"""State changes by moves, copies and redrives."""

from __future__ import annotations

import numpy as np

from .. import events as e
from ..columns.limits import MAX_ERROR_TEXT
from ..columns.rowset import as_array
from ..columns.states import Outcome, Reason, Verb
from ..model.state import BrokerState
from ..model.transfer import Cargo, load, unload
from .transitions import archive, let_go, replace_values, settle_in, take_out


def moved(state: BrokerState, event: e.Moved, position: int) -> None:
    """Archive messages here, append them to the target, and count dead letters."""
    queue = state.queues[event.queue]
    verb = Verb.DEAD_LETTER if event.reason else Verb.MOVE
    rows = queue.allowed(event.rows, verb)  # not those that a newer value replaced as they came back
    cargo = None if event.target is None else load(queue, rows)
    if event.target is None:
        for number, part in rows.items():
            queue.keep_dead_letter(queue.blocks[number], part, event.reason)
    archive(state, queue, rows, verb, event.outcome, event.time, event.error, event.taker)
    if event.holder:
        let_go(state, queue, event.holder, event.rows)
    take_out(state, event.lease, event.rows)
    queue.malformed += rows.count * (event.reason == Reason.MALFORMED)
    if cargo is None or event.target is None:
        return
    if event.redriven:
        cargo = cargo.revived()
    elif event.reason:
        cargo = cargo.died(queue.name, Reason(event.reason))
        if event.error:
            cargo.errors.update(dict.fromkeys(range(cargo.count), event.error[:MAX_ERROR_TEXT]))
    _arrive(state, event.target, cargo, event.time)


def copied(state: BrokerState, event: e.Copied, position: int) -> None:
    """Append copies of messages to the target."""
    _arrive(state, event.target, load(state.queues[event.queue], event.rows), event.time)


def _arrive(state: BrokerState, name: str, cargo: Cargo, time: int) -> None:
    queue = state.queues[name]
    first = queue.next_sequence
    unload(queue, cargo, time)
    settle_in(state, queue, first, time)


def redriven(state: BrokerState, event: e.Redriven, position: int) -> None:
    """Make archived dead letters AVAILABLE again, at their sequence numbers, without their expiry if that ended them."""
    queue = state.queues[event.queue]
    for number, part in event.rows.items():
        block = queue.blocks[number]
        expired = as_array(part)[np.asarray(block.reason.get(part)) == Reason.EXPIRED]
        block.expiry.set(expired, 0, len(block.state))
        queue.take_up(block, part)
        state.finished.remove(queue.name, number)
    queue.ended[Outcome.DEAD_LETTERED] -= event.rows.count
    queue.totals.redriven += event.rows.count
    queue.came_back(event.rows)
    if queue.rules.key:
        replace_values(state, queue, event.rows, event.time)

"""*Immediate* messages: delivered at once, or not at all.

The plane enqueues such a message, lets consumers acquire in the same turn, and withdraws what nobody took. Seed 000 shows the
race that this had: between the look whether the message was delivered and its dequeuing, another thread may acquire it. Here the
look is the dequeuing: both are one command, and only what is AVAILABLE goes, by the table of transitions.
"""

from __future__ import annotations

import numpy as np

from penstock.broker_core.engine.columns.rowset import RowSet, as_array, clip
from penstock.broker_core.engine.columns.states import LEGAL, Outcome, Verb
from penstock.broker_core.engine.commands import queues as c
from penstock.broker_core.engine.decide.queues import Decision, need_queue, on
from penstock.broker_core.engine.events import queues as e
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.state import BrokerState


@on(c.Withdraw)
def withdraw(state: BrokerState, command: c.Withdraw, now: c.Now) -> Decision:
    queue = need_queue(state, command.queue)
    rows = _from_legal(queue, command.rows, Verb.WITHDRAW)
    event = e.Purged(queue.name, rows, now.wall, int(Outcome.NOT_DELIVERED))
    return Decision([(event, None)] if rows else [], rows)


def _from_legal(queue: Queue, rows: RowSet, verb: Verb) -> RowSet:
    """Those of the rows that are in a state from which the table allows `verb`."""
    legal = np.frombuffer(LEGAL[verb], np.uint8)
    found = []
    for number, part in rows.items():
        block = queue.blocks.get(number)
        if block is not None:
            there = as_array(clip(part, 0, block.filled))
            found.append((number, there[np.isin(block.state[there], legal)]))
    return RowSet.of(found)

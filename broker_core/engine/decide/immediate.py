"""*Immediate* messages: delivered at once, or not at all.

The plane enqueues such a message, lets consumers acquire in the same turn, and withdraws what nobody took. Seed 000 shows the
race that this had: between the look whether the message was delivered and its dequeuing, another thread may acquire it. Here the
look is the dequeuing: both are one command, and only what is AVAILABLE goes, by the table of transitions.
"""

from __future__ import annotations

from .. import commands as c
from .. import events as e
from ..columns.rowset import RowSet
from ..columns.states import Outcome, Verb
from ..model.state import BrokerState
from .decision import Decision, need_queue


def withdraw(state: BrokerState, command: c.Withdraw, now: c.Now) -> Decision[RowSet]:
    """Archive as not delivered the rows that are still AVAILABLE, and reply with them. Raises NotFound."""
    queue = need_queue(state, command.queue)
    rows = queue.allowed(command.rows, Verb.WITHDRAW)
    event = e.Purged(queue.name, rows, now.wall, int(Outcome.NOT_DELIVERED))
    return Decision([(event, None)] if rows else [], rows)

"""What becomes of messages that nobody will work off here: rejected, tried too often, expired, refused by all.

Each returns events; who decides puts them into its decision, and what must happen together into one `Together`.
"""

from __future__ import annotations

from broker_core.engine import commands as c
from broker_core.engine import events as e
from broker_core.engine.queues import Queue
from broker_core.engine.rowset import RowSet
from broker_core.engine.state import BrokerState
from broker_core.engine.states import Cause, Outcome, Reason


def dead_letter(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    reason: Reason,
    now: c.Now,
    *,
    holder: int = 0,
    lease: str | None = None,
    error: str | None = None,
) -> list[e.Event]:
    """Put messages that are HELD, AVAILABLE or ACQUIRED (then `holder` holds them) into the dead-letter queue; what
    that cannot take stays here, ARCHIVED. Policies have been asked before."""
    raise NotImplementedError


def expire(state: BrokerState, queue: Queue, rows: RowSet, now: c.Now) -> list[e.Event]:
    """Their time has passed: by the queue's policy into the archive or the dead-letter queue. They are AVAILABLE or HELD."""
    raise NotImplementedError


def settle(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    outcome: Outcome,
    now: c.Now,
    *,
    holder: int,
    lease: str | None = None,
    error: str | None = None,
) -> list[e.Event]:
    """What an outcome that settles makes of ACQUIRED messages: rejected ones go by the queue's policy."""
    raise NotImplementedError


def give_back(state: BrokerState, event: e.Event, queue: Queue, rows: RowSet, cause: Cause, now: c.Now) -> list[e.Event]:
    """`event` gives ACQUIRED messages back for `cause`: those whose last attempt this was become dead letters with it."""
    raise NotImplementedError

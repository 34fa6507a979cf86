"""`apply(state, event, position)`: the only code that changes the broker's state, live and at recovery.

It trusts its event: everything was decided, checked and journaled before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..events import exchanges as xe
from ..events import moves as me
from ..events import outcomes as oe
from ..events import passes as pe
from ..events import queues as e
from ..events import transactions as te
from ..model.state import BrokerState
from . import exchanges, moves, outcomes, passes, queues, time, transactions


def apply(state: BrokerState, event: e.Event, position: int) -> None:
    """Change `state` as `event` says. `position` is the event's place in the log, where its payload can be found."""
    if event.time is not None and event.time > state.time:
        state.time = event.time
    HANDLERS[type(event)](state, event, position)


def together(state: BrokerState, event: e.Together, position: int) -> None:
    """Apply the parts of an event in order, all at one log position."""
    for part in event.parts:
        apply(state, part, position)


HANDLERS: dict[type[e.Event], Callable[[BrokerState, Any, int], None]] = {
    e.Together: together,
    e.QueueDeclared: queues.queue_declared,
    e.QueueDeleted: queues.queue_deleted,
    e.Enqueued: queues.enqueued,
    e.Staged: queues.staged,
    e.Published: queues.published,
    e.Discarded: queues.discarded,
    e.ReadDropped: queues.read_dropped,
    e.Acquired: queues.acquired,
    e.Settled: queues.settled,
    e.Returned: queues.returned,
    e.HoldersLost: queues.holders_lost,
    e.Purged: queues.purged,
    e.LeaseBegun: queues.lease_begun,
    e.LeaseTaken: queues.lease_taken,
    e.BatchRead: queues.batch_read,
    e.BatchEnded: queues.batch_ended,
    e.LeaseFinished: queues.lease_finished,
    e.LeaseFenced: queues.lease_fenced,
    e.LeaseDeleted: queues.lease_deleted,
    e.BlockPacked: queues.block_packed,
    e.Retained: queues.retained,
    e.ClockStarted: queues.clock_started,
    e.Renewed: queues.renewed,
    e.LeftUnread: queues.left_unread,
    e.Subscribed: queues.subscribed,
    e.Looked: queues.looked,
    e.Excluded: queues.excluded,
    e.Unsubscribed: queues.unsubscribed,
    xe.ExchangeDeclared: exchanges.exchange_declared,
    xe.ExchangeDeleted: exchanges.exchange_deleted,
    xe.Bound: exchanges.bound,
    xe.Unbound: exchanges.unbound,
    xe.Routed: exchanges.routed,
    xe.LinkOpened: exchanges.link_opened,
    xe.LinkGone: exchanges.link_gone,
    me.Moved: moves.moved,
    me.Copied: moves.copied,
    me.Redriven: moves.redriven,
    me.QueueAltered: moves.queue_altered,
    me.QueuePaused: moves.queue_paused,
    oe.OutcomesStaged: outcomes.outcomes_staged,
    oe.MalformedFound: outcomes.malformed_found,
    pe.PassBegun: passes.pass_begun,
    pe.PassEnded: passes.pass_ended,
    e.Expired: time.expired,
    e.CameDue: time.came_due,
    e.Locked: time.locked,
    e.TimePassed: time.time_passed,
    te.TransactionBegun: transactions.transaction_begun,
    te.Posted: transactions.posted,
    te.Retired: transactions.retired,
    te.TransactionFailed: transactions.transaction_failed,
    te.TransactionEnded: transactions.transaction_ended,
}

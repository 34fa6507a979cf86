"""`apply(state, event, position)`: the only code that changes the broker's state, live and at recovery.

It trusts its event: everything was decided, checked and journaled before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import events as e
from ..model.state import BrokerState
from . import cleaning, exchanges, leases, lifetimes, links, moves, outcomes, passes, queues, stages, time, transactions


def apply(state: BrokerState, event: e.Event, position: int) -> None:
    """Change `state` as `event` says. `position` is the event's log position, where its payload is."""
    if event.time is not None and event.time > state.time:
        state.go_on_to(event.time)
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
    e.Purged: queues.purged,
    e.BlockPacked: queues.block_packed,
    e.Retained: queues.retained,
    e.QueueAltered: queues.queue_altered,
    e.QueuePaused: queues.queue_paused,
    e.Staged: stages.staged,
    e.Published: stages.published,
    e.Discarded: stages.discarded,
    e.ReadDropped: stages.read_dropped,
    e.Acquired: links.acquired,
    e.Settled: links.settled,
    e.Returned: links.returned,
    e.HoldersLost: links.holders_lost,
    e.Subscribed: links.subscribed,
    e.Looked: links.looked,
    e.Excluded: links.excluded,
    e.Unsubscribed: links.unsubscribed,
    e.LeaseBegun: leases.lease_begun,
    e.LeaseTaken: leases.lease_taken,
    e.BatchPlanned: leases.batch_planned,
    e.BatchRead: leases.batch_read,
    e.BatchEnded: leases.batch_ended,
    e.LeaseFinished: leases.lease_finished,
    e.LeaseFenced: leases.lease_fenced,
    e.LeaseDeleted: leases.lease_deleted,
    e.Renewed: leases.renewed,
    e.LeftUnread: leases.left_unread,
    e.LinkOpened: lifetimes.link_opened,
    e.LinkGone: lifetimes.link_gone,
    e.OutcomesStaged: outcomes.outcomes_staged,
    e.MalformedFound: outcomes.malformed_found,
    e.ExchangeDeclared: exchanges.exchange_declared,
    e.ExchangeDeleted: exchanges.exchange_deleted,
    e.Bound: exchanges.bound,
    e.Unbound: exchanges.unbound,
    e.Routed: exchanges.routed,
    e.Moved: moves.moved,
    e.Copied: moves.copied,
    e.Redriven: moves.redriven,
    e.TransactionBegun: transactions.transaction_begun,
    e.Posted: transactions.posted,
    e.Retired: transactions.retired,
    e.TransactionFailed: transactions.transaction_failed,
    e.TransactionEnded: transactions.transaction_ended,
    e.Relocated: cleaning.relocated,
    e.Repacked: cleaning.repacked,
    e.StagedRelocated: cleaning.staged_relocated,
    e.Dropped: cleaning.dropped,
    e.PassBegun: passes.pass_begun,
    e.PassEnded: passes.pass_ended,
    e.ClockStarted: time.clock_started,
    e.Expired: time.expired,
    e.Delayed: time.delayed,
    e.CameDue: time.came_due,
    e.Locked: time.locked,
    e.TimePassed: time.time_passed,
}

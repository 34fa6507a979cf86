"""State changes by the events of transactions."""

from __future__ import annotations

from .. import events as e
from ..model.state import BrokerState


def transaction_begun(state: BrokerState, event: e.TransactionBegun, position: int) -> None:
    """Add an open transaction for its owner."""
    state.transactions.begin(event.transaction, event.owner, event.user)


def posted(state: BrokerState, event: e.Posted, position: int) -> None:
    """Count posted messages and bytes for a transaction, and note the time of its work."""
    transaction = state.transactions.open[event.transaction]
    transaction.posted += event.count
    transaction.bytes += event.bytes
    transaction.works(event.up)


def retired(state: BrokerState, event: e.Retired, position: int) -> None:
    """Add outcomes to a transaction, and note the time of its work."""
    user = state.user_of(state.queues[event.queue], event.holder)
    state.transactions.retire(event.transaction, event.queue, event.holder, user, event.rows, event.outcome)
    state.transactions.open[event.transaction].works(event.up)


def transaction_failed(state: BrokerState, event: e.TransactionFailed, position: int) -> None:
    """Mark a transaction as failed; `undone` also forgets its work."""
    state.transactions.open[event.transaction].failed = event.why
    if event.undone:
        state.transactions.forget_work(event.transaction)


def transaction_ended(state: BrokerState, event: e.TransactionEnded, position: int) -> None:
    """Remove a transaction."""
    state.transactions.end(event.transaction)

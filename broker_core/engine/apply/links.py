"""State changes as messages are acquired, settled and returned, and as links subscribe."""

from __future__ import annotations

from .. import events as e
from ..columns.limits import MAX_EXCLUDED
from ..columns.states import Cause, Reason, Verb
from ..model import consumers
from ..model.lease import Batch
from ..model.state import NEXT_HOLDER, BrokerState
from .transitions import acquire, archive, give_back, let_go, take_out


def acquired(state: BrokerState, event: e.Acquired, position: int) -> None:
    """Make rows ACQUIRED by a link, or by a lease as its new batch."""
    queue = state.queues[event.queue]
    acquire(queue, event.rows, event.holder, None if event.lease is None else state.leases[event.lease])
    if event.lease is not None and event.batch is not None:
        consumers.began(queue, event.holder)
        state.next_holder = event.holder + NEXT_HOLDER
        state.leases[event.lease].remember(Batch(event.batch, event.holder, event.rows, sign=event.sign))


def settled(state: BrokerState, event: e.Settled, position: int) -> None:
    """Archive rows with their outcome, and take them from their holder."""
    queue = state.queues[event.queue]
    archive(state, queue, event.rows, Verb.SETTLE, event.outcome, event.time, event.error, event.taker)
    queue.malformed += event.rows.count * (event.reason == Reason.MALFORMED)
    let_go(state, queue, event.holder, event.rows)
    take_out(state, event.lease, event.rows)


def returned(state: BrokerState, event: e.Returned, position: int) -> None:
    """Make rows AVAILABLE again, with added annotations, and take them from their holder."""
    queue = state.queues[event.queue]
    give_back(state, queue, event.rows, event.cause)
    if event.annotations:
        for number, part in event.rows.items():
            queue.overlay_bytes += queue.blocks[number].overlays.add(part, event.annotations)
    late = event.cause == Cause.LOCK_TIMED_OUT
    queue.unlocked += event.rows.count * late
    let_go(state, queue, event.holder, event.rows, lost=late)
    take_out(state, event.lease, event.rows)


def holders_lost(state: BrokerState, event: e.HoldersLost, position: int) -> None:
    """Make rows AVAILABLE again that links held before a restart."""
    for name, rows in event.rows.items():
        give_back(state, state.queues[name], rows, event.cause)


def subscribed(state: BrokerState, event: e.Subscribed, position: int) -> None:
    """Add a subscription to a queue."""
    queue = state.queues[event.queue]
    queue.changes += 1
    queue.subscriptions[event.holder] = queue.subscription(event.holder, event.priority, event.selector, event.user)
    consumers.joined(queue, event.holder, event.exclusive)
    state.next_link = event.holder + NEXT_HOLDER


def looked(state: BrokerState, event: e.Looked, position: int) -> None:
    """Set how far a subscription has searched at each level."""
    subscription = state.queues[event.queue].subscriptions[event.holder]
    subscription.positions, subscription.epochs = event.positions, event.epochs


def excluded(state: BrokerState, event: e.Excluded, position: int) -> None:
    """Exclude messages from a subscription; archived ones are dropped when there are too many."""
    queue = state.queues[event.queue]
    excluded = queue.subscriptions[event.holder].excluded
    excluded.add(event.rows)
    if excluded.count > MAX_EXCLUDED:
        excluded.forget(queue.blocks)


def unsubscribed(state: BrokerState, event: e.Unsubscribed, position: int) -> None:
    """Remove a subscription from a queue."""
    queue = state.queues[event.queue]
    held = sum(queue.subscriptions[event.holder].held.values())
    queue.unsubscribe(event.holder)
    consumers.left(queue, event.holder, held)

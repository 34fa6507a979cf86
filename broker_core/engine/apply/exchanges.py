"""State changes by the events of exchanges."""

from __future__ import annotations

from .. import events as e
from ..columns.attributes import Attributes
from ..columns.runs import Run
from ..model.bindings import Binding
from ..model.exchange import Exchange
from ..model.state import BrokerState
from .transitions import append, runs_of


def exchange_declared(state: BrokerState, event: e.ExchangeDeclared, position: int) -> None:
    """Add an exchange, and count it for the user who made it."""
    state.exchanges.add(Exchange(event.exchange, event.type, event.options, event.user))
    state.count_made(event.user, 1)


def exchange_deleted(state: BrokerState, event: e.ExchangeDeleted, position: int) -> None:
    """Remove an exchange with its bindings and links, and count it off its user."""
    state.count_made(state.exchanges.by_name[event.exchange].user, -1)
    state.exchanges.delete(event.exchange)
    state.links.pop(event.exchange, None)


def bound(state: BrokerState, event: e.Bound, position: int) -> None:
    """Add a binding to an exchange."""
    state.exchanges.bind(event.exchange, Binding(**event.binding), event.number)


def unbound(state: BrokerState, event: e.Unbound, position: int) -> None:
    """Remove bindings, named by their numbers, from an exchange."""
    state.exchanges.unbind(event.exchange, event.numbers)


def routed(state: BrokerState, event: e.Routed, position: int) -> None:
    """Append one payload's messages to several queues."""
    runs = [Run(event.count, position, 0)] if event.kept is None else runs_of(event.kept, position)
    attributes = Attributes.of_journal(event.attributes)
    for name in event.queues:
        append(state, state.queues[name], event.sizes, runs, event.time, attributes)

"""`decide(state, command, now)`: the entry to all decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from .. import commands as c
from .. import events as e
from ..model.state import BrokerState
from . import (  # noqa: F401  # each registers its functions by `decides`
    cleaning,
    exchanges,
    explanations,
    groups,
    immediate,
    leases,
    lifetimes,
    links,
    losses,
    moves,
    outcomes,
    purges,
    queues,
    recordings,
    routes,
    stages,
    time,
    transactions,
)
from .decision import HANDLERS, NO_EFFECTS, Decision, Effects

R = TypeVar("R")


def decide(state: BrokerState, command: c.Command[R], now: c.Now) -> Decision[R]:
    """Read the state, and change nothing. Time never runs backwards. Raises PenstockError."""
    decision = HANDLERS[type(command)](state, command, c.Now(max(now.wall, state.time), now.up, now.resumed))
    if decision.events:
        decision.effects = effects_of(state, decision.events)
    return decision


def effects_of(state: BrokerState, events: Sequence[tuple[e.Event, Any]]) -> Effects:
    wakes = {name: None for event, _ in events for name in event.wakes(state)}
    may_end = {name: None for event, _ in events for name in event.may_end(state)}
    return Effects(tuple(wakes), tuple(may_end)) if wakes or may_end else NO_EFFECTS

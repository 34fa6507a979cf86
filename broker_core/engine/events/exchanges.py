"""Events of exchanges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..columns.attributes import Attributes
from ..columns.series import Ints
from ..model.bindings import Binding
from ..model.exchange import Exchange
from ..model.state import BrokerState
from .event import Event
from .transitions import Arrival, append, runs_of


@dataclass(frozen=True)
class ExchangeDeclared(Event, kind="exchange.declared"):
    """A new exchange."""

    exchange: str
    type: str
    options: dict[str, Any]
    user: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        state.exchanges.add(Exchange(self.exchange, self.type, self.options, self.user))
        state.count_made(self.user, 1)


@dataclass(frozen=True)
class ExchangeDeleted(Event, kind="exchange.deleted"):
    """The end of an exchange and its bindings."""

    exchange: str

    def apply(self, state: BrokerState, position: int) -> None:
        state.count_made(state.exchanges.by_name[self.exchange].user, -1)
        state.exchanges.delete(self.exchange)
        state.links.pop(self.exchange, None)


@dataclass(frozen=True)
class Bound(Event, kind="bound"):
    """A new binding, with a number that is unique in the exchange."""

    exchange: str
    number: int
    binding: dict[str, Any]  # see `Binding.to_json`

    def apply(self, state: BrokerState, position: int) -> None:
        state.exchanges.bind(self.exchange, Binding(**self.binding), self.number)


@dataclass(frozen=True)
class Unbound(Event, kind="unbound"):
    """The end of bindings."""

    exchange: str
    numbers: list[int]

    def apply(self, state: BrokerState, position: int) -> None:
        state.exchanges.unbind(self.exchange, self.numbers)

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return (self.exchange,)


@dataclass(frozen=True)
class Routed(Event, kind="routed"):
    """Messages that an exchange appended to each of these queues. The payload may be that of a `Together`."""

    queues: list[str]
    count: int
    sizes: int | Ints
    time: int
    attributes: dict[str, Any] | None = None
    payload_rows: Ints | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        runs = runs_of(self.count, self.payload_rows, position)
        arrival = Arrival(self.sizes, runs, self.time, Attributes.of_journal(self.attributes))
        for name in self.queues:
            append(state, state.queues[name], arrival)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return self.queues

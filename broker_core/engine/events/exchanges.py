"""The events of exchanges: see `queues` for the rules of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.broker_core.engine.columns.series import Ints
from penstock.broker_core.engine.events.codec import Event, know


@dataclass(frozen=True)
class ExchangeDeclared(Event):
    kind = "exchange.declared"
    exchange: str
    type: str
    options: dict[str, Any]
    user: str | None = None  # as of QueueDeclared


@dataclass(frozen=True)
class ExchangeDeleted(Event):
    """With all its bindings."""

    kind = "exchange.deleted"
    exchange: str


@dataclass(frozen=True)
class Bound(Event):
    kind = "bound"
    exchange: str
    number: int
    binding: dict[str, Any]  # see `Binding.to_json`


@dataclass(frozen=True)
class Unbound(Event):
    kind = "unbound"
    exchange: str
    numbers: list[int]


@dataclass(frozen=True)
class Routed(Event):
    """With a payload, its own or that of the event it is part of: messages take the next places in each of these queues."""

    kind = "routed"
    queues: list[str]
    count: int
    sizes: int | Ints
    time: int
    traits: dict[str, Any] | None = None
    kept: Ints | None = None  # which of the payload's rows they are; None: all of them, in order


@dataclass(frozen=True)
class LinkOpened(Event):
    kind = "link.opened"
    journaled = False
    node: str
    link: int
    makes: bool
    owner: str | None


@dataclass(frozen=True)
class LinkGone(Event):
    kind = "link.gone"
    journaled = False
    node: str
    link: int


know(ExchangeDeclared, ExchangeDeleted, Bound, Unbound, Routed)

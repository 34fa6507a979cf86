"""The events of exchanges: see `events` for the rules of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker_core.engine.events import Event, know


@dataclass(frozen=True)
class ExchangeDeclared(Event):
    kind = "exchange.declared"
    exchange: str
    type: str
    options: dict[str, Any]


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


know(ExchangeDeclared, ExchangeDeleted, Bound, Unbound)

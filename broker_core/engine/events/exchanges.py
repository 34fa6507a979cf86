"""Events of exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..columns.series import Ints
from .codec import Event, know, stored_as


@dataclass(frozen=True)
class ExchangeDeclared(Event):
    """A new exchange, with the options that differ from their defaults."""

    kind = "exchange.declared"
    exchange: str
    type: str
    options: dict[str, Any]
    user: str | None = None  # as of QueueDeclared


@dataclass(frozen=True)
class ExchangeDeleted(Event):
    """The end of an exchange with all its bindings."""

    kind = "exchange.deleted"
    exchange: str


@dataclass(frozen=True)
class Bound(Event):
    """A new binding, and its number within the exchange."""

    kind = "bound"
    exchange: str
    number: int
    binding: dict[str, Any]  # see `Binding.to_json`


@dataclass(frozen=True)
class Unbound(Event):
    """The end of bindings, named by their numbers."""

    kind = "unbound"
    exchange: str
    numbers: list[int]


@dataclass(frozen=True)
class Routed(Event):
    """Messages appended to each of these queues, with a payload: its own, or that of the event it is part of."""

    kind = "routed"
    queues: list[str]
    count: int
    sizes: int | Ints
    time: int
    attributes: dict[str, Any] | None = field(default=None, metadata=stored_as("traits"))  # see `Attributes.journaled`
    kept: Ints | None = None  # which of the payload's rows they are; None: all of them, in order


know(ExchangeDeclared, ExchangeDeleted, Bound, Unbound, Routed)

"""What can be asked about exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker_core.engine.commands import Command


@dataclass(frozen=True)
class DeclareExchange(Command):
    """Reply: whether it is new. The same again changes nothing."""

    exchange: str
    type: str = "direct"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteExchange(Command):
    """Its bindings go with it, its queues stay."""

    exchange: str


@dataclass(frozen=True)
class Bind(Command):
    """Reply: whether the binding is new. `key`: of a direct exchange; the pattern of a topic exchange."""

    exchange: str
    queue: str
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)  # what a headers exchange looks for
    selector: str | None = None  # parsed before, as its normalised text
    no_local: str | None = None  # the container whose own messages are not meant


@dataclass(frozen=True)
class Unbind(Command):
    """Take away the bindings of a queue: those with this key, or all. Reply: how many."""

    exchange: str
    queue: str
    key: str | None = None


@dataclass(frozen=True)
class ListExchanges(Command):
    """Reply: one JSON-able description each."""

    exchange: str | None = None  # None: all


# Who uses a queue or an exchange, and what ends with that: see `lifetimes`.
@dataclass(frozen=True)
class OpenLink(Command):
    """A link to a queue or an exchange begins. Reply: its number. Needed where the node's lifetime depends on links; a queue's
    subscriptions count besides."""

    node: str
    makes: bool = False  # the node was made for this link
    receives: bool = False
    owner: str | None = None  # whose link it is. With `makes`: this connection alone may receive from the queue


@dataclass(frozen=True)
class CloseLink(Command):
    """It is over. One that is not known, or whose node is gone, changes nothing."""

    node: str
    link: int


@dataclass(frozen=True)
class Retire(Command):
    """End a queue or an exchange if its time has come: see `lifetimes.may_end`. Reply: whether it had."""

    node: str

"""Commands about exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import PenstockError
from ..columns.attributes import Attributes, Coded
from ..columns.series import Ints, Rows
from ..model.routes import Asks, Examined
from .command import Command, Maker


@dataclass(frozen=True)
class DeclareExchange(Command[bool]):
    """The declaration of an exchange; the same again changes nothing. Reply: whether it is new."""

    exchange: str
    type: str = "direct"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None  # as of DeclareQueue


@dataclass(frozen=True)
class DeleteExchange(Command[None]):
    """The deletion of an exchange and its bindings; its queues stay."""

    exchange: str


@dataclass(frozen=True)
class Bind(Command[bool]):
    """A binding to an exchange; `key` is a routing key, or a topic exchange's pattern. Reply: whether it is new."""

    exchange: str
    queue: str
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)  # what a headers exchange looks for
    selector: str | None = None  # parsed before, as its normalised text
    no_local: str | None = None  # the container whose own messages are not meant


@dataclass(frozen=True)
class Unbind(Command[int]):
    """Take away the bindings of a queue: those with this key, or all. Reply: how many."""

    exchange: str
    queue: str
    key: str | None = None


@dataclass(frozen=True)
class ListExchanges(Command[list[dict[str, Any]]]):
    """The descriptions of one exchange, or of all. Reply: one JSON-able object each."""

    exchange: str | None = None  # None: all


class Sent(NamedTuple):
    """Results of routing, as indices within the block."""

    unroutable: Rows = slice(0, 0)  # no queue is for them, and the exchange refuses such
    refused: Rows = slice(0, 0)  # queues are, and none of them took them; `error` says why
    error: PenstockError | None = None
    dropped: int = 0  # no queue is for them, and the exchange drops such
    stale: bool = False  # nothing was done: bindings or queues have changed since the payload was read, so read it again


@dataclass(frozen=True)
class Route(Command[Sent]):
    """Send a block of messages through an exchange. Their payload is stored once, whatever the number of queues that get them.
    Reply: `Sent`."""

    exchange: str
    count: int
    sizes: int | Ints  # as of Enqueue
    payload: Any = None
    keys: str | Coded = ""  # routing keys: one for all, or one each
    durable: bool = True
    # What was read of the payload before: by exchange (this one, and its alternates) what its bindings let through; and by what
    # queues ask of messages, the attributes of all of them. `routes.plan` says what is needed.
    examined: Mapping[str, Examined] = field(default_factory=dict)
    attributes: Mapping[Asks, Attributes] = field(default_factory=dict)
    container: str | None = None  # who sends
    whole: bool = False  # if a message is unroutable or refused, refuse all with an error
    # They wait, in a stage of this name or of this transaction. Then all is done or none, and the queues of this moment get them.
    stage: str | None = None
    transaction: int | None = None

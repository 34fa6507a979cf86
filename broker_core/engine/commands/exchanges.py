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
    """A declaration, which changes nothing if it is repeated. Reply: whether the exchange is new."""

    exchange: str
    type: str = "direct"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None


@dataclass(frozen=True)
class DeleteExchange(Command[None]):
    """The deletion of an exchange and its bindings."""

    exchange: str


@dataclass(frozen=True)
class Bind(Command[bool]):
    """A binding to an exchange. `key` is a routing key, or the pattern of a topic exchange. Reply: whether the binding is new."""

    exchange: str
    queue: str
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)  # headers that a headers exchange compares
    selector: str | None = None  # canonical
    no_local: str | None = None  # AMQP container whose own messages are left out
    name: str | None = None  # refused if another binding of the queue has it
    definition: str | None = None  # of a named binding: see `Binding`


@dataclass(frozen=True)
class Unbind(Command[int]):
    """The end of a queue's bindings: those with this key, or all. Reply: how many."""

    exchange: str
    queue: str
    key: str | None = None
    number: int | None = None  # only the binding with this number


@dataclass(frozen=True)
class ListExchanges(Command[list[dict[str, Any]]]):
    """Descriptions as JSON objects."""

    exchange: str | None = None  # None: all


class Sent(NamedTuple):
    """Results of routing, as indexes within the block."""

    unroutable: Rows = slice(0, 0)  # no binding matches, and the exchange refuses them
    refused: Rows = slice(0, 0)  # by every queue that they reach, with `error`
    error: PenstockError | None = None
    dropped: int = 0  # no binding matches, and the exchange drops them
    stale: bool = False  # nothing was stored, because bindings or queues have changed: read the payload again


@dataclass(frozen=True)
class Route(Command[Sent]):
    """A block of messages for an exchange. Its payload is stored once for all queues."""

    exchange: str
    count: int
    sizes: int | Ints
    payload: Any = None
    keys: str | Coded = ""  # one routing key for all messages, or one for each
    durable: bool = True
    # Read from the payload before the command, as `routes.plan` requires. By exchange: the matches of its bindings. By the
    # needs of queues: the attributes of all messages.
    examined: Mapping[str, Examined] = field(default_factory=dict)
    attributes: Mapping[Asks, Attributes] = field(default_factory=dict)
    container: str | None = None  # AMQP container of the sender
    whole: bool = False  # raise an error and store nothing if one message is unroutable, or refused by one queue
    # If set, the messages wait in this stage or transaction. All of them are stored, or an error is raised.
    stage: str | None = None
    transaction: int | None = None

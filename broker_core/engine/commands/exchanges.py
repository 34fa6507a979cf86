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
    """A repetition changes nothing. Reply: whether the exchange is new."""

    exchange: str
    type: str = "direct"
    options: dict[str, Any] = field(default_factory=dict)
    maker: Maker | None = None


@dataclass(frozen=True)
class DeleteExchange(Command[None]):
    """Also ends its bindings."""

    exchange: str


@dataclass(frozen=True)
class Bind(Command[bool]):
    """The fields are those of `Binding`. Reply: whether the binding is new."""

    exchange: str
    queue: str
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    selector: str | None = None
    no_local: str | None = None
    name: str | None = None
    definition: str | None = None


@dataclass(frozen=True)
class Unbind(Command[int]):
    """The end of a queue's bindings. Reply: how many."""

    exchange: str
    queue: str
    key: str | None = None  # None: any
    number: int | None = None  # None: any


@dataclass(frozen=True)
class ListExchanges(Command[list[dict[str, Any]]]):
    """Descriptions as JSON objects."""

    exchange: str | None = None  # None: all


class Sent(NamedTuple):
    """Reply of `Route`, with indexes of messages."""

    unroutable: Rows = slice(0, 0)  # without a matching binding, and refused by the exchange
    refused: Rows = slice(0, 0)  # by every queue that they reach, with `error`
    error: PenstockError | None = None
    dropped: int = 0  # without a matching binding, and dropped by the exchange
    stale: bool = False  # bindings or queues have changed, and nothing was stored: read the payload again


@dataclass(frozen=True)
class Route(Command[Sent]):
    """Messages for an exchange. Their payload is stored once."""

    exchange: str
    count: int
    sizes: int | Ints
    payload: Any = None
    keys: str | Coded = ""  # one routing key for all messages, or one for each
    durable: bool = True
    # Read from the payload as `routes.plan` requires: matches by exchange, and attributes of all messages by the needs of queues.
    examined: Mapping[str, Examined] = field(default_factory=dict)
    attributes: Mapping[Asks, Attributes] = field(default_factory=dict)
    container: str | None = None  # AMQP container of the sender
    whole: bool = False  # raise an error if one message is unroutable, or refused by one queue
    # The messages wait in this stage or transaction. All of them are stored, or an error is raised.
    stage: str | None = None
    transaction: int | None = None

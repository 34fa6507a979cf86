"""Actions on exchanges and their bindings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from ..engine import commands as c
from ..selectors import hints_of, parse_optional
from .declaration import ActionCall, Reply, action, with_hints
from .fields import About, Request
from .permissions import ANYONE, admin, bind_needs, option_needs, visible
from .queue_actions import Options
from .requests import OfExchange, QueueName, Selector
from .schemas import ANY, BINDING, BOOL, COUNT, TEXT, list_of, map_of, object_of, one_of

_KEY = About("routing key; null in an unbind: every key")


@dataclass(frozen=True, kw_only=True)
class _DeclareExchange(OfExchange):
    type: Annotated[str, About("direct, fanout, topic or headers")] = "direct"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Bind(OfExchange):
    queue: QueueName
    key: Annotated[str, _KEY] = ""
    arguments: Annotated[dict[str, Any], About("headers that a headers exchange compares")] = field(default_factory=dict)
    selector: Selector = None
    no_local: Annotated[str | None, About("container id whose messages are left out; null: all messages")] = None
    name: Annotated[str | None, About("name of the binding, unique among those of the queue to the exchange; null: none")] = None


@dataclass(frozen=True, kw_only=True)
class _Unbind(OfExchange):
    queue: QueueName
    key: Annotated[str | None, _KEY] = None


@action("exchange.declare", admin("declare"), object_of(exchange=TEXT, created=BOOL), needs=option_needs)
def _declare(call: ActionCall, request: _DeclareExchange) -> Reply:
    """Creates an exchange. Does nothing if it exists with the same options."""
    created = call.service.submit(c.DeclareExchange(request.exchange, request.type, request.options))
    return {"exchange": request.exchange, "created": created}


@action("exchange.delete", admin("delete"), object_of(exchange=TEXT))
def _delete(call: ActionCall, request: OfExchange) -> Reply:
    """Deletes an exchange and its bindings."""
    call.service.submit(c.DeleteExchange(request.exchange))
    return {"exchange": request.exchange}


@action(
    "exchange.list",
    ANYONE,
    object_of(
        exchanges=list_of(
            object_of(
                exchange=TEXT,
                type=one_of("direct", "fanout", "topic", "headers"),
                options=map_of(ANY),
                bindings=list_of(BINDING),
                messages=COUNT,
                refusedMessages=map_of(COUNT),
                droppedMessages=map_of(COUNT),
            )
        )
    ),
    reads=True,
)
def _list(call: ActionCall, request: Request) -> Reply:
    """Lists the exchanges that the caller may see, with their bindings."""
    return {"exchanges": visible(call.caller, call.service.submit(c.ListExchanges()))}


@action("exchange.bind", admin("bind"), object_of(("hints",), created=BOOL, hints=list_of(TEXT)), needs=bind_needs)
def _bind(call: ActionCall, request: _Bind) -> Reply:
    """Binds a queue to an exchange."""
    selector = parse_optional(request.selector)
    text = None if selector is None else selector.text
    command = c.Bind(request.exchange, request.queue, request.key, request.arguments, text, request.no_local, request.name)
    return with_hints({"created": call.service.submit(command)}, hints_of(selector))


@action("exchange.unbind", admin("unbind"), object_of(unbound=COUNT))
def _unbind(call: ActionCall, request: _Unbind) -> Reply:
    """Removes bindings of a queue to an exchange."""
    return {"unbound": call.service.submit(c.Unbind(request.exchange, request.queue, request.key))}

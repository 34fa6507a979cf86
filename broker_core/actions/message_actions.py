"""Actions that send a message, replace one by an edited copy, and trace one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from .. import errors
from ..engine import commands as c
from ..service import routing
from ..service.broker import BrokerService
from . import traces
from .declaration import ActionCall, Reply, action
from .edited_messages import Content, edited_copy, new_message, stored
from .fields import About
from .permissions import BROWSE, SEND, admin, move_needs
from .requests import OfQueue
from .schemas import BOOL, COUNT, TEXT, component, list_of, nullable, object_of
from .traces import Trace

_PLACE = object_of(queue=TEXT, sequence=COUNT, archive=BOOL, version=nullable(COUNT), file=COUNT, row=COUNT)


@dataclass(frozen=True, kw_only=True)
class _Send(Content):
    queue: Annotated[str | None, About("name of the queue; or `exchange`")] = None
    exchange: Annotated[str | None, About("name of the exchange, instead of a queue")] = None
    routing_key: Annotated[str | None, About("routing key for the exchange; null: the subject")] = None


@dataclass(frozen=True, kw_only=True)
class _Replace(Content, OfQueue):
    sequence: Annotated[int, About("sequence number of the message")]
    target: Annotated[str, About("queue for the copy: the same one, or another")]


@action("message.send", SEND, object_of(sequence=nullable(COUNT), dropped=COUNT))
def _send(call: ActionCall, request: _Send) -> Reply:
    """Sends one durable message to a queue or an exchange."""
    if (request.queue is None) == (request.exchange is None):
        raise errors.InvalidRequest("message.send: field 'queue' must be there, or 'exchange', and not both")
    if request.queue is not None and request.routing_key is not None:
        raise errors.InvalidRequest("message.send: field 'routingKey' needs an 'exchange'")
    try:
        return _sent(call.service, request)
    except errors.PenstockError as error:
        call.service.refused(request.queue or request.exchange or "", error)
        raise


def _sent(service: BrokerService, request: _Send) -> Reply:
    payload, size = stored(service, new_message("message.send", request, service.wall_ms()))
    if request.queue is not None:
        attributes = service.attributes(request.queue, payload.payload)
        before = service.submit(c.Enqueue(request.queue, 1, size, payload, True, attributes, whole=True))
        return {"sequence": before.next - 1, "dropped": before.duplicates}
    assert request.exchange is not None
    key = request.routing_key if request.routing_key is not None else request.subject or ""
    sent, end = routing.send(service, routing.ExchangeMessages(request.exchange, payload, size, key, whole=True))
    service.journal.wait(end)
    return {"sequence": None, "dropped": sent.dropped}


@action("message.replace", admin("replace messages of"), object_of(queue=TEXT, sequence=COUNT), needs=move_needs)
def _replace(call: ActionCall, request: _Replace) -> Reply:
    """Replaces a message without a holder, or a dead letter that stayed, by an edited copy."""
    service = call.service
    batch = edited_copy("message.replace", call.browses, request.queue, request.sequence, request, service.wall_ms())
    payload, size = stored(service, batch)
    attributes = replace(service.attributes(request.target, payload.payload), ids=None)  # the copy may keep the message id
    copy = c.Enqueue(request.target, 1, size, payload, True, attributes, whole=True)
    sequence = service.submit(c.Replace(request.queue, request.sequence, copy, call.caller.known_user))
    return {"queue": request.target, "sequence": sequence}


@action(
    "message.trace",
    BROWSE,
    object_of(
        ("hints",),
        messages=list_of(component("History")),
        searched=COUNT,
        next=nullable(_PLACE),
        hints=list_of(TEXT),
    ),
    reads=True,
)
def _trace(call: ActionCall, request: Trace) -> Reply:
    """Finds messages by id, in queues and the archive, with their events."""
    return traces.trace(call, request)

"""Nodes that answer requests: a client sends on one link, and receives the responses on another.

A response goes to the link whose target is the request's reply-to, else to the newest response link of the node. It is sent
settled, since SDKs settle no response.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ... import errors
from ...amqp import Condition, Message, RemoteProtocolError, Sender, Target, TransactionalState, decode_message
from ...amqp.deliveries import Delivery
from ...amqp.performatives import SND_MIXED, DeliveryState, Properties
from ...amqp.types import Int, Symbol, Value
from ...service.turn import Turn
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..links.endpoint import LinkEnd
from ..links.termini import SourceTerminus, TargetTerminus
from ..nodes.filters import Filters
from ..transactions.registry import ConnectionTransactions
from .entities import Entity
from .incoming import DialectLink

log = logging.getLogger("penstock.amqp")

MAX_WAITING = 1000  # responses without credit, of one link
OK, ACCEPTED, NO_CONTENT = 200, 202, 204
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 400, 401, 403, 404, 409, 410
FAILED, NOT_IMPLEMENTED, BUSY = 500, 501, 503

_STATUS = {
    Condition.NOT_FOUND: NOT_FOUND,
    Condition.UNAUTHORIZED_ACCESS: UNAUTHORIZED,
    Condition.RESOURCE_LIMIT_EXCEEDED: FORBIDDEN,
    Condition.NOT_IMPLEMENTED: NOT_IMPLEMENTED,
    Condition.INTERNAL_ERROR: FAILED,
}


class RequestFailed(Exception):
    """Failure of a request with the vendor's condition."""

    def __init__(self, status: int, condition: str, text: str) -> None:
        super().__init__(text)
        self.status, self.condition = status, condition


class NodeRequest(NamedTuple):
    """A decoded request."""

    message: Message
    properties: Mapping[str, Any]  # of the application

    def text(self, name: str) -> str:
        """Return a property of the request. Raises Refusal."""
        value = self.properties.get(name)
        if not isinstance(value, str):
            raise Refusal(Condition.INVALID_FIELD, f"the request has no text {name!r}")
        return value


class NodeResponse(NamedTuple):
    """An answer to a request."""

    status: int
    description: str
    value: Value = None
    condition: str | None = None


#: Carries out a request within a turn. The response may be made later, when the turn is durable.
Node = Callable[[Turn, NodeRequest], NodeResponse | Callable[[], NodeResponse]]


class RequestLink(DialectLink):
    """Link on which a client sends requests."""

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Any,
        entity: Entity,
        node: Node,
        *,
        dashed: bool = False,
    ) -> None:
        super().__init__(peer, transactions, link, TargetTerminus(peer, "", None))
        self._entity, self._node = entity, node
        self._dashed = dashed  # names of the response's properties: status-code, or statusCode

    @property
    def keeps(self) -> bool:
        return False

    def delivered(self, deliveries: list[Delivery]) -> None:
        self._unconfirmed += len(deliveries)
        for delivery in deliveries:
            self.loop.in_commit(partial(self._carry_out, delivery))

    def _carry_out(self, delivery: Delivery, turn: Turn) -> None:
        try:
            message = decode_message(delivery.payload)
        except RemoteProtocolError as error:  # there is no request to respond to
            self.loop.behind_all(turn, partial(self.refused, [delivery], error))
            return
        request = NodeRequest(message, message.application_properties or {})
        response: NodeResponse | Callable[[], NodeResponse]
        try:
            if isinstance(delivery.remote_state, TransactionalState):
                refusal = Refusal(Condition.NOT_IMPLEMENTED, "a transaction contains messages and outcomes, no requests")
                self._fail(delivery, refusal)
                raise refusal
            response = self._node(turn, request)
        except errors.StorageError:
            raise
        except (Refusal, RequestFailed, RemoteProtocolError, errors.PenstockError) as error:
            self.peer.log(f"a request to {self._entity.name or self._entity.node!r} is refused: {error}")
            response = failure(error)
        self.loop.behind_all(turn, partial(self._respond, delivery, request, response))

    def _respond(self, delivery: Delivery, request: NodeRequest, made: NodeResponse | Callable[[], NodeResponse]) -> None:
        try:
            response = made if isinstance(made, NodeResponse) else made()
        except errors.PenstockError as error:
            response = failure(error)
        self.confirmed([delivery])
        target = _response_link(self.peer, self._entity, request)
        if target is not None:
            target.put(_encoded(request, response, self._dashed))


def _response_link(peer: Peer, entity: Entity, request: NodeRequest) -> ResponseLink | None:
    mine = [end for end in peer.links.values() if isinstance(end, ResponseLink) and end.entity == entity]
    asked = request.message.properties
    reply_to = None if asked is None else asked.reply_to
    return next((end for end in mine if reply_to is not None and end.reply_to == reply_to), mine[-1] if mine else None)


def failure(error: Exception) -> NodeResponse:
    if isinstance(error, RequestFailed):
        return NodeResponse(error.status, str(error), condition=error.condition)
    known = as_error(error)
    status = _STATUS.get(known.condition, BAD_REQUEST)
    return NodeResponse(status, known.description or "", condition=known.condition)


def _encoded(request: NodeRequest, response: NodeResponse, dashed: bool) -> bytes:
    code, description = ("status-code", "status-description") if dashed else ("statusCode", "statusDescription")
    properties: dict[str, Value] = {code: Int(response.status), description: response.description}
    if response.condition is not None and not dashed:  # with a condition, the Python SDK does not show the description of $cbs
        properties["errorCondition"] = Symbol(response.condition)
    asked = request.message.properties or Properties()
    number = asked.message_id if asked.correlation_id is None else asked.correlation_id
    return Message(
        properties=Properties(correlation_id=number),
        application_properties=properties,
        value=response.value,
        has_value=True,
    ).encode()


class ResponseLink(LinkEnd):
    """Link on which a client receives the responses of a node."""

    link: Sender
    snd_settle_mode = SND_MIXED

    def __init__(self, peer: Peer, link: Sender, entity: Entity) -> None:
        super().__init__(peer, link, SourceTerminus(peer, "", None, Filters()))
        self.entity = entity
        target = link.remote_attach.target if link.remote_attach is not None else None
        self.reply_to = target.address if isinstance(target, Target) else None
        self._waiting: deque[bytes] = deque()
        self._count = 0

    def put(self, message: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING:
            text = f"{MAX_WAITING} responses wait for credit of this link, the limit"
            self.peer.detach(self, as_error(Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, text)))
            return
        self._waiting.append(message)
        self.flowed()

    def flowed(self) -> None:
        while self._waiting and self._alive and self.link.can_send:
            self._count += 1
            self.link.send(self._count.to_bytes(8, "big"), self._waiting.popleft(), settled=True)
        self.link.drained()
        self.peer.send_soon()

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """Ignore outcomes: responses are settled."""

    def end(self, turn: Turn) -> None:
        self.ended = True
        self._waiting.clear()

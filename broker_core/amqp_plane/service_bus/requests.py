"""Nodes that answer requests: a client sends on one link, and receives the responses on another.

A response goes to the link whose target is the request's reply-to, else to the newest response link of the node. It is sent
settled, since SDKs settle no response. Without such a link, the request is refused.

A request is read without the broker's lock, carried out in a commit, and answered when that is durable. A link gets credit for
another request when a response has left, so a client that receives no responses makes no more of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ... import errors
from ...amqp import Accepted, Condition, Message, RemoteProtocolError, Sender, Target, TransactionalState, decode_message
from ...amqp.deliveries import Delivery
from ...amqp.performatives import SND_MIXED, SND_SETTLED, DeliveryState, Properties
from ...amqp.types import Int, Symbol, Value
from ...service.turn import Turn
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..links.endpoint import LinkEnd
from ..links.termini import SourceTerminus, TargetTerminus
from ..nodes.filters import Filters
from ..transactions.registry import ConnectionTransactions
from . import vendor
from .entities import Entity
from .incoming import DialectLink

Some = TypeVar("Some")

MAX_REQUESTS = 10  # of one link whose responses have not left: a response may have 1 MiB, and takes some milliseconds
MAX_WAITING = 100  # responses without credit, of one link, to the requests of several links
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


#: A response, or a function that makes it when the turn is durable. None: the operation continues in the next commit.
Made = NodeResponse | Callable[[], NodeResponse] | None
#: Carries out a request under the broker's lock.
Operation = Callable[[Turn], Made]
#: Reads a request without the broker's lock. Raises Refusal, RequestFailed, PenstockError.
Node = Callable[[NodeRequest], NodeResponse | Operation]


class RequestLink(DialectLink):
    """Link on which a client sends requests."""

    max_bytes: int | None = None  # of one request, if less than of any message

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

    @property
    def window(self) -> int:
        return min(MAX_REQUESTS, super().window)

    @property
    def max_message_size(self) -> int:
        most = super().max_message_size
        return most if self.max_bytes is None else min(most, self.max_bytes)

    def delivered(self, deliveries: list[Delivery]) -> None:
        self._unconfirmed += len(deliveries)
        for delivery in deliveries:
            try:
                self._begin(delivery)
            except (RemoteProtocolError, Refusal) as error:  # there is no request to respond to, or no link for the response
                self.loop.after_all(partial(self.refused, [delivery], error))

    def _begin(self, delivery: Delivery) -> None:
        """Read a request. Raises Refusal, DecodeError, FieldError."""
        message = decode_message(delivery.payload)
        delivery.payload = b""
        request = NodeRequest(message, message.application_properties or {})
        if _response_link(self.peer, self._entity, request) is None:
            text = f"no link receives the responses of {self._entity.name or self._entity.node!r:.80}: attach one first"
            raise Refusal(Condition.PRECONDITION_FAILED, text)
        if isinstance(delivery.remote_state, TransactionalState):
            refusal = Refusal(Condition.NOT_IMPLEMENTED, "a transaction contains messages and outcomes, no requests")
            self._fail(delivery, refusal)
            made: NodeResponse | Operation = self._refusal_of(refusal)
        else:
            made = self._attempt(partial(self._node, request))
        self.loop.in_commit(partial(self._carry_out, delivery, request, made))

    def _carry_out(self, delivery: Delivery, request: NodeRequest, begun: NodeResponse | Operation, turn: Turn) -> None:
        made: Made = begun if isinstance(begun, NodeResponse) else self._attempt(partial(begun, turn))
        if made is None:
            if not self.ended:
                self.loop.in_commit(partial(self._carry_out, delivery, request, begun))
        else:
            self.loop.behind_all(turn, partial(self._respond, delivery, request, made))

    def _attempt(self, act: Callable[[], Some]) -> Some | NodeResponse:
        try:
            return act()
        except errors.StorageError:
            raise
        except (Refusal, RequestFailed, RemoteProtocolError, errors.PenstockError) as error:
            return self._refusal_of(error)

    def _refusal_of(self, error: Exception) -> NodeResponse:
        self.peer.log(f"a request to {self._entity.name or self._entity.node!r} is refused: {error}")
        return failure(error)

    def _respond(self, delivery: Delivery, request: NodeRequest, made: NodeResponse | Callable[[], NodeResponse]) -> None:
        try:
            response = made if isinstance(made, NodeResponse) else made()
        except errors.PenstockError as error:
            response = failure(error)
        self._dispose([delivery], Accepted())
        target = _response_link(self.peer, self._entity, request)
        if target is None:
            self._responded()
        else:
            target.put(_encoded(request, response, self._dashed), self._responded)

    def _responded(self) -> None:
        """Grant credit for other requests: a response has left, or lost its link."""
        self._unconfirmed -= 1
        self.renew(max(1, self.window // 2))


def _response_link(peer: Peer, entity: Entity, request: NodeRequest) -> ResponseLink | None:
    mine = [end for end in peer.links.values() if isinstance(end, ResponseLink) and end.entity == entity]
    asked = request.message.properties
    reply_to = None if asked is None else asked.reply_to
    return next((end for end in mine if reply_to is not None and end.reply_to == reply_to), mine[-1] if mine else None)


def check_space(peer: Peer, octets: int) -> None:
    """Raise RequestFailed while the journal waits for the disk; ResourceLimit while the disk is nearly full."""
    if not peer.context.broker.has_space(octets):
        raise RequestFailed(BUSY, vendor.SERVER_BUSY, "the journal waits for the disk, so nothing was changed: try again")


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

    def __init__(self, peer: Peer, link: Sender, entity: Entity) -> None:
        super().__init__(peer, link, SourceTerminus(peer, "", None, Filters()))
        self.entity = entity
        asks_settled = link.remote_attach is not None and link.remote_attach.snd_settle_mode == SND_SETTLED
        self.snd_settle_mode = SND_SETTLED if asks_settled else SND_MIXED  # the SDK for Go requires the mode that it asks for
        target = link.remote_attach.target if link.remote_attach is not None else None
        self.reply_to = target.address if isinstance(target, Target) else None
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._count = 0

    def put(self, message: bytes, freed: Callable[[], None]) -> None:
        """Send a response when the client grants credit. `freed` is called when it leaves."""
        self._waiting.append((message, freed))
        if len(self._waiting) > MAX_WAITING:
            self._give_up(Condition.RESOURCE_LIMIT_EXCEEDED, f"{MAX_WAITING} responses wait for credit of this link, the limit")
        elif 0 < self.link.max_message_size < len(message):
            text = f"a response has {len(message):,} bytes, more than the max-message-size of its link"
            self._give_up(Condition.MESSAGE_SIZE_EXCEEDED, text)
        else:
            self.flowed()

    def _give_up(self, condition: str, text: str) -> None:
        self.peer.detach(self, as_error(Refusal(condition, text)))

    def flowed(self) -> None:
        while self._waiting and self._can_send:
            message, freed = self._waiting.popleft()
            freed()
            self._count += 1
            self.link.send(self._count.to_bytes(8, "big"), message, settled=True)
        if self._waiting and self.session.remote_incoming_window <= 0:
            self._await_window()
        if not (self._waiting and self.link.link_credit):  # otherwise the credit is for them
            self.link.drained()
        self.peer.send_soon()

    @property
    def _can_send(self) -> bool:
        return self._alive and self.link.can_send and not self.transport.stalled

    def disposed(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """Ignore outcomes: responses are settled."""

    def end(self, turn: Turn) -> None:
        self.ended = True
        self._leave_window()
        while self._waiting:
            _, freed = self._waiting.popleft()
            freed()

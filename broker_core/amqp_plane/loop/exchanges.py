"""Messages that a client sends to an exchange: what one pass brings for it is one command.

A message that the exchange leads to no queue, and does not drop either, is answered *released*, as RabbitMQ 4 does: nothing is
wrong with it, and sent again later it may find a queue. One that its sender has settled cannot be told so, and is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...amqp import Condition
from ...engine.columns.rowset import as_array
from ...errors import PenstockError
from ...reading.stored import store
from ...service.routing import Sending, prepared
from ..links.conditions import Refusal

if TYPE_CHECKING:
    from ...engine.commands import Route, Sent
    from ...messages.encoding.arriving import Arrived
    from ...service.broker import BrokerService
    from ...service.turn import Turn
    from ..ports import LinkPeer


class Unroutable(Refusal):
    """Refusal of a message for which there is no queue, now."""


class ExchangeRoute(NamedTuple):
    """A route by an exchange: what has the same in one pass goes together."""

    exchange: str
    key: str | None = None  # None: each message's subject
    container: str | None = None  # whose they are, where a binding asks for that
    transaction: int | None = None


def route_of(peer: LinkPeer, exchange: str, key: str | None, transaction: int | None = None) -> ExchangeRoute:
    """Form the route of this peer's messages by an exchange; without a `key`, each message's subject is its routing key."""
    container = peer.container if peer.host.nodes.minds_senders(exchange) else None
    return ExchangeRoute(exchange, key, container, transaction)


class Exchanged(NamedTuple):
    """Messages read before the lock, and the command that carries them; or why there is none."""

    found: Arrived
    sending: Sending
    route: Route | None = None
    error: PenstockError | None = None


def read(service: BrokerService, route: ExchangeRoute, found: Arrived) -> Exchanged:
    """Read what the exchange's bindings have to know of messages that have come. Holds the lock for a moment only."""
    payload = store(found.payload, found.mask)
    sending = Sending(
        route.exchange, payload, found.sizes, route.key, found.durable, route.container, transaction=route.transaction
    ).with_keys()
    try:
        with service.turn(hurry=False) as turn:
            plan = turn.plan(sending.exchange, sending.known_keys)
        return Exchanged(found, sending, prepared(sending, plan, service.wall_ms()))
    except PenstockError as error:
        return Exchanged(found, sending, error=error)


def execute(turn: Turn, service: BrokerService, exchanged: Exchanged) -> tuple[list[tuple[int, Exception]], int]:
    """Route messages. Returns which deliveries are refused, and why, and the log position to wait for. Raises PenstockError where
    all are refused."""
    if exchanged.error is not None:
        raise exchanged.error
    assert exchanged.route is not None
    sent, end = turn.execute(exchanged.route)
    if sent.stale:  # seldom: bindings changed since, so this look is one with the lock
        sending = exchanged.sending
        again = prepared(sending, turn.plan(sending.exchange, sending.known_keys), service.wall_ms())
        sent, end = turn.execute(again)
    return _refusals(exchanged, sent), end


def _refusals(exchanged: Exchanged, sent: Sent) -> list[tuple[int, Exception]]:
    """List refusals by the number of a delivery, counted with those that were no messages."""
    refused = list(exchanged.found.refused)
    unroutable, kept_out = as_array(sent.unroutable).tolist(), as_array(sent.refused).tolist()
    if not unroutable and not kept_out:
        return refused
    malformed = {number for number, _ in refused}
    rows = exchanged.found.rows
    numbers = [number for number in range(rows + len(malformed)) if number not in malformed]
    nowhere = Unroutable(Condition.NOT_FOUND, f"exchange {exchanged.sending.exchange!r:.80} leads it to no queue")
    refused += [(numbers[row], nowhere) for row in unroutable]
    if sent.error is not None:
        refused += [(numbers[row], sent.error) for row in kept_out]
    return refused

"""Messages that a client sends to an exchange: what one pass brings for it is one command.

A message that the exchange leads to no queue, and does not drop either, is answered *released*, as RabbitMQ 4 does: nothing is
wrong with it, and sent again later it may find a queue. One that its sender has settled cannot be told so, and is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...amqp import Condition
from ...engine.columns.rowset import as_array
from ...messages.payloads import store
from ...service.routing import ExchangeMessages, prepare
from ..links.conditions import Refusal

if TYPE_CHECKING:
    from ...engine.commands import Sent
    from ...errors import PenstockError
    from ...messages.encoding.arriving import ArrivedMessages
    from ...service.broker import BrokerService
    from ...service.routing import Prepared
    from ...service.turn import Turn
    from ..ports import LinkPeer


Refused = list[tuple[int, Exception]]  # by the number of a delivery, why


class Told(NamedTuple):
    """News for senders: which deliveries are refused, or why all are, once the log is durable up to `end`."""

    refused: Refused
    error: PenstockError | None
    end: int


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
    """Messages read before the lock, as the broker has prepared them; None where there is none among what came."""

    exchange: str
    found: ArrivedMessages
    message: Prepared | None


def read(broker: BrokerService, route: ExchangeRoute, found: ArrivedMessages) -> Exchanged:
    """Read what the exchange's bindings have to know of messages that have come. Holds the lock for a moment only."""
    if not found.rows:
        return Exchanged(route.exchange, found, None)
    payload = store(found.payload, found.mask)
    sending = ExchangeMessages(
        route.exchange, payload, found.sizes, route.key, found.durable, route.container, transaction=route.transaction
    )
    return Exchanged(route.exchange, found, prepare(broker, sending))


def carry_out(turn: Turn, exchanged: Exchanged) -> Told:
    """Have messages routed."""
    found, message = exchanged.found, exchanged.message
    if message is None:
        return Told(found.refused, None, turn.end)
    sent, error, end = message.carry_out(turn)
    return Told([] if error is not None else _refusals(exchanged, sent), error, end)


def _refusals(exchanged: Exchanged, sent: Sent) -> Refused:
    """List refusals by the number of a delivery, counted with those that were no messages."""
    refused = list(exchanged.found.refused)
    unroutable, kept_out = as_array(sent.unroutable).tolist(), as_array(sent.refused).tolist()
    if not unroutable and not kept_out:
        return refused
    numbers = exchanged.found.numbers
    nowhere = Unroutable(Condition.NOT_FOUND, f"exchange {exchanged.exchange!r:.80} leads it to no queue")
    refused += [(numbers[row], nowhere) for row in unroutable]
    if sent.error is not None:
        refused += [(numbers[row], sent.error) for row in kept_out]
    return refused

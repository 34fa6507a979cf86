"""Messages that a client sends to an exchange: what one pass brings for it is one command.

A message that the exchange leads to no queue, and does not drop either, is answered *released*, as RabbitMQ 4 does: nothing is
wrong with it, and sent again later it may find a queue. One that its sender has settled cannot be told so, and is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from ...amqp import Condition
from ...engine.columns.rowset import as_array
from ...engine.commands import Sent
from ...messages.encoding.arriving import ArrivedMessages
from ...messages.payloads import store
from ...service.broker import BrokerService
from ...service.routing import ExchangeMessages, Prepared, prepare
from ...service.turn import Turn
from .confirmations import EnqueueResult, NoRoute, Refused
from .requests import ExchangeRoute


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


def carry_out(turn: Turn, exchanged: Exchanged) -> EnqueueResult:
    """Have messages routed."""
    found, message = exchanged.found, exchanged.message
    if message is None:
        return EnqueueResult(found.refused, None, turn.end)
    sent, error, end = message.carry_out(turn)
    return EnqueueResult([] if error is not None else _refusals(exchanged, sent), error, end)


def _refusals(exchanged: Exchanged, sent: Sent) -> Refused:
    """List refusals by the number of a delivery, counted with those that were no messages."""
    refused = list(exchanged.found.refused)
    unroutable, kept_out = as_array(sent.unroutable).tolist(), as_array(sent.refused).tolist()
    if not unroutable and not kept_out:
        return refused
    numbers = exchanged.found.numbers
    nowhere = NoRoute(Condition.NOT_FOUND, f"exchange {exchanged.exchange!r:.80} leads it to no queue")
    refused += [(numbers[row], nowhere) for row in unroutable]
    if sent.error is not None:
        refused += [(numbers[row], sent.error) for row in kept_out]
    return refused

"""Messages for an exchange: one command for all of a commit.

A message that an exchange neither routes nor drops is *released*, as in RabbitMQ 4: it is valid, and may find a queue later.
"""

from __future__ import annotations

from typing import NamedTuple

from ...amqp import Condition
from ...engine.columns.rowset import as_array
from ...engine.commands import Sent
from ...messages.encoding.arriving import ArrivedMessages
from ...messages.payloads import store
from ...service.broker import BrokerService
from ...service.routing import ExchangeMessages, Prepared, prepare, subjects
from ...service.turn import Turn
from .confirmations import EnqueueResult, NoRoute, Refused
from .requests import ExchangeRoute


class Exchanged(NamedTuple):
    """Messages that were prepared before the lock."""

    exchange: str
    arrived: ArrivedMessages
    message: Prepared


def read(broker: BrokerService, route: ExchangeRoute, arrived: ArrivedMessages, *, whole: bool) -> Exchanged:
    """Read the parts of messages that the bindings need. Takes the lock briefly.

    `whole`: every queue accepts all messages, or all are refused.
    """
    payload = store(arrived.payload, arrived.mask)
    keys = subjects(payload.batch) if route.key is None else route.key
    sending = ExchangeMessages(
        route.exchange, payload, arrived.sizes, keys, arrived.durable, route.container, whole, transaction=route.transaction
    )
    return Exchanged(route.exchange, arrived, prepare(broker, sending))


def carry_out(turn: Turn, exchanged: Exchanged) -> EnqueueResult:
    sent, error, end = exchanged.message.carry_out(turn)
    return EnqueueResult([] if error is not None else _refusals(exchanged, sent), error, end)


def _refusals(exchanged: Exchanged, sent: Sent) -> Refused:
    refused = list(exchanged.arrived.refused)
    unroutable, kept_out = as_array(sent.unroutable).tolist(), as_array(sent.refused).tolist()
    if not unroutable and not kept_out:
        return refused
    numbers = exchanged.arrived.numbers
    nowhere = NoRoute(Condition.NOT_FOUND, f"exchange {exchanged.exchange!r:.80} leads it to no queue")
    refused += [(numbers[row], nowhere) for row in unroutable]
    if sent.error is not None:
        refused += [(numbers[row], sent.error) for row in kept_out]
    return refused

"""Events of messages that do not reach a queue."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.state import BrokerState
from .event import Event


@dataclass(frozen=True)
class MessagesLost(Event, kind="lost", journaled=False):
    """Messages that a queue or an exchange, if it exists, refused or dropped."""

    node: str
    reason: str  # see `columns.losses`
    messages: int

    def apply(self, state: BrokerState, position: int) -> None:
        queue, exchange = state.queues.get(self.node), state.exchanges.by_name.get(self.node)
        if queue is not None:
            queue.losses[self.reason] += self.messages
            queue.changes += 1
        elif exchange is not None:
            exchange.losses[self.reason] += self.messages


@dataclass(frozen=True)
class SentToExchange(Event, kind="exchange.sent", journaled=False):
    """Messages to an exchange, if it exists, lost ones included."""

    exchange: str
    messages: int

    def apply(self, state: BrokerState, position: int) -> None:
        exchange = state.exchanges.by_name.get(self.exchange)
        if exchange is not None:
            exchange.messages += self.messages

"""The batch of a commit: the requests of links since the last one.

If the journal has no capacity for the messages, all messages wait, and so do all requests that came with them or later. Their
connections are not read from meanwhile.

Outcomes of deliveries that their receiver has settled are *delayed*: no answer waits for them, and they seldom make messages
available. They share the next sync, or go with a later request of their session. They are not delayed if they are many, if they
free capacity that arriving messages need, or messages that a link asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ... import errors
from ...amqp.deliveries import Delivery
from ...engine.model.dispositions import DeliveryEnd
from ...messages.encoding.arriving import ArrivedMessages, arrived
from ...service.broker import BrokerService
from ...service.turn import Turn
from . import exchanges
from .parties import MessageSender, Parts, ReceiverLink
from .requests import ExchangeRoute, Posting, Retirement, Route, Whole, is_whole, node_of
from .transport import JOURNAL, Transport

Action = Callable[[Turn], None]
Messages = list[tuple[Route, Parts, Any]]  # the last is ArrivedMessages, or Exchanged through an exchange
Dispositions = dict[tuple[ReceiverLink, DeliveryEnd | Retirement], list[Delivery]]

_PAYLOAD = attrgetter("payload")
RECORD_BYTES = 16 << 20  # of one queue's messages in one command; a larger batch becomes several
LARGE_COMMIT = 256  # deliveries that are worth a commit of their own; fewer wait until the previous commit is durable


class CommitBatch:
    """Used in the loop's thread, without the broker's lock. `hold_up`: messages wait until more of the log is durable."""

    def __init__(self, broker: BrokerService, hold_up: Callable[[], None]) -> None:
        self._broker = broker
        self._hold_up = hold_up
        self._messages: dict[Route, Parts] = {}
        self._outcomes: Dispositions = {}  # that require a commit
        self._delayed: Dispositions = {}
        self.actions: list[Action] = []
        self._paused: dict[Transport, None] = {}  # connections that are not read from
        self.size = 0  # new deliveries since the last commit

    # --- handing in

    def add_messages(self, destination: Route, sender: MessageSender, deliveries: list[Delivery]) -> None:
        self.size += len(deliveries)
        parts = self._messages.setdefault(destination, [])
        if parts and parts[-1][0] is sender:
            parts[-1][1].extend(deliveries)  # they are confirmed together, in ranges
        else:
            parts.append((sender, deliveries))

    def add_outcome(self, link: ReceiverLink, disposition: DeliveryEnd | Retirement, deliveries: list[Delivery]) -> bool:
        """Returns False if the outcome is delayed."""
        waits = disposition.outcome is None or not all(delivery.remote_settled for delivery in deliveries)
        requires = waits or len(deliveries) >= LARGE_COMMIT
        (self._outcomes if requires else self._delayed).setdefault((link, disposition), []).extend(deliveries)
        if requires:
            self.size += len(deliveries)
        return requires

    # --- contents

    @property
    def has_messages(self) -> bool:
        return bool(self._messages)

    @property
    def is_wanted(self) -> bool:
        return bool(self._messages or self._outcomes or self.actions)

    @property
    def has_delayed(self) -> bool:
        return bool(self._delayed)

    # --- taking

    def take_messages(self) -> Messages:
        """Take the messages, read into columns. They stay if the journal has no capacity for them."""
        taken: Messages = []
        if not self._messages or not self._have_capacity():
            return taken
        waiting, self._messages = self._messages, {}
        for destination, parts in waiting.items():
            while parts:
                record, size = [], 0
                while parts and size < RECORD_BYTES:
                    record.append(parts.pop(0))
                    size += _octets(record[-1][1])
                read: Any = arrived([d.payload for _, deliveries in record for d in deliveries], self._broker.wall_ms())
                route = destination.route if isinstance(destination, (Posting, Whole)) else destination
                if is_whole(destination) and read.refused:
                    read = _refused_with(read)
                if isinstance(route, ExchangeRoute) and read.rows:
                    if isinstance(destination, Posting):
                        route = route._replace(transaction=destination.transaction.number)
                    read = exchanges.read(self._broker, route, read, whole=is_whole(destination))
                taken.append((destination, record, read))
        return taken

    def take_rest(self, messages: Messages) -> tuple[Dispositions, list[Action]]:
        """Take outcomes and actions for a commit of these messages.

        Delayed outcomes go with later requests of their session. All go with actions, since a link ends after its outcomes.
        """
        actions, self.actions = self.actions, []
        outcomes, self._outcomes = self._outcomes, {}
        if actions:
            _add(outcomes, self.take_delayed())
        elif self._delayed:
            sessions = {sender.session for _, parts, _ in messages for sender, _ in parts}
            sessions.update(link.session for link, _ in outcomes)
            self.bring(outcomes, lambda link: link.session in sessions)
        return outcomes, actions

    def bring(self, outcomes: Dispositions, chosen: Callable[[ReceiverLink], bool]) -> None:
        _add(outcomes, {key: self._delayed.pop(key) for key in [key for key in self._delayed if chosen(key[0])]})

    def take_delayed(self) -> Dispositions:
        delayed, self._delayed = self._delayed, {}
        return delayed

    def let_go_on(self) -> None:
        paused, self._paused = self._paused, {}
        for transport in paused:
            transport.resume(JOURNAL)

    def _have_capacity(self) -> bool:
        """Return True if the journal has capacity for the messages. If the disk is full, they are refused."""
        parts = [part for waiting in self._messages.values() for part in waiting]
        try:
            fits = self._fits(sum(_octets(deliveries) for _, deliveries in parts))
        except errors.PenstockError as error:
            waiting, self._messages = self._messages, {}
            for destination, senders in waiting.items():
                self._broker.refused(node_of(destination), error, sum(len(deliveries) for _, deliveries in senders))
                for link, deliveries in senders:
                    link.refused(deliveries, error)
            return False
        for link, _ in parts if not fits else ():
            self._paused[link.transport] = None
            link.transport.pause(JOURNAL)
        return fits

    def _fits(self, size: int) -> bool:
        if self._broker.has_space(size):
            return True
        self._hold_up()  # before the second check: news of capacity in between must not be missed
        return self._broker.has_space(size)


def _refused_with(read: ArrivedMessages) -> ArrivedMessages:
    number, error = read.refused[0]
    why = errors.InvalidRequest(f"message {number} of the batch is invalid, so none was accepted: {error}")
    return arrived(())._replace(refused=[(number, why) for number in range(read.rows + len(read.refused))])


def _octets(deliveries: list[Delivery]) -> int:
    return sum(map(len, map(_PAYLOAD, deliveries)))


def _add(outcomes: Dispositions, more: Dispositions) -> None:
    for key, deliveries in more.items():
        outcomes.setdefault(key, []).extend(deliveries)

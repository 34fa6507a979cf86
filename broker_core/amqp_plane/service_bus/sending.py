"""Links on which a client sends: batches become single messages, and scheduled messages get Penstock's annotation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ...amqp import Condition, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.encoder import encode
from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import DATA, decode_message, scan
from ...amqp.types import Timestamp
from ...messages.annotations import DELIVERY_TIME
from ...messages.encoding.fields import user_id_of
from ..conditions import Refusal
from ..connections.peer import Peer
from ..loop.requests import ExchangeRoute, Posting, Whole
from . import vendor
from .annotations import annotated
from .incoming import DialectLink

MAX_BATCH = 10_000  # messages; each costs the plane some microseconds before it serves another client

_SCHEDULED = str(vendor.SCHEDULED).encode()
_HEADS = {0xA0: 2, 0xB0: 5}  # octets before a binary, by its constructor
_numbers = itertools.count()


class BatchedMessage(NamedTuple):
    """A message of a batch, as the commit loop sees it."""

    payload: bytes


class EntitySender(DialectLink):
    """Link to a queue or topic."""

    def delivered(self, deliveries: list[Delivery]) -> None:
        single: list[Delivery] = []
        for delivery in deliveries:
            is_batch = delivery.format == vendor.BATCH_FORMAT
            if not is_batch and _SCHEDULED not in delivery.payload:
                single.append(delivery)
                continue
            if single and is_batch:
                super().delivered(single)
                single = []
            try:
                if is_batch:
                    self._send_batch(delivery)
                else:
                    delivery.payload = scheduled(delivery.payload)
                    single.append(delivery)
            except (Refusal, RemoteProtocolError) as error:
                self._unconfirmed += 1
                self.refused([delivery], error)
        if single:
            super().delivered(single)

    def _send_batch(self, delivery: Delivery) -> None:
        state = delivery.remote_state
        transaction = self.transactions.find(state.txn_id) if isinstance(state, TransactionalState) else None
        messages = unpacked(delivery.payload)
        check_users(self.peer, messages)
        route = self.terminus.route()
        assert isinstance(route, (str, ExchangeRoute))  # an entity has no immediate messages
        several = [BatchedMessage(scheduled(message) if _SCHEDULED in message else message) for message in messages]
        number = next(_numbers)
        whole = Whole(route, number) if transaction is None else Posting(route, transaction, number)
        if transaction is not None:
            transaction.asked += len(several) - 1  # its one delivery is counted
        self._unconfirmed += 1  # the last step: the caller counts a refused batch
        delivery.payload = b""
        self.loop.enqueue(whole, SentBatch(self, delivery), several)  # type: ignore[arg-type]


class SentBatch:
    """The sender of a batch's messages: the first refusal refuses the batch."""

    def __init__(self, link: EntitySender, delivery: Delivery) -> None:
        self.link, self.transport, self.session = link, link.transport, link.session
        self._delivery: Delivery | None = delivery

    def confirmed(self, deliveries: list[Delivery]) -> None:
        if self._delivery is not None and deliveries:
            self.link.confirmed([self._delivery])
            self._delivery = None

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        if self._delivery is not None:
            self.link.refused([self._delivery], error)
            self._delivery = None


def unpacked(batch: bytes) -> list[bytes]:
    """Return the encoded messages of a batch. Raises DecodeError, Refusal."""
    sections = scan(batch, most=MAX_BATCH + 8)  # besides the messages, each other section occurs once
    data = [section for section in sections if section.code == DATA]
    if not 0 < len(data) <= MAX_BATCH:
        text = f"a batch has 1 to {MAX_BATCH:,} messages as data sections, not {len(data):,}"
        raise Refusal(Condition.NOT_ALLOWED, text)
    return [batch[section.value + _HEADS[batch[section.value]] : section.end] for section in data]


def scheduled(message: bytes) -> bytes:
    """Add the annotation of a delivery time to a message that is scheduled. Raises DecodeError."""
    time = (decode_message(message).message_annotations or {}).get(vendor.SCHEDULED)
    if time is None:
        return message
    if not isinstance(time, int) or abs(time) >= 1 << 63:
        raise Refusal(Condition.INVALID_FIELD, f"{vendor.SCHEDULED} is a timestamp, not {time!r:.80}")
    return annotated(message, encode({DELIVERY_TIME: Timestamp(time)}))


def check_users(peer: Peer, messages: Sequence[bytes]) -> None:
    """Refuse messages with the user-id of another user. Raises Refusal."""
    if peer.context.settings.amqp_check_user_id and peer.context.access.enforced:
        user = peer.user.encode()
        if any(user_id_of(message) not in (None, user) for message in messages):
            text = "a message has the user-id of another user: leave it out, or see amqp_check_user_id"
            raise Refusal(Condition.UNAUTHORIZED_ACCESS, text)

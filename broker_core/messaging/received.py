"""One message as the application gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker_core.amqp import Accepted, Message, Modified, Rejected, Released
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.messages.annotations import DEATH_REASON

if TYPE_CHECKING:
    from penstock.broker_core.messaging.consumer import Consumer
    from penstock.broker_core.messaging.wire import Wire

Outcome = Accepted | Rejected | Released | Modified

ACCEPTED, RELEASED = Accepted(), Released()
#: Handed out and not done: it goes back, and the delivery counts.
FAILED = Modified(delivery_failed=True)
#: No use for this consumer: it goes back, counts, and does not come here again. What expired in the prefetch is settled so: AMQP
#: has no word for it, and the broker, whose clock rules, then finds it expired.
NOT_HERE = Modified(delivery_failed=True, undeliverable_here=True)


class ReceivedMessage:
    """`message` is all of it, decoded (`broker_core.amqp.Message`); `source` the address that it came from.

    `number` counts what the session has handed out; `outcome` is what it was settled with, None as long as it is not.
    """

    __slots__ = ("consumer", "delivery", "message", "number", "outcome", "source", "wanted", "wire")

    def __init__(self, consumer: Consumer, wire: Wire, delivery: Delivery, message: Message, source: str, number: int) -> None:
        self.consumer = consumer
        self.wire = wire
        self.delivery = delivery
        self.message = message
        self.source = source
        self.number = number
        self.outcome: Outcome | None = None
        #: In a transaction: what the commit is to settle it with.
        self.wanted: Outcome = ACCEPTED

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.number} from {self.source!r}, {len(self.delivery.payload)} octets)"

    @property
    def body(self) -> Any:
        """Bytes of a data body, the value of an amqp-value, the items of a sequence; None without a body."""
        message = self.message
        if message.data:
            return b"".join(message.data)
        if message.sequences:
            return [item for sequence in message.sequences for item in sequence]
        return message.value

    @property
    def delivery_count(self) -> int:
        """How often it was delivered before, in vain."""
        return 0 if self.message.header is None else self.message.header.delivery_count

    @property
    def redelivered(self) -> bool:
        return self.delivery_count > 0

    def acknowledge(self, outcome: Outcome = ACCEPTED) -> None:
        """It is done, or (`Rejected`, `Released`, `Modified`) not; see `AcknowledgeMode` for how many messages that concerns.

        An outcome other than accepted is always for this message alone. In a transaction it is what the commit settles it with.
        Raises PeerError when the connection on which it came is lost (it is delivered again), or the broker took it back;
        InvalidRequest when it has another outcome already.
        """
        self.consumer.session.acknowledge(self, outcome)


def expiry_ms(message: Message, arrived_ms: int) -> int | None:
    """When it expires, in ms since 1970: the earlier of its absolute expiry time and its time to live, counted from arrival.

    Of a dead letter the absolute time, which its broker cannot change, was that of its first life.
    """
    ends = []
    dead = message.message_annotations is not None and DEATH_REASON in message.message_annotations
    if message.properties is not None and message.properties.absolute_expiry_time and not dead:
        ends.append(int(message.properties.absolute_expiry_time))
    if message.header is not None and message.header.ttl:
        ends.append(arrived_ms + int(message.header.ttl))
    return min(ends, default=None)

"""A message as the application receives it."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...amqp import Accepted, Message, Modified, Rejected, Released
from ...amqp.deliveries import Delivery
from ...amqp.errors import Condition
from ...amqp.performatives import Error, Properties
from ...amqp.types import Long
from ...errors import InvalidRequest
from ...messages.annotations import DEATH_REASON, DELIVERY_DELAY, RETRY_DELAY
from ..durations import Duration, milliseconds
from ..public import Public
from .composing import Fields, Sendable, message_of
from .retries import Retries

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .consumer import Consumer

Outcome = Accepted | Rejected | Released | Modified

ACCEPTED, RELEASED = Accepted(), Released()
#: Of a rejection's reason, which must fit a frame.
REASON_CHARACTERS = 1000
FAILED = Modified(delivery_failed=True)
#: Waits after a callback has raised, if the queue has no `retryDelay`.
RETRIES = Retries()
#: For a message that cannot be decoded here.
UNDELIVERABLE_HERE = Modified(delivery_failed=True, undeliverable_here=True)
#: For a message that expired in the prefetch: the broker then sees so by its own clock.
EXPIRED_HERE = Modified(delivery_failed=False, undeliverable_here=True)


class ReceivedMessage(Public):
    """A message that a consumer has received.

    Attributes:
        message: The whole message, decoded.
        source: Address that it came from.
        number: Its number among the messages of the session, from 1.
        outcome: Outcome that it was settled with; None until then.

    Example:
        for message in queue.receive():
            if message.subject == "test":
                message.reject("no tests here")
    """

    _attributes = "message number outcome source"
    _internal = "commit_outcome consumer delivery"

    __slots__ = ("commit_outcome", "consumer", "delivery", "message", "number", "outcome", "source")

    def __init__(self, consumer: Consumer, delivery: Delivery, message: Message, source: str, number: int) -> None:
        self.consumer = consumer
        self.delivery = delivery
        self.message = message
        self.source = source
        self.number = number
        self.outcome: Outcome | None = None
        #: With which the commit of a transaction settles it.
        self.commit_outcome: Outcome = ACCEPTED

    def __repr__(self) -> str:
        properties = self.message.properties
        # The number differs at each delivery.
        name = self.number if properties is None or properties.message_id is None else f"{properties.message_id!r:.80}"
        return f"ReceivedMessage({name} from {self.source!r}, {len(self.delivery.payload)} octets)"

    @property
    def body(self) -> Any:
        """Octets of a data body, value of an amqp-value, or items of a sequence; None without a body."""
        message = self.message
        if message.data:
            return b"".join(message.data)
        if message.sequences:
            return [item for sequence in message.sequences for item in sequence]
        return message.value

    @property
    def delivery_count(self) -> int:
        """Number of earlier failed deliveries."""
        return 0 if self.message.header is None else self.message.header.delivery_count

    @property
    def redelivered(self) -> bool:
        """True if an earlier delivery failed (JMSRedelivered)."""
        return self.delivery_count > 0

    @property
    def properties(self) -> dict[str, Any]:
        """Application properties."""
        return {str(name): value for name, value in (self.message.application_properties or {}).items()}

    @property
    def subject(self) -> str | None:
        """Subject that the sender set."""
        return None if self.message.properties is None else self.message.properties.subject

    @property
    def message_id(self) -> Any:
        """Id that the sender set."""
        return None if self.message.properties is None else self.message.properties.message_id

    @property
    def correlation_id(self) -> Any:
        """Id of the message that this one answers."""
        return None if self.message.properties is None else self.message.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Address for answers."""
        return None if self.message.properties is None else self.message.properties.reply_to

    def json(self) -> Any:
        """Return the body, read as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        body = self.body
        if not isinstance(body, (bytes, str)):
            raise ValueError(f"the body is not a JSON text: it is {type(body).__name__}")
        return json_text.loads(body)

    def accept(self) -> None:
        """Settle the message as processed: see `acknowledge`."""
        self.acknowledge(ACCEPTED)

    def reject(self, reason: str = "") -> None:
        """Settle the message as unusable: it becomes a dead letter, or is archived, with the reason.

        Args:
            reason: Text for people; 1,000 characters are kept.

        Raises:
            PenstockError: As of `acknowledge`.
        """
        text = reason[:REASON_CHARACTERS].encode(errors="backslashreplace").decode()  # half a surrogate pair is not a character
        self.acknowledge(Rejected(error=Error(condition=Condition.PRECONDITION_FAILED, description=text or None)))

    def release(self) -> None:
        """Return the message to its place in the queue, without a failure: see `acknowledge`."""
        self.acknowledge(RELEASED)

    def retry(self, after: Duration | None = None) -> None:
        """Return the message to its place in the queue after a failure. It comes again.

        The delivery counts: after the queue's `maxAttempts` the message becomes a dead letter.

        Args:
            after: Seconds, or a `timedelta`, until it comes again. None: the queue's `retryDelay`, or immediately without one.

        Raises:
            InvalidRequest: An invalid time.
            PenstockError: As of `acknowledge`.
        """
        if after is None:
            self.acknowledge(FAILED)
            return
        annotations: dict[str, Any] = {DELIVERY_DELAY: Long(milliseconds("after", after))}
        self.acknowledge(Modified(delivery_failed=True, message_annotations=annotations))

    def reply(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send a reply to the address in `reply_to`, and return when the broker has confirmed it. Does not settle the message.

        The reply has the correlation id of the message, or else its message id. It is not part of a transaction.

        Args:
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.

        Raises:
            InvalidRequest: The sender expects no reply.
            NotFound: The sender's temporary queue has ended.
            PenstockError: As of `Connection.send`.

        Example:
            for message in connection.queue("prices").receive():
                message.reply(json={"price": 5})
        """
        reply_to, message = self.reply_to, message_of(body, fields)
        if reply_to is None:
            raise InvalidRequest(f"{self!r} has no reply_to: its sender expects no reply")
        properties = message.properties or Properties()
        if properties.correlation_id is None:
            correlation_id = self.message_id if self.correlation_id is None else self.correlation_id
            properties = replace(properties, correlation_id=correlation_id)
        self.consumer.session.connection.send(reply_to, replace(message, properties=properties))

    def acknowledge(self, outcome: Outcome = ACCEPTED) -> None:
        """Settle the message; in a transaction the commit does so.

        `AcknowledgeMode` decides how many messages an acceptance covers.

        Args:
            outcome: `Accepted`, `Rejected`, `Released` or `Modified` of `penstock.broker_core.amqp`.

        Raises:
            PeerError: Its connection is lost, or the broker has revoked it.
            InvalidRequest: It has another outcome already.
        """
        session = self.consumer.session
        with session.changed:
            session.ledger.acknowledge(self, outcome)


def failed(message: ReceivedMessage) -> Modified:
    after_ms = int(RETRIES.after(message.delivery_count + 1) * 1000)
    return Modified(delivery_failed=True, message_annotations={RETRY_DELAY: Long(after_ms)})


def expiry_ms(message: Message, arrived_ms: int) -> int | None:
    """Return when a message expires, in ms since 1970.

    The absolute expiry time of a dead letter does not count: it is the original message's, and a broker cannot change it.
    """
    times = []
    dead = message.message_annotations is not None and DEATH_REASON in message.message_annotations
    if message.properties is not None and message.properties.absolute_expiry_time and not dead:
        times.append(int(message.properties.absolute_expiry_time))
    if message.header is not None and message.header.ttl:
        times.append(arrived_ms + int(message.header.ttl))
    return min(times, default=None)

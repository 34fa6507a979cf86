"""A message as the application receives it."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Any

from ...amqp import Accepted, Message, Modified, Rejected, Released
from ...amqp.deliveries import Delivery
from ...amqp.errors import Condition
from ...amqp.performatives import Error
from ...amqp.types import Long
from ...errors import InvalidRequest
from ...messages.annotations import DEATH_REASON, DELIVERY_DELAY, RETRY_DELAY
from ...quantities import MAX_MILLISECONDS
from .retries import Retries

if TYPE_CHECKING:
    from .consumer import Consumer
    from .wire import Wire

Outcome = Accepted | Rejected | Released | Modified

ACCEPTED, RELEASED = Accepted(), Released()
#: Of the reason of a rejection: it has to fit a frame.
REASON_CHARACTERS = 1000
#: Returned to the queue after a failure; the delivery counts.
FAILED = Modified(delivery_failed=True)
#: Waits of a message whose callback has raised, where its queue has no `retryDelay`.
RETRIES = Retries()
#: Returned to the queue, counted, and not delivered to this link again: a message that this client cannot decode.
UNDELIVERABLE_HERE = Modified(delivery_failed=True, undeliverable_here=True)
#: A message that expired in the prefetch. AMQP has no outcome for it, and the broker then finds it expired by its own clock. The
#: application did not have it, so the delivery does not count.
EXPIRED_HERE = Modified(delivery_failed=False, undeliverable_here=True)


class ReceivedMessage:
    """A message as it was received.

    Attributes:
        message: All of it, decoded.
        source: Address that it came from.
        number: Its number among the messages of the session, from 1.
        outcome: Outcome that it was settled with; None until then.

    Example:
        for message in queue.receive():
            if message.subject == "test":
                message.reject("no tests here")
    """

    __slots__ = ("commit_outcome", "consumer", "delivery", "message", "number", "outcome", "source", "wire")

    def __init__(self, consumer: Consumer, wire: Wire, delivery: Delivery, message: Message, source: str, number: int) -> None:
        self.consumer = consumer
        self.wire = wire
        self.delivery = delivery
        self.message = message
        self.source = source
        self.number = number
        self.outcome: Outcome | None = None
        #: In a transaction: the outcome with which the commit settles it.
        self.commit_outcome: Outcome = ACCEPTED

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.number} from {self.source!r}, {len(self.delivery.payload)} octets)"

    @property
    def body(self) -> Any:
        """The octets of a data body, the value of an amqp-value, the items of a sequence; None without a body."""
        message = self.message
        if message.data:
            return b"".join(message.data)
        if message.sequences:
            return [item for sequence in message.sequences for item in sequence]
        return message.value

    @property
    def delivery_count(self) -> int:
        """Number of failed deliveries before this one."""
        return 0 if self.message.header is None else self.message.header.delivery_count

    @property
    def redelivered(self) -> bool:
        """True when an earlier delivery failed (JMSRedelivered)."""
        return self.delivery_count > 0

    @property
    def properties(self) -> dict[str, Any]:
        """The application properties."""
        return {str(name): value for name, value in (self.message.application_properties or {}).items()}

    @property
    def subject(self) -> str | None:
        """Subject that its sender gave it."""
        return None if self.message.properties is None else self.message.properties.subject

    @property
    def message_id(self) -> Any:
        """The id that its sender gave it."""
        return None if self.message.properties is None else self.message.properties.message_id

    @property
    def correlation_id(self) -> Any:
        """The id of the message that this one answers."""
        return None if self.message.properties is None else self.message.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Address at which its sender expects an answer."""
        return None if self.message.properties is None else self.message.properties.reply_to

    def json(self) -> Any:
        """Return the body, read as JSON.

        Raises:
            ValueError: The body is no JSON.
        """
        body = self.body
        if not isinstance(body, (bytes, str)):
            raise ValueError(f"the body is no JSON text: it is {type(body).__name__}")
        return json_text.loads(body)

    def accept(self) -> None:
        """Settle the message: it is done.

        Raises:
            PenstockError: As of `acknowledge`.
        """
        self.acknowledge(ACCEPTED)

    def reject(self, reason: str = "") -> None:
        """Settle the message as one that nobody can use: it becomes a dead letter, or is archived, with the reason.

        Args:
            reason: Text for people; 1,000 characters of it are kept.

        Raises:
            PenstockError: As of `acknowledge`.
        """
        kept = reason[:REASON_CHARACTERS].encode(errors="backslashreplace").decode()  # half a surrogate pair is no character
        self.acknowledge(Rejected(error=Error(condition=Condition.PRECONDITION_FAILED, description=kept or None)))

    def release(self) -> None:
        """Give the message back to its place in the queue; the delivery is no failed one.

        Raises:
            PenstockError: As of `acknowledge`.
        """
        self.acknowledge(RELEASED)

    def retry(self, after: float | None = None) -> None:
        """Give the message back after a failure: it comes again, at its place in the queue.

        The delivery counts as a failed one: after `maxAttempts` of the queue the message becomes a dead letter.

        Args:
            after: Seconds until then. None: the queue's own delay (`retryDelay`), without one at once.

        Raises:
            InvalidRequest: A time that cannot be.
            PenstockError: As of `acknowledge`.
        """
        if after is None:
            self.acknowledge(FAILED)
            return
        if not 0 <= after < MAX_MILLISECONDS / 1000:
            raise InvalidRequest(f"after is seconds from 0 to {(MAX_MILLISECONDS - 1) // 1000:,}, not {after}")
        notes: dict[str, Any] = {DELIVERY_DELAY: Long(int(after * 1000))}
        self.acknowledge(Modified(delivery_failed=True, message_annotations=notes))

    def acknowledge(self, outcome: Outcome = ACCEPTED) -> None:
        """Settle the message; in a transaction the commit does so.

        `AcknowledgeMode` says how many messages an acceptance covers. Any other outcome is for this one alone.

        Args:
            outcome: `Accepted`, `Rejected`, `Released` or `Modified` of `penstock.broker_core.amqp`.

        Raises:
            PeerError: Its connection is lost, so it is delivered again; or the broker has taken it back.
            InvalidRequest: It has another outcome already.
        """
        self.consumer.session.acknowledge(self, outcome)


def failed(message: ReceivedMessage) -> Modified:
    """Return the outcome of a message whose callback has raised: it comes again after a wait. A queue with `retryDelay` has its
    own."""
    after_ms = int(RETRIES.after(message.delivery_count + 1) * 1000)
    return Modified(delivery_failed=True, message_annotations={RETRY_DELAY: Long(after_ms)})


def expiry_ms(message: Message, arrived_ms: int) -> int | None:
    """Return when a message expires, in ms since 1970: the earlier of its absolute expiry time and its time to live after
    arrival.

    The absolute expiry time of a dead letter is not looked at: it is that of the original message, and a broker cannot change it.
    """
    times = []
    dead = message.message_annotations is not None and DEATH_REASON in message.message_annotations
    if message.properties is not None and message.properties.absolute_expiry_time and not dead:
        times.append(int(message.properties.absolute_expiry_time))
    if message.header is not None and message.header.ttl:
        times.append(arrived_ms + int(message.header.ttl))
    return min(times, default=None)

"""What the application gives to a producer, made into an encoded message; and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.broker_core import errors
from penstock.broker_core.amqp import Accepted, EncodeError, Message
from penstock.broker_core.amqp.performatives import Header, Properties, TransactionalState
from penstock.broker_core.amqp_client import failures

if TYPE_CHECKING:
    from penstock.broker_core.messaging.producer import Producer

#: What the application may give: a whole message, octets (a data body), or text (an amqp-value).
Sendable = Message | bytes | str


def prepared(
    given: Sendable, persistent: bool | None, priority: int | None, ttl_ms: int | None, message_id: str
) -> tuple[bytes, bool]:
    """The encoded message, and whether it is persistent. What the application said in the message itself stays, unless it says it
    here too; a message without an id gets one, by which a broker can tell a repetition.
    """
    if isinstance(given, Message):
        message = given
    elif isinstance(given, str):
        message = Message(value=given, has_value=True)
    elif isinstance(given, bytes):
        message = Message(data=[given])
    else:
        raise errors.InvalidRequest(f"a {type(given).__name__} cannot be sent: give a Message, bytes or str")
    header = message.header or Header(durable=True)
    if persistent is not None:
        header = replace(header, durable=persistent)
    if priority is not None:
        header = replace(header, priority=priority)
    if ttl_ms is not None:
        header = replace(header, ttl=ttl_ms)
    properties = message.properties or Properties()
    if properties.message_id is None:
        properties = replace(properties, message_id=message_id)
    try:
        return replace(message, header=header, properties=properties).encode(), header.durable
    except EncodeError as error:
        raise errors.InvalidRequest(f"the message cannot be said in AMQP: {error}") from error


class Confirmation:
    """What becomes of one message that was sent: made by `Producer.send`.

    `outcome` is the broker's, None as long as there is none. In a transaction it is what the commit will make of it.
    """

    __slots__ = ("_changed", "_producer", "awaited", "callback", "error", "outcome", "payload", "transaction")

    def __init__(
        self,
        producer: Producer,
        payload: bytes,
        transaction: bytes | None,
        awaited: bool,
        callback: Callable[[Confirmation], None] | None,
        changed: threading.Condition,
    ) -> None:
        self._producer = producer
        self._changed = changed
        self.payload = payload
        self.transaction = transaction
        self.awaited = awaited  # somebody waits for it now, and will be told
        self.callback = callback
        self.outcome: object | None = None
        self.error: errors.PenstockError | None = None

    @property
    def done(self) -> bool:
        """Whether the broker has confirmed or refused it, or nothing can come any more."""
        return self.outcome is not None or self.error is not None

    def wait(self, timeout_s: float | None = None) -> None:
        """Until it is confirmed. Raises the error of a refusal, or PeerError after `timeout_s`: it may be confirmed later."""
        with self._changed:
            self._producer.await_(lambda: self.done, timeout_s, f"a message to {self._producer.address!r} is not confirmed")
        if self.error is not None:
            raise self.error

    def settle(self, state: object | None) -> None:
        """The broker's word."""
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        self.outcome = outcome
        if not isinstance(outcome, Accepted):
            self.error = failures.from_outcome(outcome, f"a message to {self._producer.address!r} was")

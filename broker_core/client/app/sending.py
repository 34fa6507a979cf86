"""A message on its way out: encoded from what the application gives, and confirmed or refused by the broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ... import errors
from ...amqp import Accepted, EncodeError, Message
from ...amqp.performatives import Header, Properties, TransactionalState
from ..amqp import failures

#: A whole message, octets (a data body), or text (an amqp-value).
Sendable = Message | bytes | str


def encoded(
    given: Sendable, persistent: bool | None, priority: int | None, ttl_ms: int | None, message_id: str
) -> tuple[bytes, bool]:
    """Return the encoded message, and whether it is persistent.

    The message's own header fields stay unless an argument overrides them. A message without an id gets `message_id`, by which a
    broker can recognise a repetition. Raises InvalidRequest for what cannot be encoded.
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
        raise errors.InvalidRequest(f"the message cannot be encoded in AMQP: {error}") from error


class Waiting(Protocol):
    """The producer of a message, as its confirmation needs it."""

    @property
    def address(self) -> str:
        """Address that the producer sends to."""

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Wait until `done`. Raises the error that ended the producer, or PeerError with `what` after the time."""


class Confirmation:
    """Outcome of one message that was sent, made by `Producer.send`.

    Attributes:
        outcome: The broker's outcome, None until it comes. In a transaction it is provisional until the commit.
        error: Error of a refusal; None without one.
    """

    __slots__ = ("_changed", "_producer", "awaited", "callback", "error", "outcome", "payload", "transaction")

    def __init__(
        self,
        producer: Waiting,
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
        self.awaited = awaited  # a call waits for it now, and will raise its error
        self.callback = callback
        self.outcome: object | None = None
        self.error: errors.PenstockError | None = None

    @property
    def done(self) -> bool:
        """True when the broker has confirmed or refused the message, or no outcome can come any more."""
        return self.outcome is not None or self.error is not None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome.

        Args:
            timeout_s: Seconds to wait at most. None: the producer's time limit.

        Raises:
            PeerError: No outcome came in this time; the message may be confirmed later.
            PenstockError: The broker has refused the message.
        """
        with self._changed:
            self._producer.wait_until(lambda: self.done, timeout_s, f"a message to {self._producer.address!r} is not confirmed")
        if self.error is not None:
            raise self.error

    def settle(self, state: object | None) -> None:
        """Record the broker's outcome."""
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        self.outcome = outcome
        if not isinstance(outcome, Accepted):
            self.error = failures.from_outcome(outcome, f"a message to {self._producer.address!r} was")

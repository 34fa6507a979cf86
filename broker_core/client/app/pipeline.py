"""Sending many messages, with a window of unconfirmed ones and an error for each.

A message is written immediately if no other one is unconfirmed. Otherwise it waits until CHUNK messages wait, or an outcome
comes. So a slow program has the latency of single sends, and a fast one pays for few writes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ... import errors
from ..public import Public
from .composing import Fields, Sendable, SimilarMessages, encoded, message_of
from .modes import AcknowledgeMode
from .producer import CHUNK, Confirmation, Producer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .connection import Connection
    from .session import Session

#: Default limit of unconfirmed messages: about three commits of the broker's disk.
WINDOW: Final = 2000
#: Limit of their octets, which the client keeps.
WINDOW_OCTETS: Final = 16 * 1024 * 1024
#: Limit of stored errors; further ones are counted.
MAX_ERRORS: Final = 1000


class NotAllSent(errors.PeerError):
    """Messages of a pipeline, or of `send_many`, that the broker has not accepted.

    Attributes:
        accepted: Number of accepted messages.
        refused: Number of refused messages. The outcome of the others is unknown.
        errors: Errors by the message's number, from 0, in the order of sending; the first 1,000.
    """

    def __init__(self, text: str, accepted: int, refused: int, errors_by_number: dict[int, errors.PenstockError]) -> None:
        super().__init__(text)
        self.accepted = accepted
        self.refused = refused
        self.errors = errors_by_number


class PipelineProducer(Producer):
    """A producer that takes messages without credit, up to the window, and keeps the errors."""

    def __init__(self, session: Session, address: str, window: int) -> None:
        super().__init__(session, address, WINDOW_OCTETS, session.connection.timeout_s)
        self.errors: dict[int, errors.PenstockError] = {}
        self._messages = window

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def accepted(self) -> int:
        return self._sent - self.refused - len(self._unconfirmed)

    def has_room(self, octets: int) -> bool:
        waiting = self._unconfirmed
        return not waiting or (len(waiting) < self._messages and self.unconfirmed_octets + octets <= self._window)

    def put(self, payload: bytes) -> Confirmation:
        with self.session.changed:
            self.session.check()
            self.check()
            if not self.has_room(len(payload)):
                self.resend()
                problem = f"a message to {self.address!r} was not sent: {len(self._unconfirmed):,} before it are not confirmed"
                self.wait_until(lambda: self.has_room(len(payload)), None, problem)
                self.check()
            confirmation = Confirmation(self, payload, None, True, None)
            is_idle = len(self._unconfirmed) == len(self._to_resend)
            self._unconfirmed[self._sent] = confirmation
            self._to_resend.append(self._sent)
            self._sent += 1
            self.unconfirmed_octets += len(payload)
            if is_idle or len(self._to_resend) >= CHUNK:
                self.resend()
        return confirmation

    def finish(self) -> None:
        """Wait until every message is confirmed, as long as outcomes come in time."""
        with self.session.changed:
            self.resend()
            while left := len(self._unconfirmed):
                problem = f"{left:,} messages to {self.address!r} are not confirmed"
                self.wait_until(lambda left=left: len(self._unconfirmed) < left, None, problem)  # type: ignore[misc]

    def _end(self, sequence: int, error: errors.PenstockError | None) -> None:
        super()._end(sequence, error)
        if error is not None and len(self.errors) < MAX_ERRORS:
            self.errors[sequence] = error


class Pipeline(Public):
    """Sends messages without waiting for each confirmation, made by `Queue.pipeline`. For one thread at a time.

    Attributes:
        address: Its address.

    Example:
        with connection.queue("orders").pipeline() as pipeline:
            for order in orders:
                pipeline.send(json=order, subject=order["kind"])
        # all are on the broker's disk, or NotAllSent was raised
    """

    _attributes = "address"
    _internal = "payload next_of put"

    def __init__(self, connection: Connection, address: str, window: int) -> None:
        if window < 1:
            raise errors.InvalidRequest(f"the window of a pipeline is 1 message or more, not {window}")
        self.address = address
        self._connection = connection
        self._session = connection.session(AcknowledgeMode.AUTO)
        self.producer = PipelineProducer(self._session, address, window)
        try:
            self._session.add(self.producer)
        except BaseException:
            self._session.close()
            raise

    @property
    def sent(self) -> int:
        """Number of messages passed to `send`."""
        return self.producer.sent

    @property
    def accepted(self) -> int:
        """Number of accepted messages."""
        return self.producer.accepted

    @property
    def refused(self) -> int:
        """Number of messages that the broker has refused, or that were lost with the pipeline."""
        return self.producer.refused

    @property
    def errors(self) -> dict[int, errors.PenstockError]:
        """Errors by the message's number, from 0; the first 1,000."""
        return dict(self.producer.errors)

    def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> Confirmation:
        """Send one message. Waits only while the window is full.

        Args:
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.

        Returns:
            Confirmation, whose `error` is this message's own.

        Raises:
            InvalidRequest: The arguments contradict each other, or cannot be written in AMQP. The pipeline continues.
            NotAllSent: The window does not open in time, or the broker has ended the link.
        """
        return self.put(self.payload(body, fields))

    def payload(self, body: Sendable | None, fields: Fields) -> bytes:
        return encoded(message_of(body, fields), self._connection.new_message_id())[0]

    def next_of(self, series: SimilarMessages, item: Any) -> bytes:
        return series.payload(item, self._connection.new_message_id())

    def put(self, payload: bytes) -> Confirmation:
        try:
            return self.producer.put(payload)
        except errors.PenstockError as error:
            raise self._not_all_sent(error) from error

    def flush(self) -> None:
        """Wait until every message is confirmed.

        Raises:
            NotAllSent: Some messages of the pipeline were refused, or are not confirmed in time.
        """
        try:
            self.producer.finish()
        except errors.PenstockError as error:
            raise self._not_all_sent(error) from error
        if self.producer.refused:
            first = min(self.producer.errors)
            cause = self.producer.errors[first]
            raise self._not_all_sent(f"the first error is of message {first:,}: {cause}") from cause

    def _not_all_sent(self, reason: object) -> NotAllSent:
        producer = self.producer
        text = f"{producer.accepted:,} of {producer.sent:,} messages to {self.address!r} are accepted: {reason}"
        return NotAllSent(text, producer.accepted, producer.refused, self.errors)

    def close(self) -> None:
        """Flush, then end.

        Raises:
            NotAllSent: As of `flush`.
        """
        try:
            self.flush()
        finally:
            self._session.close(flush=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        if issubclass(kind, Exception):  # messages before the program's error are sent
            with suppress(errors.PenstockError):
                self.producer.finish()
        self._session.close(flush=False)

"""A queue by its address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..durations import Duration, seconds
from ..public import Public
from .composing import Fields, Sendable, SimilarMessages
from .consumer import PREFETCH
from .modes import AcknowledgeMode
from .pipeline import WINDOW, Pipeline
from .received import ReceivedMessage

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .connection import Connection


#: Default limit of a peek.
PEEKED = 10


class Queue(Public):
    """A queue or an exchange of a broker, made by `Connection.queue`. It has no state, and any thread may use it.

    Attributes:
        connection: Connection that it belongs to.
        address: Its address.
    """

    _attributes = "address connection"

    def __init__(self, connection: Connection, address: str) -> None:
        self.connection = connection
        self.address = address

    def __repr__(self) -> str:
        return f"Queue({self.address!r})"

    def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send a message: see `Connection.send`.

        Args:
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.
        """
        self.connection.send(self.address, body, **fields)

    def send_many(self, bodies: Iterable[Sendable] | None = None, **fields: Unpack[Fields]) -> int:
        """Send messages while the iterable yields them, and return when the broker has confirmed all of them.

        Args:
            bodies: Octets, texts, or whole messages.
            **fields: As of `Connection.send`, for every message. `json` is an iterable of values instead of bodies.

        Returns:
            Number of messages.

        Raises:
            InvalidRequest: A body or an argument cannot be sent. The messages before it are sent.
            NotAllSent: The broker has refused some messages, or has not confirmed them in time.

        Example:
            connection.queue("orders").send_many(json=({"id": number} for number in range(10_000)))
        """
        series = SimilarMessages(bodies, fields)
        with self.pipeline() as pipeline:
            for item in series.items:
                pipeline.put(pipeline.next_of(series, item))
        return pipeline.sent

    def pipeline(self, *, window: int = WINDOW) -> Pipeline:
        """Return an open pipeline: sends that do not wait for each confirmation. Close it, or use `with`.

        Args:
            window: Limit of unconfirmed messages.

        Raises:
            PenstockError: The broker refuses, for example with NotFound.
        """
        return Pipeline(self.connection, self.address, window)

    def peek(self, *, limit: int = PEEKED, selector: str | None = None) -> list[ReceivedMessage]:
        """Return the first waiting messages, and leave them in the queue: see `Connection.peek`.

        Args:
            limit: Largest number of messages.
            selector: As of `Connection.peek`.
        """
        with self.connection.session(AcknowledgeMode.INDIVIDUAL) as session:
            return session.consumer(self.address, prefetch=limit, selector=selector, browse=True).waiting_now()

    def receive(
        self, *, timeout: Duration | None = None, limit: int | None = None, selector: str | None = None, prefetch: int = PREFETCH
    ) -> Iterator[ReceivedMessage]:
        """Yield the messages in order.

        A message is accepted when the loop asks for the next one, unless the loop has settled it (`accept`, `reject`, `release`,
        `retry`). After an exception or `break`, an unsettled last message returns to the queue as a failed delivery.

        Args:
            timeout: Seconds, or a `timedelta`, without a message after which the loop ends. None: no limit.
            limit: Largest number of messages. None: no limit.
            selector: As of `Connection.peek`.
            prefetch: Largest number of messages that wait here.

        Raises:
            PenstockError: The broker refuses, or the connection is lost permanently.

        Example:
            for message in connection.queue("orders").receive(timeout=5):
                print(message.json())
        """
        timeout_s = None if timeout is None else seconds("timeout", timeout)
        session = self.connection.session(AcknowledgeMode.INDIVIDUAL)
        try:
            window = prefetch if limit is None else min(prefetch, limit)
            consumer = session.consumer(self.address, prefetch=window, selector=selector)
            seen = 0
            while (limit is None or seen < limit) and (message := consumer.receive(timeout_s)) is not None:
                yield message
                seen += 1
                if message.outcome is None:
                    session.accept_if_held(message)
        finally:
            session.close()

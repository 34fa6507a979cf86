"""The short way of an application: send a message by its address, go through what waits in a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import connection as reconnecting
from .composing import Fields, composed
from .consumer import PREFETCH
from .modes import AcknowledgeMode
from .outbox import Outbox
from .received import ReceivedMessage
from .sending import Sendable

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing from 3.11 on


class Connection(reconnecting.Connection):
    """A connection of an application, made by `connect`, that comes back when its server is lost. For any number of threads.

    Example:
        with penstock.connect("amqp://127.0.0.1:5672") as connection:
            connection.send("orders", json={"id": 7}, subject="new")
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._outbox = Outbox(self)

    def queue(self, address: str) -> Queue:
        """Return a queue, or an exchange, to send to and to go through. Nothing is asked of the broker.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
        """
        return Queue(self, address)

    def send(self, address: str, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send one message, and return when the broker has confirmed it. Any thread may; each waits for its own message.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            body: Octets, text, or a whole `Message`.
            **fields: `json` instead of a body, `subject`, `properties`, `delay` and `ttl` in seconds, `priority` (0 to 9) and so
                on: see `penstock.broker_core.client.app.composing.composed`.

        Raises:
            InvalidRequest: The arguments contradict each other, or cannot be written in AMQP.
            PenstockError: The broker refuses the message, or does not confirm it in time.

        Example:
            connection.send("orders", json={"id": 7}, subject="new", delay=30)
        """
        self._outbox.send(address, composed(body, **fields))


class Queue:
    """A queue or an exchange of a broker, made by `Connection.queue`. It holds nothing, and any thread may use it.

    Attributes:
        connection: Connection that it belongs to.
        address: Address that it was made with.
    """

    def __init__(self, connection: Connection, address: str) -> None:
        self.connection = connection
        self.address = address

    def __repr__(self) -> str:
        return f"Queue({self.address!r})"

    def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send a message, and return when the broker has confirmed it.

        Args:
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.

        Raises:
            PenstockError: As of `Connection.send`.
        """
        self.connection.send(self.address, body, **fields)

    def receive(
        self,
        *,
        timeout: float | None = None,
        limit: int | None = None,
        selector: str | None = None,
        prefetch: int = PREFETCH,
    ) -> Iterator[ReceivedMessage]:
        """Go through the messages, one at a time, in their order.

        A message is accepted when the loop asks for the next one, unless the loop has settled it (`accept`, `reject`, `release`,
        `retry`). Where the loop ends early, by an exception or `break`, the last message goes back as a failed delivery if it was
        not settled: accept it before a `break`. What has been fetched and not seen goes back, too.

        Args:
            timeout: Seconds without a message after which the loop ends. None: it goes on for ever.
            limit: The loop ends after so many messages.
            selector: Only messages that match, such as `"colour = 'red' AND size > 5"`.
            prefetch: Messages that wait here at most.

        Yields:
            The messages.

        Raises:
            PenstockError: The broker refuses, or the connection is lost for good.

        Example:
            for message in connection.queue("orders").receive(timeout=5):
                print(message.json())
        """
        session = self.connection.session(AcknowledgeMode.INDIVIDUAL)
        try:
            window = prefetch if limit is None else min(prefetch, limit)
            consumer = session.consumer(self.address, prefetch=window, selector=selector)
            seen = 0
            while (limit is None or seen < limit) and (message := consumer.receive(timeout)) is not None:
                yield message
                seen += 1
                if message.outcome is None:
                    session.accept_if_held(message)
        finally:
            session.close()

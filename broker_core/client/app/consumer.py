"""Receiving from one or several sources."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ... import errors
from ...amqp import DecodeError, FieldError, decode_message
from ...amqp.deliveries import Delivery
from ...amqp.messages import MAX_SECTIONS_READ
from ..public import Public
from .arrivals import Arrivals
from .modes import AcknowledgeMode, PendingAcknowledgements
from .pull import pull
from .received import UNDELIVERABLE_HERE, ReceivedMessage, expiry_ms
from .server import unless_failed
from .source_link import SourceLink, SourceOptions

if TYPE_CHECKING:
    from .session import Session

_LOG = logging.getLogger(__name__)

#: Default prefetch, over all sources together.
PREFETCH = 1000

Callback = Callable[[ReceivedMessage], None]


class Consumer(Public):
    """A consumer of one or several sources, made by `Session.consumer`.

    The sources share the prefetch equally and take turns. With prefetch 0 only `receive` requests a message.

    Attributes:
        addresses: Addresses of the sources.
        expired: Number of messages that expired while they waited here.
        hints: By address, the broker's hint about a name in the selector that may mean a field.
    """

    _attributes = "addresses expired hints"
    _internal = "waiting_now give_back wait_for take attach lost fail wake"

    def __init__(self, session: Session, addresses: Sequence[str], prefetch: int, options: SourceOptions, delay_s: float) -> None:
        self.session = session
        self.addresses = tuple(addresses)
        self.prefetch = prefetch
        self.browse = options.browse
        self.expired = 0
        self.hints: dict[str, str] = {}
        self.arrivals: Arrivals[SourceLink, tuple[Delivery, int]] = Arrivals()
        self.acknowledgements = PendingAcknowledgements[ReceivedMessage](prefetch, delay_s)
        self.links: list[SourceLink] = []
        self.closed = False
        self.callback: Callback | None = None
        #: Called under the lock when messages have come or the consumer has ended; must not wait.
        self.on_arrival: Callable[[], None] | None = None
        self._options = options
        self._gives_back = False
        self._failure: errors.PenstockError | None = None

    # --- for the application

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage | None:
        """Return the next message, or None if none came in time. Also waits during a reconnect.

        Args:
            timeout_s: Seconds to wait at most. None waits without a limit.

        Raises:
            InvalidRequest: The consumer is closed, or passes its messages to a callback.
            PenstockError: The broker has ended this consumer, or the connection is lost permanently.
        """
        session = self.session
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with session.changed:
            self._check_usable()
            if self.callback is not None:
                raise errors.InvalidRequest("this consumer hands its messages to a callback; receive() would take them from it")
            self._resume()
            if self.prefetch == 0:
                message = pull(self, deadline)
            else:
                while (message := self.take()) is None and self.wait_for(lambda: bool(self.arrivals), deadline):
                    pass
            if message is not None:
                session.ledger.processed(message)
        return message

    def listen(self, callback: Callback) -> None:
        """Pass every message to a callback, one after another with the session's other callbacks.

        The connection's `on_error` receives its exceptions. In the modes auto and dups-ok the message then returns to its queue
        with this delivery counted. It comes again after the queue's `retryDelay`, or after 1 s, 2 s, 4 s and so on, at most a
        minute.

        Args:
            callback: Receives a message, on a thread of the client.

        Raises:
            InvalidRequest: The prefetch is 0.
        """
        with self.session.changed:
            self._check_usable()
            if self.prefetch == 0:
                raise errors.InvalidRequest("with prefetch 0 no message comes unasked: use receive(), or a prefetch")
            self.callback = callback
            self.session.callbacks.wake()

    def close(self) -> None:
        """Stop receiving, and return the messages that wait here to their queues.

        Messages that the application has may still be settled.
        """
        with self.session.changed, self.session.callbacks.paused():
            if not self.closed:
                self.closed = True
                self.session.ledger.close_consumer(self)
            self.session.changed.notify_all()

    def waiting_now(self) -> list[ReceivedMessage]:
        """Return the messages that the broker has for the credit now, without new credit."""
        session = self.session
        with session.changed:
            self._check_usable()
            links = list(self.links)
            for link in links:
                link.stop()
            session.drain(links)
            if links != self.links or not all(link.usable for link in links):
                self._check()
                raise errors.PeerError(f"the connection was lost while {', '.join(self.addresses)} was read: try again")
            return list(iter(self.take, None))

    def give_back(self) -> None:
        """Return the waiting messages to the broker, and request no other until the next `receive`, which another thread may call
        meanwhile.

        The broker chooses a free consumer, so groups and a single active consumer stay in order.
        """
        session = self.session
        with session.changed:
            if self._gives_back or self.closed or not self.arrivals:
                return
            self._gives_back = True
            attached = list(self.links)
            for link in attached:
                link.stop()
            session.flush()
            session.connection.wait_for(
                lambda: not self._gives_back or self.links != attached or all(link.stopped for link in attached),
                session.connection.timeout_s,
            )
            if self._gives_back:
                session.ledger.return_waiting(self)

    def _resume(self) -> None:
        if self._gives_back:
            self._gives_back = False
            for link in self.links:
                link.resume()
            self.session.changed.notify_all()

    # --- under the lock

    def _check_usable(self) -> None:
        self.session.check()
        if self.closed:
            raise errors.InvalidRequest(f"this consumer of {', '.join(self.addresses)} is closed")

    def wait_for(self, done: Callable[[], bool], deadline: float | None) -> bool:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self.session.connection.wait_for(unless_failed(done, self._check), left)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._check_usable()

    def take(self) -> ReceivedMessage | None:
        """Return the next waiting message that has not expired; None without one.

        Credit is renewed before a message is taken: while the application is busy with it, the broker must not send one that
        another consumer could take.
        """
        session = self.session
        self._renew_credit()
        while (arrival := self.arrivals.take()) is not None:
            link, (delivery, arrived_ms) = arrival
            message = self._unexpired(link, delivery, arrived_ms)
            if message is not None:
                if link.reports and self._keeps_unsettled and not delivery.settled:
                    link.report(delivery)
                session.ledger.delivered(message)
                return message
            self._renew_credit()
        session.flush()
        return None

    def _renew_credit(self) -> None:
        if self.prefetch:
            for link in self.links:
                link.renew(self.arrivals.waiting(link))

    def _unexpired(self, link: SourceLink, delivery: Delivery, arrived_ms: int) -> ReceivedMessage | None:
        if delivery.remote_settled and not delivery.settled:
            return None
        message = self._decoded(link, delivery)
        if message is None:
            return None
        expiry = expiry_ms(message.message, arrived_ms)
        if expiry is not None and expiry <= self.session.connection.wall_ms() and not self.browse:
            self.expired += 1
            self.session.ledger.expired(message)
            return None
        return message

    @property
    def _keeps_unsettled(self) -> bool:
        return self.callback is not None or self.session.mode is not AcknowledgeMode.AUTO

    def _decoded(self, link: SourceLink, delivery: Delivery) -> ReceivedMessage | None:
        session = self.session
        number = next(session.numbers)
        try:
            decoded = decode_message(delivery.payload, most=MAX_SECTIONS_READ)
            return ReceivedMessage(self, delivery, decoded, link.address, number)
        except (DecodeError, FieldError) as error:
            if not delivery.settled:
                session.dispose([delivery], UNDELIVERABLE_HERE)
            session.connection.report(errors.PeerError(f"a message from {link.address!r} is malformed, and went back: {error}"))
            return None

    def attach(self) -> None:
        self.lost()
        session = self.session
        assert session.server is not None
        assert session.machine is not None
        for address in self.addresses:
            try:
                link = SourceLink(session.server, session.machine, address, self._options, self._arrived, self.fail)
            except BaseException:  # otherwise only some sources would have a link
                for link in self.links:
                    link.detach()
                self.links.clear()
                raise
            self.links.append(link)
            if link.hint is not None and address not in self.hints:  # a reconnect brings it again
                self.hints[address] = link.hint
                _LOG.warning("consumer of %r: %s", address, link.hint)
        self._renew_credit()
        session.flush()

    def lost(self) -> None:
        self.links.clear()
        self.arrivals.clear()
        self.acknowledgements.take()

    def fail(self, error: errors.PenstockError) -> None:
        self._failure = self._failure or error
        if self.callback is not None:
            self.session.connection.report(error)
        self.wake()

    def wake(self) -> None:
        if self.on_arrival is not None:
            self.on_arrival()

    def _arrived(self, link: SourceLink, deliveries: list[Delivery]) -> None:
        now = self.session.connection.wall_ms()
        self.arrivals.add(link, [(delivery, now) for delivery in deliveries])
        if self.callback is not None:
            self.session.callbacks.wake()
        self.wake()

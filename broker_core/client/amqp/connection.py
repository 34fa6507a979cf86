"""One connection to a broker, without a thread.

All work happens inside the caller's calls. A program that pauses for longer than the broker's idle time-out calls `idle` from
time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ... import amqp, errors
from ...amqp import events
from ...amqp.states import SessionState
from . import failures
from .address import Address
from .blocks import BlockReceiver
from .claims import Claims
from .links import CLOSE_TIMEOUT_S, ClientLink
from .receiver import Receiver
from .receiving import DEFAULT_CREDIT, ReceivingTerms
from .sender import Sender
from .transport import ClientSocket

#: Default seconds that a call waits for the broker.
TIMEOUT_S = 60.0
#: Messages that RabbitMQ 3 may send beyond a link's credit. It did in 6 of 55 receptions of 2,000.
RABBITMQ_OVERRUN = 5000

_LINK_EVENTS = (
    *(events.Delivered, events.Arrived, events.Attached, events.Detached),
    *(events.Aborted, events.Flowed, events.Violated),
)


class Connection:
    """A connection made by `connect`, for one thread at a time.

    A method that waits raises PeerError if the broker does not answer within `timeout_s`.

    Attributes:
        name: The broker's address.
        host: The broker's host, without the brackets of an IPv6 address.
        timeout_s: Seconds that each wait takes at most.
        links: The client's links, by the protocol's.
        claims: Tokens for each address. None if the login is enough.
        failure: Error that ended it; None while it works.
    """

    def __init__(self, transport: ClientSocket, machine: amqp.Connection, address: Address, timeout_s: float, token: str) -> None:
        self.name = str(address)
        self.host = address.host
        self.timeout_s = timeout_s
        self.links: dict[amqp.Link, ClientLink] = {}
        self.claims: Claims | None = None
        self.failure: errors.PenstockError | None = None
        self.closing = False
        self._transport = transport
        self._machine = machine
        self._session: amqp.Session | None = None
        self._ended: set[amqp.Session] = set()  # by this side, before the broker's answer
        self._token = token
        self._link_count = 0

    @property
    def remote_properties(self) -> Mapping[str, Any]:
        """Properties in the broker's open frame."""
        opened = self._machine.remote_open
        return (opened.properties if opened is not None else None) or {}

    @property
    def is_penstock(self) -> bool:
        """True if the broker is Penstock."""
        return bool(self.remote_properties.get("product") == "Penstock")

    @property
    def is_rabbitmq_3(self) -> bool:
        """True if this is RabbitMQ 3, which stops at a drain, confirms filters that it does not apply, and exceeds the credit."""
        properties = self.remote_properties
        return properties.get("product") == "RabbitMQ" and str(properties.get("version")).startswith("3.")

    def sender(self, address: str, *, presettled: bool = False) -> Sender:
        """Return a new link that sends. It ends with the connection.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            presettled: Whether to send without confirmations: at most once.

        Raises:
            PenstockError: The broker refuses, for example with NotFound.
        """
        return Sender(self, self._session_for(address), address, presettled)

    def receiver(
        self,
        address: str,
        credit: int = DEFAULT_CREDIT,
        *,
        limit: int | None = None,
        browse: bool = False,
        presettled: bool = False,
        selector: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> Receiver:
        """Return a new link that receives. It ends with the connection.

        Args:
            address: A queue or an exchange.
            credit: Largest number of messages on the way or waiting here.
            limit: Messages in all; None for any number.
            browse: Whether to read the messages without taking them.
            presettled: Whether to receive without settlement: at most once.
            selector: Only messages that match, in the syntax of JMS.
            properties: Link properties, for a broker's options beyond AMQP.

        Raises:
            PenstockError: As of `sender`.
        """
        terms = ReceivingTerms(credit, limit, browse, presettled, selector, properties)
        return Receiver(self, self._session_for(address), address, terms)

    def block_receiver(self, address: str, credit: int, *, selector: str | None = None) -> BlockReceiver:
        """Return a new link that receives tens of thousands of messages at a time, in blocks.

        Args:
            address: A queue.
            credit: As of `receiver`.
            selector: As of `receiver`.

        Raises:
            PenstockError: As of `sender`.
        """
        return BlockReceiver(self, self._session_for(address), address, ReceivingTerms(credit, selector=selector))

    def _session_for(self, address: str) -> amqp.Session:
        if self.claims is not None:
            self.claims.admit(address)
        return self.session

    def fileno(self) -> int:
        """Return the socket's descriptor: call `idle` when it is readable, or while `pending`."""
        return self._transport.fileno()

    @property
    def pending(self) -> bool:
        """True if TLS holds octets that the socket does not show."""
        return self._transport.pending

    def idle(self, timeout_s: float = 0.0) -> None:
        """Read and answer heartbeats.

        Args:
            timeout_s: Seconds that this takes.

        Raises:
            PenstockError: The connection has failed.
        """
        deadline = time.monotonic() + timeout_s
        self.step(0.0)
        while (left := deadline - time.monotonic()) > 0:
            self.step(left)

    def next_heartbeat_s(self) -> float | None:
        """Return the seconds until `idle` must be called; None without heartbeats."""
        now = time.monotonic()
        due = self._machine.next_tick(now)
        return None if due is None else max(0.0, due - now)

    @property
    def session(self) -> amqp.Session:
        self.check()
        if self._session is None:
            self._session = self.begin()
        return self._session

    def begin(self) -> amqp.Session:
        try:
            return self._machine.begin()
        except amqp.LocalProtocolError as error:
            raise errors.ResourceLimit(f"{self.name} takes no more sessions on one connection: {error}") from error

    def end(self, session: amqp.Session) -> None:
        """End a session. The broker may not have answered the begin yet."""
        self._ended.add(session)
        if session.state is not SessionState.BEGIN_SENT:
            with suppress(amqp.ProtocolError):  # the connection is ending
                session.end()

    def new_link_name(self) -> str:
        self._link_count += 1
        return f"{self._token}-{self._link_count}"

    def check(self) -> None:
        """Raise the error that ended this connection, if any."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: errors.PenstockError) -> errors.PenstockError:
        if self.failure is None:
            self.failure = error
        return self.failure

    def step(self, timeout_s: float) -> bool:
        """Write ready frames, then read for at most `timeout_s`. Return True if octets came."""
        now = time.monotonic()
        timeout_s = self._renew_claims(now, timeout_s)
        due = self._machine.next_tick(now)
        self.check()
        try:
            self.flush()
            data = self._transport.read(timeout_s if due is None else min(timeout_s, max(0.0, due - now)))
        except errors.PenstockError as error:
            raise self.fail(error) from None
        now = time.monotonic()
        news: list[events.Event] = []
        if data:
            news = self._machine.receive_data(data, now)
        elif data is not None:
            news = self._machine.receive_eof()
        if due is not None:  # after the read: a heartbeat may have waited in the socket
            news += self._machine.tick(now)
        for event in news:
            self._handle(event)
        try:  # also after a failure, whose reason the last frames may contain
            self.flush()
        except errors.PenstockError as error:
            self.fail(error)
        self.check()
        return data is not None

    def _renew_claims(self, now: float, timeout_s: float) -> float:
        if self.claims is None or self.failure is not None or self.closing:
            return timeout_s
        try:
            due = self.claims.renew(now)
        except errors.PenstockError as error:
            raise self.fail(error) from None
        return timeout_s if due is None else max(0.0, min(timeout_s, due))

    def wait_until(self, done: Callable[[], bool], problem: str, limit_s: float | None = None) -> None:
        """Step until `done()`. After `limit_s` or the time limit, raise NoAnswer, whose text contains `problem`."""
        limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
        deadline = time.monotonic() + limit
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise failures.no_answer(self.name, limit, problem)
            self.step(left)

    def flush(self) -> None:
        if not self._transport.congested:
            data = self._machine.data_to_send()
            if data:
                self._transport.write(data)

    @property
    def congested(self) -> bool:
        return self._transport.congested

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, _LINK_EVENTS) and event.link is not None:
            self._on_link(event.link, event)
        elif isinstance(event, events.Disposed):
            self._on_disposed(event)
        elif isinstance(event, events.Violated):
            if event.error.condition == amqp.Condition.UNAUTHORIZED_ACCESS:  # no usable mechanism, or a false server
                self.fail(errors.Unauthenticated(f"{self.name}: {event.error.description}; see the user and the TLS options"))
            else:
                self.fail(errors.PeerError(f"{self.name} does not speak AMQP 1.0 as it should: {event.error}"))
        elif isinstance(event, events.Begun):
            if event.session in self._ended:
                with suppress(amqp.ProtocolError):  # the connection is ending
                    event.session.end()
        elif isinstance(event, events.Ended):
            if event.session in self._ended:
                self._ended.discard(event.session)
            elif not self.closing:
                self.fail(failures.from_peer(event.error, f"{self.name} ended the session"))
        elif isinstance(event, events.Closed):
            if not self.closing:
                self.fail(failures.from_peer(event.error, f"{self.name} closed the connection"))
                self._machine.close()
        elif isinstance(event, events.TimedOut):
            self.fail(errors.PeerError(f"{self.name} has sent nothing for its whole idle time-out: it hangs, or is unreachable"))
        elif isinstance(event, events.Lost):
            self.fail(errors.PeerError(self._reason_of_loss()))
        elif isinstance(event, events.AuthenticationFailed):
            reason = "the user name, the password or the certificate is wrong or missing"
            self.fail(errors.Unauthenticated(f"{self.name} refuses the login: {reason}"))
        elif isinstance(event, events.Authenticated):
            self._machine.open()

    def _reason_of_loss(self) -> str:
        if self._machine.remote_open is not None:
            return f"the connection to {self.name} broke; the outcome of unconfirmed messages is unknown"
        if self._transport.has_read:  # AMQP, or the transport would have raised WrongPort
            return f"the connection to {self.name} broke during the login: the broker was stopped, perhaps; try again"
        return (
            f"{self.name} ended the connection without an answer: the broker was stopped, perhaps, then try again; or it is"
            " another kind of server"
        )

    def _on_link(self, link: amqp.Link, event: events.Event) -> None:
        client_link = self.links.get(link)
        if client_link is not None:
            client_link.on_event(event)
        elif isinstance(event, events.Attached):
            if link.local_attach is None:  # a client accepts no attach
                link.refuse(amqp.Condition.NOT_ALLOWED, "this client is not a broker")
            else:  # late: the attach was abandoned
                link.detach(closed=True)

    def _on_disposed(self, event: events.Disposed) -> None:
        deliveries = event.deliveries
        if not event.settled and event.state is None:
            return
        if len(self.links) == 1:
            for client_link in self.links.values():
                client_link.on_outcome(deliveries, event.state)
        else:
            by_link: dict[amqp.Link, list[Any]] = {}
            for delivery in deliveries:
                by_link.setdefault(delivery.link, []).append(delivery)
            for link, own in by_link.items():
                if link in self.links:
                    self.links[link].on_outcome(own, event.state)
        if not event.settled and deliveries and deliveries[0].link.role == amqp.Sender.role:
            event.session.dispose(deliveries, settled=True)

    def open(self) -> None:
        self.wait_until(lambda: self._machine.remote_open is not None, "no AMQP greeting came")
        self._machine.credit_overrun = RABBITMQ_OVERRUN if self.is_rabbitmq_3 else 0

    def close(self) -> None:
        """Close the connection. Unsettled messages return to their queues. Never raises."""
        if self.closing:
            return
        try:
            self.start_close()
            if self.failure is None:
                self.wait_until(lambda: self.finished, "it does not close", CLOSE_TIMEOUT_S)
        except (errors.PenstockError, amqp.ProtocolError):
            pass
        finally:  # even without memory for the answer
            self.disconnect()

    def start_close(self) -> None:
        was_closing, self.closing = self.closing, True
        if not was_closing and self.failure is None:
            self._machine.close()

    @property
    def finished(self) -> bool:
        return self._machine.finished

    def disconnect(self) -> None:
        self._transport.close()
        self.fail(errors.PeerError(f"this connection to {self.name} is closed"))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""One connection to a broker: the loop between the socket and `amqp`.

Everything happens inside the caller's calls; there is no thread. A call that waits also reads frames and answers heartbeats; a
program that does something else for longer than the broker's idle time-out calls `idle` now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ... import amqp, errors
from ...amqp import events
from . import failures
from .address import Address
from .blocks import BlockReceiver
from .claims import Claims
from .links import CLOSE_TIMEOUT_S, ClientLink
from .receiver import Receiver
from .receiving import DEFAULT_CREDIT
from .sender import Sender
from .transport import Transport

#: Default time limit of a call that waits for the broker, seconds.
TIMEOUT_S = 60.0
#: Messages that RabbitMQ 3 may send beyond a link's credit. It did in 6 of 55 receptions of 2,000; how many at most is not known.
RABBITMQ_OVERRUN = 5000


_OF_A_LINK = events.Delivered | events.Arrived | events.Attached | events.Detached | events.Aborted


class Connection:
    """A connection made by `connect`, for one thread at a time.

    Every method that waits raises PeerError when the broker says nothing for `timeout_s`, and the connection's own error once it
    has failed.

    Attributes:
        name: The broker's address.
        timeout_s: Seconds that each wait takes at most.
        links: The protocol's links, and the client's links on them.
        claims: Tokens of a broker that wants one for each address; None where the login is all.
    """

    def __init__(self, transport: Transport, machine: amqp.Connection, address: Address, timeout_s: float) -> None:
        self.name = str(address)
        self.host = address.host
        self.timeout_s = timeout_s
        self.links: dict[amqp.Link, ClientLink] = {}
        self.claims: Claims | None = None
        self._transport = transport
        self._machine = machine
        self._session: amqp.Session | None = None
        self._failure: errors.PenstockError | None = None
        self._closing = False
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
        """True for RabbitMQ 3: its plugin breaks off at a drain, confirms filters that it does not apply, and overruns credit."""
        properties = self.remote_properties
        return properties.get("product") == "RabbitMQ" and str(properties.get("version")).startswith("3.")

    @property
    def session(self) -> amqp.Session:
        """The one session that all links of this connection share."""
        self.check()
        if self._session is None:
            self._session = self._machine.begin()
        return self._session

    def sender(self, address: str, *, presettled: bool = False) -> Sender:
        """Attach a link that sends.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            presettled: Whether to send without confirmations: at most once.

        Returns:
            A link; it ends with the connection.

        Raises:
            PenstockError: The broker refuses: NotFound, NotAllowed and so on.
        """
        self._admit(address)
        return Sender(self, address, self._link_name(), presettled)

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
        """Attach a link that receives.

        Args:
            address: A queue or an exchange.
            credit: Messages on the way or waiting here at most.
            limit: Messages in all; None for any number.
            browse: Whether to look only: it takes nothing.
            presettled: Whether to receive without settlement: at most once.
            selector: Only messages that match, in the syntax of JMS.
            properties: Link properties, for options that a broker has beyond AMQP.

        Returns:
            A link; it ends with the connection.

        Raises:
            PenstockError: The broker refuses: NotFound, NotAllowed and so on.
        """
        self._admit(address)
        return Receiver(self, address, self._link_name(), credit, limit, browse, presettled, selector, properties)

    def block_receiver(self, address: str, credit: int, *, selector: str | None = None) -> BlockReceiver:
        """Attach a link that receives in blocks, for whoever takes messages by the ten thousand.

        Args:
            address: A queue.
            credit: Messages on the way or waiting here at most.
            selector: Only messages that match, in the syntax of JMS.

        Returns:
            A link; it ends with the connection.

        Raises:
            PenstockError: The broker refuses: NotFound, NotAllowed and so on.
        """
        self._admit(address)
        return BlockReceiver(self, address, self._link_name(), credit, None, False, False, selector)

    def _admit(self, address: str) -> None:
        if self.claims is not None:
            self.claims.admit(address)

    def _link_name(self) -> str:
        self._link_count += 1
        return f"{self._machine.settings.container_id}-{self._link_count}"

    def fileno(self) -> int:
        """Return the socket's descriptor, to poll it beside others: when it is readable, or while `pending`, call `idle`."""
        return self._transport.fileno()

    @property
    def pending(self) -> bool:
        """True while octets wait that the socket does not show: TLS has them."""
        return self._transport.pending

    def idle(self, timeout_s: float = 0.0) -> None:
        """Read and answer heartbeats, while there is nothing else to do.

        Args:
            timeout_s: Seconds that this takes; 0 reads what is there.

        Raises:
            PenstockError: The connection has failed.
        """
        deadline = time.monotonic() + timeout_s
        self.step(0.0)
        while (left := deadline - time.monotonic()) > 0:
            self.step(left)

    def next_heartbeat_s(self) -> float | None:
        """Return the seconds until `idle` is due at the latest; None if the broker asks for no heartbeats."""
        now = time.monotonic()
        due = self._machine.next_tick(now)
        return None if due is None else max(0.0, due - now)

    # --- waiting

    def check(self) -> None:
        """Raise the error that ended this connection, if there is one.

        Raises:
            PenstockError: That error.
        """
        if self._failure is not None:
            raise self._failure

    def step(self, timeout_s: float) -> bool:
        """Write what is ready, then read for at most `timeout_s`; return True if octets came. Raises the connection's failure."""
        now = time.monotonic()
        timeout_s = self._renew_claims(now, timeout_s)
        due = self._machine.next_tick(now)
        data = self._exchange(timeout_s if due is None else min(timeout_s, max(0.0, due - now)))
        now = time.monotonic()
        found: list[events.Event] = []
        if data:
            found = self._machine.receive_data(data, now)
        elif data is not None:
            found = self._machine.receive_eof()
        if due is not None:  # after the read: a heartbeat may have waited in the socket
            found += self._machine.tick(now)
        for event in found:
            self._handle(event)
        try:  # also after a failure: the frames to write may tell the broker its reason
            self.flush()
        except errors.PenstockError as error:
            self._fail(error)
        self.check()
        return data is not None

    def _renew_claims(self, now: float, timeout_s: float) -> float:
        """Put the tokens that are due; return the time limit of this step, at most until the next one is."""
        if self.claims is None or self._failure is not None or self._closing:
            return timeout_s
        try:
            due = self.claims.renew(now)
        except errors.PenstockError as error:
            raise self._fail(error) from None
        return timeout_s if due is None else max(0.0, min(timeout_s, due))

    def wait_until(self, done: Callable[[], bool], what: str, limit_s: float | None = None) -> None:
        """Step until `done()`. Raises PeerError, completed by `what`, after `limit_s` or the time limit."""
        limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
        deadline = time.monotonic() + limit
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.timeout_error(what, limit)
            self.step(left)

    def timeout_error(self, what: str, limit_s: float) -> errors.PenstockError:
        """Return the error for an answer that has not come in time."""
        return errors.PeerError(
            f"{self.name} has not answered within {limit_s:g} s: {what}. It may be overloaded or not a broker at"
            " all; try again, or raise the time limit"
        )

    def flush(self) -> None:
        """Write what the socket takes now; the next step writes the rest."""
        if not self._transport.congested:
            data = self._machine.data_to_send()
            if data:
                self._transport.write(data)

    @property
    def congested(self) -> bool:
        """True while octets wait for the socket; a sender then waits before it makes more."""
        return self._transport.congested

    def _exchange(self, timeout_s: float) -> bytes | None:
        self.check()
        try:
            self.flush()
            return self._transport.read(timeout_s)
        except errors.PenstockError as error:
            raise self._fail(error) from None

    def _fail(self, error: errors.PenstockError) -> errors.PenstockError:
        if self._failure is None:
            self._failure = error
        return self._failure

    # --- events

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, _OF_A_LINK):
            self._on_link(event.link, event)
        elif isinstance(event, events.Flowed):
            if event.link is not None:
                self._on_link(event.link, event)
        elif isinstance(event, events.Disposed):
            self._on_disposed(event)
        elif isinstance(event, events.Violated):
            if event.link is not None:
                self._on_link(event.link, event)
            elif event.error.condition == amqp.Condition.UNAUTHORIZED_ACCESS:  # no usable mechanism, or a false server
                self._fail(errors.Unauthenticated(f"{self.name}: {event.error.description}; see the user and the TLS options"))
            else:
                self._fail(errors.PeerError(f"{self.name} does not speak AMQP 1.0 as it should: {event.error}"))
        elif isinstance(event, events.Ended):
            if not self._closing:
                self._fail(failures.from_peer(event.error, f"{self.name} ended the session"))
        elif isinstance(event, events.Closed):
            self._on_closed(event)
        elif isinstance(event, events.TimedOut):
            self._fail(errors.PeerError(f"{self.name} has said nothing for its whole idle time-out: it hangs, or is unreachable"))
        elif isinstance(event, events.Lost):
            self._fail(errors.PeerError(self._loss()))
        elif isinstance(event, events.AuthenticationFailed):
            self._fail(unauthenticated(self.name))
        elif isinstance(event, events.Authenticated):
            self._machine.open()

    def _loss(self) -> str:
        """Say what the end of the connection without a close means."""
        if self._machine.remote_open is not None:
            return f"the connection to {self.name} broke; the outcome of unconfirmed messages is unknown"
        if self._transport.begun:  # in AMQP: of anything else the transport says it
            return f"the connection to {self.name} broke during the login: the broker was stopped, perhaps; try again"
        return (
            f"{self.name} ended the connection before it said anything: the broker was stopped, perhaps, then try again; or it is"
            " another kind of server"
        )

    def _on_link(self, link: amqp.Link, event: events.Event) -> None:
        client_link = self.links.get(link)
        if client_link is not None:
            client_link.on_event(event)
        elif isinstance(event, events.Attached):
            if link.local_attach is None:  # a client accepts no attach
                link.refuse(amqp.Condition.NOT_ALLOWED, "this client is no broker")
            else:  # a late answer to an attach that was given up
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

    def _on_closed(self, event: events.Closed) -> None:
        if not self._closing:
            self._fail(failures.from_peer(event.error, f"{self.name} closed the connection"))
            self._machine.close()

    # --- open and close

    def open(self) -> None:
        """Shake hands: SASL, then the two opens. For `connect`."""
        self.wait_until(lambda: self._machine.remote_open is not None, "no AMQP greeting came")
        self._machine.credit_overrun = RABBITMQ_OVERRUN if self.is_rabbitmq_3 else 0

    def close(self) -> None:
        """Close the connection. Unsettled messages return to their queues. Never raises for a broker that is gone."""
        if self._closing:
            return
        self._closing = True
        try:
            if self._failure is None:
                self._machine.close()
                self.wait_until(lambda: self._machine.finished, "it does not close", CLOSE_TIMEOUT_S)
        except (errors.PenstockError, amqp.ProtocolError):
            pass
        finally:  # also where there is no memory for what still comes
            self._transport.close()
            self._failure = self._failure or errors.PeerError(f"this connection to {self.name} is closed")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def unauthenticated(name: str) -> errors.PenstockError:
    """Return the error for a refused login."""
    return errors.Unauthenticated(f"{name} refuses the login: the user name, the password or the certificate is wrong or missing")

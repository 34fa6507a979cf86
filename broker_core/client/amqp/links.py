"""Common part of the client's senders and receivers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from ... import amqp, errors
from ...amqp import events
from ...amqp.states import LinkState
from . import failures

#: Seconds to wait for the answer to a close or a detach. The client does not depend on it.
CLOSE_TIMEOUT_S = 5.0
HINT = "selector-hint"
MAX_HINT = 1000  # characters


class LinkConnection(Protocol):
    """A link's connection. It steps in the caller's thread, or another thread reads it (`client.app`)."""

    links: dict[amqp.Link, ClientLink]
    name: str
    timeout_s: float

    @property
    def is_penstock(self) -> bool: ...

    @property
    def congested(self) -> bool: ...

    def new_link_name(self) -> str: ...

    def check(self) -> None: ...

    def flush(self) -> None: ...

    def wait_until(self, done: Callable[[], bool], problem: str, limit_s: float | None = None) -> None: ...


class ClientLink:
    """A link of a client. Its calls raise the reason why the broker has ended it.

    Attributes:
        failure: Error that ended this link; None while it works.
        overfull: Whether this client has ended it because of a too large message.
    """

    link: amqp.Link
    overfull = False

    def __init__(self, connection: LinkConnection, address: str) -> None:
        self.connection = connection
        self.address = address
        self.failure: errors.PenstockError | None = None

    @property
    def hint(self) -> str | None:
        """The broker's hint about this link's selector, cut to `MAX_HINT` characters; None without one."""
        theirs = self.link.remote_attach
        text = (theirs.properties or {}).get(HINT) if theirs is not None else None
        return text[:MAX_HINT] if isinstance(text, str) else None

    @property
    def usable(self) -> bool:
        """True if the link is attached and has not failed."""
        return self.link.state is LinkState.ATTACHED and self.failure is None

    def check(self) -> None:
        """Raise the error that ended this link or its connection, if any."""
        if self.failure is not None:
            raise self.failure
        self.connection.check()

    def _wait_until(self, done: Callable[[], bool], problem: str, limit_s: float | None = None) -> None:
        def met() -> bool:
            self.check()
            return done()

        self.connection.wait_until(met, problem, limit_s)

    def _attach(self, **terms: Any) -> None:
        self.connection.links[self.link] = self
        try:
            self.link.attach(**terms)
            self._wait_until(self._attached, f"it does not answer an attach to {self.address!r}")
        except BaseException as error:
            self.connection.links.pop(self.link, None)
            if isinstance(error, amqp.LocalProtocolError):
                raise errors.InvalidRequest(f"{self.address!r} cannot be attached to: {error}") from error
            raise

    def _attached(self) -> bool:
        # A null terminus is a refusal; the detach that follows contains the reason (2.6.3).
        terminus = self.link.target if self.link.role == amqp.Sender.role else self.link.source
        return self.link.state is LinkState.ATTACHED and terminus is not None

    def close(self) -> None:
        """Detach. Unsettled messages return to their queues. Never raises."""
        if self.usable:
            with suppress(errors.PenstockError, amqp.ProtocolError):
                self.connection.check()
                self.link.detach(closed=True)
                self.connection.wait_until(
                    lambda: self.link.state is LinkState.DETACHED, "it does not answer a detach", CLOSE_TIMEOUT_S
                )
        self.failure = self.failure or errors.PeerError(f"this link to {self.address!r} is closed")
        self.connection.links.pop(self.link, None)

    def detach(self) -> None:
        """Detach without waiting for the answer."""
        if self.usable:
            with suppress(amqp.LocalProtocolError):  # the connection has just ended
                self.link.detach(closed=True)
            self.failure = errors.PeerError(f"this link to {self.address!r} is closed")
            self.connection.flush()

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Detached):
            if self.link.state is LinkState.DETACH_RCVD:
                self.link.detach(closed=True)
            if self.failure is None:
                self.failure = failures.from_peer(event.error, f"the broker ended the link to {self.address!r}")
        elif isinstance(event, events.Violated):
            largest = self.link.session.settings.max_message_size
            self.failure = failures.from_violation(event.error, self.address, largest)
            self.overfull = isinstance(self.failure, errors.ResourceLimit)

    def on_outcome(self, deliveries: list[Any], state: object) -> None:
        """Handle the peer's state of deliveries of this link."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

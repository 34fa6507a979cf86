"""Common part of the client's senders and receivers: attach, refusal, detach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ... import amqp, errors
from ...amqp import events
from ...amqp.states import LinkState
from . import failures

#: Seconds to wait for the answer to a close or detach, which is only a courtesy.
CLOSE_TIMEOUT_S = 5.0
HINT = "selector-hint"  # property of the broker's attach
MAX_HINT = 1000  # characters; Penstock's have fewer


class LinkConnection(Protocol):
    """The connection of a link, as the link needs it; `connection.Connection` implements it."""

    timeout_s: float
    links: dict[amqp.Link, ClientLink]

    @property
    def session(self) -> amqp.Session:
        """The one session of all links."""

    @property
    def is_penstock(self) -> bool:
        """True if the broker is Penstock."""

    @property
    def congested(self) -> bool:
        """True while the socket takes nothing more."""

    def check(self) -> None:
        """Raise the error that ended this connection, if there is one."""

    def step(self, timeout_s: float) -> bool:
        """Write what is ready, then read for at most `timeout_s`. Raises the connection's failure."""

    def flush(self) -> None:
        """Write what is ready. Raises the connection's failure."""

    def wait_until(self, done: Callable[[], bool], what: str, limit_s: float | None = None) -> None:
        """Wait until `done`. Raises PeerError with `what` after `limit_s` or `timeout_s`, and the connection's failure."""


class ClientLink:
    """A link of a client. Its calls raise the broker's reason once the broker has ended the link.

    Attributes:
        overfull: Whether we have ended it, because a message is larger than this client takes: it would come again.
    """

    link: amqp.Link
    overfull = False

    def __init__(self, connection: LinkConnection, address: str) -> None:
        self.connection = connection
        self.address = address
        self._failure: errors.PenstockError | None = None

    @property
    def hint(self) -> str | None:
        """The broker's hint about this link's selector, cut to `MAX_HINT` characters; None if it has none."""
        theirs = self.link.remote_attach
        text = (theirs.properties or {}).get(HINT) if theirs is not None else None
        return text[:MAX_HINT] if isinstance(text, str) else None

    def check(self) -> None:
        """Raise the error that ended this link or its connection, if there is one.

        Raises:
            PenstockError: That error.
        """
        if self._failure is not None:
            raise self._failure
        self.connection.check()

    def _attach(self, **terms: Any) -> None:
        self.connection.links[self.link] = self
        try:
            self.link.attach(**terms)
            self.connection.wait_until(self._attached, f"it does not answer an attach to {self.address!r}")
        except BaseException as error:
            self.connection.links.pop(self.link, None)
            if isinstance(error, amqp.LocalProtocolError):
                raise errors.InvalidRequest(f"{self.address!r} cannot be attached to: {error}") from error
            raise

    def _attached(self) -> bool:
        self.check()
        # A null terminus is a refusal; the detach that says why comes next (2.6.3).
        terminus = self.link.target if self.link.role == amqp.Sender.role else self.link.source
        return self.link.state is LinkState.ATTACHED and terminus is not None

    def _detached(self) -> bool:
        return self.link.state is LinkState.DETACHED

    def close(self) -> None:
        """Detach for good. Unsettled messages return to their queues. Never raises for a link that has ended."""
        if self.link.state is LinkState.ATTACHED and self._failure is None:
            try:
                self.connection.check()
                self.link.detach(closed=True)
                self.connection.wait_until(self._detached, "it does not answer a detach", CLOSE_TIMEOUT_S)
            except (errors.PenstockError, amqp.ProtocolError):
                pass
        self._failure = self._failure or errors.PeerError(f"this link to {self.address!r} is closed")
        self.connection.links.pop(self.link, None)

    # --- for the connection

    def on_event(self, event: events.Event) -> None:
        """Handle one event of this link, in the order of the wire."""
        if isinstance(event, events.Detached):
            if self.link.state is LinkState.DETACH_RCVD:
                self.link.detach(closed=True)
            if self._failure is None:
                self._failure = failures.from_peer(event.error, f"the broker ended the link to {self.address!r}")
        elif isinstance(event, events.Violated):
            largest = self.link.session.settings.max_message_size
            self._failure = failures.from_violation(event.error, self.address, largest)
            self.overfull = isinstance(self._failure, errors.ResourceLimit)

    def on_outcome(self, deliveries: list[Any], state: object) -> None:
        """Handle the state that the peer has given to deliveries of this link."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

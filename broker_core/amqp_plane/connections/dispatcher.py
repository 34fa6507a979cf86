"""The dispatcher of one connection: it turns the events of the protocol machine into calls of links."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ...amqp import Condition, Connection, Role, SaslServer, events
from ...amqp.errors import LocalProtocolError, RemoteProtocolError
from ...amqp.links import Link
from ...amqp.performatives import Error, Open
from ...amqp.sasl import PLAIN, SCRAM_SHA_256
from ...amqp.states import ConnectionState, LinkState, SessionState
from ...amqp.transactions import TXN_ID
from ...amqp.types import Symbol, UInt
from ...logs import one_line
from ...security.users import ANONYMOUS
from ...settings.listeners import Listener
from ..conditions import Refusal
from ..links import attach
from ..links.endpoint import CONNECTION_ENDED, DETACHED, SESSION_ENDED
from ..links.outgoing_link import OutgoingLink
from ..transactions.registry import ConnectionTransactions
from . import containers
from .peer import LINE, LOGIN_CHANGED, Peer

if TYPE_CHECKING:
    from ..plane import AmqpPlane
    from .sockets import AcceptedSocket

log = logging.getLogger("penstock.amqp")


class Dispatcher(Peer):
    """A peer whose events go to its links. A dialect's peer has another `make_endpoint`."""

    make_endpoint: attach.MakeEndpoint = staticmethod(attach.endpoint_of)

    def __init__(self, plane: AmqpPlane, socket: AcceptedSocket, listener: Listener, sasl: SaslServer) -> None:
        connection = Connection(Role.SERVER, plane.protocol, sasl, sasl_required=not listener.without_sasl)
        super().__init__(plane, plane.registry, socket, connection)
        self.plane = plane
        self.socket = socket
        self._sasl = sasl
        self.settles_first = listener.settles_first
        connection.may_keep = partial(plane.unfinished.may_keep, self)
        self.transactions = ConnectionTransactions(connection.coordinated)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.Authenticated: self._on_authenticated,
            events.AuthenticationFailed: self._on_failed_login,
            events.Opened: lambda event: self._on_open(event.open),
            events.Begun: self._on_begin,
            events.Attached: partial(attach.attach, self, self.transactions, self.make_endpoint),
            events.Flowed: self._on_flow,
            events.Delivered: lambda event: self._at(event.link, lambda link: link.delivered(event.deliveries)),
            events.Disposed: self._on_disposition,
            events.Named: lambda event: self.transactions.named(event),
            events.Aborted: lambda event: None,
            events.Stolen: self._on_stolen,
            events.Detached: self._on_detach,
            events.Ended: self._on_end,
            events.Closed: self._on_close,
            events.Violated: self._on_violation,
            events.TimedOut: self._on_timeout,
            events.Lost: lambda event: self.lost(),
        }

    # --- octets

    def receive(self, data: bytes, now: float) -> None:
        self.happened(self.log_in(data, now) if self.logging_in else self.connection.events_in(data, now))

    def log_in(self, data: bytes, now: float) -> Iterator[events.Event]:
        """Read octets up to the end of the login. From any thread, while the loop does not read."""
        access = self.context.access
        # A check of a proof takes microseconds.
        with access.proving if self._sasl.mechanism == SCRAM_SHA_256 else nullcontext():
            happening = self.connection.events_in(data, now)
            first = next(happening, None)
            if isinstance(first, events.AuthenticationFailed) and self._sasl.mechanism != PLAIN:  # that check has counted it
                access.count_failure(self.transport.address, self._sasl.claimed)
        return happening if first is None else itertools.chain((first,), happening)

    def happened(self, happening: Iterable[events.Event]) -> None:
        """Handle events, each before the next is read."""
        for event in happening:
            if self.gone and not isinstance(event, events.AuthenticationFailed):
                return  # the connection was lost while its password was checked
            try:
                self._handlers[type(event)](event)
            except LocalProtocolError as error:  # an answer would exceed the peer's limits
                self.log(f"cannot answer: {error}")
                self.close(Error(condition=Condition.NOT_ALLOWED, description=str(error)[:200]))
        if self.connection.has_data_to_send or self.connection.finished:
            self.send_soon()  # otherwise the links request a commit if needed: an outcome alone does not

    def tick(self, now: float) -> None:
        """Send heartbeats; give up a silent peer. `now`: the plane's clock, seconds."""
        for event in self.connection.tick(now):
            self._handlers[type(event)](event)
        self.transport.send()

    # --- login, open, close

    @property
    def logging_in(self) -> bool:
        """True while received octets may contain a password."""
        return not self._sasl.done and not self.opened

    def _on_authenticated(self, event: events.Authenticated) -> None:
        self.user = event.user or ANONYMOUS
        self.identity = self.transport.checked.get(self.user, "")

    def _on_failed_login(self, event: events.AuthenticationFailed) -> None:
        address = self.transport.address
        log.warning("%s: login refused: %s", address, one_line(event.reason, LINE), extra={"peer": address})
        self.record_refused_login(self._sasl.claimed or "", event.reason)

    def give_up(self) -> bool:
        """Refuse a peer that has not opened in time. Returns False if no refusal can be sent."""
        text = f"not logged in and opened within {self.context.settings.amqp_login_timeout_s:g} s"
        if not self.connection.refuse(RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, text)):
            return False
        self.transport.expect_close()
        self.transport.send()
        return True

    def _on_open(self, theirs: Open) -> None:
        plane, connection = self.plane, self.connection
        self.container = theirs.container_id
        self.opened = True
        properties = {**(plane.protocol.properties or {}), **plane.flight_properties(self.user)}
        refusal = self._refusal(theirs)
        # Only the numbers of its open are still needed, and there may be many connections.
        theirs.hostname = theirs.properties = None
        theirs.outgoing_locales = theirs.incoming_locales = theirs.offered_capabilities = theirs.desired_capabilities = ()
        if self.sole is not None:
            properties[containers.POLICY] = UInt(self.sole)  # the policy that is enforced
        if refusal is not None:
            properties.pop("flight-token", None)
            properties["amqp:connection-establishment-failed"] = True
        connection.settings = dataclasses.replace(plane.protocol, properties=properties)
        try:
            connection.open()
        except LocalProtocolError as error:  # larger than the peer's frames: the token is left out
            self.log(f"told less: {error}")
            properties.pop("flight-token", None)
            connection.settings = dataclasses.replace(plane.protocol, properties=properties)
            connection.open()
        if refusal is not None:
            self.log(f"refused: {refusal}")
            is_container = refusal.condition == Condition.INVALID_FIELD
            info: Any = {Symbol("invalid-field"): Symbol("container-id")} if is_container else None
            connection.close(Error(condition=refusal.condition, description=str(refusal)[:200], info=info))
            self.transport.expect_close()

    def _refusal(self, theirs: Open) -> Refusal | None:
        try:
            if not self.has_valid_login:  # after the token was made: it must not be a later record's
                raise Refusal(Condition.UNAUTHORIZED_ACCESS, LOGIN_CHANGED)
            self.plane.admit(self)
            for older in self.plane.containers.enter(self, theirs):
                older.close(containers.REPLACED)
        except Refusal as refusal:
            return refusal
        return None

    def _on_close(self, event: events.Closed) -> None:
        if event.error is not None:
            self.log(f"closed with {event.error.condition!r:.80}: {event.error.description!r:.300}")
        self._lose_links(CONNECTION_ENDED)
        self.loop.after_all(self._answer_close)

    def _answer_close(self) -> None:
        if self.connection.state is ConnectionState.CLOSE_RCVD and not self.gone:
            self.connection.close()
            self.send_soon()

    def _on_violation(self, event: events.Violated) -> None:
        self.log(f"broke the protocol: {event.error}")
        if event.link is not None:
            self._end(event.link)
        elif event.session is not None:
            self._lose_links(SESSION_ENDED, event.session)
        else:
            self._lose_links(CONNECTION_ENDED)
        self.loop.after_all(partial(self._answer_violation, event))

    def _answer_violation(self, event: events.Violated) -> None:
        link, session = event.link, event.session
        if link is not None:
            self.say(link, link.answer_violation)
            self._unblock(link.session)
        elif session is not None:
            self.connection.answer(event)
            self._unblock(session)
            self.capacity.forget(session)
        else:
            self.connection.answer(event)
            self.transport.expect_close()
        self.send_soon()

    def _on_timeout(self, event: events.TimedOut) -> None:
        self.log("silent beyond its idle time-out")
        self._lose_links(CONNECTION_ENDED)
        self.transport.expect_close()

    def lost(self) -> None:
        if not self.gone:
            self.gone = True
            self.connection.receive_eof()
            self._lose_links(CONNECTION_ENDED)
            # A detached link would keep all of this in memory.
            self.connection.forget_all()
            self.loop.after_all(self.capacity.clear)
            self.loop.after_all(self._blocked.clear)
            self.plane.left(self)

    # --- sessions and links

    def _on_begin(self, event: events.Begun) -> None:
        begin = event.begin
        begin.properties = None  # not kept: there may be many sessions
        begin.offered_capabilities = begin.desired_capabilities = ()
        event.session.begin()

    def _on_end(self, event: events.Ended) -> None:
        session = event.session

        def answer() -> None:
            if session.state is SessionState.END_RCVD and self.connection.may_send:
                session.end()
                self.send_soon()
            self.capacity.forget(session)

        self._lose_links(SESSION_ENDED, session)
        self.loop.after_all(answer)

    def _on_flow(self, event: events.Flowed) -> None:
        session = event.session
        if session in self._blocked and not session.blocked:
            self._unblock(session)
        if event.link in self.links and TXN_ID in (event.flow.properties or {}):
            endpoint = self.links[event.link]
            if not isinstance(endpoint, OutgoingLink):
                text = "messages that are sent to us name their transactions themselves"
                self.detach(endpoint, Error(condition=Condition.NOT_IMPLEMENTED, description=text))
            else:
                endpoint.acquire_in((event.flow.properties or {})[TXN_ID])
        if event.link is not None:
            self._at(event.link, lambda endpoint: endpoint.asked())
        waiting = self.squeezed.get(session, {})
        for link in list(waiting):  # the window is the session's, so the link that the flow names does not matter
            if session.remote_incoming_window <= 0:
                break
            del waiting[link]  # if it has to wait again, others come first
            self._at(link.link, lambda endpoint: endpoint.flowed())
        if event.completed is not None and session.remote_incoming_window <= 0:
            # The rest of its message took the last of the window. A drain needs no window.
            self._at(event.completed, lambda endpoint: endpoint.flowed())
        if event.link is not None:
            self._at(event.link, lambda endpoint: endpoint.flowed())

    def _on_disposition(self, event: events.Disposed) -> None:
        several: dict[Link, list[Any]] = {}
        before, mine = None, list[Any]()
        for delivery in event.deliveries:  # nearly always, all are of one link
            if delivery.link is not before:
                before = delivery.link
                mine = several.setdefault(before, [])
            mine.append(delivery)
        for link, deliveries in several.items():
            endpoint = self.links.get(link) or self.detached.get(link)
            if endpoint is not None:
                endpoint.disposed(deliveries, event.state, event.settled)

    def _at(self, link: Link, action: Callable[[Any], None]) -> None:
        endpoint = self.links.get(link)
        if endpoint is not None:
            action(endpoint)

    def _on_detach(self, event: events.Detached) -> None:
        link, closed, endpoint = event.link, event.closed, self.links.get(event.link)
        if endpoint is not None:
            endpoint.closed = closed

        def answer() -> None:
            if link.state is LinkState.DETACH_RCVD and link.session.may_send:
                link.detach(closed=closed, error=None if endpoint is None else endpoint.detach_error)
                self.send_soon()
            if endpoint is None or endpoint.ended:  # otherwise its deliveries are kept
                link.session.forget(link)

        if endpoint is None or closed or event.error is not None:
            self._end(link)
        else:
            self.registry.leave(endpoint, DETACHED)
        self.loop.after_all(answer)

    def _on_stolen(self, event: events.Stolen) -> None:
        """Detach a link whose name another link of this connection has taken; no detach is sent."""
        endpoint = self.links.get(event.link)
        if endpoint is not None:
            endpoint.stolen = True
            self.registry.leave(endpoint, DETACHED)

"""One connection, from the end of its login on: the protocol's events into links, and links into commands (`loop`).

Answers that say something about queues (attach, detach, end, close) take their place in the line of effects, behind everything
that the peer sent before: so a close is answered when all that came before it is safe, and told.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ...amqp import Condition, Connection, Role, SaslServer, events
from ...amqp.errors import LocalProtocolError, RemoteProtocolError
from ...amqp.links import UNANSWERED
from ...amqp.performatives import Error
from ...amqp.sasl import PLAIN, SCRAM_SHA_256
from ...amqp.states import ConnectionState, LinkState, SessionState
from ...amqp.transactions import TXN_ID
from ...engine.columns.states import Cause
from ...engine.commands import Maker
from ...logs import one_line
from ...security.rights import Right
from ..links import attaching
from ..links.conditions import deleted
from ..links.expiry import CONNECTION_ENDED, DETACHED, SESSION_ENDED
from ..links.incoming import Incoming
from ..nodes.addresses import forget_terms
from ..transactions.registry import Transactions
from . import opening
from .capacity import Capacity

if TYPE_CHECKING:
    from ...amqp.links import Link
    from ...amqp.sessions import Session
    from ...settings.listeners import Listener
    from ..links.outgoing import Outgoing
    from ..loop.server import AmqpPlane
    from ..ports import Endpoint, Host, Kept, Loop
    from .transport import Wire

log = logging.getLogger("penstock.amqp")

_numbers = itertools.count()
ANONYMOUS = "anonymous"
LINE = 600  # characters of the log that one thing of a peer's may take


class Peer:
    """A connection's peer. `user` and `container` are known from its open on; `stalled` while its socket takes no more."""

    def __init__(self, plane: AmqpPlane, wire: Wire, listener: Listener, sasl: SaslServer) -> None:
        self.plane = plane
        self.host: Host = plane
        self.loop: Loop = plane.passes
        self.wire = wire
        self.user = ANONYMOUS
        self.identity: str | None = ""  # of the user's record that the login was checked against
        self.container = ""
        self.sole: Any = None  # the policy of a container that wants to be here once only
        self.opened = False
        self.gone = False
        self.identifier = f"{wire.address} {next(_numbers)}"  # no other connection's, in one life of the broker
        self.links: dict[Link, Endpoint] = {}
        self.detached: dict[Link, Kept] = {}  # that live on: see the module of that name
        self._blocked: dict[Session, list[Callable[[], None]]] = {}  # what waits until a session has sent what it has
        self.squeezed: dict[Session, dict[Outgoing, None]] = {}  # links that wait for the peer's window, who waits longest first
        self._sasl = sasl
        self.connection = Connection(Role.SERVER, plane.protocol, sasl, sasl_required=not listener.without_sasl)
        self.connection.may_keep = partial(plane.unfinished.may_keep, self)
        self.capacity = Capacity(self.connection, self.loop, plane.limits)
        self.transactions = Transactions(self.connection.coordinated)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.Authenticated: self._on_authenticated,
            events.AuthenticationFailed: self._on_failed_login,
            events.Opened: lambda event: opening.answer(self, event.open),
            events.Begun: self._on_begin,
            events.Attached: lambda event: attaching.attach(self, event),
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

    def __repr__(self) -> str:
        return f"{self.wire.address} ({self.user}{f', {self.container!r:.60}' if self.container else ''})"

    def log(self, text: str) -> None:
        """Write a line about this peer into the broker's log, cut to `LINE` characters."""
        log.info("%s: %s", self, one_line(text, LINE), extra={"peer": self.wire.address, "user": self.user})

    # --- octets

    def receive(self, data: bytes, now: float) -> None:
        """Read octets of the peer's, whatever layers they came through."""
        self.happened(self.log_in(data, now) if self.logging_in else self.connection.events_in(data, now))

    def log_in(self, data: bytes, now: float) -> Iterator[events.Event]:
        """Read octets up to the end of the login, and count a failure; `happened` reads the rest.

        From any thread, while the loop does not read.
        """
        attempts = self.plane.access.attempts
        # A proof is looked at in microseconds: one after another, so that those that come at once are no more than the limit.
        with attempts.turn if self._sasl.mechanism == SCRAM_SHA_256 else nullcontext():
            happening = self.connection.events_in(data, now)
            first = next(happening, None)
            if isinstance(first, events.AuthenticationFailed) and self._sasl.mechanism != PLAIN:  # there the check has counted it
                attempts.failed(self.wire.address, self._sasl.claimed)
        return happening if first is None else itertools.chain((first,), happening)

    def happened(self, happening: Iterable[events.Event]) -> None:
        """Handle the events in some octets, each before the next is read. Opens and begins are answered here."""
        for event in happening:
            if self.gone and not isinstance(event, events.AuthenticationFailed):
                return  # it left while its password was checked
            try:
                self._handlers[type(event)](event)
            except LocalProtocolError as error:  # the peer's limits do not let us answer
                self.log(f"cannot answer: {error}")
                self.close(Error(condition=Condition.NOT_ALLOWED, description=str(error)[:200]))
        if self.connection.has_data_to_send or self.connection.finished:
            self.send_soon()  # else the links say what there is to be done: an outcome alone needs no pass

    def send_soon(self) -> None:
        """Send what the protocol has to say, at the end of the pass."""
        self.plane.passes.send_soon(self)

    def send(self) -> None:
        """Write what the protocol has to say."""
        data = self.connection.data_to_send()
        if data:
            self.wire.write(data)
        if self.connection.finished:
            self.wire.close()

    def tick(self, now: float) -> None:
        """Send heartbeats; give up a peer that is silent. `now`: the plane's clock, seconds."""
        for event in self.connection.tick(now):
            self._handlers[type(event)](event)
        self.send()

    @property
    def stalled(self) -> bool:
        """Say whether the socket is full: nothing is acquired for this peer until it reads."""
        return self.wire.stalled

    def flowing(self) -> None:
        """Go on: the socket takes octets again."""
        for endpoint in self.links.values():
            endpoint.flowed()

    def pause_reading(self) -> None:
        """Stop reading from the socket: the journal has no capacity."""
        self.wire.pause("the journal has no room")

    def resume_reading(self) -> None:
        """Read again: the journal has capacity. The socket stays paused while there is another reason."""
        self.wire.resume("the journal has no room")

    # --- what it may

    def may(self, right: Right, queue: str) -> bool:
        """Say whether the peer's user has this right on a queue."""
        return self.plane.access.may(self.user, right, queue)

    @property
    def maker(self) -> Maker:
        """The maker of queues and exchanges that a link makes."""
        return Maker(self.user, self.plane.limits.nodes_per_user)

    # --- login, open, close

    @property
    def logging_in(self) -> bool:
        """Say whether what comes may be a password."""
        return not self._sasl.done and not self.opened

    def _on_authenticated(self, event: events.Authenticated) -> None:
        self.user = event.user or ANONYMOUS
        self.identity = self.wire.checked.get(self.user, "")

    def give_up(self) -> bool:
        """Refuse a peer that has not opened in time. Returns whether it could be told."""
        text = f"not logged in and opened within {self.plane.limits.login_timeout_s:g} s"
        if not self.connection.refuse(RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, text)):
            return False
        self.wire.expect_close()
        self.send()
        return True

    def _on_failed_login(self, event: events.AuthenticationFailed) -> None:
        log.warning("%s: login refused: %s", self.wire.address, one_line(event.reason, LINE), extra={"peer": self.wire.address})

    def close(self, error: Error | None, *, for_good: bool = False, cause: Cause = Cause.LINK_LOST) -> None:
        """Close the connection: the broker stops, or the peer went too far. `for_good`: nothing of it lives on. `cause`: why its
        messages come back."""
        for endpoint in (*self.links.values(), *self.detached.values()):
            endpoint.end_cause = cause
        if for_good:
            self._end(list(self.links), None)
            for endpoint in list(self.detached.values()):
                self.plane.detached.expire(endpoint)
        else:
            self._connection_ended()
        self.loop.after_all(lambda: self._say_close(error))

    def _say_close(self, error: Error | None) -> None:
        if self.connection.may_send:
            self.connection.close(error)
            self.wire.expect_close()
        elif not self.gone and self.connection.local_open is None:  # there is no way to say it
            self.wire.abort()
        self.send_soon()

    def _on_close(self, event: events.Closed) -> None:
        if event.error is not None:
            self.log(f"closed with {event.error.condition!r:.80}: {event.error.description!r:.300}")
        self._connection_ended()
        self.loop.after_all(self._answer_close)

    def _answer_close(self) -> None:
        if self.connection.state is ConnectionState.CLOSE_RCVD and not self.gone:
            self.connection.close()
            self.send_soon()

    def _on_violation(self, event: events.Violated) -> None:
        self.log(f"broke the protocol: {event.error}")
        if event.link is not None:
            self._end([event.link], None)
        elif event.session is not None:
            self._session_ended(event.session)
        else:
            self._connection_ended()
        self.loop.after_all(partial(self._answer_violation, event))

    def _answer_violation(self, event: events.Violated) -> None:
        """Tell the peer of its error, behind the answers to all that it sent before."""
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
            self.wire.expect_close()
        self.send_soon()

    def _on_timeout(self, event: events.TimedOut) -> None:
        self.log("silent beyond its idle time-out")
        self._connection_ended()
        self.wire.expect_close()

    def lost(self) -> None:
        """End a peer whose transport has gone: what its links held goes back, before any attach that comes later is answered."""
        if not self.gone:
            self.gone = True
            self.connection.receive_eof()
            self._connection_ended()
            self.connection.forget_all()  # a link that lives on would keep it
            self.loop.after_all(self._forget_all)
            self.plane.left(self)

    def _forget_all(self) -> None:
        """Forget all that a link which lives on would keep with its peer."""
        self.capacity.clear()
        self._blocked.clear()

    # --- sessions

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

        self._session_ended(session)
        self.loop.after_all(answer)

    def _session_ended(self, session: Session) -> None:
        """Detach the links of a session; that does not close them."""
        self.plane.detached.session_ended(self, session)
        for link in [link for link in self.links if link.session is session]:
            self.plane.detached.leave(self.links[link], SESSION_ENDED)

    def _connection_ended(self) -> None:
        """Detach the links of all sessions."""
        self.plane.detached.connection_ended(self)
        for endpoint in list(self.links.values()):
            self.plane.detached.leave(endpoint, CONNECTION_ENDED)

    # --- links

    def refuse(self, link: Link, error: Error) -> None:
        """Answer an attach by an attach without terminus, and a detach that says why."""
        if self.awaits_attach(link):
            self.say(link, lambda: link.refuse(error.condition, error.description))

    def say(self, link: Link, action: Callable[[], None]) -> None:
        """Send what the peer's limits may not allow; its session ends if they do not."""
        try:
            action()
        except LocalProtocolError as error:
            self.log(f"link {link.name!r:.80} cannot be answered: {error}")
            session = link.session
            self._session_ended(session)
            small = str(error).startswith(Condition.FRAME_SIZE_TOO_SMALL)
            condition = Condition.FRAME_SIZE_TOO_SMALL if small else Condition.NOT_ALLOWED
            session.end(Error(condition=condition, description=str(error)[:200]))
            self._unblock(session)
            self.loop.after_all(partial(self.capacity.forget, session))
        forget_terms(link.local_attach, link.remote_attach)
        self.send_soon()

    def awaits_attach(self, link: Link) -> bool:
        """Say whether the link's attach is not answered, and can still be."""
        return link.state in UNANSWERED and link.session.may_send

    def _on_flow(self, event: events.Flowed) -> None:
        session = event.session
        if session in self._blocked and not session.blocked:
            self._unblock(session)
        if event.link in self.links and TXN_ID in (event.flow.properties or {}):
            endpoint = self.links[event.link]
            if isinstance(endpoint, Incoming):
                text = "messages that are sent to us name their transactions themselves"
                self.detach(endpoint, Error(condition=Condition.NOT_IMPLEMENTED, description=text))
            else:
                endpoint.acquire_in((event.flow.properties or {})[TXN_ID])
        if event.link is not None:
            self._at(event.link, lambda endpoint: endpoint.asked())
        waiting = self.squeezed.get(session, {})
        for link in list(waiting):  # for the window of the session, whatever link the flow names
            if session.remote_incoming_window <= 0:
                break
            del waiting[link]  # if it has to wait again, others come first
            self._at(link.link, lambda endpoint: endpoint.flowed())
        if event.completed is not None and session.remote_incoming_window <= 0:
            # The rest of its message took the last of the window: a drain is answered all the same, which takes none.
            self._at(event.completed, lambda endpoint: endpoint.flowed())
        if event.link is not None:
            self._at(event.link, lambda endpoint: endpoint.flowed())

    def when_unblocked(self, session: Session, action: Callable[[], None]) -> None:
        """Act when what waits for the window of a session has left, or perhaps when a link of it ends."""
        self._blocked.setdefault(session, []).append(action)

    def _unblock(self, session: Session) -> None:
        for action in self._blocked.pop(session, ()):
            action()

    def _on_disposition(self, event: events.Disposed) -> None:
        several: dict[Link, list[Any]] = {}
        before, mine = None, list[Any]()
        for delivery in event.deliveries:  # nearly always all are of one link
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
            if endpoint is None or endpoint.ended:  # else its deliveries live
                link.session.forget(link)

        if endpoint is None or closed or event.error is not None:
            self._end([link], None)
        else:
            self.plane.detached.leave(endpoint, DETACHED)
        self.loop.after_all(answer)

    def detach(self, endpoint: Endpoint, error: Error, cause: Cause = Cause.LINK_LOST) -> None:
        """Detach a link, with the reason. Nothing happens when it has ended already. `cause`: why its messages come back."""
        if endpoint.link in self.links:
            endpoint.end_cause = cause
            self.log(f"link {endpoint.link.name!r:.80} detached: {error.condition}: {error.description}")
            self._end([endpoint.link], error)
        elif self.detached.get(endpoint.link) is endpoint:  # there is no link to say it on
            endpoint.end_cause = cause
            self.plane.detached.expire(endpoint)

    def steal(self, endpoint: Endpoint, error: Error) -> None:
        """Detach a link whose name another one has now, which goes on where it was."""
        self.log(f"link {endpoint.link.name!r:.80} detached: {error.condition}: {error.description}")
        endpoint.stolen = True
        self.plane.detached.leave(endpoint, DETACHED)
        self.loop.after_all(lambda: self._say_detach(endpoint.link, error))

    def _on_stolen(self, event: events.Stolen) -> None:
        """Detach a link that another of the same connection has taken the name of; the peer knows it."""
        endpoint = self.links.get(event.link)
        if endpoint is not None:
            endpoint.stolen = True
            self.plane.detached.leave(endpoint, DETACHED)

    def _end(self, links: list[Link], error: Error | None) -> None:
        """End links; with an error, the peer is told so once what they held is back."""
        for link in links:
            endpoint = self.links.get(link)
            if endpoint is not None:
                self.forget(endpoint)
                self.loop.in_pass(partial(attaching.end, endpoint=endpoint))
        for link in links:
            if error is not None:
                self.loop.after_all(partial(self._say_detach, link, error))

    def _say_detach(self, link: Link, error: Error) -> None:
        if self.awaits_attach(link):
            self.refuse(link, error)
        elif link.state is LinkState.ATTACHED and link.session.may_send:
            link.detach(closed=True, error=error)
            self._unblock(link.session)
        self.send_soon()

    @property
    def names(self) -> Iterator[str]:
        """The queues and exchanges of its links, those of detached ones too."""
        for endpoint in (*self.links.values(), *self.detached.values()):
            if endpoint.opened:
                yield endpoint.queue
                yield endpoint.terminus.named or ""

    def look_at_links(self, now: float, queues: Container[str], exchanges: Container[str]) -> None:
        """Detach the links whose queue or exchange is gone, and note how long the others have held what they hold. Every link of
        the plane is asked, every quarter of a second. `queues`, `exchanges`: those of `names` that are there."""
        for endpoint in [*self.links.values(), *self.detached.values()]:
            if not endpoint.opened:
                continue
            endpoint.note_held(now)
            queue, named = endpoint.queue, endpoint.terminus.named
            if queue and queue not in queues:
                self.detach(endpoint, deleted(queue), Cause.LINK_CLOSED)
            elif named is not None and named is not queue and not (named in exchanges or named in queues):
                self.detach(endpoint, deleted(named), Cause.LINK_CLOSED)

    def forget(self, endpoint: Endpoint) -> None:
        """Take out a link; what is under way for it is carried out."""
        self.links.pop(endpoint.link, None)
        if endpoint.session in self._blocked:
            self.loop.after_all(partial(self._unblock, endpoint.session))
        self.plane.containers.detach(endpoint)


__all__ = ["ANONYMOUS", "Peer"]

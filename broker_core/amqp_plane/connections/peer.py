"""A connection's peer as its links see it.

Answers about queues (attach, detach, end, close) are effects: they leave after the answers to all earlier frames of the peer.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Container, Iterator
from functools import partial

from ...amqp import Condition, Connection
from ...amqp.errors import LocalProtocolError
from ...amqp.links import UNANSWERED, Link
from ...amqp.performatives import Error
from ...amqp.sessions import Session
from ...amqp.states import LinkState
from ...engine.columns.states import Cause
from ...engine.commands import Maker
from ...logs import one_line
from ...security.audit import REFUSED, AuditEntry, Origin, refused_login
from ...security.rights import Right, granting
from ...security.users import ANONYMOUS
from ..conditions import MAX_DESCRIPTION, Refusal, as_error, deleted
from ..context import PlaneContext
from ..links.endpoint import CONNECTION_ENDED, DETACHED, SESSION_ENDED, LinkEnd, Resumable
from ..links.registry import LinkRegistry
from ..loop.transport import Transport
from .capacity import Capacity

log = logging.getLogger("penstock.amqp")

_numbers = itertools.count()
LINE = 600  # characters of one entry in the log
LOGIN_CHANGED = "the user was changed or removed after this login: log in again"


class Peer:
    """`user` and `container` are known from the open on."""

    settles_first = False  # its messages are settled with their outcome, also if its links ask to settle them

    def __init__(self, context: PlaneContext, registry: LinkRegistry, transport: Transport, connection: Connection) -> None:
        self.context = context
        self.loop = context.commit_loop
        self.registry = registry
        self.transport = transport
        self.connection = transport.connection = connection
        self.capacity = Capacity(connection, self.loop, context.settings)
        self.user = ANONYMOUS
        self.identity: str | None = ""  # of the user's record at the login
        self.container = ""
        self.identifier = f"{transport.address} {next(_numbers)}"  # unique in one life of the broker
        self.sole: int | None = None  # the policy of a container that accepts one connection only
        self.opened = False
        self.gone = False
        self.links: dict[Link, LinkEnd] = {}
        self.detached: dict[Link, Resumable] = {}
        self._blocked: dict[Session, list[Callable[[], None]]] = {}  # actions for when a session's frames have left
        self.squeezed: dict[Session, dict[LinkEnd, None]] = {}  # links that wait for the window, the longest wait first

    def __repr__(self) -> str:
        return f"{self.transport.address} ({self.user}{f', {self.container!r:.60}' if self.container else ''})"

    def log(self, text: str) -> None:
        log.info("%s: %s", self, one_line(text, LINE), extra={"peer": self.transport.address, "user": self.user})

    def send_soon(self) -> None:
        self.loop.send_soon(self.transport)

    def scope_of(self, session: Session) -> str:
        """Return the scope in which the names of a session's links are unique."""
        return self.container

    @property
    def maker(self) -> Maker:
        return Maker(self.user, self.context.settings.amqp_max_nodes_per_user)

    # --- rights

    def may(self, right: Right, queue: str) -> bool:
        return self.context.access.may(self.user, right, queue)

    def sees(self, name: str) -> bool:
        """True with any right on a queue or an exchange. Its existence is secret to other users."""
        return self.context.access.may_any(self.user, name)

    @property
    def has_valid_login(self) -> bool:
        return self.context.access.identity(self.user) == self.identity

    @property
    def origin(self) -> Origin:
        return Origin(self.user, self.transport.address, "amqp")

    def forbidden(self, right: Right, address: str) -> Refusal:
        """Return a refusal that does not reveal whether the queue exists. The audit log records it."""
        refused, command = f"user {self.user!r} may not {right.value} at {address!r:.80}", granting(self.user, address, right)
        text = f"{refused}; {command} gives the right"
        if len(text.encode("utf-8", "replace")) > MAX_DESCRIPTION:  # a part of the command could be another command
            text = f"{refused}; `penstock permit` gives the right"
        self.record_refusal(f"link.{right.value}", address, text)
        return Refusal(Condition.UNAUTHORIZED_ACCESS, text)

    def record_refusal(self, action: str, name: str, error: str) -> None:
        """Add to the audit log. `name`: of the queue or exchange."""
        self.context.audit.add(AuditEntry(origin=self.origin, action=action, object=name, outcome=REFUSED, error=error))

    def record_refused_login(self, name: str, error: str) -> None:
        """Add to the audit log. `name`: the claimed user."""
        self.context.audit.add(refused_login(self.origin._replace(user=name), error))

    def may_use(self, endpoint: LinkEnd) -> bool:
        """Return False if a link has lost its permission. The anonymous terminus checks each message instead."""
        return endpoint.terminus.named is None or self.may(endpoint.right, endpoint.terminus.named)

    def check_rights(self) -> None:
        """Close the connection or detach links after a change of the users file. An open checks its peer itself."""
        if not self.opened:
            return
        if not self.has_valid_login:
            self.log(LOGIN_CHANGED)
            error = Error(condition=Condition.UNAUTHORIZED_ACCESS, description=LOGIN_CHANGED)
            self.close(error, permanently=True, cause=Cause.LINK_CLOSED)
            return
        for endpoint in list(self.links.values()):
            if not self.may_use(endpoint):
                refusal = self.forbidden(endpoint.right, endpoint.terminus.named or "")
                self.detach(endpoint, as_error(refusal), Cause.LINK_CLOSED)

    def check_declare(self, open_transactions: int) -> None:
        """Refuse a transaction, if a dialect allows fewer than the engine. Raises Refusal."""

    # --- close

    def close(self, error: Error | None, *, permanently: bool = False, cause: Cause = Cause.LINK_LOST) -> None:
        """Close the connection. `permanently`: no link is kept detached. `cause`: why its messages go back."""
        for endpoint in (*self.links.values(), *self.detached.values()):
            endpoint.end_cause = cause
        if permanently:
            for link in list(self.links):
                self._end(link)
            for endpoint in list(self.detached.values()):
                self.registry.expire(endpoint)
        else:
            self._lose_links(CONNECTION_ENDED)
        self.loop.after_all(lambda: self._say_close(error))

    def _say_close(self, error: Error | None) -> None:
        if self.connection.may_send:
            self.connection.close(error)
            self.transport.expect_close()
        elif not self.gone and self.connection.local_open is None:  # no close without an open
            self.transport.abort()
        self.send_soon()

    def _lose_links(self, moment: int, session: Session | None = None) -> None:
        """Detach the links of a session or of the connection, without closing them."""
        for detached in [end for end in self.detached.values() if session in (None, end.session)]:
            self.registry.start_expiry(detached, moment)
        for endpoint in [end for end in self.links.values() if session in (None, end.session)]:
            self.registry.leave(endpoint, moment)

    # --- links

    def refuse(self, link: Link, error: Error) -> None:
        """Answer an attach by one without terminus, and by a detach with the reason."""
        if self.awaits_attach(link):
            self.say(link, lambda: link.refuse(error.condition, error.description))

    def say(self, link: Link, action: Callable[[], None]) -> None:
        """Send frames. If they exceed the peer's limits, the session ends."""
        try:
            action()
        except LocalProtocolError as error:
            self.log(f"link {link.name!r:.80} cannot be answered: {error}")
            session = link.session
            self._lose_links(SESSION_ENDED, session)
            small = str(error).startswith(Condition.FRAME_SIZE_TOO_SMALL)
            condition = Condition.FRAME_SIZE_TOO_SMALL if small else Condition.NOT_ALLOWED
            session.end(Error(condition=condition, description=str(error)[:200]))
            self._unblock(session)
            self.loop.after_all(partial(self.capacity.forget, session))
        for attach in (link.local_attach, link.remote_attach):
            if attach is not None:  # its modes and sizes are still needed; the rest would stay in memory
                attach.source = attach.target = attach.unsettled = attach.properties = None
                attach.offered_capabilities = attach.desired_capabilities = ()
        self.send_soon()

    def awaits_attach(self, link: Link) -> bool:
        return link.state in UNANSWERED and link.session.may_send

    def when_unblocked(self, session: Session, action: Callable[[], None]) -> None:
        """Call `action` when the session's waiting frames have left, or when a link of the session ends."""
        self._blocked.setdefault(session, []).append(action)

    def _unblock(self, session: Session) -> None:
        for action in self._blocked.pop(session, ()):
            action()

    def detach(self, endpoint: LinkEnd, error: Error, cause: Cause = Cause.LINK_LOST) -> None:
        """Detach a link with an error, unless it has ended. `cause`: why its messages go back."""
        if endpoint.link in self.links:
            endpoint.end_cause = cause
            self.log(f"link {endpoint.link.name!r:.80} detached: {error.condition}: {error.description}")
            self._end(endpoint.link, error)
        elif self.detached.get(endpoint.link) is endpoint:  # there is no link to send it on
            endpoint.end_cause = cause
            self.registry.expire(endpoint)

    def steal(self, endpoint: LinkEnd, error: Error) -> None:
        """Detach a link whose name a newer link has, which continues with its deliveries."""
        self.log(f"link {endpoint.link.name!r:.80} detached: {error.condition}: {error.description}")
        endpoint.stolen = True
        self.registry.leave(endpoint, DETACHED)
        self.loop.after_all(lambda: self._say_detach(endpoint.link, error))

    def _end(self, link: Link, error: Error | None = None) -> None:
        """End a link. The error is sent when its messages are back in the queue."""
        endpoint = self.links.get(link)
        if endpoint is not None:
            self.forget(endpoint)
            self.loop.in_commit(endpoint.finish)
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
        for endpoint in (*self.links.values(), *self.detached.values()):
            if endpoint.opened:
                yield endpoint.queue
                yield endpoint.terminus.named or ""

    def look_at_links(self, now: float, queues: Container[str], exchanges: Container[str]) -> None:
        """Detach the links whose queue or exchange is deleted, and note the deliveries of the others.

        Runs four times a second. `queues`, `exchanges`: the existing ones of `names`.
        """
        for endpoint in [*self.links.values(), *self.detached.values()]:
            if not endpoint.opened:
                continue
            endpoint.activity.note(now, endpoint.sent, endpoint.link.unsettled)
            queue, named = endpoint.queue, endpoint.terminus.named
            if queue and queue not in queues:
                self.detach(endpoint, deleted(queue), Cause.LINK_CLOSED)
            elif named is not None and named is not queue and not (named in exchanges or named in queues):
                self.detach(endpoint, deleted(named), Cause.LINK_CLOSED)

    def forget(self, endpoint: LinkEnd) -> None:
        """Remove a link. Its requests are still carried out."""
        self.links.pop(endpoint.link, None)
        if endpoint.session in self._blocked:
            self.loop.after_all(partial(self._unblock, endpoint.session))
        self.registry.release(endpoint)

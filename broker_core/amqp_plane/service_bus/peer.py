"""A connection of a Service Bus client: its links, its claims and its time limits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ... import errors
from ...amqp import Condition, Coordinator, SaslServer, Source, Target
from ...amqp.links import Link
from ...amqp.performatives import SENDER, SND_SETTLED, Attach, Error
from ...amqp.sessions import Session
from ...amqp.states import LINK
from ...engine.columns.states import Cause
from ...security.rights import Right
from ...security.shared_access import SharedAccessSignature
from ...security.users import ANONYMOUS
from ...settings.listeners import Listener
from ..conditions import Refusal
from ..connections.dispatcher import Dispatcher
from ..connections.peer import Peer
from ..links import attach
from ..links.endpoint import LinkEnd
from ..links.termini import ExchangeTarget, SourceTerminus, TargetTerminus
from ..nodes import addresses
from ..nodes.filters import Filters
from ..transactions.registry import ConnectionTransactions
from . import cbs, entities, vendor
from .claims import EntityClaims
from .deferral import LocksByQueue
from .entities import Entity
from .incoming import with_info
from .management import Management
from .receiving import EntityReceiver, Receivers
from .requests import RequestLink, ResponseLink
from .sending import EntitySender
from .sessions import Searches, SessionReceiver, Sessions, asks_for_session

if TYPE_CHECKING:
    from ..connections.sockets import AcceptedSocket
    from ..plane import AmqpPlane


MAX_UNCLAIMED_TRANSACTIONS = 4  # of a connection without a token: those of all such connections leave some to other clients


class ServiceBusPeer(Dispatcher):
    """A peer that presents tokens. Its user is that of its first token."""

    def __init__(
        self,
        receivers: Receivers,
        searches: Searches,
        plane: AmqpPlane,
        socket: AcceptedSocket,
        listener: Listener,
        sasl: SaslServer,
    ) -> None:
        self.receivers, self._searches = receivers, searches
        self.claims = EntityClaims()
        self.entities: dict[LinkEnd, Entity] = {}  # of links that need a claim
        self.sessions: Sessions = {}
        self._deferred: LocksByQueue = {}
        self._unclaimed_since: float | None = plane.now()
        super().__init__(plane, socket, listener, sasl)
        self.connection.names_per_session = True

    def scope_of(self, session: Session) -> str:
        """Java's SDK names links to equal session ids alike, also if they are of several queues."""
        return f"{self.identifier} {id(session)}"

    # --- tokens

    def log_in_by(self, token: SharedAccessSignature) -> None:
        """Take the user of a token. A broker without users permits everything, so it verifies no signature.

        Raises Unauthenticated.
        """
        access = self.context.access
        if not access.enforced and self.socket.listener.websocket and not self.context.settings.allow_anonymous:
            raise errors.Unauthenticated(
                "a broker without users accepts no token over WebSocket, because any web page in a browser of its machine can "
                "open one: add a user (`penstock user add`, `penstock user key`), or set allow_anonymous"
            )
        user = access.signer(token, self.transport.address) if access.enforced else ANONYMOUS
        if user == self.user:
            return
        if self.user != ANONYMOUS:
            raise errors.Unauthenticated(f"this connection belongs to user {self.user!r}: open another one for {user!r}")
        most = self.context.settings.amqp_max_connections_per_user
        if self.plane.containers.users[user] >= most:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"user {user!r} has {most} connections, the limit")
        ends = list(self.links.values())
        for end in ends:  # a link's unique name contains the user
            self.registry.release(end)
        self.plane.containers.rename(self, user)
        self.identity = access.identity(user)
        for end in ends:
            self.registry.claim(end)

    def check_entity(self, path: tuple[str, ...]) -> None:
        """Refuse an entity that the user may not use, or that does not exist. Raises Refusal."""
        if not path:
            return  # of the whole namespace
        (name, _), context = entities.node_of(path), self.context
        if not context.access.may_any(self.user, name):
            text = f"user {self.user!r} has no right at {name!r:.80}"
            self.record_refusal("link.token", name, text)
            raise Refusal(Condition.UNAUTHORIZED_ACCESS, text)
        context.create_on_use(name, self.origin)
        if not (context.nodes.has_queue(name) or context.nodes.has_exchange(name)):
            raise entities.missing(name, "declare it with `penstock queue declare` or `penstock exchange declare`")

    def close(self, error: Error | None, *, permanently: bool = False, cause: Cause = Cause.LINK_LOST) -> None:
        super().close(error if error is None else with_info(error), permanently=permanently, cause=cause)
        self._end_deferred(cause)

    def lost(self) -> None:
        super().lost()
        self._end_deferred(Cause.LINK_LOST)

    def _end_deferred(self, cause: Cause) -> None:
        for locks in self._deferred.values():
            self.loop.in_commit(partial(locks.end, cause=cause))

    def check_declare(self, open_transactions: int) -> None:
        if not self.claims and open_transactions >= MAX_UNCLAIMED_TRANSACTIONS:
            text = f"{MAX_UNCLAIMED_TRANSACTIONS} transactions are open, the limit before a token is put to $cbs"
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, text)

    def check_rights(self) -> None:
        """Also drop claims whose key is gone, and locks of deferred messages in queues whose right is gone."""
        super().check_rights()
        access = self.context.access
        if access.enforced and self.claims.drop(lambda token: not access.has_signed(token)):
            self._detach_unclaimed("the key that has signed the token was removed")
        for queue, locks in self._deferred.items():
            if not self.may(Right.RECEIVE, queue):
                self.loop.in_commit(partial(locks.end, cause=Cause.LINK_CLOSED))

    def tick(self, now: float) -> None:
        wall_s = self.context.wall_ms() // 1000
        if self.claims.next_expiry <= wall_s and self.claims.drop(lambda token: token.expiry <= wall_s):
            self._detach_unclaimed("the token has expired: put a new one to $cbs before it does")
        if self.claims:
            self._unclaimed_since = None
        elif self._unclaimed_since is None:
            self._unclaimed_since = now
        elif self.opened and now - self._unclaimed_since >= self.context.settings.amqp_login_timeout_s:
            self._unclaimed_since = now
            text = f"no valid token within {self.context.settings.amqp_login_timeout_s:g} s: put one to $cbs"
            self.log(text)
            self.close(
                Error(condition=Condition.UNAUTHORIZED_ACCESS, description=text), permanently=True, cause=Cause.LINK_CLOSED
            )
        for session in list(self.sessions):
            session.look(now)
        super().tick(now)

    def _detach_unclaimed(self, why: str) -> None:
        for endpoint, entity in list(self.entities.items()):
            if not self.claims.cover(entity.claimed):
                error = Error(condition=Condition.UNAUTHORIZED_ACCESS, description=f"{entity.name!r:.80}: {why}")
                self.detach(endpoint, error, Cause.LINK_CLOSED)

    def forget(self, endpoint: LinkEnd) -> None:
        self.entities.pop(endpoint, None)
        super().forget(endpoint)

    # --- links

    def make_endpoint(self, _: Peer, transactions: ConnectionTransactions, link: Any, theirs: Attach) -> LinkEnd:
        """Raises Refusal, PenstockError."""
        sends = theirs.role == SENDER
        if sends and isinstance(theirs.target, Coordinator):  # SDKs declare a transaction before their first token
            return attach.endpoint_of(self, transactions, link, theirs)
        terminus = theirs.target if sends else theirs.source
        if not isinstance(terminus, Target if sends else Source):
            raise Refusal(Condition.INVALID_FIELD, "an attach needs a source and a target with the address of an entity")
        entity = entities.parse(terminus.address)
        if entity.node == vendor.CBS:
            if sends:
                requests = RequestLink(self, transactions, link, entity, partial(cbs.answer, self), dashed=True)
                requests.max_bytes = cbs.MAX_REQUEST
                return requests
            return ResponseLink(self, link, entity)
        self._check_claim(entity)
        destination = (theirs.properties or {}).get(vendor.TRANSFER_DESTINATION) if sends else None
        if destination is not None:  # a transaction spans any queues, so the message needs no way over the first entity
            entity = entities.parse(destination)
            self._check_claim(entity)
        if entity.node == vendor.MANAGEMENT:
            endpoint = self._management(transactions, link, entity, sends=sends)
        elif sends:
            endpoint = self._sender(transactions, link, entity)
        else:
            endpoint = self._receiver(transactions, link, theirs, entity)
        self.entities[endpoint] = entity
        return endpoint

    def _check_claim(self, entity: Entity) -> None:
        if not self.claims.cover(entity.claimed):
            raise Refusal(Condition.UNAUTHORIZED_ACCESS, f"no valid token for {entity.name!r:.80}: put one to $cbs first")

    def _management(self, transactions: ConnectionTransactions, link: Any, entity: Entity, *, sends: bool) -> LinkEnd:
        if not sends:
            return ResponseLink(self, link, entity)
        management = Management(self, Entity(entity.path), self.receivers, self.sessions, self._deferred)
        return RequestLink(self, transactions, link, entity, management)

    def _sender(self, transactions: ConnectionTransactions, link: Any, entity: Entity) -> LinkEnd:
        if len(entity.path) == 1:
            node = addresses.find(self, entity.path[0], Right.SEND)
            if node.is_exchange:  # the routing key of each message is its subject
                return EntitySender(self, transactions, link, ExchangeTarget(self, node.name, None))
        queue = entities.queue_of(self, entity, Right.SEND, makes=True)
        return EntitySender(self, transactions, link, TargetTerminus(self, queue, queue))

    def _receiver(self, transactions: ConnectionTransactions, link: Any, theirs: Attach, entity: Entity) -> LinkEnd:
        queue = entities.queue_of(self, entity, Right.RECEIVE, makes=True)
        presettled = theirs.snd_settle_mode == SND_SETTLED
        if asks_for_session(theirs):
            known = self.receivers, self.sessions, self._searches
            return SessionReceiver(self, transactions, link, queue, theirs, *known, presettled=presettled)
        terminus = SourceTerminus(self, queue, queue, Filters())
        return EntityReceiver(self, transactions, link, terminus, self.receivers, presettled=presettled)

    def refuse(self, link: Link, error: Error) -> None:
        """Answer an attach as it is, and detach with the reason. SDKs do not read the reason after an attach without terminus.

        The answer to an attach for a session has no source: otherwise some SDKs (Java, JavaScript) assume that they have it.
        """
        theirs = link.remote_attach
        if theirs is not None and self.awaits_attach(link):
            self.say(link, partial(_refuse, link, theirs, error))


def _refuse(link: Link, theirs: Attach, error: Error) -> None:
    link.attach(source=None if asks_for_session(theirs) else theirs.source, target=theirs.target)
    if "s:error" in LINK[link.state]:  # otherwise the answer to an error followed the attach
        link.detach(closed=True, error=error)

"""Connections when the users file changes: a login that no longer holds ends, and so does each link that is not permitted.

A relay has no queue of its own: it asks for each message. What a link held is back before its peer is told.
"""

from __future__ import annotations

from ...amqp import Condition
from ...amqp.performatives import Error
from ...engine.columns.states import Cause
from ...security.access import Access
from ...security.rights import Right
from ..conditions import as_error, forbidden
from ..links.endpoint import LinkEnd
from ..links.outgoing_link import OutgoingLink
from ..links.registry import LinkRegistry
from .peer import Peer

CHANGED = "the user was changed or removed after this login: log in again"


def holds(access: Access, peer: Peer) -> bool:
    """Say whether the login is still good: its user is there, with the same password and certificates."""
    return access.identity(peer.user) == peer.identity


def enforce(peer: Peer) -> None:
    """Look at a peer when the users file has changed. One that has not opened yet is looked at when it does."""
    if not peer.opened:
        return
    if not holds(peer.host.access, peer):
        peer.log(CHANGED)
        error = Error(condition=Condition.UNAUTHORIZED_ACCESS, description=CHANGED)
        peer.close(error, for_good=True, cause=Cause.LINK_CLOSED)
        return
    for endpoint in list(peer.links.values()):
        right = right_of(endpoint)
        named = endpoint.terminus.named
        if named is not None and not peer.may(right, named):
            peer.detach(endpoint, as_error(forbidden(peer.user, right, named)), Cause.LINK_CLOSED)


def enforce_detached(access: Access, registry: LinkRegistry) -> None:
    """Look at the links that live on without a connection."""
    for endpoint in registry.links():
        peer, named = endpoint.peer, endpoint.terminus.named
        if not holds(access, peer) or (named is not None and not peer.may(right_of(endpoint), named)):
            peer.log(f"{endpoint} ends: what it was permitted by does not hold any more")
            endpoint.end_cause = Cause.LINK_CLOSED
            registry.expire(endpoint)


def right_of(endpoint: LinkEnd) -> Right:
    """The right that permitted a link."""
    if not isinstance(endpoint, OutgoingLink):
        return Right.SEND
    return Right.RECEIVE if endpoint.acquires else Right.BROWSE

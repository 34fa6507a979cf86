"""Changes of the users file: a connection whose login is no longer valid ends, and so does each link without permission.

A link to the anonymous terminus is checked for each message instead. Messages of an ended link are back in their queue before its
peer receives the detach.
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
    """Return True if the login is still valid: its user exists, with the same password and certificates."""
    return access.identity(peer.user) == peer.identity


def enforce(peer: Peer) -> None:
    """Check a peer after a change of the users file. A peer that has not opened is checked at its open."""
    if not peer.opened:
        return
    if not holds(peer.context.access, peer):
        peer.log(CHANGED)
        error = Error(condition=Condition.UNAUTHORIZED_ACCESS, description=CHANGED)
        peer.close(error, permanently=True, cause=Cause.LINK_CLOSED)
        return
    for endpoint in list(peer.links.values()):
        right = right_of(endpoint)
        named = endpoint.terminus.named
        if named is not None and not peer.may(right, named):
            peer.detach(endpoint, as_error(forbidden(peer.user, right, named)), Cause.LINK_CLOSED)


def enforce_detached(access: Access, registry: LinkRegistry) -> None:
    """Check the links that live on without a connection."""
    for endpoint in registry.links():
        peer, named = endpoint.peer, endpoint.terminus.named
        if not holds(access, peer) or (named is not None and not peer.may(right_of(endpoint), named)):
            peer.log(f"{endpoint} ends: its permission was withdrawn")
            endpoint.end_cause = Cause.LINK_CLOSED
            registry.expire(endpoint)


def right_of(endpoint: LinkEnd) -> Right:
    """The right that permitted a link."""
    if not isinstance(endpoint, OutgoingLink):
        return Right.SEND
    return Right.RECEIVE if endpoint.acquires else Right.BROWSE

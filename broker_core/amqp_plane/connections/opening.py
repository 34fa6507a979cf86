"""The answer to a peer's open: let in, or told why not by an open and a close (2.4.5, OASIS sole connection for container)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...amqp import Condition
from ...amqp.errors import LocalProtocolError
from ...amqp.performatives import Error
from ...amqp.types import Symbol, UInt
from ..links.conditions import Refusal
from . import containers, revocation

if TYPE_CHECKING:
    from ...amqp.performatives import Open
    from .peer import Peer


def answer(peer: Peer, theirs: Open) -> None:
    """Answer a peer's open. Ours says what only this user may know: where the other plane is, and a token for it."""
    plane, connection = peer.plane, peer.connection
    peer.container = theirs.container_id
    peer.opened = True
    properties = {**(plane.protocol.properties or {}), **plane.flight_properties(peer.user)}
    refusal = _refusal(peer, theirs)
    # Of its open nothing is needed any more but the numbers: there may be many connections.
    theirs.hostname = theirs.properties = None
    theirs.outgoing_locales = theirs.incoming_locales = theirs.offered_capabilities = theirs.desired_capabilities = ()
    if peer.sole is not None:
        properties[containers.POLICY] = UInt(peer.sole)  # what is enforced, of the two that there are
    if refusal is not None:
        properties.pop("flight-token", None)
        properties["amqp:connection-establishment-failed"] = True
    connection.settings = dataclasses.replace(plane.protocol, properties=properties)
    try:
        connection.open()
    except LocalProtocolError as error:  # larger than the frames that the peer takes: it does without
        peer.log(f"told less: {error}")
        properties.pop("flight-token", None)
        connection.settings = dataclasses.replace(plane.protocol, properties=properties)
        connection.open()
    if refusal is not None:
        peer.log(f"refused: {refusal}")
        info: Any = {Symbol("invalid-field"): Symbol("container-id")} if refusal.condition == Condition.INVALID_FIELD else None
        connection.close(Error(condition=refusal.condition, description=str(refusal)[:200], info=info))
        peer.wire.expect_close()


def _refusal(peer: Peer, theirs: Open) -> Refusal | None:
    try:
        if not revocation.holds(peer.plane.access, peer):  # looked at after the token was made: it must not be a later record's
            raise Refusal(Condition.UNAUTHORIZED_ACCESS, revocation.CHANGED)
        peer.plane.admit(peer)
        peer.plane.containers.enter(peer, theirs)
    except Refusal as refusal:
        return refusal
    return None

"""Connections as an operator sees them: user, address, links, and which of them are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...service.connections import SLOW_S
from ...service.nodes import Nodes
from ..links.endpoint import LinkEnd
from ..links.outgoing_link import OutgoingLink
from .sockets import AcceptedSocket

STALLED_S = 5.0  # a peer whose socket takes no octets for longer is also slow
MAX_LINKS = 200  # of one connection that are described; `linkCount` has them all
SHORT = 200  # characters of a name that a peer chose


class HeldGroups:
    """The message groups that links hold, looked up once for each queue while connections are listed."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._of: dict[str, dict[int, list[str]]] = {}

    def of(self, queue: str, holder: int) -> list[str]:
        """Return the groups of a holder, by name."""
        if queue not in self._of:
            self._of[queue] = self._nodes.groups_held(queue)
        return self._of[queue].get(holder, [])


def described(socket: AcceptedSocket, now: float, wall_us: int, groups: HeldGroups) -> dict[str, Any] | None:
    """Describe an open connection; None for another one. In the loop's thread. `now`: the plane's clock, seconds."""
    peer = socket.peer
    if peer is None or not peer.opened or peer.gone:
        return None
    stalled = socket.stalled_since is not None and now - socket.stalled_since > STALLED_S
    links = [_link(endpoint, now, groups) for endpoint in list(peer.links.values())[:MAX_LINKS]]
    return {
        "id": identifier(socket),
        "protocol": "amqp",
        "user": peer.user,
        "peer": socket.address,
        "container": peer.container[:SHORT],
        "tls": socket.listener.tls,
        "since": wall_us - int((now - socket.since) * 1e6),
        "sessions": len(peer.connection.sessions),
        "stalled": stalled,
        "slow": stalled or any(link["slow"] for link in links),
        "linkCount": len(peer.links),
        "links": links,
    }


def identifier(socket: AcceptedSocket) -> str:
    """Return the id of a connection, unique in one life of the broker."""
    return f"amqp-{socket.number}"


def slow(socket: AcceptedSocket, now: float) -> Iterator[str]:
    """Yield the queue of each slow consumer of a connection. In the loop's thread."""
    peer = socket.peer
    if peer is not None and peer.opened and not peer.gone:
        yield from (endpoint.queue for endpoint in peer.links.values() if _is_slow(endpoint, now))


def _is_slow(endpoint: LinkEnd, now: float) -> bool:
    """Return True if a consumer has settled nothing for `SLOW_S` and can be sent nothing more, while messages wait."""
    return (
        endpoint.still_for(now) > SLOW_S
        and isinstance(endpoint, OutgoingLink)
        and endpoint.acquires
        and endpoint.exhausted
        and bool(endpoint.queue)
        and endpoint.context.nodes.has_available(endpoint.queue)
    )


def _link(endpoint: LinkEnd, now: float, groups: HeldGroups) -> dict[str, Any]:
    held: list[str] = []
    if not isinstance(endpoint, OutgoingLink):
        role, held_s = "producer", None
    else:
        role, held_s = "consumer" if endpoint.acquires else "browser", round(endpoint.held_for(now), 1)
        if endpoint.acquires and endpoint.queue and endpoint.holder:
            held = groups.of(endpoint.queue, endpoint.holder)
    return {
        "name": endpoint.link.name[:SHORT],
        "role": role,
        "queue": endpoint.queue or (endpoint.terminus.named or "")[:SHORT],
        "credit": endpoint.link.link_credit,
        "unsettled": len(endpoint.link.unsettled),
        "heldSeconds": held_s,
        "groups": held,
        "slow": _is_slow(endpoint, now),
    }

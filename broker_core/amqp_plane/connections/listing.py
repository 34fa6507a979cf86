"""Connections as an operator sees them: who, from where, which links, and which of these are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...service.connections import SLOW_S
from ..links.incoming import Incoming

if TYPE_CHECKING:
    from ...service.nodes import Nodes
    from ..ports import Endpoint
    from .transport import Wire

STALLED_S = 5.0  # a peer whose socket takes nothing for longer is slow, too
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


def described(wire: Wire, now: float, wall_us: int, groups: HeldGroups) -> dict[str, Any] | None:
    """Describe a connection that has opened; None for another. In the loop's thread. `now`: the plane's clock, seconds."""
    peer = wire.peer
    if peer is None or not peer.opened or peer.gone:
        return None
    stalled = wire.stalled_since is not None and now - wire.stalled_since > STALLED_S
    links = [_link(endpoint, now, groups) for endpoint in list(peer.links.values())[:MAX_LINKS]]
    return {
        "id": identifier(wire),
        "protocol": "amqp",
        "user": peer.user,
        "peer": wire.address,
        "container": peer.container[:SHORT],
        "tls": wire.listener.tls,
        "since": wall_us - int((now - wire.since) * 1e6),
        "sessions": len(peer.connection.sessions),
        "stalled": stalled,
        "slow": stalled or any(link["slow"] for link in links),
        "linkCount": len(peer.links),
        "links": links,
    }


def identifier(wire: Wire) -> str:
    """Name a connection, unlike any other in one life of the broker."""
    return f"amqp-{wire.number}"


def slow(wire: Wire, now: float) -> Iterator[str]:
    """Yield the queue of each consumer of a connection that is slow. In the loop's thread."""
    peer = wire.peer
    if peer is not None and peer.opened and not peer.gone:
        yield from (endpoint.queue for endpoint in peer.links.values() if _is_slow(endpoint, now))


def _is_slow(endpoint: Endpoint, now: float) -> bool:
    """Say whether a consumer has settled nothing for `SLOW_S` and can be sent nothing more, while messages wait."""
    return (
        endpoint.still_for(now) > SLOW_S
        and not isinstance(endpoint, Incoming)
        and endpoint.acquires
        and endpoint.exhausted
        and bool(endpoint.queue)
        and endpoint.host.nodes.has_available(endpoint.queue)
    )


def _link(endpoint: Endpoint, now: float, groups: HeldGroups) -> dict[str, Any]:
    held: list[str] = []
    if isinstance(endpoint, Incoming):
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

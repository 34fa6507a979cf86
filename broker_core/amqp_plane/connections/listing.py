"""Open connections as an operator sees them. In the loop's thread; `now`: the plane's clock, seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...service.connections import SLOW_S
from ..links.consumer import ConsumerLink
from ..links.endpoint import LinkEnd
from ..links.outgoing_link import OutgoingLink
from ..loop.transport import Transport
from .sockets import AcceptedSocket

STALLED_S = 5.0  # a peer whose socket takes no octets for longer is also slow
MAX_LINKS = 200  # of one connection that are described; `linkCount` has them all
SHORT = 200  # characters of a name that a peer chose
SHORT_SELECTOR = 1000  # characters


GroupsHeld = Callable[[str], dict[int, list[str]]]  # the message groups of a queue, by holder


def described(socket: AcceptedSocket, now: float, wall_us: int, groups_held: GroupsHeld) -> dict[str, Any]:
    peer = socket.peer
    assert peer is not None  # it has opened
    stalled = socket.stalled_since is not None and now - socket.stalled_since > STALLED_S
    links = [_link(endpoint, now, wall_us, groups_held) for endpoint in list(peer.links.values())[:MAX_LINKS]]
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


def identifier(socket: Transport) -> str:
    """Return the id of a connection, unique in one life of the broker."""
    return f"amqp-{socket.number}"


def slow(socket: AcceptedSocket, now: float) -> Iterator[str]:
    if socket.peer is not None:
        yield from (endpoint.queue for endpoint in socket.peer.links.values() if _is_slow(endpoint, now))


def _is_slow(endpoint: LinkEnd, now: float) -> bool:
    """Return True if a consumer has settled nothing for `SLOW_S`, and can be sent nothing more."""
    return (
        endpoint.activity.still_for(now) > SLOW_S
        and isinstance(endpoint, OutgoingLink)
        and endpoint.acquires
        and endpoint.exhausted
        and bool(endpoint.queue)
        and endpoint.context.nodes.has_available(endpoint.queue)
    )


def consumer(endpoint: ConsumerLink, behind: tuple[int, ...], now: float, wall_us: int) -> dict[str, Any]:
    """Describe a consumer, with its obstacle: see `ConnectionSource.consumers`."""
    peer = endpoint.peer
    return {
        **_link(endpoint, now, wall_us, lambda queue: {}),
        "connection": identifier(peer.transport),
        "user": peer.user,
        "peer": peer.transport.address,
        "container": peer.container[:SHORT],
        "holder": endpoint.holder,
        "obstacle": endpoint.obstacle,
        "behind": behind,
    }


def _link(endpoint: LinkEnd, now: float, wall_us: int, groups_held: GroupsHeld) -> dict[str, Any]:
    role, held_s, priority, selector, groups = "producer", None, None, None, list[str]()
    activity = endpoint.activity
    if isinstance(endpoint, OutgoingLink):
        role, held_s = "consumer" if endpoint.acquires else "browser", round(activity.held_for(now), 1)
        selector = None if endpoint.selector is None else endpoint.selector.text[:SHORT_SELECTOR]
        if endpoint.acquires:
            priority = endpoint.priority
            if endpoint.queue and endpoint.holder:
                groups = groups_held(endpoint.queue).get(endpoint.holder, [])
    rates, settled_at = activity.rates, activity.settled_at
    return {
        "name": endpoint.link.name[:SHORT],
        "role": role,
        "queue": endpoint.queue or (endpoint.terminus.named or "")[:SHORT],
        "selector": selector,
        "priority": priority,
        "credit": endpoint.link.link_credit,
        "unsettled": len(endpoint.link.unsettled),
        "heldSeconds": held_s,
        "sentPerSecond": None if held_s is None else round(rates.sent, 1),
        "settledPerSecond": None if held_s is None else round(rates.settled, 1),
        "lastSettled": None if held_s is None or settled_at is None else wall_us - int((now - settled_at) * 1e6),
        "groups": groups,
        "slow": _is_slow(endpoint, now),
    }

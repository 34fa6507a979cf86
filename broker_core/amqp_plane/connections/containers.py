"""Connections by container, and the number of connections of a user.

A container may demand a *sole connection* (OASIS). Its policy closes the older or the newer connection. The policy of the older
one has precedence.
"""

from __future__ import annotations

from collections import Counter

from ...amqp import Condition
from ...amqp.performatives import Error, Open
from ..conditions import Refusal
from .peer import Peer

SOLE = "sole-connection-for-container"
POLICY = "sole-connection-enforcement-policy"
REFUSE_CONNECTION, CLOSE_EXISTING = 0, 1
REPLACED = Error(
    condition=Condition.RESOURCE_LOCKED,
    description="the container has connected again",
    info={"sole-connection-enforcement": True},
)


class Containers:
    """All open connections of the plane."""

    def __init__(self) -> None:
        self._peers: dict[tuple[str, str], list[Peer]] = {}
        self.users: Counter[str] = Counter()  # their connections

    def enter(self, peer: Peer, theirs: Open) -> list[Peer]:
        """Add a connection before its open. Returns the connections that the caller closes. Raises Refusal."""
        if SOLE in theirs.desired_capabilities:
            asked = (theirs.properties or {}).get(POLICY)
            peer.sole = CLOSE_EXISTING if asked == CLOSE_EXISTING else REFUSE_CONNECTION
        replaced = []
        for older in self._peers.get((peer.user, peer.container), []):
            policy = peer.sole if older.sole is None else older.sole
            if policy is None or not older.connection.may_send:  # neither demands it, or the older one is closed already
                continue
            if policy != CLOSE_EXISTING:
                peer.sole = None if peer.sole is None else policy  # its open reports this policy
                raise Refusal(Condition.INVALID_FIELD, f"container-id {peer.container!r:.80} is connected already")
            replaced.append(older)
        self._peers.setdefault((peer.user, peer.container), []).append(peer)
        self.users[peer.user] += 1
        return replaced

    def rename(self, peer: Peer, user: str) -> None:
        """Count an open connection for another user, whose token its client has presented."""
        self.leave(peer)
        peer.user = user
        self._peers.setdefault((user, peer.container), []).append(peer)
        self.users[user] += 1

    def leave(self, peer: Peer) -> None:
        """Remove a lost connection, whether or not it had entered."""
        key = (peer.user, peer.container)
        peers = self._peers.get(key, [])
        if peer in peers:
            peers.remove(peer)
            self.users[peer.user] -= 1
        if not peers:
            self._peers.pop(key, None)
        if not self.users[peer.user]:
            del self.users[peer.user]

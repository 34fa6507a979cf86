"""Messages whose last frame has not come: the broker holds their beginnings in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from .peer import Peer

# In messages of the largest size. Each connection may have `plane.UNFINISHED_MESSAGES` of them.
OF_ONE_USER = 4  # so that one user leaves room for others
IN_ALL = 5  # 160 MiB with the default of `max_message_bytes`
TIMEOUT_S = 60.0  # for a connection that completes no message, and one more second for each `LEAST_RATE` octets
LEAST_RATE = 256 << 10  # octets a second: a slow mobile network has more


class _UnfinishedBytes(NamedTuple):
    octets: int
    since: float  # when the connection began to hold octets, or last completed a message


class UnfinishedMessages:
    """Octets that each connection holds. `now`: the plane's clock, seconds."""

    def __init__(self, message_bytes: int, now: Callable[[], float]) -> None:
        self._now = now
        self._of_one_user, self._in_all = OF_ONE_USER * message_bytes, IN_ALL * message_bytes
        self._held: dict[Peer, _UnfinishedBytes] = {}
        self._users: Counter[str] = Counter()
        self.octets = 0

    def may_keep(self, peer: Peer, octets: int) -> bool:
        """Set the octets that a connection holds. Returns False beyond a limit; the octets still count."""
        octets = 0 if peer.gone else octets  # its links end one after another
        before = self._held.pop(peer, None)
        more = octets - (before.octets if before is not None else 0)
        if octets:
            since = self._now() if before is None or more < 0 else before.since
            self._held[peer] = _UnfinishedBytes(octets, since)
        self._users[peer.user] += more
        if not self._users[peer.user]:
            del self._users[peer.user]
        self.octets += more
        return more <= 0 or (self.octets <= self._in_all and self._users[peer.user] <= self._of_one_user)

    def late(self) -> list[Peer]:
        """Return the connections that have held messages for too long without completing one."""
        now = self._now()
        return [p for p, held in self._held.items() if now - held.since > TIMEOUT_S + held.octets / LEAST_RATE]

    def forget(self, peer: Peer) -> None:
        self.may_keep(peer, 0)

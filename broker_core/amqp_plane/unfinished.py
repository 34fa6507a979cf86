"""Messages whose last frame has not come, over all connections: the broker holds what came of them in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.amqp_plane.peer import Peer

# In messages of the largest size. Each connection may have `server.UNFINISHED_MESSAGES` of them.
OF_ONE_USER = 4  # so that one leaves room for others
IN_ALL = 5  # 160 MiB with the default of `max_message_bytes`


class Unfinished:
    """What each connection holds, and how much its user and all together may."""

    def __init__(self, message_bytes: int) -> None:
        self._of_one_user, self._in_all = OF_ONE_USER * message_bytes, IN_ALL * message_bytes
        self._held: dict[Peer, int] = {}
        self._users: Counter[str] = Counter()
        self.octets = 0

    def may_keep(self, peer: Peer, octets: int) -> bool:
        """A connection holds so many octets now. False where that is too much; what it holds counts until it says less."""
        octets = 0 if peer.gone else octets  # its links end one after another
        more = octets - self._held.pop(peer, 0)
        if octets:
            self._held[peer] = octets
        self._users[peer.user] += more
        if not self._users[peer.user]:
            del self._users[peer.user]
        self.octets += more
        return more <= 0 or (self.octets <= self._in_all and self._users[peer.user] <= self._of_one_user)

    def forget(self, peer: Peer) -> None:
        """The connection has gone, and what it held with it."""
        self.may_keep(peer, 0)

"""Budgets of connections, in number and bytes.

A stranger is a client before its login. All strangers share one budget, and all users a larger one. A new connection is always
accepted. When a budget is used up, the address or user that uses the most loses the connection that has waited longest for its
client. So a health probe from another address is served, and slow strangers do not affect users. A user's request that waits for
the broker is not interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ...security.failed_logins import host_of, on_this_machine

MAX_STRANGERS = 256  # connections before a login, at most half of all. A login takes milliseconds
STRANGERS_BYTES = 8 << 20  # of all strangers: heads, small bodies, and unread answers
USERS_BYTES = 16 << 20  # of all users, such as 16 of the largest bodies: 64 MiB with the overhead of connections


class Sharing(Protocol):
    """A connection, as a share sees it."""

    @property
    def is_served(self) -> bool:
        """See `HttpConnection.is_served`."""

    def drop(self) -> None: ...


class AddressGroup:
    """The connections of one address or user with their bytes, the last used one at the end. `is_local`: from this machine."""

    def __init__(self, name: str, is_local: bool) -> None:
        self.name, self.is_local, self.held = name, is_local, 0
        self.connections: dict[Sharing, int] = {}


class RequestShare:
    """Connections with one budget, by group."""

    def __init__(self) -> None:
        self.held = 0
        self._groups: dict[str, AddressGroup] = {}
        self._group_of: dict[Sharing, AddressGroup] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, connection: Sharing) -> bool:
        return connection in self._group_of

    def enter(self, connection: Sharing, name: str, *, is_local: bool = False) -> None:
        group = self._groups.setdefault(name, AddressGroup(name, is_local))
        group.connections[connection] = 0
        self._group_of[connection] = group

    def leave(self, connection: Sharing) -> int:
        group = self._group_of.pop(connection, None)
        if group is None:
            return 0
        held = group.connections.pop(connection)
        group.held -= held
        self.held -= held
        if not group.connections:
            del self._groups[group.name]
        return held

    def group_of(self, connection: Sharing) -> str:
        return self._group_of[connection].name

    def touch(self, connection: Sharing) -> None:
        connections = self._group_of[connection].connections
        connections[connection] = connections.pop(connection)

    def hold(self, connection: Sharing, held: int) -> None:
        group = self._group_of[connection]
        change = held - group.connections[connection]
        group.connections[connection] = held
        group.held += change
        self.held += change

    def connections(self) -> Iterator[Sharing]:
        """Yield the connections of remote groups first, then by falling number."""
        for group in sorted(self._groups.values(), key=lambda group: (group.is_local, -len(group.connections))):
            yield from group.connections

    def holders(self) -> Iterator[Sharing]:
        """Yield the connections with bytes, by falling number of bytes of their group."""
        for group in sorted(self._groups.values(), key=lambda group: -group.held):
            yield from (connection for connection, held in group.connections.items() if held)


class Shares:
    """The shares of all connections, at most `most` together (http_max_connections)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.most_strangers = min(MAX_STRANGERS, max(1, most // 2))
        self.dropped = 0  # connections closed for others so far
        self._strangers, self._users = RequestShare(), RequestShare()

    def enter(self, connection: Sharing, peer: str) -> bool:
        """Add a stranger's connection, and close another one if there is no room. Return False if all serve users."""
        while len(self._strangers) >= self.most_strangers:
            self._drop(_idle(self._strangers) or next(self._strangers.connections()))
        if len(self._strangers) + len(self._users) >= self._most:
            victim = _idle(self._users) or _idle(self._strangers) or next(self._strangers.connections(), None)
            if victim is None:
                return False
            self._drop(victim)
        self._strangers.enter(connection, host_of(peer), is_local=on_this_machine(peer))
        return True

    def leave(self, connection: Sharing) -> None:
        """Does nothing if it was removed before."""
        self._strangers.leave(connection)
        self._users.leave(connection)

    def assign(self, connection: Sharing, user: str | None, peer: str) -> None:
        """Count a connection for the user of its current request; None for a stranger. Does nothing if it is closed."""
        source = self._share_of(connection)
        if source is None:
            return
        target, group = (self._strangers, host_of(peer)) if user is None else (self._users, user)
        if source is not target or source.group_of(connection) != group:
            held = source.leave(connection)
            target.enter(connection, group, is_local=user is None and on_this_machine(peer))
            target.hold(connection, held)

    def touch(self, connection: Sharing) -> None:
        share = self._share_of(connection)
        if share is not None:
            share.touch(connection)

    def hold(self, connection: Sharing, held: int) -> bool:
        """Note the bytes of a connection, and close others beyond the budget. Return False if that does not suffice."""
        share = self._share_of(connection)
        if share is None:
            return False
        share.hold(connection, held)
        limit = STRANGERS_BYTES if share is self._strangers else USERS_BYTES
        while share.held > limit:
            idle = (holder for holder in share.holders() if holder is not connection and not holder.is_served)
            victim = next(idle, None)
            if victim is None:
                return False
            self._drop(victim)
        return True

    def _share_of(self, connection: Sharing) -> RequestShare | None:
        return next((share for share in (self._strangers, self._users) if connection in share), None)

    def _drop(self, connection: Sharing) -> None:
        self.leave(connection)
        self.dropped += 1
        connection.drop()


def _idle(share: RequestShare) -> Sharing | None:
    """Return the connection that has waited longest for its client."""
    return next((connection for connection in share.connections() if not connection.is_served), None)

"""One connection: its socket, its login, its peer.

- `sockets`, `dispatcher`: a socket and its login; events of the protocol as calls of links.
- `peer`: the connection as its links see it.
- `containers`: connections by container.
- `capacity`: limits on unsettled deliveries.
- `unfinished_messages`: limits on messages whose last frame has not come.
- `revocation`: connections and links when the users file changes.
- `listing`: connections as an operator sees them.
"""

"""Connections.

- `sockets`, `dispatcher`: a socket and its login; events of the protocol.
- `peer`: the connection as its links see it.
- `containers`: connections by container.
- `capacity`: limits on unsettled deliveries.
- `unfinished_messages`: limits on messages whose last frame has not come.
- `listing`: connections as an operator sees them.
"""

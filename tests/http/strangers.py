"""Strangers in numbers: connections to a plane, and the memory that its process needs for them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from penstock.broker_core.http_plane.plane import HttpPlane

MORE_BYTES = 64 << 20  # that the process may use while strangers hold connections open


def peak_bytes(plane: HttpPlane) -> int:
    """The most memory that the process has used."""
    (line,) = (line for line in Path(f"/proc/{plane.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def connections(plane: HttpPlane, count: int, opened: ExitStack, *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """Open connections one after another. `receive_buffer`: bytes of unread answers that the client's system accepts."""
    for _ in range(count):
        connection = opened.enter_context(socket.socket())
        connection.settimeout(30)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)  # before it connects, or it has no effect
        connection.connect(("127.0.0.1", plane.port))
        yield connection

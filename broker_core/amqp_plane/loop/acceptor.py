"""Listening sockets.

Without a free file descriptor, asyncio's own server continues to accept, and logs hundreds of thousands of tracebacks in
seconds. Here, new connections wait in the backlog.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence

BACKLOG = 1024  # connections that wait to be accepted
ACCEPTED_TOGETHER = 100  # connections accepted before other sockets are served
PAUSE_S = 0.5  # while no file descriptor is left
PORTS_TRIED = 20  # alternately a free port, and the same port at the other addresses of a name
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """`starved(reason)` is called when no file descriptor or memory is left, and connections remain in the backlog."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: Sequence[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
        starved: Callable[[str], None],
    ) -> None:
        self._loop, self._sockets, self._protocol, self._starved = loop, tuple(sockets), protocol, starved
        self._entering: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        for listening in self._sockets:
            listening.listen(BACKLOG)
            self._resume(listening)

    def close(self) -> None:
        self._closed = True
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()

    def _resume(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, _address = listening.accept()
            except OSError as error:
                if error.errno in SHORTAGE:
                    self._loop.remove_reader(listening)
                    self._loop.call_later(PAUSE_S, self._resume, listening)
                    self._starved(error.strerror or str(error))
                return  # otherwise the backlog is empty, or the client has closed the connection
            task = self._loop.create_task(self._enter(accepted))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has closed the connection
            await self._loop.connect_accepted_socket(self._protocol, accepted)


def bound(host: str, port: int) -> tuple[list[socket.socket], int]:
    """Bind the addresses of a host to one port; 0 is any free port. Raises OSError."""
    wanted = port
    for left in reversed(range(PORTS_TRIED)):
        sockets: list[socket.socket] = []
        try:
            sockets.extend(_socket(*address) for address in _addresses(host, wanted))
        except OSError as error:
            _close(sockets)
            if error.errno != errno.EADDRINUSE or wanted == port or not left:
                raise
            wanted = port  # another program uses it at the second address: try another port
            continue
        ports = {bound_socket.getsockname()[1] for bound_socket in sockets}
        if len(ports) == 1:
            return sockets, ports.pop()
        _close(sockets)
        wanted = min(ports)
    raise OSError(errno.EADDRINUSE, f"{host} has no port that is free at each of its addresses")


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in infos))  # type: ignore[misc]


def _socket(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    # Accepted sockets inherit the protocol, and asyncio sets TCP_NODELAY only for TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
    except OSError as error:
        listening.close()
        text = f"error while attempting to bind on address {address!r}: {(error.strerror or str(error)).lower()}"
        raise OSError(error.errno, text) from None
    return listening


def _close(sockets: Sequence[socket.socket]) -> None:
    for bound_socket in sockets:
        bound_socket.close()

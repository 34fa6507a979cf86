"""Connections of clients: uvicorn's, with limits that it has not.

A client has so long for a complete request, and for taking its answer, however slowly it goes on; and there are only so many.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...security.quiet import Quiet

MAX_HEADER_BYTES = 32 << 10  # of a request's first line and headers
IDLE_S = 30.0  # between two requests on one connection
HANDSHAKE_S = 10.0  # TLS
ANSWER_S = 60.0  # in which an answer is taken: the largest are some MiB
STOP_S = 2.0  # for requests that are begun when the broker stops
LOOK_S = 0.5  # between two looks at the time
ACCEPT_PAUSE_S = 1.0  # after one that could not be accepted for want of a file descriptor
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("penstock.http")
log.addFilter(Quiet())  # who is turned away may be turned away a thousand times a second


def peer_of(client: tuple[str, int] | None) -> str:
    """Return the address of a client as the broker's other planes write it."""
    host, port = client or ("", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Connection(H11Protocol):
    """Connection of a client."""

    begun: float | None = None  # since when a request is waited for, or its rest
    unread: float | None = None  # since when an answer waits for the client to take it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a client in."""
        super().connection_made(transport)  # type: ignore[arg-type]  # a socket's
        self.begun = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Take what a client sends."""
        if self.begun is None:
            self.begun = self.loop.time()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.begun = None

    @property
    def _peer(self) -> str:
        return peer_of(self.client)

    def look(self, now: float, request_timeout_s: float) -> None:
        """Close the connection where the client takes too long."""
        if self.begun is None and self.conn.their_state is h11.SEND_BODY:
            self.begun = now  # its head came with the request before
        if not self.transport.get_write_buffer_size():
            self.unread = None
        elif self.unread is None:
            self.unread = now
        late = self.begun is not None and now - self.begun > request_timeout_s
        if late or (self.unread is not None and now - self.unread > ANSWER_S):
            why = "its request did not come" if late else "it does not take its answer"
            log.info("%s: closed: %s", self._peer, why, extra={"peer": self._peer})
            self.transport.abort()


class Server(uvicorn.Server):
    """Serves a listening socket until `stop`."""

    def __init__(
        self, application: Any, listening: socket.socket, *, tls: ssl.SSLContext | None, most: int, request_timeout_s: float
    ) -> None:
        config = uvicorn.Config(
            application,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=int(STOP_S),
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        super().__init__(config)
        self._listening, self._tls, self._request_timeout_s = listening, tls, request_timeout_s
        self._most = most
        self._entering: set[asyncio.Protocol] = set()  # with TLS, until its handshake is complete

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with limits that uvicorn has not: on connections, and on the time of TLS's handshake."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self.servers = []
        self.started = True
        self._accepting, self._looking = loop.create_task(self._accept()), loop.create_task(self._look())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, and wait a while for requests that are begun."""
        self._accepting.cancel()
        await asyncio.wait([self._accepting])  # it looks at the socket no more
        self._listening.close()
        await super().shutdown(sockets)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in SHORTAGE:
                    log.warning("no connection can be accepted: %s", error.strerror)
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self.server_state.connections | self._entering) >= self._most:
                peer = peer_of(address[:2])
                text = "%s: turned away, %d connections are open (http_max_connections)"
                log.warning(text, peer, self._most, extra={"peer": peer})
                accepted.close()
            else:
                self._enter(accepted)
            await asyncio.sleep(0)  # clients that come one after another hold up nobody who is here

    def _enter(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        protocol = Connection(config=self.config, server_state=self.server_state, app_state={}, _loop=loop)
        self._entering.add(protocol)  # before its handshake: else silent ones without number would wait there
        entered = loop.create_task(self._connect(protocol, accepted))
        entered.add_done_callback(lambda task: self._entering.discard(protocol))

    async def _connect(self, protocol: Connection, accepted: socket.socket) -> None:
        limit_s = None if self._tls is None else HANDSHAKE_S
        with contextlib.suppress(OSError):  # no TLS, or not in time: its socket is closed
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=limit_s
            )

    def stop(self) -> None:
        """Take no new connections, let begun requests end, and return from `serve`."""
        self.should_exit = True

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.look(now, self._request_timeout_s)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals as they are: the broker says when to stop."""
        yield

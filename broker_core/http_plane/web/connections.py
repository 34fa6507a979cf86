"""Connections of clients: uvicorn's, with limits that it has not.

A client has so long for a complete request, and for taking its answer, however slowly it goes on; and there are only so many.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
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
BACKLOG = 1024  # connections that wait to be accepted

log = logging.getLogger("penstock.http")
log.addFilter(Quiet())  # who is turned away may be turned away a thousand times a second


def peer_of(client: tuple[str, int] | None) -> str:
    """Return the address of a client as the broker's other planes write it."""
    host, port = client or ("", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Connection(H11Protocol):
    """Connection of a client."""

    most = 0  # connections at once

    begun: float | None = None  # since when a request is waited for, or its rest
    unread: float | None = None  # since when an answer waits for the client to take it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let a client in, unless there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type]  # a socket's
        self.begun = self.loop.time()
        if len(self.connections) > self.most:
            text = "%s: turned away, %d connections are open (http_max_connections)"
            log.warning(text, self._peer, self.most, extra={"peer": self._peer})
            self.transport.abort()

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
            http=type("Connection", (Connection,), {"most": most}),
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with a limit on the time of TLS's handshake, which uvicorn has not."""
        loop = asyncio.get_running_loop()

        def connect() -> asyncio.Protocol:
            protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
            return protocol(config=self.config, server_state=self.server_state, app_state={}, _loop=loop)

        server = await loop.create_server(
            connect,
            sock=self._listening,
            ssl=self._tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
        )
        self.servers = [server]
        self.started = True
        self._looking = loop.create_task(self._look())

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

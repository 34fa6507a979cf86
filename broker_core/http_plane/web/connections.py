"""Connections of clients: uvicorn's, with limits of memory, and of the time for a request and for reading the answer even if
bytes move slowly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...security.log_limit import LogLimit
from . import replies
from .framing import StrictConnection
from .shares import Shares

READ_BYTES = 16 << 10  # read in one step; a waiting client can occupy twice that
WRITE_BYTES = 32 << 10  # of an unread answer, before this process pauses
DISCARDED_BYTES = 4 << 20  # of a body that are read and dropped, so that the client reads the answer
IDLE_S = 30.0  # between two requests on one connection
HANDSHAKE_S = 10.0  # TLS
ANSWER_S = 60.0  # for reading an answer: the largest have a few MiB
STOP_S = 2.0  # for running requests when the broker stops
LOOK_S = 0.5  # between two checks of time limits
ACCEPTED_TOGETHER = 64  # connections accepted before other work, such as a probe, continues
ACCEPT_PAUSE_S = 1.0  # after a shortage of file descriptors
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("penstock.http")
log.addFilter(LogLimit())  # refusals may come a thousand times a second

_read_buffer = memoryview(bytearray(READ_BYTES))  # shared by all connections: its content is copied before the next read


class HttpConnection(H11Protocol, asyncio.BufferedProtocol):
    """A connection of a client, in its server's shares from construction until it is closed."""

    begun: float | None = None  # when the wait for a request, or for its rest, began
    unread: float | None = None  # when the wait for the client to read began
    entering: asyncio.Task[None] | None = None  # until the TLS handshake is done
    is_made = False  # whether it is done

    def __init__(self, config: uvicorn.Config, state: Any, shares: Shares, peer: str) -> None:
        super().__init__(config, state, {"connection": self}, asyncio.get_running_loop())
        self.conn: StrictConnection = StrictConnection()
        self.peer = peer
        self._shares = shares
        self._body = self._answer = 0  # that the application holds
        self._discarded = 0  # of a body, after its answer

    # --- for the application

    @property
    def is_served(self) -> bool:
        """True if its complete request waits for this process or the broker, not for the client."""
        cycle = self.cycle
        begun = cycle is not None and not cycle.response_complete and not cycle.more_body
        return begun and not self.transport.get_write_buffer_size()

    @property
    def must_close(self) -> bool:
        """True if this answer must be the last: the rest of the body may be missing, or too large to read."""
        if not self.cycle.more_body:
            return False
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        return self.conn.they_are_waiting_for_100_continue or int(length) > DISCARDED_BYTES

    @property
    def must_drain(self) -> bool:
        """True if the body must be read before the answer: the client wants the connection closed then, and closing with unread
        bytes would destroy the answer."""
        ends = self.scope["http_version"] == "1.0" or CLOSE_HEADER in self.headers
        return ends and self.cycle.more_body and not self.must_close

    def assign(self, user: str | None) -> None:
        self._shares.assign(self, user, self.peer)

    def hold_body(self, size: int) -> bool:
        """Return False if the budget is used up."""
        self._body = size
        return self._account()

    def hold_answer(self, size: int) -> None:
        self._answer = size
        self._account()

    def drop(self, reason: str | None = None) -> None:
        """`reason`: for the log."""
        if reason is not None:
            log.info("%s: closed: %s", self.peer, reason, extra={"peer": self.peer})
        if self.is_made:
            self.transport.abort()
        elif self.entering is not None:
            self.entering.cancel()

    # --- for asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_made = True
        super().connection_made(transport)  # type: ignore[arg-type]  # a socket's
        self.transport.set_write_buffer_limits(WRITE_BYTES)
        self.begun = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shares.leave(self)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """By default asyncio reads 256 KiB."""
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self.begun is None:
            self.begun = self.loop.time()
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.conn.their_state is not h11.SEND_BODY:
            self._discarded = 0
        elif self.cycle.response_complete:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES:
                self.drop("the rest of a refused request is too long")
        elif self.cycle.body:
            self.flow.pause_reading()  # until the application asks for it
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.begun = None
            self._shares.touch(self)
        self._account()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._account()

    # --- for uvicorn

    def on_response_complete(self) -> None:
        self._body = self._answer = 0
        super().on_response_complete()
        self._account()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request and close the connection: the next request has an unknown start."""
        error = self.conn.refusal
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # no more data follows
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        reply = _refusal(error)
        headers = [*reply.raw_headers, (b"connection", b"close")]
        answer = h11.Response(status_code=reply.status_code, headers=headers)
        for event in (answer, h11.Data(data=bytes(reply.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # --- for the server

    def look(self, now: float, request_timeout_s: float) -> None:
        if self.begun is None and self.conn.their_state is h11.SEND_BODY:
            self.begun = now  # its head arrived with the previous request
        if not self.transport.get_write_buffer_size():
            self.unread = None
        elif self.unread is None:
            self.unread = now
        if self.begun is not None and now - self.begun > request_timeout_s:
            self.drop("its request did not arrive in time")
        elif self.unread is not None and now - self.unread > ANSWER_S:
            self.drop("it does not read its answer")
        self._account()

    def _account(self) -> bool:
        waiting = 0 if self.cycle is None else len(self.cycle.body)
        written = 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()
        return self._shares.hold(self, self.conn.buffered + waiting + written + self._body + self._answer)


def _refusal(error: h11.RemoteProtocolError | None) -> Response:
    text = f"this is not a request of HTTP/1.1: {str(error)[:200]}"
    hint = None if error is None else error.error_status_hint
    if hint == 431:
        return replies.error(431, "HEADERS_TOO_LARGE", text)
    if hint == 501:
        return replies.error(501, "UNKNOWN_ENCODING", text)
    return replies.error(400, "MALFORMED_REQUEST", text)


class Server(uvicorn.Server):
    """Serves a listening socket until `stop`. `starved` is called while no file descriptor is left for a connection."""

    def __init__(
        self,
        application: Any,
        listening: socket.socket,
        *,
        tls: ssl.SSLContext | None,
        most: int,
        request_timeout_s: float,
        starved: Callable[[], None],
    ) -> None:
        unused: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None}
        unused |= {"access_log": False, "server_header": False, "proxy_headers": False}
        config = uvicorn.Config(
            application,
            http=HttpConnection,
            **unused,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=int(STOP_S) + 1,  # never reached: `_give_up` is earlier
        )
        super().__init__(config)
        self._listening, self._tls, self._request_timeout_s = listening, tls, request_timeout_s
        self._shares, self._starved = Shares(most), starved
        sslproto.SSLProtocol.max_size = 2 * READ_BYTES  # of each TLS connection; 256 KiB by default

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with limits that uvicorn lacks: on connections, and on the time of the TLS handshake."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        self.servers = []
        self.started = True
        self._accepting, self._looking = loop.create_task(self._accept()), loop.create_task(self._look())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        await asyncio.wait([self._accepting])  # until it no longer uses the socket
        self._listening.close()
        for connection in self._connections:
            if not connection.is_served and not connection.transport.get_write_buffer_size():
                connection.drop()
        asyncio.get_running_loop().call_later(STOP_S, self._give_up)
        await super().shutdown(sockets)

    def _give_up(self) -> None:
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it logs cancelled tasks as failures
        for connection in self._connections:
            connection.drop()
        for task in self.server_state.tasks:
            task.cancel()

    @property
    def _connections(self) -> list[HttpConnection]:
        return [known for known in self.server_state.connections if isinstance(known, HttpConnection)]

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for number in itertools.count(1):
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in SHORTAGE:
                    self._starved()
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            host, port = address[:2]
            self._enter(accepted, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            if not number % ACCEPTED_TOGETHER:
                await asyncio.sleep(0)  # new clients must not delay the others

    def _enter(self, accepted: socket.socket, peer: str) -> None:
        protocol = HttpConnection(self.config, self.server_state, self._shares, peer)
        if not self._shares.enter(protocol, peer):
            text = "%s: turned away, %d connections are open (http_max_connections)"
            log.warning(text, peer, len(self.server_state.connections), extra={"peer": peer})
            accepted.close()
            return
        protocol.entering = asyncio.get_running_loop().create_task(self._connect(protocol, accepted))
        protocol.entering.add_done_callback(lambda task: self._entered(protocol, accepted))

    async def _connect(self, protocol: HttpConnection, accepted: socket.socket) -> None:
        limit_s = None if self._tls is None else HANDSHAKE_S
        with contextlib.suppress(OSError):  # no TLS, or too slow: the socket is closed
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=limit_s
            )

    def _entered(self, protocol: HttpConnection, accepted: socket.socket) -> None:
        protocol.entering = None
        if not protocol.is_made:
            self._shares.leave(protocol)
            accepted.close()

    def stop(self) -> None:
        self.should_exit = True

    async def _look(self) -> None:
        dropped = 0
        while True:
            await asyncio.sleep(LOOK_S)
            now = asyncio.get_running_loop().time()
            for connection in self._connections:
                connection.look(now, self._request_timeout_s)
            if self._shares.dropped > dropped:
                text = "%d connections that waited longest for their clients were closed for new ones (http_max_connections)"
                log.info(text, self._shares.dropped - dropped)
                dropped = self._shares.dropped

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals unchanged: the broker stops this process."""
        yield

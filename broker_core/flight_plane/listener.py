"""The socket of the Flight plane: admission, and the threads that serve.

gRPC's own server, which pyarrow contains without its settings, does not limit connections, the time before a login, or the size
of a decompressed message. So the broker implements HTTP/2 itself. Each connection has a thread, which reads, and each running
call has one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import errors, wrong_port
from ..logs import counted
from ..security.log_limit import LogLimit
from ..settings.keys import Settings
from . import frames, statuses
from .budget import Budget
from .calls import Call, CallGone
from .connection import FlightConnection
from .transports import FlightTransport, PlainTransport, TlsTransport, prepare

BACKLOG = 1024  # connections that wait to be accepted
TICK_S = 0.25  # resolution of timeouts
MESSAGE_TIMEOUT_S = 60.0  # until a message with memory has arrived, plus one second for each `LEAST_RATE` bytes
LEAST_RATE = 256 << 10
IDLE_THREADS = 32  # threads that wait for another call
ACCEPT_PAUSE_S = 0.5  # after a shortage of file descriptors
PROTOCOL = "h2"  # ALPN
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("penstock.flight")
log.addFilter(LogLimit())  # refusals may come a thousand times a second


@dataclass(frozen=True)
class ListenerLimits:
    """Limits of all peers together and of one user: the settings of these names."""

    connections: int
    connections_per_user: int
    calls: int
    calls_per_user: int
    login_timeout_s: float
    receive_bytes: int

    @classmethod
    def of(cls, settings: Settings, connections: int | None = None) -> ListenerLimits:
        return cls(
            settings.flight_max_connections if connections is None else connections,
            settings.flight_max_connections_per_user,
            settings.flight_max_calls,
            settings.flight_max_calls_per_user,
            settings.flight_login_timeout_s,
            settings.flight_receive_bytes,
        )


class FlightListener:
    """Listens from construction until `close`. `serve` handles each call in its own thread, returns its trailers and never
    raises.

    `tls` returns the context for the next connection, with ALPN `PROTOCOL`. `starved(reason)` is called for each connection that
    waits for a file descriptor or memory. `urls` returns the broker's addresses. Raises InvalidRequest if the address is not
    available.
    """

    def __init__(
        self,
        host: str,
        port: int,
        limits: ListenerLimits,
        serve: Callable[[Call], bytes],
        tls: Callable[[], ssl.SSLContext] | None,
        starved: Callable[[str], None] = lambda reason: None,
        urls: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._limits, self._serve, self._tls, self._starved = limits, serve, tls, starved
        self.urls = urls
        self._budget = Budget(limits.receive_bytes)
        self._lock = threading.Lock()
        self._sockets: dict[FlightConnection | socket.socket, socket.socket] = {}  # a socket before its handshake is its own key
        self._begun: dict[socket.socket, float] = {}
        self._users: Counter[str] = Counter()
        self._calls = 0
        self._ending = 0  # finished calls whose peer has no status yet: only `close` counts them
        self._calls_of: Counter[str] = Counter()  # of running calls, by authenticated user
        self._work: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._idle = 0
        self._stopping = threading.Event()
        try:
            family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            raise errors.InvalidRequest(f"cannot listen for Arrow Flight on {host}:{port}: {error.strerror or error}") from error
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, name="penstock-flight", daemon=True).start()
        threading.Thread(target=self._watch, name="penstock-flight-watch", daemon=True).start()

    # --- connections

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                if error.errno in _NO_DESCRIPTORS:
                    self._starved(error.strerror or str(error))
                    self._stopping.wait(ACCEPT_PAUSE_S)
                continue
            peer = f"ipv6:[{address[0]}]:{address[1]}" if len(address) > 2 else f"ipv4:{address[0]}:{address[1]}"
            try:
                self._enter(connection, peer)
            except (OSError, RuntimeError) as error:  # it has ended, or there are no threads left
                log.warning("%s: turned away: %s", peer, error, extra={"peer": peer})
                self._close(connection)

    def _enter(self, connection: socket.socket, peer: str) -> None:
        with self._lock:
            full = len(self._sockets) >= self._limits.connections
            if not full:
                self._sockets[connection] = connection
                self._begun[connection] = time.monotonic()
        if full:
            open_connections = counted(self._limits.connections, "connection")
            log.warning("%s: turned away, %s open (flight_max_connections)", peer, open_connections, extra={"peer": peer})
            if self._tls is None:  # a reason, if it fits into the socket's buffer
                connection.setblocking(False)
                reason = f"{self._limits.connections} connections are open, the limit"
                connection.send(frames.settings({}) + frames.goaway(0, frames.Code.ENHANCE_YOUR_CALM, reason))
            connection.close()
            return
        prepare(connection)
        threading.Thread(target=self._run, args=(connection, peer), name="penstock-flight-connection", daemon=True).start()

    def _run(self, connection: socket.socket, peer: str) -> None:
        began = b""
        try:
            wire: FlightTransport = PlainTransport(connection)
            if self._tls is not None:
                began = connection.recv(64, socket.MSG_PEEK)
                secured = TlsTransport(connection, self._tls())
                secured.handshake()
                wire = secured
        except (OSError, ssl.SSLError) as error:
            wrong = wrong_port.mismatch(wrong_port.TLS, wrong_port.spoken(began))
            log.info("%s: TLS: %s", peer, wrong or getattr(error, "reason", None) or error, extra={"peer": peer})
            self._close(connection)
            return
        served = FlightConnection(self, wire, peer, self._budget)
        with self._lock:
            served.since = self._begun.pop(connection, served.since)
            self._sockets.pop(connection, None)
            self._sockets[served] = connection
            stopping = self._stopping.is_set()
        if stopping:
            self.shut(served)
        served.run()

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.pop(connection, None)
            self._begun.pop(connection, None)
        connection.close()

    def trust(self, connection: FlightConnection, user: str) -> None:
        """Raises ResourceLimit beyond the user's connections, CallGone if this one has ended."""
        with self._lock:
            if connection.user is not None:
                return
            if connection not in self._sockets:
                raise CallGone  # it would never be discounted
            most = self._limits.connections_per_user
            if self._users[user] >= most:
                raise errors.ResourceLimit(
                    f"user {user!r} has {most} connections, the limit (flight_max_connections_per_user): close some"
                )
            self._users[user] += 1
            connection.user = user

    def count(self, user: str) -> None:
        """Count a call of this user until it is over. Raises ResourceLimit beyond the user's calls."""
        with self._lock:
            most = self._limits.calls_per_user
            if self._calls_of[user] >= most:
                raise errors.ResourceLimit(
                    f"user {user!r} has {most} calls under way, the limit (flight_max_calls_per_user): try again later"
                )
            self._calls_of[user] += 1

    def count_connections(self) -> int:
        return len(self._sockets)

    def count_users(self) -> dict[str, int]:
        with self._lock:
            return dict(self._users)

    def shut(self, connection: FlightConnection) -> None:
        """The connection's thread does the rest."""
        with self._lock:
            connected = self._sockets.get(connection)
            if connected is not None:
                _shut(connected)

    def leave(self, connection: FlightConnection) -> None:
        with self._lock:
            connected = self._sockets.pop(connection, None)
            if connection.user is not None:
                self._users[connection.user] -= 1
                self._users += Counter()  # drops users without a connection
        if connected is not None:
            connected.close()

    def connected(self) -> list[FlightConnection]:
        """Return the connections with an authenticated user."""
        with self._lock:
            return [key for key in self._sockets if isinstance(key, FlightConnection) and key.user is not None]

    def _watch(self) -> None:
        timeout = self._limits.login_timeout_s
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            with self._lock:
                for early, begun in self._begun.items():
                    if now - begun > timeout:
                        _shut(early)
                served = [key for key in self._sockets if isinstance(key, FlightConnection)]
            for connection in served:
                reason = connection.look(now, timeout, MESSAGE_TIMEOUT_S, LEAST_RATE)
                if reason is not None:
                    log.info("%s: closed: %s", connection.peer, reason, extra={"peer": connection.peer})
                    connection.abort()

    # --- calls

    def begin(self, call: Call) -> None:
        """Let a thread serve this call, or refuse it if there are too many."""
        with self._lock:
            busy = self._calls >= self._limits.calls
            if not busy:
                self._calls += 1
                fresh = self._idle == 0
                if not fresh:
                    self._idle -= 1
            self._ending += busy
        if busy:
            reason = f"{self._limits.calls} calls are under way, the limit (flight_max_calls): try again later"
            self._finish(call, statuses.of(errors.ResourceLimit(reason)))
        elif not fresh:
            self._work.put(call)
        else:
            try:
                threading.Thread(target=self._work_on, args=(call,), name="penstock-flight-call", daemon=True).start()
            except RuntimeError as error:
                with self._lock:
                    self._calls -= 1
                    self._ending += 1
                log.warning("%s: a call is refused: %s", call.peer, error)
                self._finish(call, statuses.of(errors.ResourceLimit("the broker's host has no thread left: try again later")))

    def _finish(self, call: Call, trailers: bytes) -> None:
        try:
            call.finish(trailers)
        finally:
            with self._lock:
                self._ending -= 1

    def _work_on(self, call: Call | None) -> None:
        while call is not None:
            trailers = self._serve(call)
            with self._lock:
                self._calls -= 1  # before the peer has the status, and begins the next call
                self._ending += 1
                if call.user is not None:
                    self._calls_of[call.user] -= 1
                    self._calls_of += Counter()  # drops users without a call
            self._finish(call, trailers)
            del call
            with self._lock:
                if self._idle >= IDLE_THREADS:
                    return
                self._idle += 1
            call = self._work.get()

    # --- the end

    def close(self, grace_s: float) -> None:
        self._stopping.set()
        _shut(self._socket)
        self._socket.close()
        with self._lock:
            sockets = list(self._sockets.items())
        until = time.monotonic() + grace_s
        for key, connection in sockets:
            if isinstance(key, FlightConnection):
                key.go_away()
            else:
                _shut(connection)
        self._wait(until, lambda: not self._calls and not self._ending)
        for key, _ in sockets:
            if isinstance(key, FlightConnection):
                key.abort()
        self._wait(until, lambda: not self._calls and not self._sockets)

    def _wait(self, until: float, is_over: Callable[[], bool]) -> None:
        while time.monotonic() < until:
            with self._lock:
                if is_over():
                    return
            time.sleep(0.01)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has already ended
        connection.shutdown(socket.SHUT_RDWR)

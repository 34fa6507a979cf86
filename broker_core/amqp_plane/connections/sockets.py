"""Accepted sockets: their layers, their login, and their time limits."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

from ... import wrong_port
from ...amqp import SaslServer
from ...amqp.events import Event
from ...amqp.sasl import EXTERNAL
from ...amqp.scram import ScramCredentials
from ...errors import Unauthenticated
from ...settings.listeners import Listener
from ..layers import LayerError, Stack, stack
from ..layers.proxy_protocol import ProxyLayer, is_proxy, unexpected, written
from ..loop.transport import FULL, LOGIN, WRITE_BUFFER, Transport
from .dispatcher import Dispatcher

if TYPE_CHECKING:
    from ..plane import AmqpPlane

log = logging.getLogger("penstock.amqp")

# Bytes read at a time, before other sockets are served. Peers that have not logged in have less.
STRANGER_READ, READ = 16 << 10, 256 << 10


class AcceptedSocket(Transport, asyncio.Protocol):
    """`peer` exists once the layers are ready."""

    def __init__(self, plane: AmqpPlane, listener: Listener) -> None:
        layer = stack(plane.tls_context() if listener.tls else None, listener.websocket, listener.subprotocols)
        super().__init__(layer, plane.now)
        self.plane = plane
        self.listener = listener
        self.peer: Dispatcher | None = None
        self._proxy: ProxyLayer | None = None
        self._has_read = False
        self._checking: Future[Iterator[Event]] | None = None

    # --- the loop's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.address = written(peer[0], peer[1])
            if self.listener.proxies and is_proxy(peer[0], self.listener.proxies):
                self._proxy = ProxyLayer()
                self._layer = Stack([self._proxy, self._layer])
        if not self.plane.enter(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._read_at_most(STRANGER_READ)
        self._deadline = self.plane.now() + self.plane.settings.amqp_login_timeout_s
        if self._layer.ready:
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Read octets. If no other socket is ready, their commit runs immediately."""
        if self.plane.ready.count != 1:
            self._read(data)
            return
        loop = self.plane.commit_loop
        loop.reading()
        try:
            self._read(data)
        finally:
            loop.read()

    def _read(self, data: bytes) -> None:
        if not self._has_read:
            self._has_read = True
            here = wrong_port.TLS if self.listener.tls else wrong_port.HTTP if self.listener.websocket else wrong_port.AMQP
            wrong = wrong_port.mismatch(here, wrong_port.spoken(data), urls=self.plane.broker.listeners) or unexpected(data)
            if wrong is not None and self._proxy is None:
                log.info("%s: %s", self.address, wrong, extra={"peer": self.address})
        try:
            data = self._layer.receive(data)
        except LayerError as error:
            self._take_source()
            log.info("%s: %s", self.peer or self.address, error)
            if self.peer is not None and error.received:
                self._feed(error.received)
            self.close()
            return
        self._take_source()
        if self.peer is None and self._layer.ready:
            self._begin()
        if data:
            self._feed(data)
        self._flush()
        if self._layer.closed:
            self.close()

    def _take_source(self) -> None:
        if self._proxy is not None and self._proxy.source is not None:
            self.address, self._proxy.source = self._proxy.source, None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._checking is not None:
            self._checking.cancel()  # otherwise clients that reconnect could queue more checks than there are peers
        if self.peer is not None:
            self.peer.lost()
        self._layer = stack(None, websocket=False)  # a detached link would keep its buffers
        self.plane.leave(self)

    def pause_writing(self) -> None:
        """Stop reading as well. The peer has the idle time-out to read on."""
        self.stalled_since = self.plane.now()
        self._stuck_until = self.stalled_since + self.plane.settings.amqp_idle_timeout_s
        self.pause(FULL)

    def resume_writing(self) -> None:
        self._stuck_until = self.stalled_since = None
        self.resume(FULL)
        for endpoint in () if self.peer is None else self.peer.links.values():
            endpoint.flowed()

    # --- the login

    def _begin(self) -> None:
        access = self.plane.access
        certificate = self._layer.peer_certificate
        offered = self.listener.mechanisms
        if certificate is None:
            # Some clients choose EXTERNAL wherever it is offered, and then have no certificate.
            offered = tuple(name for name in offered if name != EXTERNAL) or offered
        external = access.user_of_certificate(certificate)
        if external is not None:
            self.checked[external] = access.identity(external)
        sasl = SaslServer(
            offered,
            lookup=self._credentials,
            verify=self._verify,
            external=external,
            random=os.urandom,
            secret=access.secret,
            iterations=access.iterations,
        )
        self.peer = self.plane.dialects[self.listener.dialect](self.plane, self, self.listener, sasl)

    def _credentials(self, name: str) -> ScramCredentials | None:
        access = self.plane.access
        self.checked[name] = access.identity(name)
        return access.credentials(name, self.address)

    def _verify(self, name: str, password: str) -> bool:
        self.checked[name] = self.plane.access.identity(name)
        try:
            self.plane.access.login(name, password, self.address)
        except Unauthenticated:
            return False
        return True

    def _feed(self, data: bytes) -> None:
        peer = self.peer
        assert peer is not None
        if peer.logging_in and "PLAIN" in self.listener.mechanisms:
            # Checking a password costs some 20 ms on purpose.
            self.pause(LOGIN)
            self._checking = self.plane.passwords.submit(peer.log_in, data, self.plane.now())
            self._checking.add_done_callback(lambda done: self.plane.call(lambda: self._checked(done)))
        else:
            peer.receive(data, self.plane.now())

    def _checked(self, done: Future[Iterator[Event]]) -> None:
        self._checking = None
        if not done.cancelled() and self.peer is not None:
            self.peer.happened(done.result())
            self.resume(LOGIN)

    def opened(self) -> None:
        self._deadline = None
        self._read_at_most(READ)

    def _read_at_most(self, size: int) -> None:
        transport = self._transport
        if transport is not None and hasattr(transport, "max_size"):  # asyncio's own; another loop's may have no such limit
            transport.max_size = size

    # --- time

    def tick(self, now: float) -> None:
        if self._stuck_until is not None and now >= self._stuck_until:
            self._cut_off(FULL)
        elif self._deadline is not None and now >= self._deadline:
            why = "it did not log in, or answer our close, in time"
            if self.peer is not None and self._checking is None and self.peer.give_up():
                log.info("%s: told, and closed: %s", self.peer, why, extra={"peer": self.address})
            else:
                self._cut_off(why)
        elif self.peer is not None and not self._paused:
            self.peer.tick(now)

    def _cut_off(self, why: str) -> None:
        log.info("%s: cut off: %s", self.peer or self.address, why, extra={"peer": self.address})
        self.abort()

"""A socket and what lies between it and the protocol: TLS, WebSocket, back pressure, patience.

The loop hands octets up through the layers to the `Peer`, which exists once they are ready, and takes octets down. A socket that
takes no more (its peer does not read) is not read from either, and nothing is acquired for it: what it could make us keep is
bounded by `WRITE_BUFFER`. Whoever does not get as far as an open in time, or stays stuck, is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, cast

from broker_core.amqp import SaslServer
from broker_core.amqp_plane.peer import Peer

try:
    from broker_core.amqp_plane.layers import Layer, LayerError, TlsLayer, WebSocketLayer
except ImportError:
    LayerError = TlsLayer = ConnectionError

if TYPE_CHECKING:
    from broker_core.amqp_plane.server import AmqpPlane
    from broker_core.listeners import Listener

log = logging.getLogger("penstock.amqp")

WRITE_BUFFER = 1 << 20  # bytes that wait for a socket before its peer counts as stalled
CLOSE_TIMEOUT_S = 5.0  # for a peer to answer our close, and for what is written to leave
FULL, HALF = "the socket is full", "a close is awaited"


class Wire(asyncio.Protocol):
    """One accepted socket."""

    def __init__(self, plane: AmqpPlane, listener: Listener) -> None:
        self.plane = plane
        self.listener = listener
        self.address = "?"
        self.stalled = False
        self.peer: Peer | None = None
        self._layers: list[Layer] = []
        self._transport: asyncio.Transport | None = None
        self._paused: set[str] = set()
        self._deadline: float | None = None  # of the login, of a stuck socket, of our close: the plane's tick looks

    # --- the loop's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self.plane.enter(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._deadline = self.plane.now() + self.plane.limits.login_timeout_s
        if self.listener.tls:
            self._layers.append(TlsLayer(self.plane.tls_context()))
        if self.listener.websocket:
            self._layers.append(WebSocketLayer())
        if not self._layers:
            self._begin()

    def data_received(self, data: bytes) -> None:
        try:
            for layer in self._layers:
                data = layer.receive(data)
        except LayerError as error:
            log.info("%s: %s", self.address, error)
            self._flush()
            self.close()
            return
        if self.peer is None:
            if not all(layer.ready for layer in self._layers):
                self._flush()
                return
            self._begin()
        assert self.peer is not None
        if data:
            self.peer.receive(data, self.plane.now())
        if self._layers:
            self._flush()
            if any(layer.closed for layer in self._layers):
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.peer is not None:
            self.peer.lost()
        self.plane.leave(self)

    def eof_received(self) -> bool:
        return False  # AMQP has no half-closed connections

    def pause_writing(self) -> None:
        self.stalled = True
        self._deadline = self.plane.now() + self.plane.limits.idle_timeout_s
        self.pause(FULL)

    def resume_writing(self) -> None:
        self.stalled = False
        self._deadline = None
        self.resume(FULL)
        if self.peer is not None:
            self.peer.flowing()

    # --- the peer's

    def _begin(self) -> None:
        certificate = next((layer.peer_certificate for layer in self._layers if isinstance(layer, TlsLayer)), None)
        mechanisms = self.listener.mechanisms
        sasl = SaslServer(
            mechanisms,
            lookup=self.plane.access.credentials,
            external=self.plane.access.user_of_certificate(certificate) if certificate else None,
            random=os.urandom,
            secret=self.plane.access.secret,
            iterations=self.plane.access.iterations,
        )
        self.peer = Peer(self.plane, self, self.listener, sasl)

    def opened(self) -> None:
        """The login is over."""
        self._deadline = None

    def login_failed(self) -> None:
        """Its answer has to leave; then nothing more is said."""
        self._flush()

    def write(self, data: bytes) -> None:
        if self._transport is None:
            return
        for layer in reversed(self._layers):
            layer.send(data)
            data = layer.data_to_send()
        if data:
            self._transport.write(data)

    def _flush(self) -> None:
        """What the layers themselves have to say: the innermost first, through those around it."""
        for depth in range(len(self._layers) - 1, -1, -1):
            data = self._layers[depth].data_to_send()
            for outer in reversed(self._layers[:depth]):
                outer.send(data)
                data = outer.data_to_send()
            if data and self._transport is not None:
                self._transport.write(data)

    def close(self) -> None:
        """Nothing more is to be said: let what is written leave."""
        if self._transport is None or self._transport.is_closing():
            return
        for layer in reversed(self._layers):
            layer.close()
        self._flush()
        self._deadline = self.plane.now() + CLOSE_TIMEOUT_S
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self, reason: str) -> None:
        """Stop reading, for one of several reasons."""
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused.add(reason)

    def resume(self, reason: str) -> None:
        self._paused.discard(reason)
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def tick(self, now: float) -> None:
        """Cut off who is too slow; let the protocol keep its time."""
        if self._deadline is not None and now >= self._deadline:
            why = "it does not read" if self.stalled else "it did not log in, or close, in time"
            log.info("%s: cut off: %s", self.peer or self.address, why)
            self.abort()
        elif self.peer is not None and not self._paused:
            self.peer.tick(now)

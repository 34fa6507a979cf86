"""A socket and what lies between it and the protocol: layers (TLS, WebSocket), the login, back pressure, patience.

The loop hands octets up through the layers to the `Peer`, which exists once they are ready, and takes octets down. A socket that
takes no more (its peer does not read) is not read from either, and nothing is acquired for it: what it could make us keep is
bounded by `WRITE_BUFFER`. Whoever does not get as far as an open in time, or stays stuck, is cut off.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import TYPE_CHECKING, cast

from ... import wrong_port
from ...amqp import SaslServer
from ...amqp.sasl import EXTERNAL
from ...errors import Unauthenticated
from .layers import LayerError, stack
from .peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from ...amqp.events import Event
    from ...amqp.scram import Credentials
    from ...settings.listeners import Listener
    from ..loop.server import AmqpPlane
    from .layers import Layer

log = logging.getLogger("penstock.amqp")

WRITE_BUFFER = 1 << 20  # bytes that wait for a socket before its peer counts as stalled
# Bytes read at a time: what one peer may make the loop work through before the others have their turn. Strangers get little.
STRANGER_READ, READ = 16 << 10, 256 << 10
CLOSE_TIMEOUT_S = 5.0  # for a peer to answer our close, and for what is written to leave

# Why a socket is not read from: any of these.
FULL = "it does not read what we send"
LOGIN = "its password is being checked"


_numbers = itertools.count(1)


class Wire(asyncio.Protocol):
    """One accepted socket."""

    def __init__(self, plane: AmqpPlane, listener: Listener) -> None:
        self.plane = plane
        self.listener = listener
        self.address = "?"
        self.number = next(_numbers)  # unlike that of any other, in one life of the broker
        self.since = plane.now()
        self.stalled_since: float | None = None  # its socket takes no more: by the plane's clock
        self.peer: Peer | None = None
        self.checked: dict[str, str | None] = {}  # names that were looked up for the login: the identity that each had then
        self._layer: Layer = stack(plane.tls_context() if listener.tls else None, listener.websocket)
        self._transport: asyncio.Transport | None = None
        self._paused: set[str] = set()
        self._deadline: float | None = None  # of the login, of our close: the plane's tick looks
        self._begun = False  # something was read
        self._stuck_until: float | None = None  # of a socket that takes no more
        self._checking: Future[Iterator[Event]] | None = None

    # --- the loop's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the login, with its time limit; drop the socket if the plane has no room for it."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = f"[{peer[0]}]:{peer[1]}" if peer and ":" in peer[0] else f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self.plane.enter(self):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._read_at_most(STRANGER_READ)
        self._deadline = self.plane.now() + self.plane.limits.login_timeout_s
        if self._layer.ready:
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Read octets; if no other socket is ready, their pass runs at once."""
        if self.plane.ready.count != 1:
            self._read(data)
            return
        passes = self.plane.passes
        passes.reading()
        try:
            self._read(data)
        finally:
            passes.read()

    def _read(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            here = wrong_port.TLS if self.listener.tls else wrong_port.HTTP if self.listener.websocket else wrong_port.AMQP
            wrong = wrong_port.mismatch(here, wrong_port.spoken(data))
            if wrong is not None:
                log.info("%s: %s", self.address, wrong, extra={"peer": self.address})
        try:
            data = self._layer.receive(data)
        except LayerError as error:
            log.info("%s: %s", self.peer or self.address, error)
            if self.peer is not None and error.received:
                self._feed(error.received)
            self.close()
            return
        if self.peer is None and self._layer.ready:
            self._begin()
        if data:
            self._feed(data)
        self._flush()
        if self._layer.closed:
            self.close()

    def eof_received(self) -> bool:
        """Return False: the transport closes, since AMQP has no half-closed connections."""
        return False  # AMQP has no half-closed connections

    def connection_lost(self, exc: Exception | None) -> None:
        """End the peer, and give up a check of its password that has not begun."""
        self._transport = None
        if self._checking is not None:
            self._checking.cancel()  # or those who connect again and again would queue up more checks than there are peers
        if self.peer is not None:
            self.peer.lost()
        self._layer = stack(None, websocket=False)  # a link that lives on would keep its buffers
        self.plane.leave(self)

    def pause_writing(self) -> None:
        """Stop reading, too: `WRITE_BUFFER` is full. The peer has the idle time-out to read on."""
        self.stalled_since = self.plane.now()
        self._stuck_until = self.stalled_since + self.plane.limits.idle_timeout_s
        self.pause(FULL)

    def resume_writing(self) -> None:
        """Read again, and let the links send on: the socket takes octets."""
        self._stuck_until = self.stalled_since = None
        self.resume(FULL)
        if self.peer is not None:
            self.peer.flowing()

    # --- the login

    def _begin(self) -> None:
        access = self.plane.access
        certificate = self._layer.peer_certificate
        offered = self.listener.mechanisms
        if certificate is None:
            # Some clients take EXTERNAL wherever they see it, and then have nothing to show for it.
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
        self.peer = Peer(self.plane, self, self.listener, sasl)

    def _credentials(self, name: str) -> Credentials | None:
        access = self.plane.access
        self.checked[name] = access.identity(name)
        return None if access.attempts.blocked(self.address, name) else access.credentials(name)

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
            # Checking a password costs some 20 ms on purpose: in a thread of its own, while this socket is not read.
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
        """Lift the login's time limit and its small reads: the login is over."""
        self._deadline = None
        self._read_at_most(READ)

    def _read_at_most(self, size: int) -> None:
        transport = self._transport
        if transport is not None and hasattr(transport, "max_size"):  # asyncio's own; another loop's may do as they like
            transport.max_size = size

    # --- the peer's

    @property
    def stalled(self) -> bool:
        """Say whether the socket takes no more for now."""
        return FULL in self._paused

    def write(self, data: bytes) -> None:
        """Write octets of the protocol's, through the layers."""
        self._layer.send(data)
        self._flush()

    def _flush(self) -> None:
        data = self._layer.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close, when what is written has left, or after `CLOSE_TIMEOUT_S`: nothing more is to be said."""
        if self._transport is None or self._transport.is_closing():
            return
        self._layer.close()
        self._flush()
        self._deadline = self.plane.now() + CLOSE_TIMEOUT_S
        self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once: what is not written is lost."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self, reason: str) -> None:
        """Stop reading, for one of several reasons."""
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused.add(reason)

    def resume(self, reason: str) -> None:
        """Withdraw one reason for not reading; read again when none is left."""
        self._paused.discard(reason)
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def tick(self, now: float) -> None:
        """Cut off who is too slow; let the protocol keep its time."""
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

    def expect_close(self) -> None:
        """Give the peer `CLOSE_TIMEOUT_S` to answer our close, which has been said."""
        self._deadline = self.plane.now() + CLOSE_TIMEOUT_S

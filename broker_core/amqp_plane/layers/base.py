"""One interface for every layer, and layers on top of each other.

How a layer is used, whatever it is:

    try:
        octets = layer.receive(what the socket brought)     # or layer.receive_eof() when it has ended
    except LayerError as error:
        octets, over = error.received, True                 # these came before what was wrong
    layer.send(an answer)                                   # once layer.ready
    socket.write(layer.data_to_send())                      # after each of these calls, after an error too

Each keeps little: what it was given is passed on at once, and what is incomplete is bounded. What it gives out it does not hold
back, so it is the caller that must not read from a peer that does not read (a layer answers pings and key updates by itself).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class LayerError(Exception):
    """The peer broke this layer; the text names the layer and what was wrong. Nothing more can be read.

    `received`: octets for the next layer that came, whole, before it.
    """

    def __init__(self, reason: str, received: bytes = b"") -> None:
        super().__init__(reason)
        self.received = received


class Layer(Protocol):
    """Server side of one connection. `ready`: the layer's handshake is complete, octets may be sent. `closed`: nothing more
    will come, or is wanted; the transport is to be closed when `data_to_send` is written.
    """

    @property
    def ready(self) -> bool:
        """Say whether the handshake is complete, so that octets may be sent."""

    @property
    def closed(self) -> bool:
        """Say whether nothing more comes, or is wanted: close the transport when `data_to_send` is written."""

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """Return the client's certificate as `getpeercert` forms it; None unless TLS has one, signed by the context's CA."""

    def receive(self, data: bytes) -> bytes:
        """Return octets for the next layer, perhaps none. Raises LayerError."""

    def receive_eof(self) -> None:
        """Note that the transport has ended. Raises LayerError when this layer had not: somebody may have cut it."""

    def send(self, data: bytes) -> None:
        """Send octets of the next layer. Raises RuntimeError before `ready`; after `close` they are dropped."""

    def close(self) -> None:
        """Say goodbye to the peer, as this layer does. What still comes is dropped. Calling it again does nothing."""

    def data_to_send(self) -> bytes:
        """Take the octets for the transport, or the layer below; each octet comes once."""


class PlainLayer:
    """No layer at all."""

    ready = True
    peer_certificate = None

    def __init__(self) -> None:
        self.closed = False
        self._out: list[bytes] = []

    def receive(self, data: bytes) -> bytes:
        """Return the octets as they are; none after `close` or the end of the transport."""
        return b"" if self.closed else data

    def receive_eof(self) -> None:
        """Note that the transport has ended: always good here."""
        self.closed = True

    def send(self, data: bytes) -> None:
        """Keep octets for `data_to_send`; after `close` they are dropped."""
        if not self.closed:
            self._out.append(data)

    def close(self) -> None:
        """Drop what comes and what is sent from here on; there is no goodbye to say."""
        self.closed = True

    def data_to_send(self) -> bytes:
        """Take the octets to write; each comes once."""
        out, self._out = b"".join(self._out), []
        return out


class Stack:
    """A stack of layers, the one at the socket first."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    @property
    def ready(self) -> bool:
        """Say whether all handshakes are complete."""
        return all(layer.ready for layer in self._layers)

    @property
    def closed(self) -> bool:
        """Say whether any layer is closed: then nothing more comes through all of them."""
        return any(layer.closed for layer in self._layers)

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """Return the client's certificate from the layer that has one, as `getpeercert` forms it; None without one."""
        return next((layer.peer_certificate for layer in self._layers if layer.peer_certificate), None)

    def receive(self, data: bytes) -> bytes:
        """Pass octets up through all layers; returns those for AMQP. Raises LayerError, of the highest layer that broke."""
        error: LayerError | None = None
        for layer in self._layers:
            if not data:
                break
            try:
                data = layer.receive(data)
            except LayerError as broken:  # an upper layer's comes first: it broke on what was whole below
                data, error = broken.received, broken
        if error is not None:
            raise LayerError(str(error), data)
        return data

    def receive_eof(self) -> None:
        """Note that the transport has ended. Raises LayerError of the lowest layer that had not ended before it."""
        if not self.closed:
            for layer in self._layers:
                layer.receive_eof()

    def send(self, data: bytes) -> None:
        """Send octets through all layers. Raises RuntimeError if the uppermost layer is not `ready`."""
        self._layers[-1].send(data)

    def close(self) -> None:
        """Say goodbye in each layer, the uppermost first, so that its goodbye passes through those below."""
        for layer in reversed(self._layers):
            layer.close()
            self._down()

    def data_to_send(self) -> bytes:
        """Take the octets that the layer at the socket has to write; each comes once."""
        self._down()
        return self._layers[0].data_to_send()

    def _down(self) -> None:
        """Send what upper layers have said through the lower ones."""
        for lower, upper in reversed(list(zip(self._layers, self._layers[1:], strict=False))):
            data = upper.data_to_send()
            if data and lower.ready:
                lower.send(data)

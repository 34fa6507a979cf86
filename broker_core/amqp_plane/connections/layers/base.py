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
    def ready(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The client's, as `getpeercert` has it, once there is TLS, and it has shown one that the context's CA has signed."""

    def receive(self, data: bytes) -> bytes:
        """Octets for the next layer, perhaps none. Raises LayerError."""

    def receive_eof(self) -> None:
        """The transport has ended. Raises LayerError when this layer had not: somebody may have cut it."""

    def send(self, data: bytes) -> None:
        """Octets of the next layer. RuntimeError before `ready`; after `close` they are dropped."""

    def close(self) -> None:
        """Says goodbye to the peer, as this layer does. What still comes is dropped. Calling it again does nothing."""

    def data_to_send(self) -> bytes:
        """For the transport, or the layer below; each octet once."""


class Plain:
    """No layer at all."""

    ready = True
    peer_certificate = None

    def __init__(self) -> None:
        self.closed = False
        self._out: list[bytes] = []

    def receive(self, data: bytes) -> bytes:
        return b"" if self.closed else data

    def receive_eof(self) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        if not self.closed:
            self._out.append(data)

    def close(self) -> None:
        self.closed = True

    def data_to_send(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out


class Stack:
    """Several layers, the one at the socket first."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers

    @property
    def ready(self) -> bool:
        return all(layer.ready for layer in self._layers)

    @property
    def closed(self) -> bool:
        return any(layer.closed for layer in self._layers)

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        return next((layer.peer_certificate for layer in self._layers if layer.peer_certificate), None)

    def receive(self, data: bytes) -> bytes:
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
        if not self.closed:
            for layer in self._layers:
                layer.receive_eof()

    def send(self, data: bytes) -> None:
        self._layers[-1].send(data)

    def close(self) -> None:
        for layer in reversed(self._layers):
            layer.close()
            self._down()

    def data_to_send(self) -> bytes:
        self._down()
        return self._layers[0].data_to_send()

    def _down(self) -> None:
        """What upper layers have said becomes what lower ones send."""
        for lower, upper in reversed(list(zip(self._layers, self._layers[1:], strict=False))):
            data = upper.data_to_send()
            if data and lower.ready:
                lower.send(data)

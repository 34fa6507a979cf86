"""The interface of layers, and layers on top of each other.

After each call, also after an error, the caller writes `data_to_send`. A layer does not limit its output, so the caller must not
read from a peer that does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class LayerError(Exception):
    """The peer broke this layer; the text names the layer and the error. Nothing more can be read.

    `received`: complete octets for the next layer that came before the error.
    """

    def __init__(self, reason: str, received: bytes = b"") -> None:
        super().__init__(reason)
        self.received = received


class Layer(Protocol):
    """Server side of one connection."""

    @property
    def ready(self) -> bool:
        """True when the handshake is complete."""

    @property
    def closed(self) -> bool:
        """True if nothing more is expected: close the transport when `data_to_send` is written."""

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """Return the client's verified certificate as `getpeercert` forms it; None without one."""

    def receive(self, data: bytes) -> bytes:
        """Return octets for the next layer, possibly none. Raises LayerError."""

    def send(self, data: bytes) -> None:
        """Send octets of the next layer. Raises RuntimeError before `ready`; drops them after `close`."""

    def close(self) -> None:
        """Close the layer by its protocol. Drops later octets."""

    def data_to_send(self) -> bytes:
        """Take the octets for the transport, or the layer below; each octet comes once."""


class PlainLayer:
    """The absence of layers."""

    ready = True
    peer_certificate = None

    def __init__(self) -> None:
        self.closed = False
        self._out: list[bytes] = []

    def receive(self, data: bytes) -> bytes:
        return b"" if self.closed else data

    def send(self, data: bytes) -> None:
        if not self.closed:
            self._out.append(data)

    def close(self) -> None:
        self.closed = True

    def data_to_send(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out


class Stack:
    """Layers, the one at the socket first."""

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
        """Raises LayerError, of the highest layer that broke."""
        error: LayerError | None = None
        for layer in self._layers:
            if not data:
                break
            try:
                data = layer.receive(data)
            except LayerError as broken:  # an error of an upper layer comes first: complete octets from below caused it
                data, error = broken.received, broken
        if error is not None:
            raise LayerError(str(error), data)
        return data

    def send(self, data: bytes) -> None:
        self._layers[-1].send(data)

    def close(self) -> None:
        """Close the uppermost layer first, so that its last octets pass through the lower ones."""
        for layer in reversed(self._layers):
            layer.close()
            self._down()

    def data_to_send(self) -> bytes:
        self._down()
        return self._layers[0].data_to_send()

    def _down(self) -> None:
        for lower, upper in reversed(list(zip(self._layers, self._layers[1:], strict=False))):
            data = upper.data_to_send()
            if data and lower.ready:
                lower.send(data)

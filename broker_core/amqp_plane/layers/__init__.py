"""What lies between a socket and AMQP: TLS, WebSocket, both or neither, each as octets in, octets out.

`stack` makes what a listener asks for; `base` says what each layer does. No sockets and no clock: who calls reads, writes, and
gives up on a peer that takes too long.
"""

from __future__ import annotations

import ssl

from .base import Layer, LayerError, Plain, Stack
from .tls import TlsLayer
from .websocket import WebSocketLayer

__all__ = ["Layer", "LayerError", "Plain", "Stack", "TlsLayer", "WebSocketLayer", "stack"]


def stack(context: ssl.SSLContext | None, websocket: bool) -> Layer:
    """The layers of one connection that a server has accepted: TLS, if there is a context, then WebSocket, if asked for."""
    layers: list[Layer] = []
    if context is not None:
        layers.append(TlsLayer(context))
    if websocket:
        layers.append(WebSocketLayer())
    return Stack(layers) if len(layers) > 1 else layers[0] if layers else Plain()

"""Layers between a socket and AMQP: TLS, WebSocket, both or neither, each as octets in, octets out.

`stack` makes what a listener asks for of the layers `tls` and `websocket`; `base` says what each layer does. No sockets and no
clock: the caller reads, writes, and gives up on a peer that takes too long.
"""

from __future__ import annotations

import ssl

from .base import Layer, LayerError, PlainLayer, Stack

__all__ = ["Layer", "LayerError", "Plain", "Stack", "stack"]


def stack(context: ssl.SSLContext | None, websocket: bool) -> Layer:
    """The layers of one connection that a server has accepted: TLS, if there is a context, then WebSocket, if asked for."""
    layers: list[Layer] = []
    if context is not None:
        from .tls import TlsLayer

        layers.append(TlsLayer(context))
    if websocket:
        from .websocket import WebSocketLayer  # wsproto and h11, which cost a start some 25 ms

        layers.append(WebSocketLayer())
    return Stack(layers) if len(layers) > 1 else layers[0] if layers else PlainLayer()

"""Layers between a socket and AMQP: `tls`, `websocket`, both or neither (`base`); before them `proxy_protocol`.

Layers have no sockets and no clock: the caller reads, writes, and gives up on a slow peer.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from .base import Layer, LayerError, PlainLayer, Stack

__all__ = ["Layer", "LayerError", "Stack", "stack"]


def stack(context: ssl.SSLContext | None, websocket: bool, subprotocols: Sequence[str] = ("amqp",)) -> Layer:
    layers: list[Layer] = []
    if context is not None:
        from .tls import TlsLayer

        layers.append(TlsLayer(context))
    if websocket:
        from .websocket import WebSocketLayer  # it imports wsproto and h11, which cost 25 ms at a start

        layers.append(WebSocketLayer(subprotocols))
    return Stack(layers) if len(layers) > 1 else layers[0] if layers else PlainLayer()

"""The client's side of TLS and WebSocket, and a connection that cuts bytes at random."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterable

import pytest
import trustme
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
)

from penstock.broker_core.amqp_plane.layers import Layer, LayerError

Cut = Callable[[bytes], Iterable[bytes]]

AUTHORITY = trustme.CA()
CLIENTS = trustme.CA(organization_name="clients")
STRANGERS = trustme.CA(organization_name="strangers")


def whole(data: bytes) -> list[bytes]:
    return [data]


def octets(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


every_cut = pytest.mark.parametrize("cut", [whole, octets])


def server_context(*, clients: bool = False, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    context.num_tickets = 0
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if clients:
        CLIENTS.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class TlsClient:
    """A TLS client. `say` returns bytes for the server; `hear` takes those of the server."""

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        AUTHORITY.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._waiting = b""
        self.ready = self.closed = False
        self._advance()

    def _advance(self) -> bytes:
        plain = b""
        try:
            if not self.ready:
                self._tls.do_handshake()
                self.ready = True
            if self._waiting:
                self._tls.write(self._waiting)
                self._waiting = b""
            while piece := self._tls.read(65536):
                plain += piece
            self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        return plain

    def say(self, data: bytes) -> None:
        self._waiting += data
        self._advance()

    def hear(self, data: bytes) -> bytes:
        self._in.write(data)
        return self._advance()

    def goodbye(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()

    def data_to_send(self) -> bytes:
        return self._out.read()


class WebSocketClient:
    """Client over WebSocket. `events`: everything that arrived; `closed`: the server's close."""

    def __init__(self, subprotocols: Iterable[str] = ("amqp",)) -> None:
        self.connection = WSConnection(ConnectionType.CLIENT)
        self._out = self.connection.send(Request(host="localhost", target="/", subprotocols=list(subprotocols)))
        self._waiting: list[Event] = []
        self.events: list[Event] = []
        self.ready = False
        self.closed: int | None = None

    def say(self, data: bytes) -> None:
        self.send(BytesMessage(data=data))

    def send(self, event: Event) -> None:
        self._waiting.append(event)
        self._advance()

    def _advance(self) -> None:
        while self.ready and self._waiting:
            event = self._waiting.pop(0)
            if self.closed is None:
                self._out += self.connection.send(event)

    def hear(self, data: bytes) -> bytes:
        plain = b""
        if self.closed is not None:
            return plain
        self.connection.receive_data(data)
        for event in self.connection.events():
            self.events.append(event)
            if isinstance(event, AcceptConnection):
                assert event.subprotocol == "amqp"
                self.ready = True
            elif isinstance(event, BytesMessage):
                plain += event.data
            elif isinstance(event, Ping):
                self._out += self.connection.send(event.response())
            elif isinstance(event, CloseConnection):
                self.closed = event.code
                if self.connection.state.name == "REMOTE_CLOSING":
                    self._out += self.connection.send(event.response())
            else:
                assert isinstance(event, (Pong, RejectConnection, RejectData))
        self._advance()
        return plain

    def goodbye(self) -> None:
        self._out += self.connection.send(CloseConnection(code=1000))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out


class PlainClient:
    ready = True

    def __init__(self) -> None:
        self._out = b""
        self.closed = False

    def say(self, data: bytes) -> None:
        self._out += data

    def hear(self, data: bytes) -> bytes:
        return data

    def goodbye(self) -> None:
        pass

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out


class Inside:
    """A client of a layer inside another layer."""

    def __init__(self, outer: TlsClient, inner: WebSocketClient) -> None:
        self._outer, self._inner = outer, inner

    @property
    def ready(self) -> bool:
        return self._outer.ready and self._inner.ready

    @property
    def closed(self) -> bool:
        return self._outer.closed or self._inner.closed is not None

    def say(self, data: bytes) -> None:
        self._inner.say(data)

    def hear(self, data: bytes) -> bytes:
        return self._inner.hear(plain) if (plain := self._outer.hear(data)) else b""

    def goodbye(self) -> None:
        self._inner.goodbye()

    def data_to_send(self) -> bytes:
        if data := self._inner.data_to_send():
            self._outer.say(data)
        return self._outer.data_to_send()


Client = TlsClient | WebSocketClient | PlainClient | Inside


def exchange(client: Client, layer: Layer, cut: Cut = whole) -> tuple[bytes, bytes]:
    """Carry bytes in both directions until there are no more. Return the output of the server and of the client."""
    at_server, at_client = b"", b""
    while True:
        to_server, to_client = client.data_to_send(), layer.data_to_send()
        if not to_server and not to_client:
            return at_server, at_client
        for piece in cut(to_server) if to_server else ():
            at_server += layer.receive(piece)
        for piece in cut(to_client) if to_client else ():
            at_client += client.hear(piece)


def feed(layer: Layer, pieces: Iterable[bytes]) -> tuple[bytes, LayerError | None]:
    """Pass bytes to the server. Return its output and its error."""
    came = b""
    for piece in pieces:
        try:
            came += layer.receive(piece)
        except LayerError as error:
            return came + error.received, error
    return came, None

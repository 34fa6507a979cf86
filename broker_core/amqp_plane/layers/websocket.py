"""AMQP over WebSocket (OASIS amqp-wsb 1.0): an HTTP upgrade with a subprotocol, then AMQP in binary messages.

AMQP frames may begin and end anywhere in WebSocket's messages. So octets are passed on as they come, and the size of a
WebSocket frame needs no limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import h11
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from .base import LayerError

#: Octets of the HTTP request. Browsers send cookies; more than this is not about AMQP.
MAX_REQUEST = 8 * 1024
#: Octets of a message that we send: some clients accept at most 64 KiB by default, frame included.
_MAX_MESSAGE = 60 * 1024
_MAX_QUOTED = 100  # characters of the peer's, in answers and logs


class _RefusedRequest(Exception):
    """A refused HTTP request."""

    def __init__(self, status: int, reason: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers or []


class WebSocketLayer:
    """The server's side of one connection. `subprotocols` are accepted; the request's path does not matter."""

    peer_certificate = None

    def __init__(self, subprotocols: Sequence[str] = ("amqp",)) -> None:
        self._subprotocols = subprotocols
        self._http: h11.Connection | None = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST)
        self._heard = 0
        self._frames: Connection | None = None
        self._out: list[bytes] = []
        self._pong: bytes | None = None
        self.closed = False

    @property
    def ready(self) -> bool:
        return self._frames is not None

    def receive(self, data: bytes) -> bytes:
        if self.closed or not data:
            return b""
        if self._http is not None:
            data = self._upgrade(self._http, data)
        return self._read(self._frames, data) if self._frames is not None and data else b""

    # --- HTTP

    def _upgrade(self, http: h11.Connection, data: bytes) -> bytes:
        """Read the request. Returns the octets behind it once it is complete."""
        taken, after = data[: MAX_REQUEST - self._heard], data[MAX_REQUEST - self._heard :]
        self._heard += len(taken)
        try:
            http.receive_data(taken)
            event = http.next_event()
            if event is h11.NEED_DATA:
                if self._heard == MAX_REQUEST:
                    raise _RefusedRequest(431, f"a request of more than {MAX_REQUEST} octets")
                return b""
            if not isinstance(event, h11.Request):
                raise _RefusedRequest(400, "no HTTP request")
            rest = bytes(http.trailing_data[0]) + after
            self._frames = self._accept(event)
        except h11.RemoteProtocolError as error:  # its text may quote all that the peer has sent
            self._refuse(http, _RefusedRequest(error.error_status_hint, "no HTTP request that can be read"))
        except _RefusedRequest as refusal:
            self._refuse(http, refusal)
        self._http = None
        return rest

    def _accept(self, request: h11.Request) -> Connection:
        if request.method != b"GET" or request.http_version < b"1.1":
            method, version = request.method.decode()[:_MAX_QUOTED], request.http_version.decode()
            raise _RefusedRequest(400, f"{method} in HTTP {version}, not GET in 1.1")
        handshake = H11Handshake(ConnectionType.SERVER)
        try:
            handshake.initiate_upgrade_connection(list(request.headers), request.target)
            asked = next((event for event in handshake.events() if isinstance(event, Request)), None)
        except RemoteProtocolError as error:
            hint = error.event_hint
            if isinstance(hint, RejectConnection):
                raise _RefusedRequest(hint.status_code, str(error), list(hint.headers)) from error
            raise _RefusedRequest(400, str(error)) from error
        except (UnicodeError, h11.ProtocolError) as error:
            raise _RefusedRequest(400, "a header that cannot be read") from error
        if asked is None:
            raise _RefusedRequest(400, "no WebSocket request")
        chosen = next((name for name in self._subprotocols if name in asked.subprotocols), None)
        if chosen is None:
            named = ", ".join(asked.subprotocols)[:_MAX_QUOTED] or "no subprotocol"
            needed = " or ".join(self._subprotocols)
            raise _RefusedRequest(400, f"the request offers {named}; this listener needs the subprotocol {needed}")
        self._out.append(handshake.send(AcceptConnection(subprotocol=chosen)))
        connection = handshake.connection
        assert connection is not None
        return connection

    def _refuse(self, http: h11.Connection, refusal: _RefusedRequest) -> None:
        self.closed, self._http = True, None
        body = f"AMQP over WebSocket: {refusal}\n".encode()
        if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [
                *refusal.headers,
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            response = h11.Response(status_code=refusal.status, headers=headers)
            for event in (response, h11.Data(body), h11.EndOfMessage()):
                self._out.append(http.send(event) or b"")
        raise LayerError(f"WebSocket: {refusal}")

    # --- frames

    def _read(self, frames: Connection, data: bytes) -> bytes:
        said_goodbye = frames.state is ConnectionState.LOCAL_CLOSING
        octets: list[bytes] = []
        frames.receive_data(data)
        for event in frames.events():
            if isinstance(event, BytesMessage):
                if not said_goodbye:
                    octets.append(bytes(event.data))
            elif isinstance(event, TextMessage):
                self._break(frames, CloseReason.UNSUPPORTED_DATA, "a text message; AMQP is binary", octets)
            elif isinstance(event, Ping):
                self._pong = bytes(event.payload)  # the latest is enough (RFC 6455, 5.5.3)
            elif isinstance(event, CloseConnection):
                if frames.state is ConnectionState.OPEN or (said_goodbye and frames.state is ConnectionState.LOCAL_CLOSING):
                    self._break(frames, event.code, event.reason or "a frame that cannot be read", octets)
                self.closed = True
                if frames.state is ConnectionState.REMOTE_CLOSING:
                    self._out.append(bytes(frames.send(event.response())))
                break
        return b"".join(octets)

    def _break(self, frames: Connection, code: int, reason: str, octets: list[bytes]) -> None:
        self.closed = True
        if frames.state is ConnectionState.OPEN:
            self._out.append(bytes(frames.send(CloseConnection(code=code, reason=reason))))
        raise LayerError(f"WebSocket: {reason}", b"".join(octets))

    def send(self, data: bytes) -> None:
        if self._frames is None:
            raise RuntimeError("the WebSocket is not open yet")
        if self.closed or self._frames.state is not ConnectionState.OPEN:
            return
        for at in range(0, len(data), _MAX_MESSAGE):
            self._out.append(bytes(self._frames.send(BytesMessage(data=data[at : at + _MAX_MESSAGE]))))

    def close(self) -> None:
        """Send a close frame, or nothing before the upgrade."""
        if self._frames is None:
            self.closed = True
        elif not self.closed and self._frames.state is ConnectionState.OPEN:
            self._out.append(bytes(self._frames.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))))

    def data_to_send(self) -> bytes:
        if self._pong is not None and self._frames is not None and self._frames.state is ConnectionState.OPEN:
            self._out.append(bytes(self._frames.send(Ping(payload=self._pong).response())))
        self._pong = None
        out, self._out = b"".join(self._out), []
        return out

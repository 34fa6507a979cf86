"""WebSocket as bytes in, bytes out (W1 W5): the upgrade, the frames, the close, and invalid input."""

from __future__ import annotations

import re
import struct

import pytest
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, RejectConnection, RejectData, TextMessage

from penstock.broker_core.amqp_plane.layers import LayerError
from penstock.broker_core.amqp_plane.layers.websocket import MAX_REQUEST, WebSocketLayer
from penstock.broker_core.settings.listeners import AMQP, SERVICE_BUS, Listener

from .talk import Cut, WebSocketClient, every_cut, exchange, feed

GOOD = [
    ("Host", "h"),
    ("Upgrade", "websocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Protocol", "mqtt, amqp"),
]


def request(*, first: str = "GET / HTTP/1.1", without: str = "", **changed: str) -> bytes:
    headers = {name: value for name, value in GOOD if name != without} | {k.replace("_", "-"): v for k, v in changed.items()}
    return (first + "\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode("latin-1")


@every_cut
def test_the_upgrade_is_the_one_of_the_text(cut: Cut) -> None:
    """amqp-wsb 2.1: 101, with `amqp` as the subprotocol; RFC 6455's own example of a key."""
    layer = WebSocketLayer()
    for piece in cut(request()):
        assert layer.receive(piece) == b""
    answer = layer.data_to_send()
    assert answer.startswith(b"HTTP/1.1 101 ")
    lines = {line.lower() for line in answer.split(b"\r\n")}
    assert b"sec-websocket-protocol: amqp" in lines
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in lines
    assert not [line for line in lines if line.startswith(b"sec-websocket-extensions")]
    assert layer.ready


@every_cut
@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (request(Sec_WebSocket_Protocol="mqtt"), 400, "offers mqtt; this listener needs the subprotocol amqp"),
        (request(Sec_WebSocket_Protocol="AMQP"), 400, "offers AMQP; this listener needs the subprotocol amqp"),
        (request(without="Sec-WebSocket-Protocol"), 400, "offers no subprotocol; this listener needs"),
        (request(first="POST / HTTP/1.1"), 400, "POST"),
        (request(first="GET / HTTP/1.0"), 400, "HTTP 1.0"),
        (request(first="GET /"), 400, ""),
        (request(without="Host"), 400, ""),
        (request(without="Upgrade"), 400, "Upgrade"),
        (request(Upgrade="h2c"), 400, "Upgrade"),
        (request(without="Connection"), 400, "Connection"),
        (request(without="Sec-WebSocket-Key"), 400, "Sec-WebSocket-Key"),
        (request(Sec_WebSocket_Version="8"), 426, "Sec-WebSocket-Version"),
        (request(Sec_WebSocket_Protocol="\xe4mqp"), 400, "cannot be read"),
        (request(Host="\xff"), 400, "cannot be read"),
        (request(Content_Length="x"), 400, ""),
        (request(first="GET /" + "x" * MAX_REQUEST + " HTTP/1.1"), 431, "8192"),
        (request(Cookie="x" * MAX_REQUEST), 431, "8192"),
        (request(Sec_WebSocket_Protocol="x" * 4000), 400, f"offers {'x' * 100}; this"),
        (b"AMQP\3\1\0\0\r\n\r\n", 400, ""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, ""),
    ],
)
def test_what_is_no_upgrade_to_amqp_is_refused_in_http(cut: Cut, data: bytes, status: int, reason: str) -> None:
    layer = WebSocketLayer()
    came, error = feed(layer, cut(data))
    assert came == b""
    assert re.match(f"WebSocket: .*({reason})", str(error))
    assert not layer.ready
    assert layer.closed
    answer = layer.data_to_send()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert len(answer) + len(str(error)) < 1000  # the peer's text is neither repeated nor logged at length
    assert (b"sec-websocket-version: 13" in answer.lower()) == (status == 426)
    assert layer.receive(request()) == b""


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("AMQPWSB10", "AMQPWSB10"), ("amqp", "amqp"), ("amqp, AMQPWSB10", "AMQPWSB10"), ("mqtt, amqp", "amqp")],
)
def test_a_dialect_has_its_own_subprotocol_also(offered: str, chosen: str) -> None:
    layer = WebSocketLayer(Listener(dialect=SERVICE_BUS).subprotocols)
    layer.receive(request(Sec_WebSocket_Protocol=offered))
    assert layer.ready
    assert f"sec-websocket-protocol: {chosen}\r\n".lower() in layer.data_to_send().decode().lower()


@every_cut
@pytest.mark.parametrize(
    ("dialect", "offered", "reason"),
    [
        (SERVICE_BUS, "mqtt", "offers mqtt; this listener needs the subprotocol AMQPWSB10 or amqp"),
        (SERVICE_BUS, "amqpwsb10", "offers amqpwsb10; this listener needs the subprotocol AMQPWSB10 or amqp"),
        (SERVICE_BUS, None, "offers no subprotocol; this listener needs the subprotocol AMQPWSB10 or amqp"),
        (SERVICE_BUS, "", "offers no subprotocol; this listener needs the subprotocol AMQPWSB10 or amqp"),
        (AMQP, "AMQPWSB10", "offers AMQPWSB10; this listener needs the subprotocol amqp"),
    ],
)
def test_a_subprotocol_of_another_dialect_is_refused(cut: Cut, dialect: str, offered: str | None, reason: str) -> None:
    layer = WebSocketLayer(Listener(dialect=dialect).subprotocols)
    name = "Sec-WebSocket-Protocol"
    _, error = feed(layer, cut(request(without=name) if offered is None else request(Sec_WebSocket_Protocol=offered)))
    assert reason in str(error)
    assert layer.closed
    assert layer.data_to_send().startswith(b"HTTP/1.1 400 ")


def test_a_request_for_ever_is_ended() -> None:
    """W5: memory of an unauthenticated peer."""
    layer = WebSocketLayer()
    layer.receive(b"GET / HTTP/1.1\r\n")
    offsets = iter(range(0, 10 * MAX_REQUEST, 100))
    _, error = feed(layer, (b"X-%05d: " % number + b"x" * 89 + b"\r\n" for number in offsets))
    assert error is not None
    assert next(offsets) <= MAX_REQUEST + 100


@every_cut
def test_a_client_is_told_why(cut: Cut) -> None:
    client, layer = WebSocketClient(["mqtt"]), WebSocketLayer()
    with pytest.raises(LayerError):
        exchange(client, layer, cut)
    client.hear(layer.data_to_send())
    rejected = next(event for event in client.events if isinstance(event, RejectConnection))
    assert rejected.status_code == 400
    body = b"".join(event.data for event in client.events if isinstance(event, RejectData))
    assert b"this listener needs the subprotocol amqp" in body


def opened() -> tuple[WebSocketClient, WebSocketLayer]:
    client, layer = WebSocketClient(), WebSocketLayer()
    exchange(client, layer)
    return client, layer


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = True, length: int | None = None) -> bytes:
    """Build one frame, masked with zeros, possibly with a wrong length."""
    size = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | opcode])
    bit = 0x80 if mask else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    return head + (bytes(4) if mask else b"") + payload


@every_cut
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(1, b"text"), 1003),
        (frame(1, b"\xff\xfe"), 1007),
        (frame(2, b"clear", mask=False), 1002),
        (frame(0, b"continues nothing"), 1002),
        (frame(2, b"", fin=False) + frame(2, b"new"), 1002),
        (frame(3), 1002),
        (frame(11), 1002),
        (frame(2 | 0x40, b"deflated"), 1002),
        (frame(9, b"p", fin=False), 1002),
        (frame(9, b"p" * 126), 1002),
        (frame(8, b"1"), 1002),
        (frame(8, struct.pack("!H", 1005)), 1002),
        (frame(8, struct.pack("!H", 1000) + b"\xff"), 1007),
        (frame(2, b"", length=1 << 63), 1002),
    ],
)
def test_a_frame_that_is_not_allowed_closes_with_its_code(cut: Cut, data: bytes, code: int) -> None:
    """RFC 6455, 7.4.1; amqp-wsb: only binary messages carry AMQP."""
    client, layer = opened()
    came, error = feed(layer, cut(frame(2, b"before") + data + frame(2, b"after")))
    assert came == b"before"
    assert str(error).startswith("WebSocket: ")
    assert layer.closed
    client.hear(layer.data_to_send())
    assert client.closed == code
    assert layer.receive(b"more") == b""


@every_cut
def test_a_message_of_many_frames_with_pings_between_is_one_stream(cut: Cut) -> None:
    client, layer = opened()
    data = frame(2, b"a", fin=False) + frame(9, b"1") + frame(0, b"", fin=False) + frame(0, b"b" * 70_000, fin=False)
    data += frame(9, b"2") + frame(10, b"unasked") + frame(0, b"c") + frame(2, b"d")
    assert b"".join(layer.receive(piece) for piece in cut(data)) == b"a" + b"b" * 70_000 + b"cd"
    client.hear(layer.data_to_send())
    assert [bytes(event.payload) for event in client.events if isinstance(event, Pong)] == [b"2"]  # the latest one


def test_pings_do_not_heap_up() -> None:
    """W5: one answer for all pings between two writes."""
    _, layer = opened()
    layer.receive(frame(9, b"p" * 125) * 1000)
    assert len(layer.data_to_send()) == 127
    assert layer.data_to_send() == b""


def test_a_frame_s_octets_are_passed_on_as_they_come() -> None:
    """W5: a large length reserves no memory."""
    _, layer = opened()
    assert layer.receive(frame(2, b"begins", length=1 << 62)) == b"begins"
    assert layer.receive(b"goes on") == b"goes on"


def test_what_we_send_are_binary_messages_of_a_bounded_size() -> None:
    client, layer = opened()
    layer.send(b"x" * 200_000)
    assert exchange(client, layer)[1] == b"x" * 200_000
    messages = [event for event in client.events if isinstance(event, BytesMessage)]
    assert all(event.message_finished for event in messages)
    assert len(messages) == 4


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999])
def test_a_close_is_answered_with_its_code(code: int) -> None:
    client, layer = opened()
    client.send(CloseConnection(code=code, reason="because"))
    exchange(client, layer)
    assert (layer.closed, client.closed) == (True, code)


def test_both_may_close_at_once() -> None:
    client, layer = opened()
    layer.close()
    client.goodbye()
    theirs = client.data_to_send()
    client.hear(layer.data_to_send())
    assert layer.receive(theirs) == b""
    assert layer.closed
    assert layer.data_to_send() == b""


def test_after_our_close_messages_are_dropped_and_pings_not_answered() -> None:
    client, layer = opened()
    layer.close()
    layer.data_to_send()
    for event in (BytesMessage(data=b"late"), Ping(payload=b"?")):
        client.send(event)
    assert layer.receive(client.data_to_send()) == b""
    assert layer.data_to_send() == b""
    client.send(TextMessage(data="text"))
    with pytest.raises(LayerError):
        layer.receive(client.data_to_send())
    assert layer.data_to_send() == b""

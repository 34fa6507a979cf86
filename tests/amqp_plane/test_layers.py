"""TLS and WebSocket as octets in, octets out (W1 W2 W5): the same however the octets are cut, and named errors for everything
that is neither. Deterministic: a failure names its seed or its example.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, RejectConnection, RejectData, TextMessage

from broker_core.amqp_plane.layers import Layer, LayerError, Stack, stack
from broker_core.amqp_plane.layers.tls import TlsLayer
from broker_core.amqp_plane.layers.websocket import MAX_REQUEST, WebSocketLayer

from ..amqp.test_fuzz import SEED
from ..amqp.values import STEADY
from .talk import (
    CLIENTS,
    STRANGERS,
    Client,
    Cut,
    Inside,
    PlainClient,
    TlsClient,
    WebSocketClient,
    exchange,
    feed,
    octets,
    server_context,
    whole,
)

CONTEXT = server_context()
Make = Callable[[], tuple[Client, Layer]]

KINDS: dict[str, Make] = {
    "plain": lambda: (PlainClient(), stack(None, websocket=False)),
    "tls": lambda: (TlsClient(), stack(CONTEXT, websocket=False)),
    "websocket": lambda: (WebSocketClient(), stack(None, websocket=True)),
    "tls, websocket": lambda: (Inside(TlsClient(), WebSocketClient()), stack(CONTEXT, websocket=True)),
}
LAYERED = [make for name, make in KINDS.items() if name != "plain"]
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
every_layer = pytest.mark.parametrize("make", LAYERED, ids=[name for name in KINDS if name != "plain"])
every_cut = pytest.mark.parametrize("cut", [whole, octets])


# --- what is right


@every_kind
@every_cut
def test_octets_come_out_as_they_went_in(make: Make, cut: Cut) -> None:
    client, layer = make()
    exchange(client, layer, cut)
    assert client.ready
    assert layer.ready
    question, answer = bytes(range(256)) * 300, b"AMQP" * 30_000
    client.say(question)
    layer.send(answer)
    assert exchange(client, layer, cut) == (question, answer)
    assert not layer.closed
    layer.close()
    layer.close()
    exchange(client, layer, cut)
    assert client.closed or isinstance(client, PlainClient)


@every_kind
def test_what_waits_in_one_piece_is_read_whole(make: Make) -> None:
    """Many records, many messages, and the handshake's last octets before them, in one read of the socket."""
    client, layer = make()
    for size in (1, 5, 16_384, 16_385, 40_000, 0, 3):
        client.say(b"%d" % (size % 10) * size)
    expected = b"".join(b"%d" % (size % 10) * size for size in (1, 5, 16_384, 16_385, 40_000, 0, 3))
    assert exchange(client, layer)[0] == expected


@every_kind
@settings(STEADY, max_examples=40)
@given(
    messages=st.lists(st.tuples(st.booleans(), st.binary(max_size=300).map(lambda seed: seed * 90)), max_size=6),
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=5),
)
def test_how_octets_are_cut_changes_nothing(make: Make, messages: list[tuple[bool, bytes]], sizes: list[int]) -> None:
    def cut(data: bytes) -> list[bytes]:
        pieces, at, turn = [], 0, 0
        while at < len(data):
            pieces.append(data[at : at + sizes[turn % len(sizes)]])
            at, turn = at + len(pieces[-1]), turn + 1
        return pieces

    client, layer = make()
    exchange(client, layer, cut)
    up = down = b""
    for ours, data in messages:
        (layer.send if ours else client.say)(data)
        came, went = exchange(client, layer, cut)
        up, down = up + came, down + went
    assert up == b"".join(data for ours, data in messages if not ours)
    assert down == b"".join(data for ours, data in messages if ours)


@every_layer
@every_cut
def test_the_client_s_goodbye_is_answered_and_ends_the_layer(make: Make, cut: Cut) -> None:
    client, layer = make()
    exchange(client, layer, cut)
    client.say(b"last words")
    client.goodbye()
    assert exchange(client, layer, cut)[0] == b"last words"
    assert layer.closed
    layer.receive_eof()  # no error: it was over
    assert layer.receive(b"more") == b""
    layer.close()
    exchange(client, layer, cut)
    assert client.closed or isinstance(client, TlsClient)


@every_layer
def test_after_our_goodbye_nothing_is_read_or_said(make: Make) -> None:
    client, layer = make()
    exchange(client, layer)
    layer.close()
    goodbye = layer.data_to_send()
    assert goodbye
    layer.send(b"too late")
    assert layer.data_to_send() == b""
    client.say(b"under way")
    assert exchange(client, layer)[0] == b""
    client.hear(goodbye)
    assert exchange(client, layer)[0] == b""
    layer.receive_eof()


@every_layer
def test_nothing_is_said_before_the_handshake(make: Make) -> None:
    _, layer = make()
    with pytest.raises(RuntimeError):
        layer.send(b"AMQP")
    layer.close()
    assert layer.closed
    assert layer.data_to_send() == b""


# --- what is cut off


@every_layer
def test_a_peer_that_leaves_at_each_octet_of_its_handshake_is_named(make: Make) -> None:
    """W5: half-open TLS, half a request. Each prefix is nothing but incomplete."""
    client, layer = make()
    says: list[bytes] = []
    while not client.ready or not layer.ready:
        says.append(client.data_to_send())
        layer.receive(says[-1])
        client.hear(layer.data_to_send())
    whole_talk = b"".join(says)
    if isinstance(layer, WebSocketLayer):
        assert len(whole_talk) > 100
    for length in range(len(says[0])):
        _, other = make()
        assert other.receive(says[0][:length]) == b""
        assert not other.ready
        with pytest.raises(LayerError, match="ended in the"):
            other.receive_eof()
        assert other.closed


@every_layer
def test_a_peer_that_leaves_without_a_goodbye_is_named(make: Make) -> None:
    client, layer = make()
    exchange(client, layer)
    with pytest.raises(LayerError, match="ended without"):
        layer.receive_eof()
    assert layer.closed
    layer.receive_eof()  # said once


# --- what is wrong


@every_layer
@pytest.mark.parametrize("seed", range(30))
def test_garbage_is_an_error_or_waits_whole_or_octet_by_octet(make: Make, seed: int) -> None:
    """W5: never another exception; octet by octet the same error; what is kept is bounded by the layer, not by the peer."""
    source = random.Random(SEED + seed)
    garbage = source.choice([b"", b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01"])
    garbage += source.randbytes(source.choice([3, 400, 20_000]))
    said: list[tuple[str, bytes]] = []
    for cut in (whole, octets):
        _, layer = make()
        came, error = feed(layer, cut(garbage))
        if error is not None:
            assert layer.data_to_send() or not isinstance(layer, WebSocketLayer)
            assert layer.receive(b"more" * 1000) == b""
        said.append((str(error), came))
    assert said[0] == said[1]
    if len(garbage) > 17_000:
        assert said[0][0] != "None"


@every_layer
@pytest.mark.parametrize("seed", range(40))
def test_a_talk_with_octets_changed_is_right_up_to_there(make: Make, seed: int) -> None:
    """What comes out is a prefix of what went in, or an error is raised, or both; nothing false."""
    source = random.Random(SEED + seed)
    client, layer = make()
    exchange(client, layer)
    text = source.randbytes(5000)
    for at in range(0, len(text), 500):
        client.say(text[at : at + 500])
    data = bytearray(client.data_to_send())
    at = source.randrange(len(data))
    data[at] ^= 1 << source.randrange(8)
    came, error = feed(layer, octets(bytes(data)))
    if isinstance(layer, WebSocketLayer):
        return  # no checksum in there: only that nothing else is raised
    assert error is not None or len(data) - at < 600
    assert text.startswith(came)


@every_cut
def test_what_came_before_an_error_is_not_lost(cut: Cut) -> None:
    for make in LAYERED:
        client, layer = make()
        exchange(client, layer)
        client.say(b"good")
        data = client.data_to_send()
        if isinstance(layer, Stack):
            data += b"\x17\x03\x03\x00\x30" + bytes(48)  # a record that nobody sealed
        else:
            data += b"\xff" * 60
        came, error = feed(layer, cut(data))
        assert error is not None
        assert came == b"good"


# --- TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@every_cut
def test_a_client_s_certificate_is_known_after_the_handshake(version: ssl.TLSVersion, cut: Cut) -> None:
    """W2: EXTERNAL takes its name from here."""
    client = TlsClient(CLIENTS.issue_cert("orders", common_name="orders"))
    layer = stack(server_context(clients=True, version=version), websocket=False)
    assert layer.peer_certificate is None
    exchange(client, layer, cut)
    certificate = layer.peer_certificate
    assert certificate is not None
    assert ((("commonName", "orders"),)) in certificate["subject"]


def test_without_a_certificate_there_is_none() -> None:
    for client, layer in (
        (TlsClient(), TlsLayer(server_context(clients=True))),
        (TlsClient(CLIENTS.issue_cert("orders")), TlsLayer(CONTEXT)),  # not asked for
    ):
        exchange(client, layer)
        assert layer.ready
        assert layer.peer_certificate is None
    assert WebSocketLayer().peer_certificate is None


def test_below_websocket_the_certificate_is_the_same() -> None:
    client = Inside(TlsClient(CLIENTS.issue_cert("orders", common_name="orders")), WebSocketClient())
    layer = stack(server_context(clients=True), websocket=True)
    exchange(client, layer)
    assert layer.peer_certificate


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_is_expired_or_a_stranger_s_is_refused_with_the_reason(version: ssl.TLSVersion) -> None:
    """W2: the peer gets an alert."""
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    expired = CLIENTS.issue_cert("orders", not_before=long_ago, not_after=long_ago + datetime.timedelta(days=1))
    for certificate, reason in ((expired, "expired"), (STRANGERS.issue_cert("orders"), "unable to get local issuer")):
        client = TlsClient(certificate)
        layer = TlsLayer(server_context(clients=True, version=version))
        with pytest.raises(LayerError, match=f"the client's certificate is refused: .*{reason}"):
            exchange(client, layer)
        assert not layer.ready
        assert layer.peer_certificate is None
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            client.hear(layer.data_to_send())


def test_amqp_or_http_without_tls_is_named() -> None:
    for data, reason in ((b"AMQP\0\1\0\0", "wrong version number"), (b"GET / HTTP/1.1\r\n\r\n", "http request")):
        layer = TlsLayer(CONTEXT)
        with pytest.raises(LayerError, match=f"TLS: {reason}"):
            layer.receive(data)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_an_idle_connection_keeps_little() -> None:
    """Issue 4: a connection with TLS and SASL may take 100 KiB. This is TLS's part, fresh and after a MiB each way."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "tls_memory.py")], capture_output=True, text=True, timeout=120, check=True
    )
    fresh, used = json.loads(done.stdout)
    assert fresh < 30 * 1024
    assert used < 60 * 1024


# --- WebSocket

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
        (request(Sec_WebSocket_Protocol="mqtt"), 400, "the subprotocols are mqtt; amqp is the one"),
        (request(Sec_WebSocket_Protocol="AMQP"), 400, "the subprotocols are AMQP; amqp is the one"),
        (request(without="Sec-WebSocket-Protocol"), 400, "the subprotocols are none; amqp is the one"),
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
        (request(Sec_WebSocket_Protocol="x" * 4000), 400, f"{'x' * 100}; amqp"),
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
    assert len(answer) + len(str(error)) < 1000  # what the peer said is not said back, nor logged, at length
    assert (b"sec-websocket-version: 13" in answer.lower()) == (status == 426)
    assert layer.receive(request()) == b""
    layer.receive_eof()


def test_a_request_for_ever_is_ended() -> None:
    """W5: memory of an unauthenticated peer."""
    layer = WebSocketLayer()
    layer.receive(b"GET / HTTP/1.1\r\n")
    heard = iter(range(0, 10 * MAX_REQUEST, 100))
    _, error = feed(layer, (b"X-%05d: " % number + b"x" * 89 + b"\r\n" for number in heard))
    assert error is not None
    assert next(heard) <= MAX_REQUEST + 100


@every_cut
def test_a_client_is_told_why(cut: Cut) -> None:
    client, layer = WebSocketClient(["mqtt"]), WebSocketLayer()
    with pytest.raises(LayerError):
        exchange(client, layer, cut)
    client.hear(layer.data_to_send())
    rejected = next(event for event in client.events if isinstance(event, RejectConnection))
    assert rejected.status_code == 400
    said = b"".join(event.data for event in client.events if isinstance(event, RejectData))
    assert b"amqp is the one spoken here" in said


def opened() -> tuple[WebSocketClient, WebSocketLayer]:
    client, layer = WebSocketClient(), WebSocketLayer()
    exchange(client, layer)
    return client, layer


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = True, length: int | None = None) -> bytes:
    """One frame, masked with zeros, that may say another length than it has."""
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
    assert [bytes(event.payload) for event in client.events if isinstance(event, Pong)] == [b"2"]  # the latest


def test_pings_do_not_heap_up() -> None:
    """W5: one answer for all that came between two writes."""
    _, layer = opened()
    layer.receive(frame(9, b"p" * 125) * 1000)
    assert len(layer.data_to_send()) == 127
    assert layer.data_to_send() == b""


def test_a_frame_s_octets_are_passed_on_as_they_come() -> None:
    """W5: its length is only a number; nothing is kept for it."""
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

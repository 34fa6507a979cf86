"""TLS and WebSocket as bytes in, bytes out (W1 W2 W5): the same for any cut of the bytes, and named errors for invalid input.

The tests are deterministic: a failure names its seed or its example.

"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp_plane.layers import Layer, Stack, stack
from penstock.broker_core.amqp_plane.layers.websocket import WebSocketLayer

from ..amqp.test_fuzz import SEED
from ..amqp.values import STEADY
from .talk import (
    Client,
    Cut,
    Inside,
    PlainClient,
    TlsClient,
    WebSocketClient,
    every_cut,
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


# --- valid input


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
    """Many records, many messages, and the handshake's last bytes before them, in one read of the socket."""
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


@every_layer
def test_nothing_is_said_before_the_handshake(make: Make) -> None:
    _, layer = make()
    with pytest.raises(RuntimeError):
        layer.send(b"AMQP")
    layer.close()
    assert layer.closed
    assert layer.data_to_send() == b""


# --- truncated input


@every_layer
def test_each_prefix_of_a_handshake_is_only_incomplete(make: Make) -> None:
    """W5: half-open TLS, half a request."""
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
        _, fresh = make()
        assert fresh.receive(says[0][:length]) == b""
        assert not fresh.ready
        assert not fresh.closed


# --- invalid input


@every_layer
@pytest.mark.parametrize("seed", range(30))
def test_garbage_is_an_error_or_waits_whole_or_octet_by_octet(make: Make, seed: int) -> None:
    """W5: no other exception, and octet by octet the same error. The layer bounds the kept octets, not the peer."""
    source = random.Random(SEED + seed)
    garbage = source.choice([b"", b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01"])
    garbage += source.randbytes(source.choice([3, 400, 20_000]))
    results: list[tuple[str, bytes]] = []
    for cut in (whole, octets):
        _, layer = make()
        came, error = feed(layer, cut(garbage))
        if error is not None:
            assert layer.data_to_send() or not isinstance(layer, WebSocketLayer)
            assert layer.receive(b"more" * 1000) == b""
        results.append((str(error), came))
    assert results[0] == results[1]
    if len(garbage) > 17_000:
        assert results[0][0] != "None"


@every_layer
@pytest.mark.parametrize("seed", range(40))
def test_a_talk_with_octets_changed_is_right_up_to_there(make: Make, seed: int) -> None:
    """The output is a prefix of the input, or an error is raised, or both; no output is wrong."""
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
        return  # without a checksum, only other exceptions are errors
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
            data += b"\x17\x03\x03\x00\x30" + bytes(48)  # a record without a seal
        else:
            data += b"\xff" * 60
        came, error = feed(layer, cut(data))
        assert error is not None
        assert came == b"good"

"""Keys of maps whose Python hashes a peer has made collide, and values beyond the limit of a message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.broker_core.amqp.decoder import MAX_HASHED, DecoderLimits
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError, FieldError
from penstock.broker_core.amqp.messages import Message, decode_message
from penstock.broker_core.amqp.types import Array, Described, Long, Pairs, Symbol, Timestamp, UInt, ULong

from .values import best, calls, chosen, decode_all, random

KEYS = 6000


def test_keys_that_collide_cost_no_more_than_others() -> None:
    """With their hashes they would cost seventy times as much."""
    usual, bad = random(KEYS), chosen(KEYS)
    assert best(lambda: decode_all(bad)) < 8 * best(lambda: decode_all(usual))


MAKERS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "string": (lambda n: f"k{n}", True),
    "symbol": (lambda n: Symbol(f"k{n}"), True),
    "binary": (lambda n: b"%d" % n, True),
    "uuid": (lambda n: UUID(int=n), False),
    "long": (Long, False),
    "uint": (UInt, False),
    "ulong": (ULong, False),
    "timestamp": (Timestamp, False),
    "double": (float, False),
    "described": (lambda n: Described(ULong(1), n), False),
    "mixed": (lambda n: ULong(n) if n else "a text", False),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_many_keys_are_hashed_only_where_their_hashes_are_secret(kind: str) -> None:
    make, secret = MAKERS[kind]
    few, many = ({make(n): n for n in range(count)} for count in (MAX_HASHED, MAX_HASHED + 1))
    assert decode_all(encode(few)) == few
    decoded = decode_all(encode(many))
    assert type(decoded) is (dict if secret else Pairs)
    assert dict(decoded) == many
    assert encode(decoded) == encode(many)


def test_of_many_keys_that_are_not_hashed_each_still_comes_once() -> None:
    twice = encode(Pairs([*((n, None) for n in range(100)), (7, None)]))
    with pytest.raises(DecodeError, match="twice"):
        decode_all(twice)


def test_annotations_have_as_many_ulongs_as_are_hashed_and_any_number_of_symbols() -> None:
    symbols = {Symbol(f"k{n}"): n for n in range(1000)}
    assert decode_message(Message(message_annotations=symbols).encode()).message_annotations == symbols
    few = {ULong(n): n for n in range(MAX_HASHED)}
    assert decode_message(Message(footer=few).encode()).footer == few
    with pytest.raises(FieldError, match="not texts"):
        decode_message(Message(footer={**few, ULong(MAX_HASHED): 0}).encode())


def test_the_sections_of_a_body_share_the_limit_of_values() -> None:
    def body(*counts: int) -> bytes:
        return Message(sequences=[[None] * count for count in counts]).encode()

    limits = DecoderLimits(items=30)
    assert decode_message(body(10, 10, 10), limits=limits).sequences == [[None] * 10] * 3
    with pytest.raises(DecodeError, match="too many values"):
        decode_message(body(10, 10, 11), limits=limits)


def test_the_sections_around_it_have_a_limit_of_their_own() -> None:
    def around(annotation_count: int, footer_count: int) -> bytes:
        arrays = [{Symbol("k"): Array("int", (0,) * count)} for count in (annotation_count, footer_count)]
        return Message(delivery_annotations=arrays[0], footer=arrays[1], sequences=[[None] * 20]).encode()

    limits = DecoderLimits(items=20)
    assert decode_message(around(8, 8), limits=limits).sequences == [[None] * 20]
    with pytest.raises(DecodeError, match="too many values"):
        decode_message(around(8, 9), limits=limits)


def keyed(levels: int, innermost: bytes, more: bytes = b"") -> bytes:
    """Maps, each a key of the next one. `more` are further entries."""
    octets = innermost
    for _ in range(levels):
        body = octets + b"\x40" + more
        count = 2 if not more else 6
        octets = b"\xd1" + struct.pack(">II", len(body) + 4, count) + body
    return octets


ALIKE_IN_PYTHON = b"\x54\1\x40" + b"\x52\1\x40"  # an int and a uint: the map becomes pairs, which can be hashed


@pytest.mark.parametrize("more", [b"", ALIKE_IN_PYTHON])
@pytest.mark.parametrize("innermost", [encode([True] * 2000), encode(Array("int", (1,) * 2000)), encode([b"x" * 2000])])
def test_keys_in_keys_are_simple(innermost: bytes, more: bytes) -> None:
    """Each level would hash and encode all lower levels again."""
    once = calls(lambda: decode_all(keyed(1, innermost, more)))

    def deep() -> None:
        with pytest.raises(DecodeError, match="a key that has"):
            decode_all(keyed(60, innermost, more))

    assert calls(deep) < 2 * once + 2000


KEYS_OF_KEYS: dict[str, Any] = {
    "a map": Pairs([(Pairs([({"a": 1}, 2)]), 3)]),
    "a list": Pairs([([Pairs([([1], 2)])], 3)]),
    "an array": Pairs([(Array("map", (Pairs([([1], 2)]),)), 3)]),
    "its descriptor": Pairs([(Described(Pairs([([1], 2)]), 1), 3)]),
    "a described value": Pairs([(Described(ULong(1), {Described(ULong(2), 1): 2}), 3)]),
    "a value in a map": Pairs([({"a": Pairs([([1], 2)])}, 3)]),
    "behind many": Pairs([*((UUID(int=n), n) for n in range(100)), ([Pairs([([1], 2)])], 3)]),
}


@pytest.mark.parametrize("case", KEYS_OF_KEYS)
def test_no_key_has_keys_that_are_not_simple(case: str) -> None:
    with pytest.raises(DecodeError, match="a key that has"):
        decode_all(encode(KEYS_OF_KEYS[case]))


@pytest.mark.parametrize(
    "value",
    [
        Pairs([([1], 2), ({"a": {"b": 1}}, 3), (Array("int", (1,)), 4), (Described(ULong(1), [1]), 5)]),
        {"a": Pairs([([1], Pairs([([1], 2)]))])},
    ],
)
def test_any_value_is_a_key_and_any_map_a_value(value: Any) -> None:
    assert encode(decode_all(encode(value))) == encode(value)

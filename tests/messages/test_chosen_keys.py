"""Arriving messages whose maps have keys with colliding hashes, or more values than any reader decodes."""

from __future__ import annotations

import struct

import pytest

from penstock.broker_core.amqp.decoder import MAX_HASHED, MAX_ITEMS
from penstock.broker_core.amqp.errors import DecodeError, FieldError
from penstock.broker_core.amqp.messages import (
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Message,
    decode_message,
)
from penstock.broker_core.amqp.types import Array, Symbol, ULong
from penstock.broker_core.messages.encoding.arriving import arrived

from .amqp_values import best, chosen, random

KEYS = 6000
BODY = Message(data=[b"x"]).encode()


def within(code: int, octets: bytes) -> bytes:
    """A message with this map in section `code`."""
    if code == SEQUENCE:
        octets = b"\xd0" + struct.pack(">II", len(octets) + 4, 1) + octets
    section = bytes((0x00, 0x53, code)) + octets
    if code in (SEQUENCE, VALUE):
        return section
    return BODY + section if code == FOOTER else section + BODY


@pytest.mark.parametrize("code", [DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER, VALUE, SEQUENCE])
def test_keys_that_collide_cost_no_more_than_others_in_any_section(code: int) -> None:
    usual, bad = within(code, random(KEYS)), within(code, chosen(KEYS))
    assert bool(arrived([bad]).refused) == bool(arrived([usual]).refused) == (code not in (VALUE, SEQUENCE))
    assert best(lambda: arrived([bad])) < 8 * best(lambda: arrived([usual]))


def test_annotations_with_many_ulongs_are_refused_and_with_many_symbols_taken() -> None:
    def message(count: int) -> bytes:
        return Message(message_annotations={ULong(n): n for n in range(count)}, data=[b"x"]).encode()

    symbols = Message(message_annotations={Symbol(f"k{n}"): n for n in range(1000)}, data=[b"x"]).encode()
    arrivals = arrived([message(MAX_HASHED), message(MAX_HASHED + 1), symbols])
    assert [number for number, _ in arrivals.refused] == [1]
    assert type(arrivals.refused[0][1]) is FieldError
    assert arrivals.rows == 2


def test_what_is_taken_is_within_the_limit_of_values_of_every_reader() -> None:
    """Values in one section, in several, in cached sections, and in sections whose shape is known."""

    def annotated(*counts: int) -> bytes:
        first, second, third = ({Symbol("k"): Array("int", (0,) * count)} for count in counts)
        message = Message(delivery_annotations=first, message_annotations=second, footer=third, data=[b"x"])
        return message.encode()

    def named(count: int) -> bytes:
        return Message(application_properties={f"{n:06}": None for n in range(count)}).encode()

    third = MAX_ITEMS // 3
    nulls = b"\xf0" + struct.pack(">II", 5, 40) + b"\x40"
    short = b"\x00\x53\x71\xc1" + bytes((7 + 20 * len(nulls), 2)) + b"\xa3\x01k" + b"\xc0" + bytes((1 + 20 * len(nulls), 20))
    short += 20 * nulls  # 800 elements without octets, which count as 51,200 values
    assert arrived([short + BODY]).refused == []
    messages = [
        short + Message(footer={Symbol("k"): Array("int", (0,) * (MAX_ITEMS - 50_000))}, data=[b"x"]).encode(),
        *(annotated(third, third, third + more) for more in (-3000, 3000)),
        *(annotated(third, third + more, 10) for more in (0, 2 * third)),
        *(named(MAX_ITEMS // 2 + more) for more in (-100, 1)),
    ]
    for payload in messages:
        refused = arrived([payload]).refused
        try:
            decode_message(payload)
        except DecodeError:
            assert [type(error) for _, error in refused] == [DecodeError]
        else:
            assert refused == []

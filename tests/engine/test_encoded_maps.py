"""Encoded maps that the engine merges without decoding them: the result is that of the plane, which decodes their keys."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock.broker_core.amqp.decoder import decode
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.types import Array, Described, Symbol, Timestamp, UInt, ULong
from penstock.broker_core.engine.columns.encoded_maps import merged

VALUES: list[Any] = [
    None, True, -1, 1 << 40, UInt(0), ULong(300), 0.5, "ü", "x" * 300, b"", b"\0" * 300, uuid.UUID(int=7), Timestamp(5),
    [], [1, "a", []], {"a": {"b": 1}}, Array("long", (1, 2)), Described(Symbol("d"), [1]), Described(ULong(9), Described(1, 2)),
]  # fmt: skip


def value(octets: bytes) -> Any:
    decoded, end = decode(octets)
    assert end == len(octets)
    return decoded


def test_values_of_all_kinds_are_merged() -> None:
    one = {Symbol(f"k{index}"): item for index, item in enumerate(VALUES)}
    other = {Symbol(f"k{index}"): item for index, item in enumerate(reversed(VALUES))} | {ULong(1): "new", ULong(400): 1}
    assert value(merged([encode(one)])) == one
    assert value(merged([encode(one), encode(other)])) == one | other
    assert value(merged([encode(other), encode({}), encode(one)])) == other | one
    assert value(merged([])) == {}


@pytest.mark.parametrize("count", [1, 127, 128, 200])
@pytest.mark.parametrize("length", [0, 249, 250, 251])
def test_sizes_at_the_bounds_of_short_maps(count: int, length: int) -> None:
    maps = [{Symbol(f"{index:x}"): "" for index in range(count - 1)}, {Symbol("z"): "x" * length}]
    octets = merged(map(encode, maps))
    assert value(octets) == maps[0] | maps[1]
    assert octets == encode(value(octets)), "as the encoder writes it"


@pytest.mark.parametrize("octets", [b"", b"note", b"\xc1", encode([1]), encode({"a": 1})[:-1], encode({"a": "text"})[:-1]])
def test_other_octets_are_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="an encoded map"):
        merged([encode({"a": 1}), octets])

"""Part 1: every type in every encoding, round trips of generated values, and the limits of a decoder."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp.decoder import MAX_DEPTH, WIDTHLESS, DecoderLimits, decode
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError, EncodeError
from penstock.broker_core.amqp.frames import FRAME_LIMITS
from penstock.broker_core.amqp.messages import skip
from penstock.broker_core.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

from .values import MAX_WIDTHLESS, STEADY, calls, decode_all, same, values

UUID_ = UUID("12345678-9abc-def0-1234-56789abcdef0")

# Value, its canonical encoding, its other encodings (section 1.6, in its order).
TABLE: list[tuple[Any, str, list[str]]] = [
    (None, "40", []),
    (True, "41", ["5601"]),
    (False, "42", ["5600"]),
    (UByte(255), "50ff", []),
    (UShort(65535), "60ffff", []),
    (UInt(0), "43", ["5200", "7000000000"]),
    (UInt(255), "52ff", ["70000000ff"]),
    (UInt(2**32 - 1), "70ffffffff", []),
    (ULong(0), "44", ["5300", "800000000000000000"]),
    (ULong(255), "53ff", ["8000000000000000ff"]),
    (ULong(2**64 - 1), "80ffffffffffffffff", []),
    (Byte(-128), "5180", []),
    (Short(-2), "61fffe", []),
    (Int(-128), "5480", ["71ffffff80"]),
    (Int(-(2**31)), "7180000000", []),
    (127, "557f", ["81000000000000007f"]),
    (-129, "81ffffffffffffff7f", []),
    (Float(1.5), "723fc00000", []),
    (1.5, "823ff8000000000000", []),
    (Decimal32(b"\x22\x50\x00\x01"), "7422500001", []),
    (Decimal64(b"\x22\x38\x00\x00\x00\x00\x00\x01"), "842238000000000001", []),
    (Decimal128(bytes(range(16))), "94" + bytes(range(16)).hex(), []),
    (Char("\U0001f600"), "730001f600", []),
    (Timestamp(-1), "83ffffffffffffffff", []),
    (Timestamp(1311704463521), f"83{1311704463521:016x}", []),
    (UUID_, "98" + UUID_.hex, []),
    (b"", "a000", ["b000000000"]),
    (b"\x00\xff", "a00200ff", ["b00000000200ff"]),
    ("gl\u00fcck", "a106676cc3bc636b", ["b100000006676cc3bc636b"]),
    (Symbol("amqp"), "a304616d7170", ["b300000004616d7170"]),
    ([], "45", ["c00100", "d00000000400000000"]),
    ([None, [True]], "c0060240c0020141", ["d0000000090000000240c0020141", "d00000000f0000000240d0000000050000000141"]),
    ({}, "c10100", ["d10000000400000000"]),
    ({Symbol("a"): 1}, "c10602a301615501", ["d10000000900000002a301615501"]),
    (Array("uint", (UInt(1), UInt(2))), "e00402520102", ["e00a02700000000100000002", "f00000000d00000002700000000100000002"]),
    (Array("symbol", (Symbol("a"),)), "e00401a30161", []),
    (Array("boolean", (True, False)), "e00402560100", []),
    (Array("null", (None, None)), "e0020240", []),
    (Array("list", ([], [None])), "e00702c00100020140", []),
    (Array("uint", (UInt(7),), (Symbol("d"),)), "e0070100a301645207", []),
    (Described(ULong(0x24), []), "00532445", ["0080000000000000002445", "005324c00100"]),
    (Described(Symbol("x"), Described(ULong(1), 2)), "00a301780053015502", []),
]


@pytest.mark.parametrize(("value", "canonical", "others"), TABLE, ids=[repr(row[0])[:40] for row in TABLE])
def test_every_encoding(value: Any, canonical: str, others: list[str]) -> None:
    assert encode(value).hex() == canonical
    for octets in map(bytes.fromhex, [canonical, *others]):
        decoded, end = decode(octets)
        assert end == len(octets)
        assert decoded == value
        assert type(decoded) is type(value)
        assert skip(octets, 0, len(octets)) == len(octets)


def test_the_table_names_every_format_code() -> None:
    from penstock.broker_core.amqp.decoder import KINDS

    seen = {bytes.fromhex(text)[0] for _, canonical, others in TABLE for text in [canonical, *others]}
    assert seen == {0x00, *KINDS}


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 300, 70000])
def test_widths_change_where_they_must(size: int) -> None:
    for value in (b"x" * size, "x" * size, Symbol("x" * size), [None] * size, Array("ubyte", (UByte(1),) * size)):
        octets = encode(value)
        assert same(decode_all(octets), value)
    assert encode(b"x" * size)[0] == (0xA0 if size < 256 else 0xB0)
    assert encode([None] * size)[0] == (0x45 if size == 0 else 0xC0 if size < 255 else 0xD0)


@given(values)
@settings(STEADY, max_examples=400)
def test_round_trip(value: Any) -> None:
    octets = encode(value)
    decoded = decode_all(octets)
    assert same(decoded, value)
    assert skip(octets, 0, len(octets)) == len(octets)


@given(values, st.data())
@settings(STEADY, max_examples=200)
def test_a_value_cut_short_is_an_error_with_its_offset(value: Any, data: st.DataObject) -> None:
    octets = encode(value)
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(DecodeError) as caught:
        decode(octets[:cut])
    assert 0 <= caught.value.offset <= cut
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "01",  # no such format code
        "5602",  # a boolean of 2
        "a102c328",  # not UTF-8
        "a301ff",  # not ASCII
        "730000d800",  # a surrogate
        "7300110000",  # beyond Unicode
        "c00040",  # a size smaller than its count
        "c0020240",  # more elements than octets
        "c003014040",  # octets after the last element
        "c1020140",  # a map with an odd number
        "c10904a1016140a1016140",  # a key twice
        "c107045201405201" + "40",  # a key twice that is a uint
        "e0020152",  # an array without its data
        "e00100",  # an array without a constructor
        "e0030152",  # cut short
        "f000000005ffffffff40",  # 4 G nulls
        "f000000006ffffffff5201",
        "d0ffffffffffffffff",
        "b0ffffffff",
        "00",
        "0053",
        "005324",
    ],
)
def test_what_is_no_value(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_all(bytes.fromhex(text))


def test_keys_that_python_confuses_stay_apart() -> None:
    pairs = Pairs([(UInt(1), "uint"), (Int(1), "int"), (True, "true"), ("a", 1), (Symbol("a"), 2), ([1], 3)])
    decoded = decode_all(encode(pairs))
    assert type(decoded) is Pairs
    assert [(type(k), v) for k, v in decoded] == [(type(k), v) for k, v in pairs]


@pytest.mark.parametrize("opening", [b"\xc0\xff\x01", b"\xd0\x00\x00\xff\x00\x00\x00\x00\x01", b"\x00", b"\xe0\xff\x01"])
def test_nesting_is_bounded(opening: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(opening * 5000)
    nested: Any = None
    for _ in range(MAX_DEPTH + 1):
        nested = [nested]
    with pytest.raises(DecodeError, match="deep"):
        decode(encode(nested))
    assert decode(encode(nested), limits=DecoderLimits(depth=MAX_DEPTH + 1))[1] == len(encode(nested))


def test_nothing_is_allocated_on_the_peers_word() -> None:
    bombs = ["f000000005000fffff40", "f00000000500ffffff41", "d00000ffff0000ffff", "f00000ffff00ffffff70"]
    array = bytes.fromhex("f0000000050003ffff40")
    inner = b"".join([array] * 20)
    many = b"\xd0" + (len(inner) + 4).to_bytes(4, "big") + (20).to_bytes(4, "big") + inner
    tracemalloc.start()
    for octets in [bytes.fromhex(text) for text in bombs] + [many]:
        with pytest.raises(DecodeError):
            decode(octets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def widthless(code: int, count: int) -> bytes:
    """An array of elements without octets."""
    return b"\xf0" + struct.pack(">IIB", 5, count, code)


WIDTHLESS_VALUES = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0), 0x45: []}


@pytest.mark.parametrize("code", WIDTHLESS_VALUES)
def test_elements_without_octets_are_made_at_once(code: int) -> None:
    few, many = widthless(code, 1), widthless(code, MAX_WIDTHLESS)
    array = decode_all(many)
    assert array.items == (WIDTHLESS_VALUES[code],) * MAX_WIDTHLESS
    assert {type(item) for item in array.items} == {type(WIDTHLESS_VALUES[code])}
    assert calls(lambda: decode_all(many)) < calls(lambda: decode_all(few)) + 100
    assert encode(decode_all(encode(array))) == encode(array)


def test_empty_lists_of_an_array_are_each_a_list_of_its_own() -> None:
    first, second = decode_all(widthless(0x45, 2)).items
    first.append(1)
    assert second == []


def test_elements_without_octets_are_bounded_in_all_arrays_together() -> None:
    arrays = [widthless(0x41, MAX_WIDTHLESS // 4)] * 5
    for count in (3, 5):
        inside = b"".join(arrays[:count])
        octets = b"\xd0" + struct.pack(">II", len(inside) + 4, count) + inside
        if count == 3:
            assert [len(array.items) for array in decode_all(octets)] == [MAX_WIDTHLESS // 4] * 3
        else:
            with pytest.raises(DecodeError, match="too many values"):
                decode_all(octets)
    inside = widthless(0x40, FRAME_LIMITS.items // WIDTHLESS + 1)
    assert decode(inside)[1] == len(inside)
    with pytest.raises(DecodeError, match="too many values"):
        decode(inside, limits=FRAME_LIMITS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: UByte(256),
        lambda: UInt(-1),
        lambda: Byte(128),
        lambda: Long(2**63),
        lambda: encode(2**63),
        lambda: Char("ab"),
        lambda: Char("\ud800"),
        lambda: Decimal32(b"123"),
        lambda: Float(1e300),
        lambda: encode(Symbol("ü")),
        lambda: encode("\ud800"),
        lambda: encode(object()),
        lambda: encode({1: {2}}),
        lambda: encode(Array("uint", (-1,))),
        lambda: encode(Array("nothing", ())),
        lambda: encode(Array("array", (1,))),
        lambda: encode(Array("null", (1,))),
    ],
)
def test_what_has_no_encoding(make: Any) -> None:
    with pytest.raises(EncodeError):
        make()


def test_a_value_inside_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(EncodeError, match="itself"):
        encode(value)


def test_what_else_python_offers() -> None:
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"a")) == encode(memoryview(b"a")) == encode(b"a")
    assert encode(Long(5)) == encode(5)

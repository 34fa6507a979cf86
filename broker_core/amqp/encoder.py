"""Encoding of values (part 1), always in the shortest form, so a value has one canonical encoding.

All elements of an array share the shortest constructor that fits them. The forms without data (uint0, ulong0, true, list0) are
not used for elements: readers refuse them, because they would have to trust the count of such an array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from . import types
from .errors import EncodeError
from .types import Array, Decimal32, Decimal64, Decimal128, Described, Pairs, Symbol, Value

_Writer = Callable[[bytearray, Any], None]
_Elements = Callable[[tuple[Any, ...]], tuple[int, bytes]]


def encode(value: Value) -> bytes:
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Value) -> None:
    try:
        _put(out, value)
    except RecursionError:
        raise EncodeError("nested too deep, or in itself") from None


def _put(out: bytearray, value: Value) -> None:
    writer = WRITERS.get(type(value))
    if writer is None:
        writer = next((WRITERS[base] for base in type(value).__mro__ if base in WRITERS), None)
        if writer is None:
            raise EncodeError(f"AMQP has no type for {type(value).__name__}")
    writer(out, value)


def _packer(code: int, layout: str, name: str) -> Callable[[bytearray, Any], None]:
    pack = struct.Struct(">B" + layout).pack

    def put(out: bytearray, value: Any) -> None:
        try:
            out += pack(code, value)
        except struct.error:
            raise EncodeError(f"{value!r} is out of the range of {name}") from None

    return put


def _small_or_full(small: int, full: int, layout: str, name: str, zero: int | None, low: int, high: int) -> _Writer:
    put_full = _packer(full, layout, name)

    def put(out: bytearray, value: Any) -> None:
        if value == 0 and zero is not None:
            out.append(zero)
        elif low <= value <= high:
            out.append(small)
            out.append(value & 0xFF)
        else:
            put_full(out, value)

    return put


put_ubyte = _packer(0x50, "B", "ubyte")
put_ushort = _packer(0x60, "H", "ushort")
put_uint = _small_or_full(0x52, 0x70, "I", "uint", 0x43, 0, 255)
put_ulong = _small_or_full(0x53, 0x80, "Q", "ulong", 0x44, 0, 255)
_put_byte = _packer(0x51, "b", "byte")
_put_short = _packer(0x61, "h", "short")
_put_int = _small_or_full(0x54, 0x71, "i", "int", None, -128, 127)
_put_long = _small_or_full(0x55, 0x81, "q", "long", None, -128, 127)
put_timestamp = _packer(0x83, "q", "timestamp")


def put_boolean(out: bytearray, value: bool) -> None:
    out.append(0x41 if value else 0x42)


def _put_variable(out: bytearray, small: int, full: int, data: bytes) -> None:
    size = len(data)
    if size < 256:
        out.append(small)
        out.append(size)
    elif size <= 0xFFFFFFFF:
        out.append(full)
        out += size.to_bytes(4, "big")
    else:
        raise EncodeError(f"{size} octets are too many for one value")
    out += data


def put_binary(out: bytearray, value: bytes) -> None:
    _put_variable(out, 0xA0, 0xB0, value)


def put_string(out: bytearray, value: str) -> None:
    _put_variable(out, 0xA1, 0xB1, _utf8(value))


def put_symbol(out: bytearray, value: str) -> None:
    _put_variable(out, 0xA3, 0xB3, _ascii(value))


def _utf8(value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodeError(f"{value!r} is not Unicode text: {error.reason}") from None


def _ascii(value: str) -> bytes:
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(f"{value!r} is not a symbol: symbols are ASCII") from None


def _body(values: Iterable[Value]) -> bytearray:
    body = bytearray()
    for value in values:
        _put(body, value)
    return body


def put_compound(out: bytearray, small: int, count: int, body: bytes | bytearray) -> None:
    if len(body) < 255 and count < 256:
        out.append(small)
        out.append(len(body) + 1)
        out.append(count)
    else:
        out.append(small + 0x10)
        out += struct.pack(">II", len(body) + 4, count)
    out += body


def _put_list(out: bytearray, value: Sequence[Value]) -> None:
    if value:
        put_compound(out, 0xC0, len(value), _body(value))
    else:
        out.append(0x45)


def _put_map(out: bytearray, value: dict[Any, Any] | Pairs) -> None:
    put_compound(out, 0xC1, 2 * len(value), _body(_flat(value)))


def _flat(mapping: dict[Any, Any] | Pairs) -> list[Value]:
    return [part for pair in (mapping.items() if isinstance(mapping, dict) else mapping) for part in pair]


def _put_described(out: bytearray, value: Described) -> None:
    out.append(0)
    _put(out, value.descriptor)
    _put(out, value.value)


def _put_char(out: bytearray, value: str) -> None:
    out.append(0x73)
    out += ord(value).to_bytes(4, "big")


def _opaque(code: int) -> _Writer:
    def put(out: bytearray, value: bytes) -> None:
        out.append(code)
        out += value

    return put


def _put_uuid(out: bytearray, value: UUID) -> None:
    out.append(0x98)
    out += value.bytes


def _put_array(out: bytearray, value: Array) -> None:
    body = bytearray()
    for descriptor in value.descriptors:
        body.append(0)
        _put(body, descriptor)
    maker = _ELEMENTS.get(value.kind)
    if maker is None:
        raise EncodeError(f"an array of {value.kind!r}: no such type")
    try:
        code, data = maker(value.items)
    except (struct.error, ValueError, TypeError, AttributeError) as error:
        raise EncodeError(f"an array of {value.kind} cannot hold all of its {len(value.items)} items: {error}") from None
    body.append(code)
    body += data
    put_compound(out, 0xE0, len(value.items), body)


def _numbers(
    full: int, layout: str, small: int | None = None, small_layout: str = "B", low: int = 0, high: int = 255
) -> _Elements:
    def make(items: tuple[Any, ...]) -> tuple[int, bytes]:
        if small is not None and items and all(low <= item <= high for item in items):
            return small, struct.pack(f">{len(items)}{small_layout}", *items)
        return full, struct.pack(f">{len(items)}{layout}", *items)

    return make


def _texts(small: int, full: int, to_bytes: Callable[[Any], bytes]) -> _Elements:
    def make(items: tuple[Any, ...]) -> tuple[int, bytes]:
        parts = [to_bytes(item) for item in items]
        if all(len(part) < 256 for part in parts):
            return small, b"".join(bytes((len(part),)) + part for part in parts)
        return full, b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    return make


def _compounds(small: int, flatten: Callable[[Any], Sequence[Value]]) -> _Elements:
    def make(items: tuple[Any, ...]) -> tuple[int, bytes]:
        parts = [(len(values), _body(values)) for values in map(flatten, items)]
        if all(len(body) < 255 and count < 256 for count, body in parts):
            return small, b"".join(bytes((len(body) + 1, count)) + body for count, body in parts)
        return small + 0x10, b"".join(struct.pack(">II", len(body) + 4, count) + body for count, body in parts)

    return make


def _arrays(items: tuple[Any, ...]) -> tuple[int, bytes]:
    parts = [encode(item) for item in items]
    if any(not isinstance(item, Array) for item in items):
        raise TypeError("an item is not an Array")
    if all(part[0] == 0xE0 for part in parts):
        return 0xE0, b"".join(part[1:] for part in parts)
    return 0xF0, b"".join(part[1:] if part[0] == 0xF0 else struct.pack(">II", part[1] + 3, part[2]) + part[3:] for part in parts)


def _nulls(items: tuple[Any, ...]) -> tuple[int, bytes]:
    if any(item is not None for item in items):
        raise TypeError("an item is not null")
    return 0x40, b""


_ELEMENTS: dict[str, _Elements] = {
    "null": _nulls,
    "boolean": lambda items: (0x56, bytes(1 if item else 0 for item in items)),
    "ubyte": _numbers(0x50, "B"),
    "ushort": _numbers(0x60, "H"),
    "uint": _numbers(0x70, "I", 0x52),
    "ulong": _numbers(0x80, "Q", 0x53),
    "byte": _numbers(0x51, "b"),
    "short": _numbers(0x61, "h"),
    "int": _numbers(0x71, "i", 0x54, "b", -128, 127),
    "long": _numbers(0x81, "q", 0x55, "b", -128, 127),
    "float": _numbers(0x72, "f"),
    "double": _numbers(0x82, "d"),
    "decimal32": lambda items: (0x74, b"".join(Decimal32(item) for item in items)),
    "decimal64": lambda items: (0x84, b"".join(Decimal64(item) for item in items)),
    "decimal128": lambda items: (0x94, b"".join(Decimal128(item) for item in items)),
    "char": lambda items: (0x73, b"".join(ord(item).to_bytes(4, "big") for item in items)),
    "timestamp": _numbers(0x83, "q"),
    "uuid": lambda items: (0x98, b"".join(item.bytes for item in items)),
    "binary": _texts(0xA0, 0xB0, bytes),
    "string": _texts(0xA1, 0xB1, _utf8),
    "symbol": _texts(0xA3, 0xB3, _ascii),
    "list": _compounds(0xC0, list),
    "map": _compounds(0xC1, _flat),
    "array": _arrays,
}

# By exact type, then by the bases in order: an IntEnum is a long, a subclass of str a string.
WRITERS: dict[type, _Writer] = {
    type(None): lambda out, value: out.append(0x40),
    bool: put_boolean,
    types.UByte: put_ubyte,
    types.UShort: put_ushort,
    types.UInt: put_uint,
    types.ULong: put_ulong,
    types.Byte: _put_byte,
    types.Short: _put_short,
    types.Int: _put_int,
    types.Long: _put_long,
    int: _put_long,
    types.Float: _packer(0x72, "f", "float"),
    float: _packer(0x82, "d", "double"),
    Decimal32: _opaque(0x74),
    Decimal64: _opaque(0x84),
    Decimal128: _opaque(0x94),
    types.Char: _put_char,
    types.Timestamp: put_timestamp,
    UUID: _put_uuid,
    bytes: put_binary,
    bytearray: put_binary,
    memoryview: put_binary,
    str: put_string,
    Symbol: put_symbol,
    list: _put_list,
    Pairs: _put_map,
    tuple: _put_list,
    dict: _put_map,
    Array: _put_array,
    Described: _put_described,
}

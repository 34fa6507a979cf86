"""Decoding of values (part 1).

The decoder allocates nothing that the octets do not prove. A size must fit in the remaining octets, and a count in the size: an
element has at least its constructor, or in an array its width. Nesting, and the number of values of one call, are limited.

Two attacks need more. An array of a type without width (null, true, uint0, …) could announce 4 G elements in 12 octets, so such
an element counts as `WIDTHLESS` values. A map with thousands of keys with chosen hashes would take seconds, and so would maps as
keys of maps. So the keys of a large map are not hashed, and in a key, keys are simple values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from . import types
from .encoder import encode
from .errors import DecodeError
from .types import Array, Char, Decimal32, Decimal64, Decimal128, Described, Pairs, Symbol, Value

MAX_DEPTH = 64  # levels; clients send a handful, and Python limits a recursion to 1,000 frames
MAX_ITEMS = 1 << 18  # with nested ones. Each costs the sender two octets, the reader an object
WIDTHLESS = 64  # values that an array's element without octets counts as
MAX_HASHED = 64  # keys of a map that become a dict's, unless all are texts or binaries
# Types whose hashes are secret. Of the other types a peer can choose keys that collide.
_SALTED = frozenset({str, Symbol, Char, bytes, Decimal32, Decimal64, Decimal128})
_COMPOUND = frozenset({list, dict, Pairs, Array, Described})


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Limits of one call of `decode`."""

    depth: int = MAX_DEPTH
    items: int = MAX_ITEMS


LIMITS = DecoderLimits()

Budget = list[int]  # one element: how many more values may be made
_Reader = Callable[[bytes, int, int, int, Budget], tuple[Value, int]]  # buffer, position, end, levels left, budget


def decode(
    buffer: bytes, position: int = 0, end: int | None = None, limits: DecoderLimits = LIMITS, budget: Budget | None = None
) -> tuple[Value, int]:
    """Return the value at `position`, and its end, which is at most `end`. Raises DecodeError with the offset in the buffer."""
    if type(buffer) is not bytes:
        buffer = bytes(buffer)  # slices of other types would not be `bytes`
    if end is None or end > len(buffer):
        end = len(buffer)
    return _value(buffer, position, end, limits.depth, [limits.items] if budget is None else budget)


def _value(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
    if position >= end:
        raise DecodeError("a value is missing", position)
    code = buffer[position]
    reader = _READERS.get(code)
    if reader is None:
        raise DecodeError(f"format code 0x{code:02x} does not exist", position)
    return reader(buffer, position + 1, end, depth, budget)


def _described(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
    if depth <= 0:
        raise DecodeError("nested too deep", position)
    descriptor, position = _value(buffer, position, end, depth - 1, budget)
    value, position = _value(buffer, position, end, depth - 1, budget)
    return Described(descriptor, value), position


def _constant(value: Value) -> _Reader:
    return lambda buffer, position, end, depth, budget: (value, position)


def _fixed(layout: str, make: Callable[[Any], Value] | None = None) -> _Reader:
    compiled = struct.Struct(layout)
    unpack, width = compiled.unpack_from, compiled.size

    def read(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
        after = position + width
        if after > end:
            raise DecodeError("cut short", position)
        value = unpack(buffer, position)[0]
        return (value if make is None else make(value)), after

    return read


def _boolean(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
    if position >= end:
        raise DecodeError("cut short", position)
    if buffer[position] > 1:
        raise DecodeError(f"a boolean of 0x{buffer[position]:02x}", position)
    return buffer[position] == 1, position + 1


def _char(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
    if position + 4 > end:
        raise DecodeError("cut short", position)
    point = int.from_bytes(buffer[position : position + 4], "big")
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"0x{point:x} is not a Unicode character", position)
    return str.__new__(Char, chr(point)), position + 4


def _variable(width: int, make: Callable[[bytes], Value] | None, kind: str) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
        start = position + width
        if start > end:
            raise DecodeError(f"a {kind} cut short", position)
        after = start + int.from_bytes(buffer[position:start], "big")
        if after > end:
            raise DecodeError(f"a {kind} of {after - start} octets where {end - start} are left", position)
        data = buffer[start:after]
        if make is None:
            return data, after
        try:
            return make(data), after
        except UnicodeDecodeError as error:
            raise DecodeError(f"a {kind} that is not {error.encoding}", start + error.start) from None

    return read


def _header(buffer: bytes, position: int, end: int, width: int, kind: str) -> tuple[int, int, int]:
    """Return count, start and end of the elements."""
    start = position + 2 * width
    if start > end:
        raise DecodeError(f"a {kind} cut short", position)
    size = int.from_bytes(buffer[position : position + width], "big")
    count = int.from_bytes(buffer[position + width : start], "big")
    after = position + width + size
    if after > end or size < width:
        raise DecodeError(f"a {kind} of {size} octets where {end - position - width} are left", position)
    return count, start, after


def _elements(
    buffer: bytes, position: int, width: int, end: int, depth: int, budget: Budget, kind: str
) -> tuple[list[Value], int]:
    count, cursor, after = _header(buffer, position, end, width, kind)
    if count > after - cursor:
        raise DecodeError(f"a {kind} of {count} elements in {after - cursor} octets", position)
    if depth <= 0:
        raise DecodeError("nested too deep", position)
    budget[0] -= count
    if budget[0] < 0:
        raise DecodeError("too many values", position)
    values = []
    readers = _READERS
    for _ in range(count):
        if cursor >= after:
            raise DecodeError(f"a {kind} has fewer elements than its count", cursor)
        reader = readers.get(buffer[cursor])
        if reader is None:
            raise DecodeError(f"format code 0x{buffer[cursor]:02x} does not exist", cursor)
        value, cursor = reader(buffer, cursor + 1, after, depth - 1, budget)
        values.append(value)
    if cursor != after:
        raise DecodeError(f"{after - cursor} octets after the last element of a {kind}", cursor)
    return values, after


def _list(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
        return _elements(buffer, position, width, end, depth, budget, "list")

    return read


def _map(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
        before = budget[0]
        flat, after = _elements(buffer, position, width, end, depth, budget, "map")
        if len(flat) % 2:
            raise DecodeError(f"a map of {len(flat)} elements", position)
        if budget[0] < before - len(flat) and any(map(_has_compound_key, flat[0::2])):  # usually no key is nested
            raise DecodeError("a key that has a list, map, array or described value as a key in it", position)
        return _to_map(flat, position), after

    return read


def _to_map(flat: list[Value], position: int) -> Value:
    keys = flat[0::2]
    if len(keys) <= MAX_HASHED or _SALTED.issuperset(map(type, keys)):
        try:
            mapping = dict(zip(keys, flat[1::2], strict=True))
            if len(mapping) == len(keys):
                return mapping
        except TypeError:
            pass  # a key that cannot be hashed
    # Keys that are equal in Python may differ in AMQP, which compares types and values, as their encodings do.
    if len({encode(key) for key in keys}) != len(keys):
        raise DecodeError("a map with the same key twice", position)
    return Pairs(zip(keys, flat[1::2], strict=True))


def _has_compound_key(value: Value) -> bool:
    """Return True if a map in this value has a compound key. As a key, such a value would be hashed and encoded again for each
    level of keys in keys.
    """
    kind = type(value)
    if kind is dict or kind is Pairs:
        pairs = value.items() if kind is dict else value
        return any(type(key) in _COMPOUND or _has_compound_key(item) for key, item in pairs)
    if kind is list:
        return any(map(_has_compound_key, value))
    if kind is Array:
        return any(map(_has_compound_key, value.items)) or any(map(_has_compound_key, value.descriptors))
    return kind is Described and (_has_compound_key(value.descriptor) or _has_compound_key(value.value))


def _array(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, budget: Budget) -> tuple[Value, int]:
        count, cursor, after = _header(buffer, position, end, width, "array")
        if depth <= 0:
            raise DecodeError("nested too deep", position)
        descriptors: list[Value] = []
        while cursor < after and buffer[cursor] == 0:
            if len(descriptors) >= depth:
                raise DecodeError("nested too deep", cursor)
            descriptor, cursor = _value(buffer, cursor + 1, after, depth - 1, budget)
            descriptors.append(descriptor)
        if cursor >= after:
            raise DecodeError("an array without an element type", cursor)
        code = buffer[cursor]
        reader = _READERS.get(code)
        if reader is None:
            raise DecodeError(f"format code 0x{code:02x} does not exist", cursor)
        cursor += 1
        if count * _SMALLEST[code >> 4] > after - cursor:
            raise DecodeError(f"an array of {count} elements in {after - cursor} octets", position)
        widthless = code >> 4 == 4
        budget[0] -= count * WIDTHLESS if widthless else count
        if budget[0] < 0:
            raise DecodeError("too many values", position)
        items: list[Value] = []
        if widthless:
            items = [[] for _ in range(count)] if code == 0x45 else [reader(buffer, cursor, after, depth, budget)[0]] * count
        else:
            for _ in range(count):
                item, cursor = reader(buffer, cursor, after, depth - 1, budget)
                items.append(item)
        if cursor != after:
            raise DecodeError(f"{after - cursor} octets after the last element of an array", cursor)
        return Array(KINDS[code], tuple(items), tuple(descriptors)), after

    return read


def _of(cls: type) -> Callable[[Any], Value]:
    """Return a maker without the range check of `cls`: the width has checked it."""
    base = next(b for b in (int, float, bytes, str) if issubclass(cls, b))
    new: Any = base.__new__
    return lambda value: new(cls, value)


def _symbol(data: bytes) -> Symbol:
    return str.__new__(Symbol, data.decode("ascii"))


# Octets of the smallest element of an array, by the upper half of its format code.
_SMALLEST = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16, 0xA: 1, 0xB: 4, 0xC: 2, 0xD: 8, 0xE: 3, 0xF: 9}

# Section 1.6: format code, name of the type, reader of its data.
_TABLE: list[tuple[int, str, _Reader]] = [
    (0x40, "null", _constant(None)),
    (0x41, "boolean", _constant(True)),
    (0x42, "boolean", _constant(False)),
    (0x56, "boolean", _boolean),
    (0x50, "ubyte", _fixed(">B", _of(types.UByte))),
    (0x60, "ushort", _fixed(">H", _of(types.UShort))),
    (0x70, "uint", _fixed(">I", _of(types.UInt))),
    (0x52, "uint", _fixed(">B", _of(types.UInt))),
    (0x43, "uint", _constant(types.UInt(0))),
    (0x80, "ulong", _fixed(">Q", _of(types.ULong))),
    (0x53, "ulong", _fixed(">B", _of(types.ULong))),
    (0x44, "ulong", _constant(types.ULong(0))),
    (0x51, "byte", _fixed(">b", _of(types.Byte))),
    (0x61, "short", _fixed(">h", _of(types.Short))),
    (0x71, "int", _fixed(">i", _of(types.Int))),
    (0x54, "int", _fixed(">b", _of(types.Int))),
    (0x81, "long", _fixed(">q")),
    (0x55, "long", _fixed(">b")),
    (0x72, "float", _fixed(">f", _of(types.Float))),
    (0x82, "double", _fixed(">d")),
    (0x74, "decimal32", _fixed("4s", _of(Decimal32))),
    (0x84, "decimal64", _fixed("8s", _of(Decimal64))),
    (0x94, "decimal128", _fixed("16s", _of(Decimal128))),
    (0x73, "char", _char),
    (0x83, "timestamp", _fixed(">q", _of(types.Timestamp))),
    (0x98, "uuid", _fixed("16s", lambda data: UUID(bytes=data))),
    (0xA0, "binary", _variable(1, None, "binary")),
    (0xB0, "binary", _variable(4, None, "binary")),
    (0xA1, "string", _variable(1, bytes.decode, "string")),
    (0xB1, "string", _variable(4, bytes.decode, "string")),
    (0xA3, "symbol", _variable(1, _symbol, "symbol")),
    (0xB3, "symbol", _variable(4, _symbol, "symbol")),
    (0x45, "list", lambda buffer, position, end, depth, budget: ([], position)),
    (0xC0, "list", _list(1)),
    (0xD0, "list", _list(4)),
    (0xC1, "map", _map(1)),
    (0xD1, "map", _map(4)),
    (0xE0, "array", _array(1)),
    (0xF0, "array", _array(4)),
]
_READERS: dict[int, _Reader] = {0x00: _described, **{code: reader for code, _, reader in _TABLE}}
KINDS: dict[int, str] = {code: kind for code, kind, _ in _TABLE}

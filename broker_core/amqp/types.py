"""The values of AMQP (part 1) in Python. Every type has exactly one Python type, so a value survives a round trip.

    null, boolean               None, bool
    ubyte ushort uint ulong     UByte UShort UInt ULong
    byte short int long         Byte Short Int, int (plain) or Long
    float double                Float, float (plain)
    decimal32/64/128            Decimal32/64/128 (opaque bytes)
    char string symbol          Char, str, Symbol
    binary uuid timestamp       bytes, uuid.UUID, Timestamp (ms since 1970, UTC)
    list map array described    list, dict (or Pairs if a dict cannot hold it), Array, Described

Only the encoder needs the types of numbers and texts, subclasses of int and str. `UInt(1) == Int(1) == True` in Python and not in
AMQP, so a map with such keys decodes to `Pairs`, without losing an entry. Decimals are carried and compared by their bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .errors import EncodeError


class _Named:
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class _Integer(_Named, int):
    """An integer of a fixed width. Raises EncodeError for a value out of range."""

    __slots__ = ()
    low: ClassVar[int]
    high: ClassVar[int]

    def __new__(cls, value: int) -> _Integer:
        self = int.__new__(cls, value)
        if not cls.low <= self <= cls.high:
            raise EncodeError(f"{value} is out of the range of {cls.__name__}")
        return self

    __str__ = int.__repr__


class UByte(_Integer):
    """An unsigned 8-bit integer."""

    __slots__ = ()
    low, high = 0, 0xFF


class UShort(_Integer):
    """An unsigned 16-bit integer."""

    __slots__ = ()
    low, high = 0, 0xFFFF


class UInt(_Integer):
    """An unsigned 32-bit integer."""

    __slots__ = ()
    low, high = 0, 0xFFFFFFFF


class ULong(_Integer):
    """An unsigned 64-bit integer."""

    __slots__ = ()
    low, high = 0, 0xFFFFFFFFFFFFFFFF


class Byte(_Integer):
    """A signed 8-bit integer."""

    __slots__ = ()
    low, high = -0x80, 0x7F


class Short(_Integer):
    """A signed 16-bit integer."""

    __slots__ = ()
    low, high = -0x8000, 0x7FFF


class Int(_Integer):
    """A signed 32-bit integer."""

    __slots__ = ()
    low, high = -0x80000000, 0x7FFFFFFF


class Long(_Integer):
    """A signed 64-bit integer. Decoding returns a plain `int`, which has the same encoding."""

    __slots__ = ()
    low, high = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF


class Timestamp(_Integer):
    """Milliseconds since the Unix epoch, UTC, signed."""

    __slots__ = ()
    low, high = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF


class Float(_Named, float):
    """An IEEE 754 binary32 number, rounded when it is made."""

    __slots__ = ()

    def __new__(cls, value: float) -> Float:
        try:
            return float.__new__(cls, struct.unpack(">f", struct.pack(">f", value))[0])
        except (OverflowError, struct.error) as error:
            raise EncodeError(f"{value} is out of the range of Float") from error


class Symbol(_Named, str):
    """ASCII text."""

    __slots__ = ()


class Char(_Named, str):
    """One Unicode scalar value."""

    __slots__ = ()

    def __new__(cls, value: str) -> Char:
        if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
            raise EncodeError(f"{value!r} is not one Unicode character")
        return str.__new__(cls, value)


class _Opaque(_Named, bytes):
    __slots__ = ()
    width: ClassVar[int]

    def __new__(cls, value: bytes) -> _Opaque:
        if len(value) != cls.width:
            raise EncodeError(f"{cls.__name__} is {cls.width} octets, not {len(value)}")
        return bytes.__new__(cls, value)


class Decimal32(_Opaque):
    """IEEE 754-2008 decimal32, BID, as its 4 octets."""

    __slots__ = ()
    width = 4


class Decimal64(_Opaque):
    """IEEE 754-2008 decimal64, BID, as its 8 octets."""

    __slots__ = ()
    width = 8


class Decimal128(_Opaque):
    """IEEE 754-2008 decimal128, BID, as its 16 octets."""

    __slots__ = ()
    width = 16


class Pairs(_Named, tuple[tuple[Any, Any], ...]):
    """A map that a dict cannot hold, as pairs in wire order. Its keys are equal or unhashable in Python, or a peer can choose the
    hashes of more than `decoder.MAX_HASHED` of them.
    """

    __slots__ = ()

    def __new__(cls, pairs: Iterable[tuple[Any, Any]] = ()) -> Pairs:
        return tuple.__new__(cls, tuple(pairs))


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor (1.1.2, 1.3)."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """An array (1.6.24). `kind` is the AMQP name of its type. Every element has all `descriptors`, outermost first."""

    kind: str
    items: tuple[Any, ...] = ()
    descriptors: tuple[Any, ...] = field(default=())


Value = Any  # a recursive alias would not help: every field accepts `Any`

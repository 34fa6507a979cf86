"""Quick check that a bare message is valid, without decoding it.

Properties and application properties are compared with *shapes* of sections that were walked before. The bytes of types and
sizes, and the keys, are the same; texts are ASCII at the same places; the bytes of numbers and binaries may be any. The
comparison is one operation on two large integers. The decoder decides about unknown forms.
"""

from __future__ import annotations

from ...amqp.decoder import MAX_ITEMS
from .decoding import FIELD_CODES
from .fields import ALL_FIELDS
from .octets import Mask
from .rendering import BINARY, STRING, SYMBOL, allowing
from .walk import WIDTH

MOST_VALUES = MAX_ITEMS - len(ALL_FIELDS)  # of one section: both sections stay within the decoder's limit
KEPT_SHAPES = 1024  # of all lengths
OF_ONE_LENGTH = 4
KEPT_OCTETS = 1024  # a longer section is walked each time

#: By a section's length: a mask of the compared bits, and their expected value.
shapes: dict[int, list[tuple[int, int]]] = {}
_count = 0  # of all shapes

# A value's extent, by its constructor: a positive number of bytes, or one of these.
_MISS, _TEXT, _LONG_TEXT, _SYMBOL, _LONG_SYMBOL, _BINARY, _LONG_BINARY = range(0, -7, -1)
_SIZED = {0xA1: _TEXT, 0xB1: _LONG_TEXT, 0xA3: _SYMBOL, 0xB3: _LONG_SYMBOL, 0xA0: _BINARY, 0xB0: _LONG_BINARY}


def _table(allowed: Mask) -> tuple[int, ...]:
    return tuple(_SIZED.get(c, 1 + int(WIDTH[c])) if allowed[c] else _MISS for c in range(256))


_FIELDS = tuple(_table(FIELD_CODES[field.wire]) for field in ALL_FIELDS.values())
# Every simple value except a boolean of two bytes and a character, whose bytes may not be any.
_CODES = (0x41, 0x42, 0x43, 0x44, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x60, 0x61, 0x70, 0x71, 0x72, 0x74)
_SIMPLE = _table(allowing(*STRING, *SYMBOL, *BINARY, *_CODES, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98))


def valid(message: bytes) -> bool:
    """Return True if a measured bare message is valid inside; False if that is unknown."""
    position = 0
    try:
        if message[:3] == b"\x00\x53\x73":
            position = _section(message, 0)
        if message[position : position + 3] == b"\x00\x53\x74":
            position = _section(message, position)
        body = message[position : position + 4]
        if body[:3] == b"\x00\x53\x75":  # data may contain any bytes
            return True
        if body in (b"\x00\x53\x77\xa1", b"\x00\x53\x77\xb1"):
            message[position + (5 if body[3] == 0xA1 else 8) :].decode()
            return True
        return body in (b"", b"\x00\x53\x77\x40", b"\x00\x53\x77\xa0", b"\x00\x53\x77\xb0")
    except (KeyError, IndexError, UnicodeDecodeError):
        return False


def _section(message: bytes, position: int) -> int:
    code = message[position + 3]
    if code in (0xC0, 0xC1):
        end = position + 5 + message[position + 4]
    elif code in (0xD0, 0xD1):
        end = position + 8 + int.from_bytes(message[position + 4 : position + 8], "big")
    elif code == 0x45:
        return position + 4
    else:
        raise KeyError
    octets = message[position:end]
    if len(octets) > KEPT_OCTETS:
        _walk(octets)
        return end
    number = int.from_bytes(octets, "big")
    for mask, wanted in shapes.get(len(octets), ()):
        if number & mask == wanted:
            return end
    _learn(octets, _walk(octets))
    return end


def _walk(octets: bytes) -> list[tuple[int, int]]:
    """Return where the values of a section, without keys, begin and end. Raises KeyError, IndexError or UnicodeDecodeError for an
    unknown form.
    """
    is_short = octets[3] in (0xC0, 0xC1)
    count, position = (octets[5], 6) if is_short else (int.from_bytes(octets[8:12], "big"), 12)
    if count > MOST_VALUES:
        raise KeyError
    values = []
    if octets[2] == 0x73:
        if count > len(_FIELDS):
            raise KeyError
        for kinds in _FIELDS[:count]:
            values.append((position, _value(octets, position, kinds)))
            position = values[-1][1]
    else:
        if count % 2:
            raise KeyError
        keys = set()
        for _ in range(count // 2):
            if octets[position] != 0xA1:
                raise KeyError
            after = position + 2 + octets[position + 1]
            keys.add(octets[position + 2 : after].decode())
            position = _value(octets, after, _SIMPLE)
            values.append((after, position))
        if len(keys) != count // 2:
            raise KeyError
    if position != len(octets):
        raise KeyError
    return values


def _value(octets: bytes, position: int, kinds: tuple[int, ...]) -> int:
    how = kinds[octets[position]]
    if how > 0:
        return position + how
    if how == _TEXT:
        after = position + 2 + octets[position + 1]
        octets[position + 2 : after].decode()
        return after
    if how == _MISS:
        raise KeyError
    if how in (_SYMBOL, _BINARY):
        start = position + 2
        after = start + octets[position + 1]
    else:
        start = position + 5
        after = start + int.from_bytes(octets[position + 1 : start], "big")
    if how == _LONG_TEXT:
        octets[start:after].decode()
    elif how in (_SYMBOL, _LONG_SYMBOL) and not octets[start:after].isascii():
        raise KeyError
    return after


def _learn(octets: bytes, values: list[tuple[int, int]]) -> None:
    """Cache the shape of a section, unless a text is not ASCII."""
    global _count
    mask = bytearray(b"\xff" * len(octets))
    for position, after in values:
        how = _SIMPLE[octets[position]]
        start = position + (1 if how > 0 else 2 if how in (_TEXT, _SYMBOL, _BINARY) else 5)
        text = how in (_TEXT, _LONG_TEXT, _SYMBOL, _LONG_SYMBOL)
        if text and not octets[start:after].isascii():
            return
        mask[start:after] = (b"\x80" if text else b"\x00") * (after - start)
    if _count >= KEPT_SHAPES:
        shapes.clear()
        _count = 0
    known = shapes.setdefault(len(octets), [])
    if len(known) >= OF_ONE_LENGTH:
        _count -= len(known)
        known.clear()
    compared = int.from_bytes(mask, "big")
    known.append((compared, int.from_bytes(octets, "big") & compared))
    _count += 1

"""Encoded AMQP maps, which are merged without decoding their values.

Keys are compared by their octets, so all maps come from one encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_WIDTHS = {0xC1: 1, 0xD1: 4}  # of size and count, by the map's constructor
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}  # octets of a value, by the upper half of its constructor
_SHORT = (0xA, 0xC, 0xE)  # whose size has one octet


def merged(maps: Iterable[bytes]) -> bytes:
    """Return one map. Of equal keys the last entry wins. Raises ValueError if an argument is not a map."""
    entries: dict[bytes, bytes] = {}
    for octets in maps:
        entries.update(_entries(octets))
    body, count = b"".join(entries.values()), 2 * len(entries)
    width = 1 if len(body) < 255 and count < 256 else 4
    constructor = next(code for code, size in _WIDTHS.items() if size == width)
    return b"".join((bytes((constructor,)), (len(body) + width).to_bytes(width, "big"), count.to_bytes(width, "big"), body))


def _entries(octets: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key, and its entry: the key with its value."""
    try:
        start = 1 + 2 * _WIDTHS[octets[0]]
        while start < len(octets):
            middle = _end(octets, start)
            end = _end(octets, middle)
            yield octets[start:middle], octets[start:end]
            start = end
    except (IndexError, KeyError) as error:
        raise ValueError("not an encoded map") from error
    if start != len(octets):
        raise ValueError("an encoded map that is cut short")


def _end(octets: bytes, position: int) -> int:
    """Return the end of the value at `position`."""
    while octets[position] == 0:  # a descriptor, before the value
        position = _end(octets, position + 1)
    kind = octets[position] >> 4
    if kind in _FIXED:
        return position + 1 + _FIXED[kind]
    start = position + (2 if kind in _SHORT else 5)
    return start + int.from_bytes(octets[position + 1 : start], "big")

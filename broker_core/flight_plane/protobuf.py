"""Flight's protobuf messages: fields of bytes, one after another."""

from __future__ import annotations

from .. import errors
from .transports import Octets

MOST_FIELDS = 64  # of one message; Flight's have at most four, and a descriptor's path may repeat
FLIGHT_DESCRIPTOR, DATA_HEADER, APP_METADATA, DATA_BODY = 1, 2, 3, 1000  # of FlightData
DESCRIPTOR_COMMAND = 2
ACTION_TYPE, ACTION_BODY = 1, 2
TICKET = RESULT_BODY = PUT_RESULT = 1


def parse(source: str, data: Octets) -> dict[int, memoryview]:
    """Return the fields of bytes, by number; of repeated ones the last. Numeric fields are skipped. Raises InvalidRequest."""
    view = memoryview(data)
    fields: dict[int, memoryview] = {}
    at = 0
    try:
        for _ in range(MOST_FIELDS):
            if at == len(view):
                return fields
            tag, at = _parse_varint(view, at)
            if tag & 7 == 2:
                length, at = _parse_varint(view, at)
                if at + length > len(view):
                    break
                fields[tag >> 3] = view[at : at + length]
                at += length
            elif tag & 7 == 0:
                _, at = _parse_varint(view, at)
            else:
                break
    except IndexError:
        pass
    if at == len(view):
        return fields
    raise errors.InvalidRequest(f"{source}: this is not a message of Arrow Flight")


def _parse_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        octet = view[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
    raise IndexError


def field(number: int, length: int) -> bytes:
    """Encode the tag and length of a field of bytes."""
    return varint(number << 3 | 2) + varint(length)


def octets(number: int, data: bytes) -> bytes:
    return field(number, len(data)) + data


def varint(value: int) -> bytes:
    """In bytes of 7 bits, the low ones first."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)

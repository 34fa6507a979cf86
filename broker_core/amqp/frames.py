"""Protocol headers and frames (2.2, 2.3, 5.3.1). A body with invalid fields is `Invalid`, since its error may concern only a link
or session.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .composites import Composite, Invalid, decode_body, decode_composite
from .decoder import DecoderLimits
from .errors import DecodeError, EncodeError, FramingError

MIN_MAX_FRAME_SIZE = 512  # octets that every peer must accept (2.8.19)
HEADER_SIZE = 8  # octets, also of a protocol header
AMQP_FRAME, SASL_FRAME = 0x00, 0x01
AMQP_ID, SASL_ID = 0, 3

_HEADER = struct.Struct(">IBBH")

# Less deep than messages. Link properties of clients are the deepest.
FRAME_LIMITS = DecoderLimits(depth=16, items=1 << 16)


class Frame(NamedTuple):
    """A frame. A heartbeat has no `performative`."""

    channel: int
    performative: Composite | Invalid | None
    payload: bytes


def protocol_header(protocol_id: int) -> bytes:
    return b"AMQP" + bytes((protocol_id, 1, 0, 0))


def parse_protocol_header(octets: bytes) -> int | None:
    if len(octets) == HEADER_SIZE and octets[:4] == b"AMQP" and octets[5:] == b"\x01\x00\x00":
        return octets[4]
    return None


def frame_size(buffer: bytes, position: int, max_frame_size: int) -> int:
    size = int.from_bytes(buffer[position : position + 4], "big")
    if size < HEADER_SIZE:
        raise FramingError(f"a frame of {size} octets, less than its header")
    if size > max_frame_size:
        raise FramingError(f"a frame of {size} octets where {max_frame_size} are allowed")
    return size


def parse_frame(buffer: bytes, position: int, size: int, frame_type: int = AMQP_FRAME) -> Frame:
    """Raises FramingError for the header, DecodeError (with the offset in the frame) for the body, FieldError in a SASL frame."""
    try:
        return _parse(buffer, position, size, frame_type)
    except DecodeError as error:
        raise DecodeError(error.reason, error.offset - position) from None


def _parse(buffer: bytes, position: int, size: int, frame_type: int) -> Frame:
    _, offset, kind, channel = _HEADER.unpack_from(buffer, position)
    if offset < 2 or 4 * offset > size:
        raise FramingError(f"a data offset of {offset} in a frame of {size} octets")
    if kind != frame_type:
        raise FramingError(f"a frame of type {kind} where only type {frame_type} is allowed")
    start, end = position + 4 * offset, position + size
    if frame_type == AMQP_FRAME:
        if start == end:
            return Frame(channel, None, b"")
        body, after = decode_body(buffer, start, end, FRAME_LIMITS)
        return Frame(channel, body, buffer[after:end])
    if start == end:
        raise DecodeError("an empty SASL frame", start)
    performative, after = decode_composite(buffer, start, end, "sasl-frame", FRAME_LIMITS)
    if after != end:
        raise DecodeError("a SASL frame holds exactly one value", after)
    return Frame(0, performative, b"")


def encode_frame(channel: int, body: bytes, payload: bytes = b"", frame_type: int = AMQP_FRAME) -> bytes:
    size = HEADER_SIZE + len(body) + len(payload)
    if size > 0xFFFFFFFF:
        raise EncodeError(f"{size} octets are too many for a frame")
    return _HEADER.pack(size, 2, frame_type, channel) + body + payload


# --- octets of frames that are not complete yet

MAX_PARTS = 64  # kept apart: a frame that comes in two octets at a time would take 28 times its size


class Reassembly:
    """Octets that were not handled. They are copied again only when a frame may be complete."""

    __slots__ = ("_need", "_parts", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[bytes | bytearray] = []
        self._need = 0  # octets to wait for

    def add(self, data: bytes) -> bytes | None:
        """Return all octets to handle, or None if no frame is complete."""
        self._parts.append(data)
        self._need -= len(data)
        if self._need > 0:
            if len(self._parts) > MAX_PARTS:
                self._parts = [_joined(self._parts)]
            return None
        octets = self._rest + b"".join(self._parts) if self._rest else b"".join(self._parts)
        self._parts.clear()
        return octets

    def keep(self, octets: bytes, *, framed: bool) -> None:
        """Octets that are `framed` begin with the size of a frame."""
        self._rest, self._need = octets, 1
        if framed and len(octets) >= 4:
            self._need = max(1, int.from_bytes(octets[:4], "big") - len(octets))

    def clear(self) -> None:
        self._parts.clear()
        self._rest = b""


def _joined(parts: list[bytes | bytearray]) -> bytearray:
    """The result of an earlier join grows, so each octet is copied only a few times."""
    first, *others = parts
    whole = first if type(first) is bytearray else bytearray(first)
    for part in others:
        whole += part
    return whole

"""HTTP/2 frames (RFC 9113). The library `hpack` decodes incoming header blocks; outgoing ones use no tables."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum

from .protobuf import varint

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
FIRST_WINDOW = 65_535  # bytes of DATA before the first WINDOW_UPDATE of a connection
LARGEST_WINDOW = 2**31 - 1
LEAST_FRAME = 16_384  # that every peer must accept


class FrameKind(IntEnum):
    """Frame types that the broker sends or reads (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


class Setting(IntEnum):
    """Settings that the broker sends or reads (RFC 9113, 6.5.2)."""

    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes that the broker sends (RFC 9113, 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2Error(Exception):
    """A protocol error of the peer, which ends its connection."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


_HEADER = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")


def header(length: int, kind: FrameKind, flags: int, stream: int) -> bytes:
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def parse_header(data: memoryview) -> tuple[int, int, int, int]:
    """Return length, kind, flags, stream."""
    high, low, kind, flags, stream = _HEADER.unpack(data)
    return high << 8 | low, kind, flags, stream & 0x7FFFFFFF


def settings(values: Mapping[Setting, int]) -> bytes:
    payload = b"".join(_SETTING.pack(name, value) for name, value in values.items())
    return header(len(payload), FrameKind.SETTINGS, 0, 0) + payload


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % _SETTING.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, "a SETTINGS frame of no whole settings")
    return list(_SETTING.iter_unpack(payload))


def number(kind: FrameKind, stream: int, value: int) -> bytes:
    return header(4, kind, 0, stream) + value.to_bytes(4, "big")


def header_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode literals outside of tables (RFC 7541, 6.2.2): the calls of a connection share no state."""
    block = bytearray()
    for header in headers:
        block += b"\x00"
        for text in header:
            block += _length(len(text)) + text
    return bytes(block)


def _length(number: int) -> bytes:
    """In 7 bits, and the rest in bytes of 7 bits (5.1)."""
    if number < 0x7F:
        return bytes([number])
    return b"\x7f" + varint(number - 0x7F)


def goaway(last_stream: int, code: Code, reason: str) -> bytes:
    payload = last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + reason.encode(errors="replace")[:500]
    return header(len(payload), FrameKind.GOAWAY, 0, 0) + payload

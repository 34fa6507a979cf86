"""The end of a call as trailers: gRPC's status, and the fields of pyarrow's C++ server, from which Flight clients build the same
errors."""

from __future__ import annotations

import base64
import urllib.parse

from .. import errors
from . import frames

MAX_ERROR_BYTES = 1000  # of an error's text: it is sent three times, and gRPC takes 8 KiB of headers
_UNIMPLEMENTED = 12
_IO_ERROR = b"5"  # Arrow's status of Flight errors
_FAULTS = {"caller": (2, b"Failed"), "peer": (14, b"Unavailable"), "storage": (13, b"Internal")}
_REFUSED = {errors.Unauthenticated: (16, b"Unauthenticated"), errors.NotAllowed: (7, b"Unauthorized")}
OK = frames.header_block([(b"grpc-status", b"0")])


def of(error: errors.PenstockError) -> bytes:
    text = str(error).encode(errors="backslashreplace")
    if len(text) > MAX_ERROR_BYTES:
        error = type(error)(text[:MAX_ERROR_BYTES].decode(errors="ignore") + " …")
    code, detail = _REFUSED.get(type(error)) or _FAULTS[error.fault]
    message = str(error).encode(errors="backslashreplace")
    return _status(
        code,
        message.decode(),
        (b"grpc-status-details-bin", error.to_json()),
        (b"x-arrow-status", _IO_ERROR),
        (b"x-arrow-status-detail-bin", detail),
        (b"x-arrow-status-message-bin", message),
    )


def _status(code: int, text: str, *more: tuple[bytes, bytes]) -> bytes:
    headers = [(b"grpc-status", b"%d" % code), (b"grpc-message", urllib.parse.quote(text, safe=_SPOKEN).encode())]
    for name, value in more:
        headers.append((name, base64.b64encode(value).rstrip(b"=") if name.endswith(b"-bin") else value))
    return frames.header_block(headers)


_SPOKEN = "".join(chr(code) for code in range(0x20, 0x7F) if code != 0x25)  # other characters are percent-encoded


def unknown(text: str) -> bytes:
    return _status(_UNIMPLEMENTED, text)

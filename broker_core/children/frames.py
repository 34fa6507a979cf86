"""Frames between a broker and its child process.

    frame = u32 length of the header | header: a JSON object, `sizes` are the lengths of the attachments | attachments

Little-endian. Both ends have the same version.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

_LENGTH = struct.Struct("<I")


class ChildFrame(NamedTuple):
    """A request or an answer."""

    header: dict[str, Any]
    attachments: list[bytes]


def send(file: IO[bytes], header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
    """Raises OSError if the other process has ended."""
    text = json.dumps({**header, "sizes": [len(attachment) for attachment in attachments]}).encode()
    file.write(_LENGTH.pack(len(text)) + text)
    for attachment in attachments:
        file.write(attachment)
    file.flush()


def receive(file: IO[bytes]) -> ChildFrame | None:
    """Read a frame; None if the other process has ended."""
    try:
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
        header = json.loads(_exactly(file, length))
        attachments = [_exactly(file, size) for size in header.pop("sizes")]
    except EOFError:
        return None
    return ChildFrame(header, attachments)


def _exactly(file: IO[bytes], length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return data

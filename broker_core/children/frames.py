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
    start = _exactly(file, _LENGTH.size)
    if start is None:
        return None
    text = _exactly(file, _LENGTH.unpack(start)[0])
    if text is None:
        return None
    header = json.loads(text)
    attachments = []
    for size in header.pop("sizes"):
        attachment = _exactly(file, size)
        if attachment is None:
            return None
        attachments.append(attachment)
    return ChildFrame(header, attachments)


def _exactly(file: IO[bytes], length: int) -> bytes | None:
    data = file.read(length)
    return data if len(data) == length else None

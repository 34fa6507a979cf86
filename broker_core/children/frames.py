"""Frames between a broker and a process of its own: a JSON object with octets beside it.

    frame = u32 length of the header | header: JSON, its `sizes` are the lengths of what follows | octets, one after another

Little-endian. Both ends are of one version.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

_LENGTH = struct.Struct("<I")


class Frame(NamedTuple):
    """One request or answer."""

    header: dict[str, Any]
    attachments: list[bytes]


def send(file: IO[bytes], header: dict[str, Any], attachments: Sequence[bytes] = ()) -> None:
    """Write a frame, and flush. OSError where the other end is gone."""
    text = json.dumps({**header, "sizes": [len(each) for each in attachments]}).encode()
    file.write(_LENGTH.pack(len(text)) + text)
    for each in attachments:
        file.write(each)
    file.flush()


def receive(file: IO[bytes]) -> Frame | None:
    """Read a frame; None where the other end is gone."""
    start = _exactly(file, _LENGTH.size)
    if start is None:
        return None
    text = _exactly(file, _LENGTH.unpack(start)[0])
    if text is None:
        return None
    header = json.loads(text)
    attachments = []
    for size in header.pop("sizes"):
        found = _exactly(file, size)
        if found is None:
            return None
        attachments.append(found)
    return Frame(header, attachments)


def _exactly(file: IO[bytes], length: int) -> bytes | None:
    data = file.read(length)
    return data if len(data) == length else None

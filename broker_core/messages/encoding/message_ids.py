"""Typed message ids as digests of sixteen octets, for duplicate detection: the ulong 1 and the string "1" are two ids.

One message at a time: only queues that detect duplicates ask for it, and they keep an object an id anyway.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from ...amqp.decoder import decode
from ...amqp.errors import DecodeError
from ...amqp.messages import MAX_SECTIONS_READ, PROPERTIES, scan

ID_BYTES = 16
_NO_ID = b""
_LIST_WIDTH = {0xC0: 1, 0xD0: 4}  # octets of a list's size, and again of its count


def digests(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bytes_]] | None:
    """Of each message of a stored batch, dtype S16; zeros where a message has no id or cannot be read. None: none has one."""
    names = batch.schema.names
    if "message" in names:
        ids = [_digest(message_id(octets)) for octets in batch.column("message").to_pylist()]
    elif "messageId" in names:
        ids = [_digest(text) for text in batch.column("messageId").to_pylist()]
    else:
        return None
    return np.array(ids, f"S{ID_BYTES}") if any(ids) else None


def message_id(message: bytes | None) -> Any:
    """Read the message id of a bare message: a string, ulong, uuid or binary; None where nothing can be read."""
    try:
        for section in scan(message or b"", most=MAX_SECTIONS_READ):
            if section.code == PROPERTIES:
                return _first(message or b"", section.value, section.end)
    except DecodeError:
        pass
    return None


def _first(octets: bytes, position: int, end: int) -> Any:
    """The first element of the list at `position`."""
    width = _LIST_WIDTH.get(octets[position])
    if width is None:  # the empty one
        return None
    count = int.from_bytes(octets[position + 1 + width : position + 1 + 2 * width], "big")
    value, _ = decode(octets, position + 1 + 2 * width, end) if count else (None, 0)
    return value


def _digest(value: Any) -> bytes:
    if value is None:
        return _NO_ID
    octets = value if isinstance(value, bytes) else str(value).encode()
    # A zero octet at the end would be lost in numpy's strings, and two ids become one.
    return blake2b(octets, digest_size=ID_BYTES - 1, person=_kind(value)).digest() + b"\1"


def _kind(value: Any) -> bytes:
    return b"text" if isinstance(value, str) else b"binary" if isinstance(value, bytes) else type(value).__name__.encode()[:16]

"""Fields of the properties (3.2.4): their columns, and single fields read from one encoded message."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.decoder import decode
from ...amqp.errors import DecodeError, RemoteProtocolError
from ...amqp.messages import MAX_SECTIONS_READ, PROPERTIES, scan, skip
from ..columns import COLUMNS


class PropertyField(NamedTuple):
    """A field of AMQP's list."""

    place: int  # from 0
    attribute: str  # in `broker_core.amqp.Properties`
    wire: str  # type


#: In AMQP's order.
_ORDER = (
    *("messageId", "userId", "to", "subject", "replyTo", "correlationId", "contentType", "contentEncoding"),
    *("absoluteExpiryTime", "creationTime", "groupId", "groupSequence", "replyToGroupId"),
)


def _wire(name: str) -> str:
    return (COLUMNS[name].wire or "") if name in COLUMNS else "string"


def _attribute(column: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in column)


ALL_FIELDS = {name: PropertyField(place, _attribute(name), _wire(name)) for place, name in enumerate(_ORDER)}
FIELDS = {name: field for name, field in ALL_FIELDS.items() if name in COLUMNS}

_MESSAGE_ID, _USER_ID, _TO = (ALL_FIELDS[name].place for name in ("messageId", "userId", "to"))
_LIST_WIDTH = {0x45: 0, 0xC0: 1, 0xD0: 4}  # bytes of a list's size, and of its count
_NULL, _BINARY = 0x40, 0xA0


def address_of(message: bytes) -> str | None:
    """Read `to` of an encoded message. Raises DecodeError for malformed sections or properties; fields before it are not
    checked.
    """
    for section in scan(message):
        if section.code == PROPERTIES:
            address = _field(message, section.value, section.end, _TO)
            if address is not None and type(address) is not str:
                raise DecodeError("properties: to is not a string", section.value)
            return address
    return None


def user_id_of(message: bytes) -> bytes | None:
    """Read `user-id` of an encoded message; None also if it is malformed, which is noticed when it is stored.

    An empty one names no user: the Java SDK of Azure Service Bus always writes it. Called for every message that a user sends, so
    it steps over sections by their sizes.
    """
    try:
        position = _properties(message)
        if position < 0:
            return None
        user_id = _field(message, position, len(message), _USER_ID)
        return user_id if isinstance(user_id, bytes) and user_id else None
    except (IndexError, RemoteProtocolError):
        return None


def message_id(message: bytes | None) -> Any:
    try:
        for section in scan(message or b"", most=MAX_SECTIONS_READ):
            if section.code == PROPERTIES:
                return _field(message or b"", section.value, section.end, _MESSAGE_ID)
    except DecodeError:
        pass
    return None


def _field(message: bytes, position: int, end: int, place: int) -> Any:
    width = _LIST_WIDTH[message[position]]
    first = position + 1 + 2 * width
    if first > end:
        raise DecodeError("a list cut short", position)
    count = message[position + 2] if width == 1 else int.from_bytes(message[position + 1 + width : first], "big")
    if count <= place:
        return None
    position = first
    for _ in range(place):
        position = position + 1 if message[position] == _NULL else skip(message, position, end)
    if message[position] == _BINARY:  # the usual user id, without the decoder
        return message[position + 2 : position + 2 + message[position + 1]]
    value, _ = decode(message, position, end)
    return value


def _properties(message: bytes) -> int:
    position = 0
    while message[position : position + 2] == b"\x00\x53":
        code, constructor = message[position + 2], message[position + 3]
        if code == PROPERTIES:
            return position + 3 if constructor in _LIST_WIDTH else -1
        if code > PROPERTIES:
            return -1
        if constructor & 0xF0 == 0xC0:
            position += 5 + message[position + 4]
        elif constructor & 0xF0 == 0xD0:
            position += 8 + int.from_bytes(message[position + 4 : position + 8], "big")
        else:
            position += 4  # an empty list
    return next((section.value for section in scan(message) if section.code == PROPERTIES), -1) if position < len(message) else -1


ID_BYTES = 16


def id_digests(batch: pa.RecordBatch) -> npt.NDArray[np.bytes_] | None:
    """Return a digest of each message's id (S16), zeros without an id; None if no message has one.

    The ulong 1 and the string "1" are two ids. This loops over messages, but duplicate detection keeps an object per id anyway.
    """
    if "message" in batch.schema.names:
        ids = [_digest(message_id(message)) for message in batch.column("message").to_pylist()]
    elif "messageId" in batch.schema.names:
        ids = [_digest(text) for text in batch.column("messageId").to_pylist()]
    else:
        return None
    return np.array(ids, f"S{ID_BYTES}") if any(ids) else None


def _digest(value: Any) -> bytes:
    if value is None:
        return b""
    octets = value if isinstance(value, bytes) else str(value).encode()
    kind = b"text" if isinstance(value, str) else b"binary" if isinstance(value, bytes) else type(value).__name__.encode()[:16]
    # numpy's strings lose a zero byte at the end, which could make two ids equal.
    return blake2b(octets, digest_size=ID_BYTES - 1, person=kind).digest() + b"\1"

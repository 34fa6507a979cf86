"""User of an encoded message: the `user-id` of its properties (3.2.4).

It is looked for in every message that a user sends, so only as far as it stands: the sections before the properties are stepped
over by their sizes. What is not in the usual form is read the plain way.
"""

from __future__ import annotations

from ...amqp.decoder import decode
from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import PROPERTIES, scan, skip

_SECTION = b"\x00\x53"
_LIST8, _LIST32, _EMPTY = 0xC0, 0xD0, 0x45
_NULL, _VBIN8 = 0x40, 0xA0


def user_id_of(payload: bytes) -> bytes | None:
    """None where it says nothing, or is no message: that is found when it is stored."""
    try:
        position = _properties(payload)
        if position < 0:
            return None
        code = payload[position]
        if code == _EMPTY:
            return None
        begin = position + (3 if code == _LIST8 else 9)
        count = payload[position + 2] if code == _LIST8 else int.from_bytes(payload[position + 5 : position + 9], "big")
        if count < 2:
            return None
        field = begin + 1 if payload[begin] == _NULL else skip(payload, begin, len(payload))
        if payload[field] == _NULL:
            return None
        if payload[field] == _VBIN8:
            return payload[field + 2 : field + 2 + payload[field + 1]]
        found, _ = decode(payload, field, len(payload))
        return found if isinstance(found, bytes) else None
    except (IndexError, RemoteProtocolError):
        return None


def _properties(payload: bytes) -> int:
    """Find where the list of properties begins; -1 if there are none."""
    position = 0
    while payload[position : position + 2] == _SECTION:
        code, kind = payload[position + 2], payload[position + 3]
        if code == PROPERTIES:
            return position + 3 if kind in (_LIST8, _LIST32, _EMPTY) else -1
        if code > PROPERTIES:
            return -1
        if kind & 0xF0 == 0xC0:
            position += 5 + payload[position + 4]
        elif kind & 0xF0 == 0xD0:
            position += 8 + int.from_bytes(payload[position + 4 : position + 8], "big")
        else:
            position += 4  # an empty list
    return next((section.value for section in scan(payload) if section.code == PROPERTIES), -1) if position < len(payload) else -1

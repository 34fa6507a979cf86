"""Bare messages that somebody else has encoded: are their sections what a bare message has?

Sections are measured, many messages in lock step; what is inside of them is its reader's. What the vectors do not follow has the
plain scan, which alone refuses: so what comes in over Flight and what comes in over AMQP (`arriving`) follow the same rule.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from broker_core.amqp.errors import DecodeError
from broker_core.amqp.messages import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    scan,
)
from broker_core.encoding.octets import Mask, offsets_of
from broker_core.encoding.walk import Walk
from broker_core.errors import InvalidRequest

CHUNK_ROWS = 1 << 15  # walked together: what lies about them stays near the processor

_LIST, _MAP, _BINARY = (0x45, 0xC0, 0xD0), (0xC1, 0xD1), (0xA0, 0xB0)
_BODIES: tuple[tuple[int, tuple[int, ...]], ...] = ((DATA, _BINARY), (SEQUENCE, _LIST), (VALUE, ()))


def check(messages: pa.Array) -> None:
    """Raise InvalidRequest for the first of a binary column (without nulls) that is no bare AMQP message, naming its row.

    An empty one, which has no section at all, is one.
    """
    for first in range(0, len(messages), CHUNK_ROWS):
        part = messages.slice(first, CHUNK_ROWS)
        for row in np.flatnonzero(_odd(part)).tolist():
            why = _refused(part[row].as_py())
            if why:
                raise InvalidRequest(f"column 'message' in row {first + row}: {why}")


def _odd(messages: pa.Array) -> Mask:
    """Which messages are not followed: more than one section of a body, strange descriptors, damage."""
    bounds, data = offsets_of(messages).astype(np.int64), messages.buffers()[2]
    if bounds[0] == bounds[-1]:
        return np.zeros(len(messages), np.bool_)
    walk = Walk(np.frombuffer(data, np.uint8), bounds[:-1], bounds[1:])
    for code, constructors in ((PROPERTIES, _LIST), (APPLICATION_PROPERTIES, _MAP)):
        if (rows := walk.rows_of(code)) is not None:
            walk.skip(rows, *constructors)
    # Found before the first is followed: a second section of a body is none of these.
    for rows, kinds in [(walk.rows_of(code), kinds) for code, kinds in _BODIES]:
        if rows is not None:
            walk.skip(rows, *kinds)
    walk.finish()
    return walk.odd


def _refused(message: bytes) -> str | None:
    try:
        sections = scan(message)
    except DecodeError as error:
        return f"not a bare AMQP message: {error.description}"
    for section in sections:
        if not PROPERTIES <= section.code <= VALUE:
            return _WAYS_OUT[section.code]
    return None


_WHOLE = "is no part of a bare message: leave it out, or let an AMQP client send the whole message"
_WAYS_OUT = {
    HEADER: "a header is no part of a bare message: leave it out, and send what it says in the columns durable, priority and ttl",
    DELIVERY_ANNOTATIONS: f"a section of delivery annotations {_WHOLE}",
    MESSAGE_ANNOTATIONS: f"a section of message annotations {_WHOLE}; their texts can go beside it, in the column annotations",
    FOOTER: f"a footer {_WHOLE}",
}

"""Checks that bare messages are valid inside (3.2.4 to 3.2.8), before they are stored. A data section may contain any bytes.

`shapes` accepts nearly every message of AMQP clients, `unsure` many messages together. Both accept less than the decoder, which
alone refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...amqp.errors import DecodeError, RemoteProtocolError
from ...amqp.messages import APPLICATION_PROPERTIES, DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, scan
from ...errors import InvalidRequest
from . import reference, shapes
from .decoding import CHUNK_ROWS, FIELD_CODES
from .fields import ALL_FIELDS
from .maps import check_entries
from .octets import Mask
from .rendering import STRING, simple, unfit
from .walk import SEQUENCE, VALUE, Cells, Walk, walk_of

_DATA_FIRST = b"\x00\x53\x75"  # only data sections follow
_SECTIONS = {PROPERTIES, APPLICATION_PROPERTIES}
_VALUE = simple()


def check(message: bytes) -> None:
    """Raise RemoteProtocolError (DecodeError, FieldError, NotBare) unless a bare message can be decoded."""
    reference.decoded(message, _SECTIONS, body=True)


def invalid(messages: Sequence[bytes]) -> dict[int, RemoteProtocolError]:
    errors = {}
    for row, message in enumerate(messages):
        if message[:3] == _DATA_FIRST or shapes.valid(message):
            continue
        try:
            check(message)
        except RemoteProtocolError as error:
            errors[row] = error
    return errors


def check_column(messages: pa.Array) -> None:
    """Raise InvalidRequest for the first invalid message. An empty message, without sections, is valid."""
    for row in np.flatnonzero(unsure(messages)).tolist():
        reason = _refusal(messages[row].as_py())
        if reason:
            raise InvalidRequest(f"column 'message' in row {row}: {reason}")


def _refusal(message: bytes) -> str | None:
    try:
        sections = scan(message)
    except DecodeError as error:
        return f"not a bare AMQP message: {error.description}"
    for section in sections:
        if not PROPERTIES <= section.code <= VALUE:
            return _NOT_BARE[section.code]
    try:
        check(message)
    except RemoteProtocolError as error:
        return f"not a valid AMQP message: {error.description}"
    return None


_NO_PART = "does not belong in a bare message: leave it out, or let an AMQP client send the whole message"
_NOT_BARE = {  # by the section's code
    HEADER: "a header does not belong in a bare message: leave it out, and use the columns durable, priority and ttl",
    DELIVERY_ANNOTATIONS: f"a section of delivery annotations {_NO_PART}",
    MESSAGE_ANNOTATIONS: f"a section of message annotations {_NO_PART}. Their texts can be sent in the column annotations",
    FOOTER: f"a footer {_NO_PART}",
}


def unsure(messages: pa.Array) -> Mask:
    parts = [_unsure(messages.slice(first, CHUNK_ROWS)) for first in range(0, len(messages), CHUNK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def _unsure(messages: pa.Array) -> Mask:
    walk, buffer = walk_of(messages)
    fields, maps = walk.fields(PROPERTIES), walk.maps(APPLICATION_PROPERTIES)
    value = _amqp_value(walk)
    walk.finish()
    if maps.rows is not None:
        check_entries(walk, buffer, maps, STRING)
    for field in ALL_FIELDS.values():
        if fields and (cells := fields[field.place]) is not None:
            walk.odd[unfit(buffer, walk.cleared(cells), FIELD_CODES[field.wire])] = True
    if value is not None:
        walk.odd[unfit(buffer, walk.cleared(value), _VALUE)] = True
    return walk.odd


def _amqp_value(walk: Walk) -> Cells | None:
    """Follow the body; return the amqp-values. Sequences are not followed: such messages are odd."""
    values = None
    for code, rows in walk.body():
        cells = walk.value(code, rows)
        if code == SEQUENCE:
            walk.odd[rows] = True
        elif code == VALUE:
            values = Cells.none(walk.first)
            values.put(rows, cells)
    return values

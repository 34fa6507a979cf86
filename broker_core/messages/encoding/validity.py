"""Are bare messages valid inside (3.2.4 to 3.2.8)? What every reader has to decode is decoded once, before it is stored.

The fields of the properties have their types, application properties map strings to simple values, texts are UTF-8 and symbols
ASCII, no map has a key twice, nothing is nested deeper than `MAX_DEPTH`, and no section has more than `MAX_ITEMS` values.

`shapes` finds nearly every message valid that an AMQP client sends, `unsure` many at once that come in a column. Both accept less
than the decoder does; what they leave is decoded, and the decoder alone refuses. A section of data holds octets of which nothing
is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import APPLICATION_PROPERTIES, DATA, PROPERTIES
from . import plain, shapes
from .decode import MESSAGE_ID, UINT, walk_of
from .fields import ALL_FIELDS
from .maps import check_entries
from .octets import Mask
from .render import BINARY, STRING, SYMBOL, allowing, simple, unfit
from .walk import LISTS, SEQUENCE, VALUE, Cells, Pairs, Rows, Walk

CHUNK_ROWS = 1 << 15  # messages of one walk: what lies about them stays near the processor

_DATA_FIRST = bytes((0x00, 0x53, DATA))  # then only data follows
_SECTIONS = {PROPERTIES, APPLICATION_PROPERTIES}
_FIELD = {
    "message-id": MESSAGE_ID,
    "binary": allowing(*BINARY),
    "string": allowing(*STRING),
    "symbol": allowing(*SYMBOL),
    "timestamp": allowing(0x83),
    "uint": allowing(*UINT),
}
_VALUE = simple()


def check(message: bytes) -> None:
    """Raise RemoteProtocolError (DecodeError, FieldError, NotBare) for a bare message that no reader can decode."""
    plain.decoded(message, _SECTIONS, body=True)


def invalid(messages: Sequence[bytes]) -> dict[int, RemoteProtocolError]:
    """By index, what is wrong with those bare messages that are invalid. Their sections were measured."""
    found = {}
    for row, message in enumerate(messages):
        if message[:3] == _DATA_FIRST or shapes.valid(message):
            continue
        try:
            check(message)
        except RemoteProtocolError as error:
            found[row] = error
    return found


def unsure(messages: pa.Array) -> Mask:
    """Mark those of a binary column (without nulls) that the vectors do not find valid: `check` looks at these."""
    parts = [_unsure(messages.slice(first, CHUNK_ROWS)) for first in range(0, len(messages), CHUNK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def _unsure(messages: pa.Array) -> Mask:
    walk, buffer = walk_of(messages)
    fields: list[Cells | None] = []
    counts, pairs = np.empty(0, np.int64), list[Pairs]()
    if (rows := walk.rows_of(PROPERTIES)) is not None:
        fields = walk.fields(rows)
    if (with_map := walk.rows_of(APPLICATION_PROPERTIES)) is not None:
        counts, pairs = walk.entries(with_map)
    value = _body(walk)
    walk.finish()
    if with_map is not None:
        check_entries(walk, buffer, with_map, counts, pairs, STRING)
    for field in ALL_FIELDS.values():
        if fields and (cells := fields[field.place]) is not None:
            _check(walk, buffer, cells, _FIELD[field.wire])
    if value is not None:
        _check(walk, buffer, value, _VALUE)
    return walk.odd


def _check(walk: Walk, buffer: pa.Buffer, cells: Cells, allowed: Mask) -> None:
    if walk.odd.any():
        cells.clear(walk.odd, walk.first)
    walk.odd[unfit(buffer, cells, allowed)] = True


def _body(walk: Walk) -> Cells | None:
    """Past the body, of one section; the value of an amqp-value. What has several sections is left to `check`."""
    found = None
    kinds: list[tuple[int, tuple[int, ...]]] = [(DATA, BINARY), (SEQUENCE, LISTS), (VALUE, ())]
    for (code, constructors), rows in [(kind, walk.rows_of(kind[0])) for kind in kinds]:
        if rows is None:
            continue
        if code == VALUE:
            found = _value(walk, rows)
            continue
        if code == SEQUENCE:
            walk.odd[rows] = True  # its elements are not followed
        walk.skip(rows, *constructors)
    return found


def _value(walk: Walk, rows: Rows) -> Cells:
    found = Cells.none(walk.first)
    constructor, start, end = walk.element(rows, walk.cursor[rows])
    found.put(rows, constructor, start, end)
    walk.advance(rows, end)
    return found

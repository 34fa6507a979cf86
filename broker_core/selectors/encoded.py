"""Operands of a selector from encoded messages, with the exact types of AMQP, without a Python object for a message.

All sections are measured, but only the needed values are read: damage in a property that the selector does not name goes
unnoticed. A row that the vector operations cannot follow (see `encoding.walk`) is *odd*, and left to `single`, the library's
decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..amqp.messages import APPLICATION_PROPERTIES, PROPERTIES
from ..messages.encoding.fields import FIELDS
from ..messages.encoding.octets import Mask
from ..messages.encoding.rendering import BINARY, STRING, SYMBOL, allowing, texts, users
from ..messages.encoding.walk import NULL, Cells, MapEntries, Walk, walk_of
from .columnar import HEADER, header
from .names import TYPES
from .operands import Operand, of_texts
from .syntax import Identifier
from .truth import YES
from .typed import numbers_of, operand_of, without_odd

Found = dict[Identifier, Operand]


def encoded(payload: pa.RecordBatch, names: Sequence[Identifier]) -> tuple[Found, Mask]:
    """Return the operand of each identifier in every row, and the mask of odd rows, where the operands mean nothing."""
    beside = {name: header(payload, name.field) for name in names if name.field in HEADER}
    inside = [name for name in names if name not in beside]
    walk, buffer = walk_of(payload.column("message"))
    fields: list[Cells | None] = []
    entries: list[MapEntries] = []
    if (rows := walk.rows_of(PROPERTIES)) is not None:
        if any(name.field is not None for name in inside):
            fields = walk.fields(rows)
        else:
            walk.value(PROPERTIES, rows)
    if (rows := walk.rows_of(APPLICATION_PROPERTIES)) is not None:
        if any(name.field is None for name in inside):
            _, entries = walk.entries(rows)
        else:
            walk.value(APPLICATION_PROPERTIES, rows)
    for code, rows in walk.body():
        walk.value(code, rows)
    walk.finish()
    found = beside
    for name in inside:
        if name.field is None:
            found[name] = operand_of(walk, buffer, entries, name.name)
        else:
            found[name] = _field(walk, buffer, fields, name.field)
    return found, walk.odd


# --- Fields of the properties ------------------------------------------------------------------------------------------------

_ALLOWED = {
    "message-id": allowing(*STRING, *BINARY, 0x80, 0x53, 0x44, 0x98),
    "string": allowing(*STRING),
    "symbol": allowing(*SYMBOL),
}
_INTEGERS = {"timestamp": (0x83,), "uint": (0x70, 0x52, 0x43)}


def _field(walk: Walk, buffer: pa.Buffer, fields: list[Cells | None], field: str) -> Operand:
    index, _, wire = FIELDS[field]
    cells = fields[index] if fields else None
    if cells is None:
        return Operand(YES)
    cells = without_odd(walk, cells)
    if TYPES[field] == "string":
        array, bad = users(buffer, cells) if wire == "binary" else texts(buffer, cells, _ALLOWED[wire])
        walk.odd[bad] = True
        return of_texts(array)
    walk.odd |= ~allowing(*_INTEGERS[wire])[cells.code]
    return Operand(cells.code == NULL, numbers_of(buffer, cells, walk.odd))

"""Operands of a selector from encoded messages, with AMQP's types, without a Python object for a message.

Only the needed values are read, so damage in other properties is not noticed. A row that the vector operations cannot follow is
*odd*, and decoded alone.

AMQP's integers are exact (a ulong beyond 63 bits is a double), a timestamp is its milliseconds, float and double are approximate.
String, symbol and uuid are strings. Binary and the decimals have no type: they are not NULL, and equal to nothing. Any other
constructor, and an invalid value, makes the message odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..amqp.messages import APPLICATION_PROPERTIES, PROPERTIES
from ..messages.encoding.decoding import FIELD_CODES
from ..messages.encoding.fields import FIELDS
from ..messages.encoding.octets import Mask
from ..messages.encoding.rendering import BINARY, NUMBERS, STRING, SYMBOL, allowing, numbers, texts, users
from ..messages.encoding.walk import NULL, Cells, MapEntries, Rows, Walk, walk_of
from .column_operands import HEADER, header
from .names import TYPES, Identifier
from .operands import Operand, of_texts
from .truth import YES
from .values import Booleans, NumericColumn, Texts, equal_at

Operands = dict[Identifier, Operand]


def encoded(payload: pa.RecordBatch, names: Sequence[Identifier]) -> tuple[Operands, Mask]:
    """Return the operands, and the mask of odd rows, where they are meaningless."""
    operands = {name: header(payload, name.field) for name in names if name.field in HEADER}
    inside = [name for name in names if name not in operands]
    walk, buffer = walk_of(payload.column("message"))
    fields = walk.fields(PROPERTIES, wanted=any(name.field is not None for name in inside))
    entries = walk.maps(APPLICATION_PROPERTIES, wanted=any(name.field is None for name in inside)).entries
    for code, rows in walk.body():
        walk.value(code, rows)
    walk.finish()
    for name in inside:
        if name.field is None:
            operands[name] = _property(walk, buffer, entries, name.name)
        else:
            operands[name] = _field(walk, buffer, fields, name.field)
    return operands, walk.odd


# --- Fields of the properties ------------------------------------------------------------------------------------------------


def _field(walk: Walk, buffer: pa.Buffer, fields: list[Cells | None], field: str) -> Operand:
    index, _, wire = FIELDS[field]
    cells = fields[index] if fields else None
    if cells is None:
        return Operand(YES)
    cells = walk.cleared(cells)
    if TYPES[field] == "string":
        array, bad = users(buffer, cells) if wire == "binary" else texts(buffer, cells, FIELD_CODES[wire])
        walk.odd[bad] = True
        return of_texts(array)
    walk.odd |= ~FIELD_CODES[wire][cells.code]
    return Operand(cells.code == NULL, _numbers(buffer, cells, walk.odd))


# --- Application properties --------------------------------------------------------------------------------------------------

_TEXT = allowing(*STRING, *SYMBOL, 0x98)
_UNTYPED = (0x74, 0x84, 0x94, *BINARY)
_TIMESTAMP, _FLOAT, _DOUBLE, _ULONG, _BOOLEAN, _TRUE, _FALSE = 0x83, 0x72, 0x82, 0x80, 0x56, 0x41, 0x42
_INTS = {**NUMBERS, _TIMESTAMP: ">i8", 0x43: "", 0x44: ""}
_FLOATS = {_FLOAT: ">f4", _DOUBLE: ">f8"}
_KNOWN = allowing(*STRING, *SYMBOL, 0x98, *_UNTYPED, *_INTS, *_FLOATS, _BOOLEAN, _TRUE, _FALSE)


def _property(walk: Walk, buffer: pa.Buffer, entries: list[MapEntries], name: str) -> Operand:
    cells = walk.cleared(_values(walk, entries, name.encode()))
    code = cells.code
    present = np.flatnonzero(np.bincount(code, minlength=256))
    walk.odd |= ~_KNOWN[code]
    operand = Operand(code == NULL)
    if _TEXT[present].any():
        operand.texts = _texts(walk, buffer, cells)
    if any(c in _INTS or c in _FLOATS for c in present.tolist()):
        operand.numbers = _numbers(buffer, cells, walk.odd)
    if any(c in (_BOOLEAN, _TRUE, _FALSE) for c in present.tolist()):
        operand.booleans = _booleans(walk, buffer, cells)
    return operand


def _values(walk: Walk, entries: list[MapEntries], name: bytes) -> Cells:
    """A map without the key has NULL. A row with the key twice is odd."""
    cells = Cells.none(walk.first)
    seen = np.zeros(len(walk.first), np.bool_)
    for entry in entries:
        rows = _same(walk, entry.rows, entry.key, name)
        if rows is None:
            continue
        if isinstance(rows, slice):
            walk.odd |= seen
            seen[:] = True
            cells = Cells(entry.value.code, entry.value.start, entry.value.end)
            continue
        at = np.arange(len(walk.first))[entry.rows][rows]
        walk.odd[at[seen[at]]] = True
        seen[at] = True
        value = entry.value
        cells = Cells(cells.code.copy(), cells.start.copy(), cells.end.copy())  # they may belong to an entry
        cells.put(at, Cells(value.code[rows], value.start[rows], value.end[rows]))
    return cells


def _same(walk: Walk, of: Rows, key: Cells, name: bytes) -> Rows | None:
    """Return the indexes of rows with this key; a slice for all rows; None for no row."""
    fits = (key.end - key.start == len(name)) & ~walk.odd[of]
    if not fits.any():
        return None
    fits &= (key.code == STRING[0]) | (key.code == STRING[1])
    rows = np.flatnonzero(fits)
    rows = rows[equal_at(walk.buffer, key.start[rows], name)] if len(rows) else rows
    if not len(rows):
        return None
    return slice(None) if isinstance(of, slice) and len(rows) == len(walk.first) else rows


def _texts(walk: Walk, buffer: pa.Buffer, cells: Cells) -> Texts:
    present = _TEXT[cells.code] & (cells.code != NULL)
    only = cells
    if not present.all():
        only = Cells(np.where(present, cells.code, np.uint8(NULL)), cells.start, np.where(present, cells.end, cells.start))
    array, bad = texts(buffer, only, _TEXT)
    walk.odd[bad] = True
    return Texts(present, arrow=array)


def _numbers(buffer: pa.Buffer, cells: Cells, odd: Mask) -> NumericColumn:
    rows = len(cells.code)
    ints, exact = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    floats, present = np.zeros(rows, np.float64), np.zeros(rows, np.bool_)
    for code in np.flatnonzero(np.bincount(cells.code, minlength=256)).tolist():
        kind = _INTS.get(code, _FLOATS.get(code))
        if kind is None:
            continue
        of = np.flatnonzero((cells.code == code) & ~odd)
        present[of] = True
        values: Any = numbers(buffer, cells.start[of], kind) if kind and len(of) else np.int64(0)
        if code in _FLOATS:
            floats[of] = values
            continue
        exact[of] = True
        ints[of] = values.astype(np.int64)
        if code == _ULONG:
            beyond = of[np.asarray(values > 2**63 - 1)] if len(of) else of
            exact[beyond] = False
            floats[beyond] = values[values > 2**63 - 1].astype(np.float64) if len(of) else 0
    if exact.all():
        return NumericColumn(present, ints, None, exact)
    return NumericColumn(present, ints, floats, exact)


def _booleans(walk: Walk, buffer: pa.Buffer, cells: Cells) -> Booleans:
    code = cells.code
    true = code == _TRUE
    present = true | (code == _FALSE) | (code == _BOOLEAN)
    of = np.flatnonzero((code == _BOOLEAN) & ~walk.odd)
    if len(of):
        octets: npt.NDArray[Any] = numbers(buffer, cells.start[of], "u1")
        true[of] = octets == 1
        walk.odd[of[octets > 1]] = True
    return Booleans(present, true)

"""Operands from the values of one application property in many encoded messages, with the exact types of AMQP.

AMQP's integers are exact (a ulong beyond 63 bits is a double), a timestamp is its milliseconds, float and double are approximate;
string, symbol and uuid are strings. Binary and the decimals are values without a type: not NULL, and equal to nothing. Every
other constructor, and a value that breaks its type's rule, makes the message odd.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..messages.encoding.octets import Mask
from ..messages.encoding.rendering import BINARY, NUMBERS, STRING, SYMBOL, allowing, numbers, texts
from ..messages.encoding.walk import NULL, Cells, MapEntries, Rows, Walk
from .operands import Operand
from .values import Booleans, Numbers, Texts, equal_at

_TEXT = allowing(*STRING, *SYMBOL, 0x98)
_UNTYPED = (0x74, 0x84, 0x94, *BINARY)
_TIMESTAMP, _FLOAT, _DOUBLE, _ULONG, _BOOLEAN, _TRUE, _FALSE = 0x83, 0x72, 0x82, 0x80, 0x56, 0x41, 0x42
_INTS = {**NUMBERS, _TIMESTAMP: ">i8", 0x43: "", 0x44: ""}
_FLOATS = {_FLOAT: ">f4", _DOUBLE: ">f8"}
_KNOWN = allowing(*STRING, *SYMBOL, 0x98, *_UNTYPED, *_INTS, *_FLOATS, _BOOLEAN, _TRUE, _FALSE)


def operand_of(walk: Walk, buffer: pa.Buffer, entries: list[MapEntries], name: str) -> Operand:
    """Return the operand of one application property: its value in every map, by its constructor."""
    cells = without_odd(walk, _values(walk, entries, name.encode()))
    code = cells.code
    present = np.flatnonzero(np.bincount(code, minlength=256))
    walk.odd |= ~_KNOWN[code]
    found = Operand(code == NULL)
    if _TEXT[present].any():
        found.texts = _texts(walk, buffer, cells)
    if any(c in _INTS or c in _FLOATS for c in present.tolist()):
        found.numbers = numbers_of(buffer, cells, walk.odd)
    if any(c in (_BOOLEAN, _TRUE, _FALSE) for c in present.tolist()):
        found.booleans = _booleans(walk, buffer, cells)
    return found


def _values(walk: Walk, entries: list[MapEntries], name: bytes) -> Cells:
    """Return the value of this key in each map; NULL if it is absent. A row that has the key twice is odd."""
    found = Cells.none(walk.first)
    seen = np.zeros(len(walk.first), np.bool_)
    for entry in entries:
        rows = _same(walk, entry.rows, entry.key, name)
        if rows is None:
            continue
        if isinstance(rows, slice):
            walk.odd |= seen
            seen[:] = True
            found = Cells(entry.value.code, entry.value.start, entry.value.end)
            continue
        at = np.arange(len(walk.first))[entry.rows][rows]
        walk.odd[at[seen[at]]] = True
        seen[at] = True
        value = entry.value
        found = Cells(found.code.copy(), found.start.copy(), found.end.copy())  # they may be an entry's
        found.put(at, Cells(value.code[rows], value.start[rows], value.end[rows]))
    return found


def _same(walk: Walk, of: Rows, key: Cells, name: bytes) -> Rows | None:
    """Return the keys equal to `name`: indices into the entry's rows, a slice if they are all of all rows, None if there are
    none.
    """
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
    there = _TEXT[cells.code] & (cells.code != NULL)
    only = cells
    if not there.all():
        only = Cells(np.where(there, cells.code, np.uint8(NULL)), cells.start, np.where(there, cells.end, cells.start))
    array, bad = texts(buffer, only, _TEXT)
    walk.odd[bad] = True
    return Texts(there, given=array)


def numbers_of(buffer: pa.Buffer, cells: Cells, odd: Mask) -> Numbers:
    """Return the numbers in the cells, by constructor; odd rows are left out."""
    rows = len(cells.code)
    ints, exact = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    floats, there = np.zeros(rows, np.float64), np.zeros(rows, np.bool_)
    for code in np.flatnonzero(np.bincount(cells.code, minlength=256)).tolist():
        kind = _INTS.get(code, _FLOATS.get(code))
        if kind is None:
            continue
        of = np.flatnonzero((cells.code == code) & ~odd)
        there[of] = True
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
        return Numbers(there, ints, None, exact)
    return Numbers(there, ints, floats, exact)


def _booleans(walk: Walk, buffer: pa.Buffer, cells: Cells) -> Booleans:
    code = cells.code
    true = code == _TRUE
    there = true | (code == _FALSE) | (code == _BOOLEAN)
    of = np.flatnonzero((code == _BOOLEAN) & ~walk.odd)
    if len(of):
        octets: npt.NDArray[Any] = numbers(buffer, cells.start[of], "u1")
        true[of] = octets == 1
        walk.odd[of[octets > 1]] = True
    return Booleans(there, true)


def without_odd(walk: Walk, cells: Cells) -> Cells:
    """Return the cells with null in odd rows, where their offsets mean nothing."""
    if walk.odd.any():
        cells.clear(walk.odd, walk.first)
    return cells

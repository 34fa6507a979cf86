"""Values of many messages as Arrow text: the vector form of `texts`.

Constructors that are not in `_WRITERS`, and invalid values (bad UTF-8, a boolean of 7), are *bad* and left to the reference
decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .octets import Mask, Octets, Places, column, data_of, fixed, not_ascii, not_utf8, offsets_of, replaced, slices, with_nulls
from .walk import NULL, Cells

Indices: TypeAlias = npt.NDArray[np.int64]
_Writer: TypeAlias = Callable[[pa.Buffer, Places, Places], "tuple[pa.Array, Indices]"]

STRING, SYMBOL, BINARY = (0xA1, 0xB1), (0xA3, 0xB3), (0xA0, 0xB0)
_BOOLEAN, _CHAR = 0x56, 0x73
_COMPOUND = (0x45, 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0)
_NONE: Indices = np.empty(0, np.int64)
#: For an amqp-value of null, whose JSON is `null`; not a constructor.
JSON_NULL = 0xFF


def allowing(*codes: int) -> Mask:
    """Return a table of the accepted constructors, and null."""
    table = np.zeros(256, np.bool_)
    table[[NULL, *codes]] = True
    return table


def simple() -> Mask:
    """Return a table of all constructors except lists, maps and arrays. Described values are not constructors."""
    return ~np.isin(np.arange(256), _COMPOUND)


def texts(buffer: pa.Buffer, cells: Cells, allowed: Mask, *, binary: bool = False) -> tuple[pa.Array, Indices]:
    """Return the texts of the values (null for null), and the bad rows, whose texts mean nothing.

    With `binary`, strings and binaries keep their bytes: the result is a binary array.
    """
    code = cells.code
    present = _present(code)
    bad = _rows(code, present[~allowed[present]])
    as_is = STRING + (BINARY if binary else SYMBOL)
    sliced = [c for c in present.tolist() if c in as_is]
    written = [c for c in present.tolist() if allowed[c] and c not in as_is and c != NULL]
    base, wrong = _sliced(buffer, cells, present, sliced)
    bad = _union(bad, wrong)
    type_ = pa.binary() if binary else pa.string()
    writers = {} if binary else _WRITERS
    if len(present) == len(written) == 1 and written[0] in writers:
        return writers[written[0]](buffer, cells.start, cells.end)
    if not written:
        return _typed(base, type_, None if NULL not in present else code != NULL, bad), bad
    parts, order, length = [_typed(base, type_, code != NULL, bad)], np.arange(len(code)), len(code)
    for constructor in written:
        rows = np.flatnonzero(code == constructor)
        writer = _WRITERS.get(constructor)
        if writer is None or (binary and constructor in _QUOTED):
            bad = _union(bad, rows)
            continue
        part, wrong = writer(buffer, cells.start[rows], cells.end[rows])
        bad = _union(bad, rows[wrong])
        order[rows] = np.arange(length, length + len(rows))
        length += len(rows)
        parts.append(part if part.type == type_ else part.cast(type_))
    return pa.concat_arrays(parts).take(pa.array(order)), bad


def unfit(buffer: pa.Buffer, cells: Cells, allowed: Mask) -> Indices:
    """Return the rows that are bad, or left to the reference."""
    code = cells.code
    present = _present(code)
    bad = _rows(code, present[~allowed[present]])
    sliced = [c for c in present.tolist() if allowed[c] and c in STRING + SYMBOL]
    if sliced:
        _, wrong = _sliced(buffer, cells, present, sliced)
        bad = _union(bad, wrong)
    for constructor, most in ((_BOOLEAN, 1), (_CHAR, -1)):
        if allowed[constructor] and constructor in present:
            rows = np.flatnonzero(code == constructor)
            octets = fixed(buffer, cells.start[rows], "u1")
            bad = _union(bad, rows[octets.astype(np.int16) > most])
    return bad


def only(code: Octets) -> int | None:
    return int(code[0]) if len(code) and bool((code == code[0]).all()) else None


def _present(code: Octets) -> Indices:
    single = only(code)
    return np.flatnonzero(np.bincount(code, minlength=256)) if single is None else np.array([single])


def users(buffer: pa.Buffer, cells: Cells) -> tuple[pa.Array, Indices]:
    """Return user ids as UTF-8, otherwise base64."""
    code = cells.code
    present = _present(code)
    bad = _rows(code, present[~allowing(*BINARY)[present]])
    base = _taken(buffer, cells, present, list(BINARY))
    wrong = not_utf8(base)
    valid = None if NULL not in present else code != NULL
    if not len(wrong):
        return with_nulls(base, pa.string(), valid), bad
    shown = _typed(base, pa.string(), valid, wrong)
    part, _ = _base64(buffer, cells.start[wrong], cells.end[wrong])
    return replaced(shown, wrong, part), bad


def _sliced(buffer: pa.Buffer, cells: Cells, present: Indices, sliced: list[int]) -> tuple[pa.Array, Indices]:
    """Cut out values whose bytes are their text, and return the invalid rows."""
    base = _taken(buffer, cells, present, sliced)
    bad = _NONE
    if any(c in STRING for c in sliced):
        bad = not_utf8(base)
        if len(bad) and any(c in BINARY for c in sliced):
            bad = bad[np.isin(cells.code[bad], STRING)]
    if any(c in SYMBOL for c in sliced):
        high = not_ascii(base)
        bad = _union(bad, high[np.isin(cells.code[high], SYMBOL)])
    return base, bad


def _taken(buffer: pa.Buffer, cells: Cells, present: Indices, sliced: list[int]) -> pa.Array:
    start, end = cells.start, cells.end
    if any(c not in sliced and c != NULL for c in present.tolist()):
        table = np.zeros(256, np.bool_)
        table[sliced] = True
        end = np.where(table[cells.code], end, start)
    return slices(buffer, start, end)


def _typed(base: pa.Array, type_: pa.DataType, valid: Mask | None, bad: Indices) -> pa.Array:
    """Return the slices under the column's type, with null in bad rows, which may not be text."""
    if len(bad):
        valid = np.ones(len(base), np.bool_) if valid is None else valid.copy()
        valid[bad] = False
        # A later validation would read the bytes of a null.
        lengths = np.where(valid, np.diff(offsets_of(base)), 0)
        starts = offsets_of(base)[:-1].astype(np.int64)
        base = slices(base.buffers()[2], starts, starts + lengths)
    return with_nulls(base, type_, valid)


def _rows(code: Octets, constructors: Indices) -> Indices:
    return np.flatnonzero(np.isin(code, constructors)) if len(constructors) else _NONE


def _union(left: Indices, right: Indices) -> Indices:
    return np.union1d(left, right) if len(left) and len(right) else left if len(left) else right


def _constant(text: str) -> _Writer:
    def write(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
        return pa.repeat(pa.scalar(text), len(start)), _NONE

    return write


def _number(kind: str) -> _Writer:
    def write(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
        values = numbers(buffer, start, kind)
        bad = np.flatnonzero(~np.isfinite(values)) if values.dtype.kind == "f" else _NONE
        return pa.array(values).cast(pa.string()), bad

    return write


def numbers(buffer: pa.Buffer, start: Places, kind: str) -> npt.NDArray[np.generic]:
    values = fixed(buffer, start, kind)
    return values.astype(values.dtype.newbyteorder("="))


def _boolean(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
    values = fixed(buffer, start, "u1")
    return pa.array(["false", "true"]).take(pa.array(values & 1)), np.flatnonzero(values > 1)


_HEX = np.frombuffer(b"".join(b"%02x" % n for n in range(256)), np.uint8).reshape(256, 2)


def _uuid(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
    digits = _HEX[fixed(buffer, start, "V16").view(np.uint8).reshape(-1, 16)].reshape(-1, 32)
    out = np.full((len(start), 36), ord("-"), np.uint8)
    for source, to, width in ((0, 0, 8), (8, 9, 4), (12, 14, 4), (16, 19, 4), (20, 24, 12)):
        out[:, to : to + width] = digits[:, source : source + width]
    return column(out, 36).view(pa.string()), _NONE


_DAY = 86_400_000
_YEARS = (-62_167_219_200_000, 253_402_300_799_999)  # milliseconds: the years 0 to 9999


def _timestamp(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
    """Do as `texts.iso` for years with four digits. (Arrow's own formatting takes 2 µs each.)"""
    values = numbers(buffer, start, ">i8").astype(np.int64)
    bad = np.flatnonzero((values < _YEARS[0]) | (values > _YEARS[1]))
    values[bad] = 0
    days, rest = np.divmod(values, _DAY)
    date = np.datetime_as_string(days.astype("datetime64[D]")).astype("S10").view(np.uint8).reshape(-1, 10)
    out = np.empty((len(values), 24), np.uint8)
    out[:, :10] = date
    out[:, 10], out[:, 13], out[:, 16], out[:, 19], out[:, 23] = b"T::.Z"
    for place, divisor, width in ((11, 3_600_000, 2), (14, 60_000, 2), (17, 1000, 2), (20, 1, 3)):
        part, rest = np.divmod(rest, divisor)
        for digit in range(width - 1, -1, -1):
            out[:, place + digit] = part % 10 + ord("0")
            part //= 10
    return column(out, 24).view(pa.string()), bad


_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


def _base64(buffer: pa.Buffer, start: Places, end: Places) -> tuple[pa.Array, Indices]:
    cut = slices(buffer, start, end)
    lengths = (end - start).astype(np.int64)
    threes = -(-lengths // 3)
    begins = np.concatenate([[0], np.cumsum(threes)])
    padded = np.zeros(3 * int(begins[-1]), np.uint8)
    offsets = offsets_of(cut).astype(np.int64)
    octets = data_of(cut)[: offsets[-1]]
    padded[np.repeat(3 * begins[:-1] - offsets[:-1], lengths) + np.arange(len(octets))] = octets
    a, b, c = padded.reshape(-1, 3).T
    out = np.empty((len(a), 4), np.uint8)
    out[:, 0] = _BASE64[a >> 2]
    out[:, 1] = _BASE64[(a & 3) << 4 | b >> 4]
    out[:, 2] = _BASE64[(b & 15) << 2 | c >> 6]
    out[:, 3] = _BASE64[c & 63]
    last = begins[1:] - 1
    out[last[lengths % 3 != 0], 3] = ord("=")
    out[last[lengths % 3 == 1], 2] = ord("=")
    bounds = (begins * 4).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(start), [None, pa.py_buffer(bounds), pa.py_buffer(out)]), _NONE


#: Integers that have bytes, as numpy reads them.
NUMBERS = {0x50: ">u1", 0x60: ">u2", 0x70: ">u4", 0x80: ">u8", 0x52: ">u1", 0x53: ">u1"}
NUMBERS |= {0x51: ">i1", 0x61: ">i2", 0x71: ">i4", 0x81: ">i8", 0x54: ">i1", 0x55: ">i1"}
_WRITERS: dict[int, _Writer] = {code: _number(kind) for code, kind in {**NUMBERS, 0x72: ">f4", 0x82: ">f8"}.items()}
_WRITERS |= {0x41: _constant("true"), 0x42: _constant("false"), 0x43: _constant("0"), 0x44: _constant("0")}
_WRITERS |= {0x56: _boolean, 0x83: _timestamp, 0x98: _uuid, 0xA0: _base64, 0xB0: _base64, JSON_NULL: _constant("null")}
# Values that JSON quotes: rare as a body.
_QUOTED = frozenset({0x83, 0x98, *SYMBOL})

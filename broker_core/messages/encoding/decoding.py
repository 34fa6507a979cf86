"""Encoded messages into columns.

`reference` decodes the rows that vectors cannot follow: rare forms, and damage, which it refuses with the reason. Vectors can be
slow on a strange message, but never wrong: they make every check of the reference decoder. `texts` defines the values of columns,
except for:

- `body`: the bytes of all data sections, or of a binary or string (UTF-8) amqp-value. Any other value, and the elements of all
  sequences, are JSON text. Null without a body;
- `bodyType`: *data*, *binary*, *string* or *json*, for these four cases;
- `envelope`: the bytes before the body, if the message ends with the bytes of `body`, which are not JSON; otherwise null;
- `userId`: the binary's text if it is UTF-8, otherwise its base64;
- `creationTime`, `absoluteExpiryTime`: null if 64 bits of microseconds cannot hold it;
- `properties`, `annotations`: null without such a section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..columns import MESSAGE_COLUMNS, STRING_MAP, TIMESTAMP
from ..conversion import ENVELOPE
from .fields import ALL_FIELDS, FIELDS
from .maps import map_array
from .octets import Mask, Octets, Places, replaced, slices, validity, with_nulls
from .rendering import BINARY, JSON_NULL, NUMBERS, STRING, SYMBOL, Indices, allowing, numbers, only, simple, texts, users
from .walk import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, NULL, PROPERTIES, SEQUENCE, VALUE, Cells, Walk, walk_of

CHUNK_ROWS = 1 << 15  # of one walk: their bytes stay near the processor
MAX_REASON = 200  # characters: some errors quote bytes
TYPES = {**MESSAGE_COLUMNS, "bodyType": pa.string(), ENVELOPE: pa.binary()}
_OF_BODY = ("body", "bodyType", ENVELOPE)


def readable(payload: pa.RecordBatch, names: Sequence[str]) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Return columns of encoded messages, and the refused rows, null in all columns, with their reasons.

    `names` are any of `columns.BARE_COLUMNS`, `annotations` and `ENVELOPE`. Only their sections are decoded; all are measured.
    """
    refused: dict[int, str] = {}
    chunks = [_chunk(payload.slice(n, CHUNK_ROWS), names, n, refused) for n in range(0, payload.num_rows, CHUNK_ROWS)]
    if len(chunks) == 1:
        return chunks[0], refused
    nothing = {name: pa.array([], TYPES[name]) for name in names}
    return {name: pa.concat_arrays([empty, *(chunk[name] for chunk in chunks)]) for name, empty in nothing.items()}, refused


def _chunk(payload: pa.RecordBatch, names: Sequence[str], first: int, refused: dict[int, str]) -> dict[str, pa.Array]:
    decoded, odd = vectors(payload, names)
    rows = np.flatnonzero(odd)
    return _merged(decoded, payload, rows, first, refused) if len(rows) else decoded


def vectors(payload: pa.RecordBatch, names: Sequence[str]) -> tuple[dict[str, pa.Array], Mask]:
    """Return the columns as far as vectors go, and the odd rows, whose values mean nothing."""
    odd = np.zeros(payload.num_rows, np.bool_)
    decoded: dict[str, pa.Array] = {}
    bare = [name for name in names if name != "annotations"]
    if bare:
        decoded.update(_bare(payload.column("message"), bare, odd))
    if "annotations" in names:
        decoded["annotations"] = _annotations(payload, odd)
    return {name: decoded[name] for name in names}, odd


def _bare(column: pa.Array, names: Sequence[str], odd: Mask) -> dict[str, pa.Array]:
    walk, buffer = walk_of(column)
    asked = [name for name in names if name in FIELDS]
    fields = walk.fields(PROPERTIES, wanted=bool(asked))
    maps = walk.maps(APPLICATION_PROPERTIES, wanted="properties" in names)
    needs_body = any(name in names for name in _OF_BODY)
    body, section = _body(walk, needs_body)
    walk.finish()
    decoded: dict[str, pa.Array] = {}
    if "properties" in names:
        decoded["properties"] = map_array(walk, buffer, maps, STRING)
    if needs_body:
        decoded |= _body_columns(walk, buffer, walk.cleared(body), section, names)
    if asked:
        decoded.update(_properties(walk, buffer, fields, asked))
    odd |= walk.odd
    return decoded


def _body(walk: Walk, asked: bool) -> tuple[Cells, Octets]:
    """Return each body's value and section code (0 without a body)."""
    body, section = Cells.none(walk.first), np.zeros(len(walk.first), np.uint8)
    for code, rows in walk.body():
        cells = walk.value(code, rows)
        if not asked:
            continue
        section[rows] = code
        if code == SEQUENCE:
            walk.odd[rows] = True
        elif code == VALUE:
            cells.code = np.where(cells.code == NULL, np.uint8(JSON_NULL), cells.code)
        body.put(rows, cells)
    return body, section


_BODY_TYPES = (None, "data", "string", "binary", "json")  # not an array: `pa.array` imports pandas
_DATA_BODY, _JSON_BODY = 1, 4
_VALUE_TYPES = np.full(256, _JSON_BODY, np.int8)  # by constructor of an amqp-value
_VALUE_TYPES[list(STRING)], _VALUE_TYPES[list(BINARY)] = 2, 3


def _body_columns(walk: Walk, buffer: pa.Buffer, body: Cells, section: Octets, names: Sequence[str]) -> dict[str, pa.Array]:
    decoded = {"body": _settled(walk, texts(buffer, body, _BODY, binary=True))}
    if "bodyType" not in names and ENVELOPE not in names:
        return decoded
    types = np.where(section == DATA, np.int8(_DATA_BODY), _VALUE_TYPES[body.code])
    types[(section == 0) | walk.odd] = 0
    if "bodyType" in names:
        decoded["bodyType"] = pa.array(_BODY_TYPES).take(pa.array(types))
    if ENVELOPE in names:
        is_cut = (types != 0) & (types != _JSON_BODY)
        envelopes = slices(buffer, walk.first, np.where(is_cut, body.start, walk.first))
        decoded[ENVELOPE] = with_nulls(envelopes, pa.binary(), is_cut)
    return decoded


def _settled(walk: Walk, result: tuple[pa.Array, Indices]) -> pa.Array:
    array, bad = result
    walk.odd[bad] = True
    return array


_UINT = (0x70, 0x52, 0x43)
FIELD_CODES = {
    "message-id": allowing(*STRING, *BINARY, 0x80, 0x53, 0x44, 0x98),
    "binary": allowing(*BINARY),
    "string": allowing(*STRING),
    "symbol": allowing(*SYMBOL),
    "timestamp": allowing(0x83),
    "uint": allowing(*_UINT),
}
_BODY = simple()


def _properties(walk: Walk, buffer: pa.Buffer, fields: list[Cells | None], asked: Sequence[str]) -> dict[str, pa.Array]:
    """Return the requested fields. The others are also checked: a section is refused as a whole."""
    decoded: dict[str, pa.Array] = {}
    if not fields:
        return {name: pa.nulls(len(walk.first), MESSAGE_COLUMNS[name]) for name in asked}
    for name, field in ALL_FIELDS.items():
        cells = fields[field.place]
        if cells is None or only(walk.cleared(cells).code) == NULL:
            if name in asked:
                decoded[name] = pa.nulls(len(walk.first), MESSAGE_COLUMNS[name])
            continue
        if field.wire == "binary":
            array = _settled(walk, users(buffer, cells))
        elif field.wire == "timestamp":
            array = _times(walk, buffer, cells)
        elif field.wire == "uint":
            array = _sequences(walk, buffer, cells)
        else:
            array = _settled(walk, texts(buffer, cells, FIELD_CODES[field.wire]))
        if name in asked:
            decoded[name] = array
    return decoded


def _times(walk: Walk, buffer: pa.Buffer, cells: Cells) -> pa.Array:
    values, valid = _numbers(walk, buffer, cells, {0x83: ">i8"})
    valid &= (values >= -(2**63) // 1000 + 1) & (values <= (2**63 - 1) // 1000)
    values[~valid] = 0
    return pa.Array.from_buffers(TIMESTAMP, len(values), [validity(valid), pa.py_buffer(values * 1000)])


def _sequences(walk: Walk, buffer: pa.Buffer, cells: Cells) -> pa.Array:
    values, valid = _numbers(walk, buffer, cells, {code: NUMBERS.get(code, "") for code in _UINT})
    return pa.Array.from_buffers(pa.int64(), len(values), [validity(valid), pa.py_buffer(values)])


def _numbers(walk: Walk, buffer: pa.Buffer, cells: Cells, kinds: dict[int, str]) -> tuple[Places, Mask]:
    values = np.zeros(len(cells.code), np.int64)
    valid = np.zeros(len(cells.code), np.bool_)
    for code, kind in kinds.items():
        rows = np.flatnonzero(cells.code == code)
        if len(rows):
            valid[rows] = True
            if kind:
                values[rows] = numbers(buffer, cells.start[rows], kind)
    walk.odd |= ~valid & (cells.code != NULL)
    return values, valid


def _annotations(payload: pa.RecordBatch, odd: Mask) -> pa.Array:
    place = payload.schema.get_field_index("encodedAnnotations")
    if place < 0:
        return pa.nulls(payload.num_rows, STRING_MAP)
    column = payload.column(place)
    walk, buffer = walk_of(column)
    walk.odd |= np.asarray(column.is_valid()) & (walk.code != MESSAGE_ANNOTATIONS)
    maps = walk.maps(MESSAGE_ANNOTATIONS)
    walk.finish()
    decoded = map_array(walk, buffer, maps, SYMBOL)
    odd |= walk.odd
    return decoded


def _merged(
    vectors_only: dict[str, pa.Array], payload: pa.RecordBatch, rows: Indices, first: int, refused: dict[int, str]
) -> dict[str, pa.Array]:
    """Decode these rows by `reference`. Rows that it refuses are null."""
    from . import reference

    names = list(vectors_only)
    parts = payload.take(pa.array(rows))
    messages = parts.column("message").to_pylist()
    annotated = "annotations" in names and "encodedAnnotations" in parts.schema.names
    annotations = parts.column("encodedAnnotations").to_pylist() if annotated else [None] * len(rows)
    decoded: list[dict[str, Any]] = []
    nothing = dict.fromkeys(names)
    for row, message, section in zip(rows.tolist(), messages, annotations, strict=True):
        try:
            decoded.append(reference.row(message, section, names))
        except reference.REFUSALS as error:
            refused[first + row] = str(error)[:MAX_REASON]
            decoded.append(nothing)
    return {
        name: replaced(array, rows, pa.array([row[name] for row in decoded], TYPES[name])) for name, array in vectors_only.items()
    }

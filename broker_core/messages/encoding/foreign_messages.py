"""Complete messages of another broker: cut into the stored form, and recognized when they come again.

A broker may change header, annotations and footer, but not the bare message between them. `messages.scan` measures a message that
`walk` does not follow, and alone refuses messages.
"""

from __future__ import annotations

from hashlib import sha256
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...amqp.composites import from_values
from ...amqp.decoder import decode
from ...amqp.errors import RemoteProtocolError
from ...amqp.messages import DELIVERY_ANNOTATIONS, FOOTER, HEADER, MAX_SECTIONS_READ, MESSAGE_ANNOTATIONS, scan
from ...amqp.performatives import Header
from ..columns import MESSAGE_COLUMNS
from .decoding import MAX_REASON
from .fields import message_id
from .octets import Mask, Places, at, slices, validity, with_nulls, word
from .walk import APPLICATION_PROPERTIES, DATA, NULL, PROPERTIES, VALUE, Cells, Walk, walk_of

_HASHED_AT_ONCE = 1024  # messages; no other thread runs meanwhile
_PIECE = 2047  # bytes that Python hashes without releasing the interpreter
MOST_SECTIONS = 16  # of one body, followed in lock step
_DURABLE, _PRIORITY, _TTL, _FIRST, _COUNT = range(5)  # places of fields in a header
_BOOLEANS = {0x41: 1, 0x42: 0, 0x56: None}  # None: the value is in the byte
_UINTS = (NULL, 0x43, 0x52, 0x70)

Numbers = npt.NDArray[np.uint64]


class Cut(NamedTuple):
    """Messages in the stored form, with all rows of the input."""

    payload: pa.RecordBatch
    attempts: pa.Array  # failed deliveries in the header, int32
    refused: dict[int, str]  # row → reason; such rows are empty


class MessageKeys(NamedTuple):
    """The first 128 bits of SHA-256 of the bytes after the annotations, which include the id.

    The same id with other content is another message. With a checksum, a sender could forge the key of another message, and
    thereby lose it.
    """

    known: Mask  # messages with an id
    high: Numbers
    low: Numbers


def cut(column: pa.Array) -> Cut:
    walk, buffer = walk_of(column)
    header = _header(walk)
    notes = _annotations(walk)
    begin = walk.cursor - 3 * (walk.code != 0)
    end = _bare_end(walk)
    attempts = _counted(walk, header[_COUNT])
    priority, durable = _bytes(walk, header[_PRIORITY], {0x50: None}), _bytes(walk, header[_DURABLE], _BOOLEANS)
    walk.odd |= durable[0] > 1
    refused: dict[int, str] = {}
    for row in np.flatnonzero(walk.odd).tolist():
        message = column[row].as_py()
        try:
            parts = _plain(message)
        except RemoteProtocolError as error:
            refused[row] = str(error)[:MAX_REASON]
            parts = _ForeignMessage(0, 0, 0, 0, None, None, 0)
        first = int(walk.first[row])
        begin[row], end[row] = first + parts.begin, first + parts.end
        notes[0][row], notes[1][row] = first + parts.note, first + parts.note_end
        for (values, valid), value in ((priority, parts.priority), (durable, parts.durable)):
            values[row], valid[row] = value or 0, value is not None
        attempts[row] = parts.attempts
    columns = {"priority": _array(priority, "priority"), "durable": _array(durable, "durable")}
    whole = bool((begin == walk.first).all() and (end == walk.last).all())
    columns["message"] = column if whole else slices(buffer, begin, end)
    noted = notes[1] > notes[0]
    if noted.any():
        columns["encodedAnnotations"] = with_nulls(slices(buffer, *notes), pa.binary(), noted)
    schema = pa.schema([pa.field(name, MESSAGE_COLUMNS[name]) for name in columns])
    return Cut(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema), pa.array(attempts), refused)


def keys(column: pa.Array) -> MessageKeys:
    walk, buffer = walk_of(column)
    _header(walk)
    _annotations(walk)
    begin = walk.cursor - 3 * (walk.code != 0)
    fields = walk.fields(PROPERTIES)
    ids = (fields[0] if fields else None) or Cells.none(walk.first)
    known = (ids.code != NULL) & ~walk.odd
    starts, ends = np.where(known, ids.start, walk.first), np.where(known, ids.end, walk.first)
    known &= (starts <= ends) & (ends <= walk.last)
    for row in np.flatnonzero(walk.odd).tolist():  # rare forms, and damage, which has no id
        bare = _bare_of(column[row].as_py())
        if message_id(bare) is not None:
            known[row] = True
            begin[row] = walk.last[row] - len(bare)
    chosen = np.flatnonzero(known)
    both = np.zeros((2, len(column)), np.uint64)
    both[:, chosen] = _digests(buffer, begin[chosen], walk.last[chosen]).T
    return MessageKeys(known, both[0], both[1])


def _header(walk: Walk) -> list[Cells | None]:
    fields = walk.fields(HEADER) or [None] * (_COUNT + 1)
    for cells, codes in ((fields[_TTL], _UINTS), (fields[_FIRST], (NULL, *_BOOLEANS)), *((more, (NULL,)) for more in fields[5:])):
        if cells is not None:
            walk.odd |= ~np.isin(cells.code, codes)
    return fields


def _annotations(walk: Walk) -> tuple[Places, Places]:
    """Skip all annotations. Return where the message annotations begin and end."""
    walk.skip(DELIVERY_ANNOTATIONS)
    begin, end = walk.first.copy(), walk.first.copy()
    rows = walk.rows_of(MESSAGE_ANNOTATIONS)
    if rows is not None:
        begin[rows] = walk.cursor[rows] - 3
        end[rows] = walk.value(MESSAGE_ANNOTATIONS, rows).end
    return begin, np.minimum(end, walk.last)


def _bare_end(walk: Walk) -> Places:
    walk.skip(PROPERTIES)
    walk.skip(APPLICATION_PROPERTIES)
    for code, rows in walk.body():
        walk.value(code, rows)
        for _ in range(MOST_SECTIONS if code == DATA else 0):
            more = walk.rows_of(DATA)
            if more is None:
                break
            walk.value(DATA, more)
    end = walk.cursor - 3 * (walk.code != 0)
    walk.skip(FOOTER)
    walk.finish()
    bare: Places = np.minimum(end, walk.last)
    return bare


def _bytes(walk: Walk, cells: Cells | None, kinds: dict[int, int | None]) -> tuple[npt.NDArray[np.int16], Mask]:
    values, valid = np.zeros(len(walk.first), np.int16), np.zeros(len(walk.first), np.bool_)
    if cells is None:
        return values, valid
    fits = cells.code == NULL
    for code, value in kinds.items():
        rows = cells.code == code
        if rows.any():
            values[rows] = at(walk.buffer, cells.start[rows]) if value is None else value
            valid |= rows
            fits |= rows
    walk.odd |= ~fits
    return values, valid


def _counted(walk: Walk, cells: Cells | None) -> npt.NDArray[np.int32]:
    values = np.zeros(len(walk.first), np.int64)
    if cells is not None:
        for code, read in ((0x52, at), (0x70, word)):
            rows = cells.code == code
            if rows.any():
                values[rows] = read(walk.buffer, cells.start[rows])
        walk.odd |= ~np.isin(cells.code, _UINTS)
    return np.minimum(values, 2**31 - 1).astype(np.int32)


def _array(field: tuple[npt.NDArray[np.int16], Mask], name: str) -> pa.Array:
    values, valid = field
    array = pa.Array.from_buffers(pa.int16(), len(values), [validity(valid), pa.py_buffer(values)])
    return array.cast(MESSAGE_COLUMNS[name])


class _ForeignMessage(NamedTuple):
    begin: int  # of the bare message
    end: int
    note: int  # begin of the message annotations
    note_end: int
    priority: int | None
    durable: bool | None
    attempts: int


def _plain(message: bytes) -> _ForeignMessage:
    sections = scan(message, most=MAX_SECTIONS_READ)
    by_code: dict[int, Any] = {section.code: section for section in sections}
    header, note = by_code.get(HEADER), by_code.get(MESSAGE_ANNOTATIONS)
    values: Any = []
    if header is not None:
        values, _ = decode(message, header.value, header.end)
        from_values(Header, values)  # checks the types
    durable, priority, _, _, attempts = [*values, *[None] * (_COUNT + 1)][: _COUNT + 1]
    inside = [section for section in sections if PROPERTIES <= section.code <= VALUE]
    begin, end = (inside[0].start, inside[-1].end) if inside else (len(message), len(message))
    at_, after = (note.start, note.end) if note is not None else (0, 0)
    return _ForeignMessage(begin, end, at_, after, priority, durable, min(int(attempts or 0), 2**31 - 1))


def _bare_of(message: bytes) -> bytes:
    try:
        return message[_plain(message).begin :]
    except RemoteProtocolError:
        return b""


# With processor instructions SHA-256 is faster than BLAKE2b, otherwise it takes three times as long.
_digest = methodcaller("digest")


def _digests(buffer: pa.Buffer, starts: Places, ends: Places) -> Numbers:
    """Return each hash's first 128 bits, as two numbers. All slices must lie inside the buffer."""
    octets = memoryview(buffer)
    digests_of_groups: list[Numbers] = [np.empty((0, 2), np.uint64)]
    for first in range(0, len(starts), _HASHED_AT_ONCE):
        some = slice(first, first + _HASHED_AT_ONCE)
        parts = map(octets.__getitem__, map(slice, starts[some].tolist(), ends[some].tolist()))
        short = int((ends[some] - starts[some]).max()) <= _PIECE
        digests = map(_digest, map(sha256, parts)) if short else map(_in_pieces, parts)
        digests_of_groups.append(np.frombuffer(b"".join(digests), "<u8").reshape(-1, 4)[:, :2])
    return np.concatenate(digests_of_groups)


def _in_pieces(octets: memoryview) -> bytes:
    made = sha256(octets[:_PIECE])
    for first in range(_PIECE, len(octets), _PIECE):
        made.update(octets[first : first + _PIECE])
    return made.digest()

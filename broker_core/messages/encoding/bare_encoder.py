"""Rows of columns as bare AMQP messages (3.2): properties, application properties, one data section.

A message is a row of small binary columns (constructors and sizes, which numpy makes for all fields together) and of columns of
values, joined by Arrow. The encodings are byte for byte those of `broker_core.amqp`: nulls at the end of the properties and empty
sections are left out. Times are whole milliseconds, as in AMQP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...amqp.messages import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from ...errors import ResourceLimit
from ..annotations import DELIVERY_TIME
from .arrays import (
    Bools,
    Ints,
    Octets,
    as_binary,
    before_section,
    before_values,
    big_endian,
    check_ascii,
    joined,
    lengths,
    numbers,
    refuse,
    valid,
)
from .entries import NULL, STRING, SYMBOL, entries
from .fields import FIELDS
from .octets import column

BINARY, UINT, TIMESTAMP, LIST, MAP = 0xA0, 0x70, 0x83, 0xC0, 0xC1
MAX_BYTES = 2**31 - 1  # of one column of messages: Arrow counts its bytes in 31 bits
_MAX_UINT = 2**32 - 1

_CODES = {"message-id": STRING, "string": STRING, "binary": BINARY, "symbol": SYMBOL, "timestamp": TIMESTAMP, "uint": UINT}
# Properties that have a column, in order.
_FIELDS = tuple((name, _CODES[field.wire]) for name, field in FIELDS.items())
_SIZED = (STRING, BINARY, SYMBOL)


def bare_messages(payload: pa.RecordBatch) -> pa.Array:
    """Raises InvalidRequest, with column and row, for a value that AMQP cannot represent, and ResourceLimit beyond
    `MAX_BYTES`.
    """
    return joined(*bare_parts(payload))


def bare_parts(payload: pa.RecordBatch) -> list[pa.Array]:
    held = _held(payload)
    parts, sizes = _properties(held, payload.num_rows)
    if "properties" in held:
        encoded = entries("properties", held["properties"], STRING)
        head, widths = before_section(APPLICATION_PROPERTIES, MAP, encoded.sizes, 2 * encoded.counts, encoded.present)
        parts += [head, encoded.octets]
        sizes = sizes + widths + encoded.sizes
    body = payload.column("body")
    octets = lengths(body)
    before, widths = before_values(BINARY, octets, bytes((0x00, 0x53, DATA)))
    total = int((sizes + widths + octets).sum())
    if total > MAX_BYTES:
        raise ResourceLimit(f"{len(sizes)} messages of {total} bytes together, {MAX_BYTES} are allowed: ask for fewer rows")
    return [*parts, column(before, widths), body]


def annotation_sections(payload: pa.RecordBatch) -> pa.Array | None:
    """Encode the message annotations of each row, from `annotations` and `deliveryTime`, which wins; empty for a row with
    neither, None if no row has any. Raises InvalidRequest.
    """
    if "annotations" not in payload.schema.names and "deliveryTime" not in payload.schema.names:
        return None
    held = _held(payload)
    maps, times = held.get("annotations"), held.get("deliveryTime")
    if maps is None and times is None:
        return None
    rows = payload.num_rows
    parts: list[Any] = []
    sizes = counts = np.zeros(rows, np.int64)
    present = timed = np.zeros(rows, np.bool_)
    if times is not None:
        present = timed = valid(times)
        octets = np.empty((rows, len(_TIME_KEY) + 9), np.uint8)
        octets[:, : len(_TIME_KEY)] = _TIME_KEY
        octets[:, len(_TIME_KEY) :] = _timestamps(times)
        sizes, counts = timed * octets.shape[1], timed.astype(np.int64)
        parts.append(column(octets, sizes))
    if maps is not None:
        encoded = entries("annotations", maps, SYMBOL, (DELIVERY_TIME, timed) if times is not None else None)
        parts.append(encoded.octets)
        sizes, counts, present = sizes + encoded.sizes, counts + encoded.counts, present | encoded.present
    head, _ = before_section(MESSAGE_ANNOTATIONS, MAP, sizes, 2 * counts, present)
    return joined(head, *parts)


_TIME_KEY = np.frombuffer(bytes((SYMBOL, len(DELIVERY_TIME))) + DELIVERY_TIME.encode(), np.uint8)


def _held(payload: pa.RecordBatch) -> dict[str, pa.Array]:
    rows = payload.num_rows
    return {n: column for n, column in zip(payload.schema.names, payload.columns, strict=True) if column.null_count < rows}


def _properties(held: Mapping[str, pa.Array], rows: int) -> tuple[list[pa.Array], Ints]:
    used = max((i for i, (name, _) in enumerate(_FIELDS, 1) if name in held), default=0)
    if not used:
        return [], np.zeros(rows, np.int64)
    present = np.zeros((used, rows), np.bool_)
    for i, (name, _) in enumerate(_FIELDS[:used]):
        if name in held:
            present[i] = valid(held[name]) if held[name].null_count else True
    # The number of fields in each row's list, and the fields in it, if only as nulls.
    counts = (present * np.arange(1, used + 1)[:, None]).max(axis=0)
    listed = np.arange(used)[:, None] < counts
    texts = [i for i in range(used) if _FIELDS[i][1] in _SIZED]
    fields, sizes = _texts(held, texts, present[texts], listed[texts])
    for i in range(used):
        if _FIELDS[i][1] not in _SIZED:
            octets, widths = _fixed(_FIELDS[i], held, present[i])
            widths = _with_nulls(octets, widths, present[i], listed[i])
            fields[i] = [column(octets, widths)]
            sizes = sizes + widths
    head, widths = before_section(PROPERTIES, LIST, sizes, counts, counts > 0)
    return [head, *(part for i in range(used) for part in fields[i])], sizes + widths


def _texts(
    held: Mapping[str, pa.Array], texts: list[int], present: Bools, listed: Bools
) -> tuple[dict[int, list[pa.Array]], Ints]:
    sizes = np.zeros(present.shape, np.int64)
    for line, i in enumerate(texts):
        name, code = _FIELDS[i]
        if name in held:
            if code == SYMBOL:
                check_ascii(name, held[name])
            sizes[line] = lengths(held[name])
    octets, widths = before_values(np.array([[_FIELDS[i][1]] for i in texts]), sizes)
    widths = _with_nulls(octets, widths, present, listed)
    prefixes, rows = column(octets, widths), present.shape[1]
    fields = {}
    for line, i in enumerate(texts):
        value = held.get(_FIELDS[i][0])
        fields[i] = [prefixes.slice(line * rows, rows), *([] if value is None else [as_binary(value)])]
    return fields, (sizes + widths).sum(axis=0)


def _with_nulls(octets: Octets, widths: Ints | int, present: Bools, listed: Bools) -> Ints | int:
    """Replace absent values with nulls. Return the bytes of each: one for a null, none after a list's last field."""
    if present.all():
        return widths
    octets[~present, 0] = NULL
    return np.where(present, widths, listed)


def _fixed(field: tuple[str, int], held: Mapping[str, pa.Array], present: Bools) -> tuple[Octets, Ints | int]:
    name, code = field
    if name not in held:
        return np.empty((len(present), 1), np.uint8), 1
    if code == TIMESTAMP:
        return _timestamps(held[name]), 9
    values = numbers(held[name])
    wrong = present & ((values < 0) | (values > _MAX_UINT))
    if wrong.any():
        row = int(wrong.argmax())
        refuse(name, row, f"{values[row]} cannot be an AMQP uint: allowed are 0 to {_MAX_UINT}")
    octets = np.empty((len(present), 5), np.uint8)
    octets[:, 0] = np.where(values == 0, 0x43, np.where(values < 256, 0x52, UINT))
    octets[:, 1:] = big_endian(values, 4)
    small = values < 256
    octets[small, 1] = values[small]
    return octets, np.where(values == 0, 1, np.where(small, 2, 5))


def _timestamps(times: pa.Array) -> Octets:
    octets = np.empty((len(times), 9), np.uint8)
    octets[:, 0] = TIMESTAMP
    octets[:, 1:] = big_endian(numbers(times) // 1000, 8)
    return octets

"""Rows of columns as bare AMQP messages (3.2): properties, application properties, one data section.

Nothing here loops over rows, or over the fields of a row. A message is a row of small binary columns (constructors and sizes,
made by numpy for all fields at once) and of the columns that hold the values, which Arrow joins. Encodings are the shortest that
AMQP has, to the octet those of `broker_core.amqp`: what is null at the end of the properties is left out, and so is a section
without anything in it. Times are whole milliseconds, as AMQP's are.
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
    column,
    joined,
    lengths,
    numbers,
    refuse,
    valid,
)
from .entries import NULL, STRING, SYMBOL, entries
from .fields import FIELDS

BINARY, UINT, TIMESTAMP, LIST, MAP = 0xA0, 0x70, 0x83, 0xC0, 0xC1
MAX_BYTES = 2**31 - 1  # of one column of messages: Arrow counts its octets in 31 bits
_MAX_UINT = 2**32 - 1

_CODES = {"message-id": STRING, "string": STRING, "binary": BINARY, "symbol": SYMBOL, "timestamp": TIMESTAMP, "uint": UINT}
# The fields of the section of properties that have a column, in their order, each with its constructor.
_FIELDS = tuple((name, _CODES[field.wire]) for name, field in FIELDS.items())
_SIZED = (STRING, BINARY, SYMBOL)


def bare_messages(payload: pa.RecordBatch) -> pa.Array:
    """The bare message of each row of columnar `payload`, as binary.

    Raises InvalidRequest naming column and row for what AMQP cannot say, ResourceLimit for more than `MAX_BYTES` in all.
    """
    return joined(*bare_parts(payload))


def bare_parts(payload: pa.RecordBatch) -> list[pa.Array]:
    """Encode bare messages as columns that are yet to be joined, row by row."""
    held = _held(payload)
    parts, sizes = _properties(held, payload.num_rows)
    if "properties" in held:
        found = entries("properties", held["properties"], STRING)
        head, widths = before_section(APPLICATION_PROPERTIES, MAP, found.sizes, 2 * found.counts, found.there)
        parts += [head, found.octets]
        sizes = sizes + widths + found.sizes
    body = payload.column("body")
    octets = lengths(body)
    before, widths = before_values(BINARY, octets, bytes((0x00, 0x53, DATA)))
    total = int((sizes + widths + octets).sum())
    if total > MAX_BYTES:
        raise ResourceLimit(f"{len(sizes)} messages of {total} bytes together, {MAX_BYTES} are allowed: ask for fewer rows")
    return [*parts, column(before, widths), body]


def annotation_sections(payload: pa.RecordBatch) -> pa.Array | None:
    """The message annotations of each row, from `annotations` and `deliveryTime`; no octets where a row has neither.

    None if no row has any. A delivery time of its own column stands for the one that the map may hold. Raises InvalidRequest.
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
    there = timed = np.zeros(rows, np.bool_)
    if times is not None:
        there = timed = valid(times)
        octets = np.empty((rows, len(_TIME_KEY) + 9), np.uint8)
        octets[:, : len(_TIME_KEY)] = _TIME_KEY
        octets[:, len(_TIME_KEY) :] = _timestamps(times)
        sizes, counts = timed * octets.shape[1], timed.astype(np.int64)
        parts.append(column(octets, sizes))
    if maps is not None:
        found = entries("annotations", maps, SYMBOL, (DELIVERY_TIME, timed) if times is not None else None)
        parts.append(found.octets)
        sizes, counts, there = sizes + found.sizes, counts + found.counts, there | found.there
    head, _ = before_section(MESSAGE_ANNOTATIONS, MAP, sizes, 2 * counts, there)
    return joined(head, *parts)


_TIME_KEY = np.frombuffer(bytes((SYMBOL, len(DELIVERY_TIME))) + DELIVERY_TIME.encode(), np.uint8)


def _held(payload: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns with anything in them."""
    rows = payload.num_rows
    return {n: found for n, found in zip(payload.schema.names, payload.columns, strict=True) if found.null_count < rows}


# --- Properties ------------------------------------------------------------------------------------------------------------


def _properties(held: Mapping[str, pa.Array], rows: int) -> tuple[list[pa.Array], Ints]:
    """The properties section in parts to be joined, and the octets of all of them."""
    used = max((i for i, (name, _) in enumerate(_FIELDS, 1) if name in held), default=0)
    if not used:
        return [], np.zeros(rows, np.int64)
    there = np.zeros((used, rows), np.bool_)
    for i, (name, _) in enumerate(_FIELDS[:used]):
        if name in held:
            there[i] = valid(held[name]) if held[name].null_count else True
    # How many fields each row's list has, and which fields it has therefore, if only as nulls.
    counts = (there * np.arange(1, used + 1)[:, None]).max(axis=0)
    listed = np.arange(used)[:, None] < counts
    texts = [i for i in range(used) if _FIELDS[i][1] in _SIZED]
    fields, sizes = _texts(held, texts, there[texts], listed[texts])
    for i in range(used):
        if _FIELDS[i][1] not in _SIZED:
            octets, widths = _fixed(_FIELDS[i], held, there[i])
            widths = _with_nulls(octets, widths, there[i], listed[i])
            fields[i] = [column(octets, widths)]
            sizes = sizes + widths
    head, widths = before_section(PROPERTIES, LIST, sizes, counts, counts > 0)
    return [head, *(part for i in range(used) for part in fields[i])], sizes + widths


def _texts(held: Mapping[str, pa.Array], texts: list[int], there: Bools, listed: Bools) -> tuple[dict[int, list[pa.Array]], Ints]:
    """The parts of the fields of variable width, all made at once, by field; and their octets."""
    sizes = np.zeros(there.shape, np.int64)
    for line, i in enumerate(texts):
        name, code = _FIELDS[i]
        if name in held:
            if code == SYMBOL:
                check_ascii(name, held[name])
            sizes[line] = lengths(held[name])
    octets, widths = before_values(np.array([[_FIELDS[i][1]] for i in texts]), sizes)
    widths = _with_nulls(octets, widths, there, listed)
    prefixes, rows = column(octets, widths), there.shape[1]
    fields = {}
    for line, i in enumerate(texts):
        value = held.get(_FIELDS[i][0])
        fields[i] = [prefixes.slice(line * rows, rows), *([] if value is None else [as_binary(value)])]
    return fields, (sizes + widths).sum(axis=0)


def _with_nulls(octets: Octets, widths: Ints | int, there: Bools, listed: Bools) -> Ints | int:
    """Makes nulls of the values that are not there; the octets of all: one for a null, none after the last field of a list."""
    if there.all():
        return widths
    octets[~there, 0] = NULL
    return np.where(there, widths, listed)


def _fixed(field: tuple[str, int], held: Mapping[str, pa.Array], there: Bools) -> tuple[Octets, Ints | int]:
    """A time or a uint of each row, and its octets where it is there."""
    name, code = field
    if name not in held:
        return np.empty((len(there), 1), np.uint8), 1
    if code == TIMESTAMP:
        return _timestamps(held[name]), 9
    values = numbers(held[name])
    wrong = there & ((values < 0) | (values > _MAX_UINT))
    if wrong.any():
        row = int(wrong.argmax())
        refuse(name, row, f"{values[row]} is no AMQP uint: allowed are 0 to {_MAX_UINT}")
    octets = np.empty((len(there), 5), np.uint8)
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

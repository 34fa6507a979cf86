"""Rows of columns as bare AMQP messages (3.2): properties, application properties, one data section.

Nothing here loops over rows, or over the fields of a row. A message is a row of small binary columns (constructors and sizes,
made by numpy for all fields at once) and of the columns that hold the values, which Arrow joins. Encodings are the shortest that
AMQP has, to the octet those of `broker_core.amqp`: what is null at the end of the properties is left out, and so is a section
without anything in it. Times are whole milliseconds, as AMQP's are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from broker_core.amqp.messages import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from broker_core.encoding.arrays import (
    Bools,
    Ints,
    Octets,
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
from broker_core.encoding.entries import NULL, STRING, SYMBOL, entries
from broker_core.errors import ResourceLimit

BINARY, TIMESTAMP, LIST, MAP = 0xA0, 0x83, 0xC0, 0xC1
DELIVERY_TIME = "x-opt-delivery-time"
MAX_BYTES = 2**31 - 1  # of one column of messages: Arrow counts its octets in 31 bits
_MAX_UINT = 2**32 - 1

# The properties section's fields in their order. The thirteenth, reply-to-group-id, has no column.
_FIELDS = (
    ("messageId", STRING),
    ("userId", BINARY),
    ("to", STRING),
    ("subject", STRING),
    ("replyTo", STRING),
    ("correlationId", STRING),
    ("contentType", SYMBOL),
    ("contentEncoding", SYMBOL),
    ("absoluteExpiryTime", TIMESTAMP),
    ("creationTime", TIMESTAMP),
    ("groupId", STRING),
    ("groupSequence", 0x70),
)


def bare_messages(payload: pa.RecordBatch) -> pa.Array:
    """The bare message of each row of columnar `payload`, as binary.

    Raises InvalidRequest naming column and row for what AMQP cannot say, ResourceLimit for more than `MAX_BYTES` in all.
    """
    parts, sizes = _properties(payload)
    maps = _held(payload, "properties")
    if maps is not None:
        found = entries("properties", maps, STRING)
        head, widths = before_section(APPLICATION_PROPERTIES, MAP, found.sizes, 2 * found.counts, found.there)
        parts += [head, found.octets]
        sizes = sizes + widths + found.sizes
    body = payload.column("body")
    octets = lengths(body, valid(body))
    head, widths = _before_data(octets)
    sizes = sizes + widths + octets
    if sizes.sum() > MAX_BYTES:
        raise ResourceLimit(f"{len(sizes)} messages of {sizes.sum()} bytes together, {MAX_BYTES} are allowed: ask for fewer rows")
    return joined(*parts, head, body)


def annotation_sections(payload: pa.RecordBatch) -> pa.Array | None:
    """The message annotations of each row, from `annotations` and `deliveryTime`; no octets where a row has neither.

    None if no row has any. A delivery time of its own column stands for the one that the map may hold. Raises InvalidRequest.
    """
    maps, times = _held(payload, "annotations"), _held(payload, "deliveryTime")
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


def _held(payload: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column with anything in it."""
    index = payload.schema.get_field_index(name)
    if index < 0:
        return None
    found = payload.column(index)
    return None if found.null_count == len(found) else found


# --- Properties ------------------------------------------------------------------------------------------------------------


def _properties(payload: pa.RecordBatch) -> tuple[list[Any], Ints]:
    """The properties section in parts to be joined, and the octets of all of them."""
    held = [_held(payload, name) for name, _ in _FIELDS]
    used = max((i for i, found in enumerate(held, 1) if found is not None), default=0)
    rows = payload.num_rows
    if not used:
        return [], np.zeros(rows, np.int64)
    there = np.zeros((used, rows), np.bool_)
    for i, found in enumerate(held[:used]):
        if found is not None:
            there[i] = valid(found)
    # How many fields each row's list has, and which fields it has therefore, if only as nulls.
    counts = (there * np.arange(1, used + 1)[:, None]).max(axis=0)
    listed = np.arange(used)[:, None] < counts
    fields: list[list[Any]] = [[] for _ in range(used)]
    sizes = np.zeros(rows, np.int64)
    texts = [i for i in range(used) if _FIELDS[i][1] in (STRING, BINARY, SYMBOL)]
    sizes += _texts(held, texts, there[texts], listed[texts], fields)
    for i in range(used):
        if i not in texts:
            octets, widths = _fixed(i, held[i], rows, there[i])
            octets[~there[i], 0] = NULL
            widths = np.where(there[i], widths, listed[i])
            fields[i] = [column(octets, widths)]
            sizes += widths
    head, widths = before_section(PROPERTIES, LIST, sizes, counts, counts > 0)
    return [head, *(part for parts in fields for part in parts)], sizes + widths


def _texts(held: list[pa.Array | None], texts: list[int], there: Bools, listed: Bools, fields: list[list[Any]]) -> Ints:
    """Fills in the parts of the fields of variable width, all of them at once; returns their octets."""
    sizes = np.zeros(there.shape, np.int64)
    for line, i in enumerate(texts):
        found = held[i]
        if found is not None:
            if _FIELDS[i][1] == SYMBOL:
                check_ascii(_FIELDS[i][0], found)
            sizes[line] = lengths(found, there[line])
    octets, widths = before_values(np.array([[_FIELDS[i][1]] for i in texts]), sizes)
    octets[~there, 0] = NULL
    widths = np.where(there, widths, listed)
    prefixes, rows = column(octets, widths), there.shape[1]
    for line, i in enumerate(texts):
        found = held[i]
        fields[i] = [prefixes.slice(line * rows, rows)]
        if found is not None:
            fields[i].append(found.cast(pa.binary()))
    total: Ints = (sizes + widths).sum(axis=0)
    return total


def _fixed(field: int, found: pa.Array | None, rows: int, there: Bools) -> tuple[Octets, Any]:
    """A time or a uint of each row, and its octets where it is there."""
    if found is None:
        return np.empty((rows, 1), np.uint8), 1
    if _FIELDS[field][1] == TIMESTAMP:
        return _timestamps(found), 9
    values = numbers(found)
    wrong = there & ((values < 0) | (values > _MAX_UINT))
    if wrong.any():
        row = int(wrong.argmax())
        refuse(_FIELDS[field][0], row, f"{values[row]} is no AMQP uint: allowed are 0 to {_MAX_UINT}")
    octets = np.empty((rows, 5), np.uint8)
    octets[:, 0] = np.where(values == 0, 0x43, np.where(values < 256, 0x52, 0x70))
    octets[:, 1:] = big_endian(values, 4)
    small = values < 256
    octets[small, 1] = values[small]
    return octets, np.where(values == 0, 1, np.where(small, 2, 5))


def _timestamps(times: pa.Array) -> Octets:
    octets = np.empty((len(times), 9), np.uint8)
    octets[:, 0] = TIMESTAMP
    octets[:, 1:] = big_endian(numbers(times) // 1000, 8)
    return octets


def _before_data(sizes: Ints) -> tuple[pa.Array, Ints]:
    inside, widths = before_values(BINARY, sizes)
    octets = np.empty((len(sizes), 3 + inside.shape[1]), np.uint8)
    octets[:, :3] = 0x00, 0x53, DATA
    octets[:, 3:] = inside
    widths = widths + 3
    return column(octets, widths), widths

"""Operands of a selector from columns: those of a columnar payload, and those stored beside an encoded message.

The application properties of a columnar payload are loose (see `operands`): they came from a DataFrame, whose `properties` are a
map of strings, so a sender could only write the number 5 as text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..messages.columns import TIMESTAMP
from ..messages.encoding.arrays import numbers, valid
from ..messages.encoding.octets import offsets_of
from .names import TYPES
from .operands import Operand, of_booleans, of_ints, of_texts
from .syntax import Identifier
from .truth import NO, YES
from .values import Texts

#: Fields of the header: columns in both forms of a payload.
HEADER = frozenset({"priority", "durable", "deliveryMode", "ttl"})
DEFAULT_PRIORITY = 4
_NULL = Operand(YES)


def columnar(payload: pa.RecordBatch, name: Identifier) -> Operand:
    """Return the operand of one identifier in every row of a columnar payload."""
    if name.field is None:
        column = _column(payload, "properties")
        return _NULL if column is None else _property(column, name.name)
    if name.field in HEADER:
        return header(payload, name.field)
    column = _column(payload, name.field)
    if column is None:
        return _NULL
    if TYPES[name.field] == "string":
        return of_texts(column)
    values, there = _ints(column)
    if column.type == TIMESTAMP:
        values = values // 1000  # of microseconds
    return of_ints(values, there)


def _property(maps: pa.Array, name: str) -> Operand:
    """Return the value of this key in each map."""
    bounds = offsets_of(maps)
    first, last, each = int(bounds[0]), int(bounds[-1]), int(bounds[1] - bounds[0])
    same_keys = each > 0 and maps.null_count == 0 and bool((bounds[1:] - bounds[:-1] == each).all())
    keys = maps.keys.slice(first, last - first)
    if not same_keys or not _periodic(keys, each):
        return of_texts(pc.map_lookup(maps, name, "first"), loose=True)
    # All maps have the keys of the first in its order, as maps of one DataFrame do: the index in the first is enough.
    known = keys.slice(0, each).to_pylist()
    if name not in known:
        return _NULL
    items, rows = maps.items, slice(first + known.index(name), last, each)
    ends = offsets_of(items)
    there = YES if items.null_count == 0 else np.asarray(items.is_valid())[rows]
    starts, ends = ends[:-1][rows].astype(np.int64), ends[1:][rows].astype(np.int64)
    return Operand(~there, texts=Texts(there, buffer=items.buffers()[2], starts=starts, ends=ends), loose=True)


def _periodic(keys: pa.Array, each: int) -> bool:
    """Return True if the keys repeat themselves, `each` at a time."""
    ends, data = offsets_of(keys), keys.buffers()[2]
    if data is None:
        return False
    width = int(ends[each] - ends[0])
    # Keys repeat if each ends `width` octets after the key `each` before it, and the octets repeat with that period.
    if not (ends[each:] - ends[:-each] == width).all():
        return False
    octets = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return bool((octets[width:] == octets[: len(octets) - width]).all())


def header(payload: pa.RecordBatch, field: str) -> Operand:
    """Return the operand of a field of the header, in a payload of either form."""
    column = _column(payload, "durable" if field == "deliveryMode" else field)
    if field in ("durable", "deliveryMode"):
        durable = NO if column is None else column.fill_null(False).to_numpy(zero_copy_only=False)
        return of_booleans(durable) if field == "durable" else _mode(durable, payload.num_rows)
    if column is None:
        return of_ints(np.int64(DEFAULT_PRIORITY), YES) if field == "priority" else _NULL
    if field == "priority":
        return of_ints(column.fill_null(DEFAULT_PRIORITY).cast(pa.int64()).to_numpy(), YES)
    return of_ints(*_ints(column))


_MODES = pa.array(["NON_PERSISTENT", "PERSISTENT"])


def _mode(durable: Any, rows: int) -> Operand:
    return of_texts(_MODES.take(pa.array(np.broadcast_to(durable, rows).astype(np.int8))))


def _ints(column: pa.Array) -> tuple[Any, Any]:
    return numbers(column), YES if column.null_count == 0 else valid(column)


def _column(payload: pa.RecordBatch, name: str) -> Any:
    index = payload.schema.get_field_index(name)
    return payload.column(index) if index >= 0 else None

"""Operands of a selector from columns: of a columnar payload, and of the header of an encoded message.

The application properties of a columnar payload are loose, because they came from a DataFrame.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..messages.columns import TIMESTAMP
from ..messages.encoding.arrays import numbers, valid
from ..messages.encoding.octets import offsets_of
from .names import TYPES, Identifier
from .operands import Operand, of_ints, of_texts
from .truth import NO, YES
from .values import Booleans, Texts

#: Fields of the header: columns in both forms of a payload.
HEADER = frozenset({"priority", "durable", "deliveryMode", "ttl"})
DEFAULT_PRIORITY = 4
_MODES = pa.array(["NON_PERSISTENT", "PERSISTENT"])
_NULL = Operand(YES)


def columnar(payload: pa.RecordBatch, name: Identifier) -> Operand:
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
    values, present = _ints(column)
    if column.type == TIMESTAMP:
        values = values // 1000  # of microseconds
    return of_ints(values, present)


def _property(maps: pa.Array, name: str) -> Operand:
    bounds = offsets_of(maps)
    first, last, per_map = int(bounds[0]), int(bounds[-1]), int(bounds[1] - bounds[0])
    same_keys = per_map > 0 and maps.null_count == 0 and bool((bounds[1:] - bounds[:-1] == per_map).all())
    keys = maps.keys.slice(first, last - first)
    if not same_keys or not _periodic(keys, per_map):
        return of_texts(pc.map_lookup(maps, name, "first"), loose=True)
    # All maps have the keys of the first map in its order, as in a DataFrame.
    known = keys.slice(0, per_map).to_pylist()
    if name not in known:
        return _NULL
    items, rows = maps.items, slice(first + known.index(name), last, per_map)
    ends = offsets_of(items)
    present = YES if items.null_count == 0 else np.asarray(items.is_valid())[rows]
    starts, ends = ends[:-1][rows].astype(np.int64), ends[1:][rows].astype(np.int64)
    return Operand(~present, texts=Texts(present, buffer=items.buffers()[2], starts=starts, ends=ends), loose=True)


def _periodic(keys: pa.Array, period: int) -> bool:
    ends, data = offsets_of(keys), keys.buffers()[2]
    if data is None:
        return False
    width = int(ends[period] - ends[0])
    # Keys repeat if ends and bytes repeat at a distance of `width` bytes.
    if not (ends[period:] - ends[:-period] == width).all():
        return False
    octets = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return bool((octets[width:] == octets[: len(octets) - width]).all())


def header(payload: pa.RecordBatch, field: str) -> Operand:
    """`payload`: of either form."""
    column = _column(payload, "durable" if field == "deliveryMode" else field)
    if field in ("durable", "deliveryMode"):
        durable = NO if column is None else column.fill_null(False).to_numpy(zero_copy_only=False)
        if field == "durable":
            return Operand(NO, booleans=Booleans(YES, durable))
        return of_texts(_MODES.take(pa.array(np.broadcast_to(durable, payload.num_rows).astype(np.int8))))
    if column is None:
        return of_ints(np.int64(DEFAULT_PRIORITY), YES) if field == "priority" else _NULL
    if field == "priority":
        return of_ints(column.fill_null(DEFAULT_PRIORITY).cast(pa.int64()).to_numpy(), YES)
    return of_ints(*_ints(column))


def _ints(column: pa.Array) -> tuple[Any, Any]:
    return numbers(column), YES if column.null_count == 0 else valid(column)


def _column(payload: pa.RecordBatch, name: str) -> Any:
    index = payload.schema.get_field_index(name)
    return payload.column(index) if index >= 0 else None

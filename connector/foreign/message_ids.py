"""Message ids for rows without one. A repeated task gives the same ids, so a broker that detects duplicates drops the copies."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from ...broker_core.errors import InvalidColumn
from ...broker_core.messages.columns import STRING_MAP

MAX_PREFIX = 64  # characters; Service Bus allows 128 in total


def prefix_of(*parts: object) -> str:
    text = "".join(f"{part}/" for part in parts)
    return text if len(text) <= MAX_PREFIX else hashlib.sha256(text.encode()).hexdigest()[:MAX_PREFIX] + "/"


def named(rows: pa.RecordBatch, prefix: str, first: int, id_property: str | None) -> pa.RecordBatch:
    """Return validated rows with message ids, durable by default. The id of row i is `prefix` followed by `first` + i.

    `id_property`: an application property that repeats the id. Rows with the column `message` only become durable. Raises
    InvalidColumn if they would need the property.
    """
    rows = _with(rows, "durable", _durable(rows))
    if "message" in rows.schema.names:
        if id_property is not None:
            raise InvalidColumn(
                "the column 'message' is sent exactly as it is, so option duplicateIdProperty cannot add to it: leave the option"
                " out"
            )
        return rows
    ids = _ids(rows, prefix, first)
    rows = _with(rows, "messageId", ids)
    return rows if id_property is None else _with(rows, "properties", _with_property(rows, id_property, ids))


def _durable(rows: pa.RecordBatch) -> pa.Array:
    if "durable" not in rows.schema.names:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return rows.column("durable").fill_null(True)


def _ids(rows: pa.RecordBatch, prefix: str, first: int) -> pa.Array:
    import pyarrow.compute as pc

    numbers = pa.array(range(first, first + rows.num_rows), pa.int64()).cast(pa.string())
    made = pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")
    return pc.coalesce(rows.column("messageId"), made) if "messageId" in rows.schema.names else made


def _with_property(rows: pa.RecordBatch, name: str, ids: pa.Array) -> pa.Array:
    """Existing properties of this name keep their value."""
    import numpy as np

    count = rows.num_rows
    if "properties" not in rows.schema.names:
        return _map(np.arange(count + 1, dtype=np.int32), pa.repeat(pa.scalar(name), count), ids)
    # `take` removes entries of other slices, and entries of nulls.
    properties = rows.column("properties").take(pa.array(np.arange(count)))
    offsets = properties.offsets.to_numpy()
    lacks = np.ones(count, np.bool_)
    named_entries = np.flatnonzero(properties.keys.to_numpy(zero_copy_only=False) == name)
    lacks[np.searchsorted(offsets, named_entries, side="right") - 1] = False
    grown = offsets + np.concatenate([np.zeros(1, np.int32), np.cumsum(lacks, dtype=np.int32)])
    added = grown[1:][lacks] - 1  # the place of each new entry, at the end of its row
    order = np.empty(int(grown[-1]), np.int64)
    old = np.ones(len(order), np.bool_)
    old[added] = False
    order[old] = np.arange(len(properties.keys))
    order[added] = len(properties.keys) + np.arange(len(added))
    new = ids.filter(pa.array(lacks))
    keys = pa.concat_arrays([properties.keys, pa.repeat(pa.scalar(name), len(new))]).take(pa.array(order))
    items = pa.concat_arrays([properties.items, new]).take(pa.array(order))
    return _map(grown.astype(np.int32), keys, items)


def _map(offsets: object, keys: pa.Array, items: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=STRING_MAP)


def _with(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = rows.schema.get_field_index(name)
    return rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)

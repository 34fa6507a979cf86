"""Message ids for rows without one: the same when a task is repeated, so that a broker with duplicate detection drops them."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from ...broker_core.errors import InvalidColumn
from ...broker_core.messages.columns import STRING_MAP

#: Characters that a user's name may take of an id; a longer one stands there as its digest. Service Bus takes 128 in all.
MAX_PREFIX = 64


def prefix_of(*parts: object) -> str:
    """Return what all ids of a write, or of a task, begin with: its parts, each with a slash behind it."""
    text = "".join(f"{part}/" for part in parts)
    return text if len(text) <= MAX_PREFIX else hashlib.sha256(text.encode()).hexdigest()[:MAX_PREFIX] + "/"


def named(rows: pa.RecordBatch, prefix: str, first: int, id_property: str | None) -> pa.RecordBatch:
    """Return validated rows with a message id in each, that of row i being `prefix` and `first` + i, and durable where unsaid.

    `id_property` is an application property to say the id again. Rows with the column `message` are sent exactly as they are:
    they become durable, nothing else. Raises InvalidColumn where they would need the property.
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
    return rows if id_property is None else _with(rows, "properties", _told(rows, id_property, ids))


def _durable(rows: pa.RecordBatch) -> pa.Array:
    if "durable" not in rows.schema.names:
        return pa.repeat(pa.scalar(True), rows.num_rows)
    return rows.column("durable").fill_null(True)


def _ids(rows: pa.RecordBatch, prefix: str, first: int) -> pa.Array:
    import pyarrow.compute as pc

    numbers = pa.array(range(first, first + rows.num_rows), pa.int64()).cast(pa.string())
    made = pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")
    return pc.coalesce(rows.column("messageId"), made) if "messageId" in rows.schema.names else made


def _told(rows: pa.RecordBatch, name: str, ids: pa.Array) -> pa.Array:
    """Return the rows' properties with the ids under this name; a row that has the name already keeps its own."""
    import numpy as np

    count = rows.num_rows
    if "properties" not in rows.schema.names:
        return _map(np.arange(count + 1, dtype=np.int32), pa.repeat(pa.scalar(name), count), ids)
    # Taken, a slice has its own entries and nothing else, and a null has none.
    said = rows.column("properties").take(pa.array(np.arange(count)))
    offsets = said.offsets.to_numpy()
    lacks = np.ones(count, np.bool_)
    there = np.flatnonzero(said.keys.to_numpy(zero_copy_only=False) == name)
    lacks[np.searchsorted(offsets, there, side="right") - 1] = False
    grown = offsets + np.concatenate([np.zeros(1, np.int32), np.cumsum(lacks, dtype=np.int32)])
    added = grown[1:][lacks] - 1  # where each new entry stands: at the end of its row
    order = np.empty(int(grown[-1]), np.int64)
    old = np.ones(len(order), np.bool_)
    old[added] = False
    order[old] = np.arange(len(said.keys))
    order[added] = len(said.keys) + np.arange(len(added))
    new = ids.filter(pa.array(lacks))
    keys = pa.concat_arrays([said.keys, pa.repeat(pa.scalar(name), len(new))]).take(pa.array(order))
    items = pa.concat_arrays([said.items, new]).take(pa.array(order))
    return _map(grown.astype(np.int32), keys, items)


def _map(offsets: object, keys: pa.Array, items: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=STRING_MAP)


def _with(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = rows.schema.get_field_index(name)
    return rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)

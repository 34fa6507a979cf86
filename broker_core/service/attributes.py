"""Attributes of stored messages that the engine needs. They are read without the broker's lock."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from ..engine.model.options import PRIORITIES, Rules
from ..messages import delivery_times
from ..messages.encoding import reference
from ..messages.encoding.decoding import vectors
from ..messages.encoding.fields import id_digests
from ..messages.encoding.uniform_messages import UniformMessages
from ..messages.payloads import Payload, as_batch

_GROUP_ENDS = -1  # of the last message of a group
_LATEST = 1 << 53  # milliseconds: 285,000 years
_DTYPES = {16: np.int16, 64: np.int64}


def attributes_of(payload: Payload, rules: Rules, now: int) -> Attributes:
    """`now`: milliseconds since 1970."""
    if isinstance(payload, UniformMessages) and not _needs_sections(rules):
        priority = payload.header.priority
        if priority is None:
            return NO_ATTRIBUTES
        return Attributes(priority=np.full(payload.num_rows, min(priority, PRIORITIES - 1) + 1, np.uint8))
    batch = as_batch(payload)
    names = batch.schema.names
    values: dict[str, Any] = {}
    if "priority" in names:
        values["priority"] = _priority(batch)
    if "ttl" in names or rules.message_ttl:
        values["expiry"] = _expiry(batch, rules.message_ttl, now)
    if "deliveryTime" in names or "encodedAnnotations" in names:
        values["due"] = _due(batch, now)
    if rules.groups != "none":
        values["group"] = coded(column_of(batch, "groupId"))
        if values["group"] is not None:
            values["closes"] = _closes(batch)
    if rules.key is not None:
        values["key"] = coded(_key_column(batch, rules.key))
    if rules.duplicate_window:
        values["ids"] = id_digests(batch)
    present = {name: value for name, value in values.items() if value is not None}
    return Attributes(**present) if present else NO_ATTRIBUTES


def _needs_sections(rules: Rules) -> bool:
    """Return True for rules about messages without header and annotations."""
    return bool(rules.message_ttl or rules.groups != "none" or rules.key is not None or rules.duplicate_window)


def _numbers(column: pa.Array, when_null: int) -> npt.NDArray[np.int64]:
    """64-bit numbers, or microseconds since 1970."""
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), when_null)
    return np.frombuffer(
        column.buffers()[1], _DTYPES[column.type.bit_width], len(column), column.offset * column.type.bit_width // 8
    )


def _unless_alike(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    return values if values.any() else None


def _priority(batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
    values = np.clip(_numbers(batch.column("priority"), -1), -1, PRIORITIES - 1)
    return _unless_alike((values + 1).astype(np.uint8))


def _expiry(batch: pa.RecordBatch, bound: int, now: int) -> npt.NDArray[Any] | None:
    """Return when each message expires: after its ttl, and at most `bound` milliseconds from now.

    The absolute expiry time is ignored, or messages replayed from the archive would expire immediately.
    """
    at = np.zeros(batch.num_rows, np.int64)
    if "ttl" in batch.schema.names:
        ttl = np.minimum(_numbers(batch.column("ttl"), 0), _LATEST - now)
        at = np.where(ttl > 0, now + ttl, 0)
    if bound:
        at = np.where(at > 0, np.minimum(at, now + bound), now + bound)
    return _unless_alike(np.minimum(at, _LATEST))


def _due(batch: pa.RecordBatch, now: int) -> npt.NDArray[Any] | None:
    """Return when each message may first be delivered; None if all may be now."""
    at = np.zeros(batch.num_rows, np.int64)
    if "deliveryTime" in batch.schema.names:
        at = np.clip(_numbers(batch.column("deliveryTime"), 0) // 1000, 0, _LATEST)
    if "encodedAnnotations" in batch.schema.names:
        for row, section in enumerate(batch.column("encodedAnnotations")):
            octets = section.as_py()
            if octets is not None and delivery_times.PREFIX in octets:
                at[row] = min(delivery_times.due(delivery_times.read(octets), now), _LATEST)
    return at if (at > now).any() else None


def _closes(batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
    column = column_of(batch, "groupSequence")
    if column is None:
        return None
    values = _numbers(column, 0)
    # An unsigned 32-bit number in AMQP.
    return _unless_alike(((values == _GROUP_ENDS) | (values == _GROUP_ENDS & 0xFFFFFFFF)).astype(np.uint8))


def _key_column(batch: pa.RecordBatch, key: str) -> pa.Array | None:
    if not key.startswith("properties."):
        return column_of(batch, key)
    properties = column_of(batch, "properties")
    return None if properties is None else pc.map_lookup(properties, key.removeprefix("properties."), "first")


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a public column of a stored batch in any form; None if no message has it. Messages that cannot be decoded have
    null."""
    if "message" not in batch.schema.names:
        return batch.column(name) if name in batch.schema.names else None
    columns, odd = vectors(batch, [name])
    rows = np.flatnonzero(odd)
    column = columns[name]
    if not len(rows):
        return column
    values = column.to_pylist()
    for row in rows.tolist():
        try:
            values[row] = reference.row(batch.column("message")[row].as_py(), None, [name])[name]
        except reference.REFUSALS:
            values[row] = None
    return pa.array(values, column.type)


def coded(column: pa.Array | None) -> Coded | None:
    if column is None or column.null_count == len(column):
        return None
    encoded = pc.dictionary_encode(column)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False) + 1
    return Coded(encoded.dictionary.to_pylist(), codes)

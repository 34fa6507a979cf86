"""From stored batches to what the engine has to know of their messages: priority, times, group, key.

Read before the broker's lock is taken. A batch whose messages say nothing of all this, as nearly all do, costs a look at the
names of its columns.
"""

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

_GROUP_ENDS = -1  # as a group-sequence: the last message of its group


def attributes_of(payload: Payload, rules: Rules, now: int) -> Attributes:
    """Read what `rules` make the queue ask of the messages of a stored batch. `now`: milliseconds since 1970."""
    if isinstance(payload, UniformMessages) and not _looks_inside(rules):
        priority = payload.header.priority
        if priority is None:
            return NO_ATTRIBUTES
        return Attributes(priority=np.full(payload.num_rows, min(priority, PRIORITIES - 1) + 1, np.uint8))
    batch = as_batch(payload)
    names = batch.schema.names
    found: dict[str, Any] = {}
    if "priority" in names:
        found["priority"] = _priority(batch)
    if "ttl" in names or rules.message_ttl:
        found["expiry"] = _expiry(batch, rules.message_ttl, now)
    if "deliveryTime" in names or "encodedAnnotations" in names:
        found["due"] = _due(batch, now)
    if rules.groups != "none":
        found["group"] = _coded(column_of(batch, "groupId"))
        if found["group"] is not None:
            found["closes"] = _closes(batch)
    if rules.key is not None:
        found["key"] = _coded(key_column(batch, rules.key))
    if rules.duplicate_window:
        found["ids"] = id_digests(batch)
    said = {name: value for name, value in found.items() if value is not None}
    return Attributes(**said) if said else NO_ATTRIBUTES


def _looks_inside(rules: Rules) -> bool:
    """Say whether there is something to know of a message that has neither header nor annotations."""
    return bool(rules.message_ttl or rules.groups != "none" or rules.key is not None or rules.duplicate_window)


def _numbers(column: pa.Array, when_null: int) -> npt.NDArray[np.int64]:
    """64-bit numbers, or microseconds since 1970."""
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), when_null)
    return np.frombuffer(
        column.buffers()[1], _DTYPES[column.type.bit_width], len(column), column.offset * column.type.bit_width // 8
    )


_DTYPES = {16: np.int16, 64: np.int64}


def _unless_alike(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    return values if values.any() else None


def _priority(batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
    values = np.clip(_numbers(batch.column("priority"), -1), -1, PRIORITIES - 1)
    return _unless_alike((values + 1).astype(np.uint8))


def _expiry(batch: pa.RecordBatch, bound: int, now: int) -> npt.NDArray[Any] | None:
    """Compute when each message expires: after its ttl, at the latest `bound` milliseconds from now.

    The absolute expiry time is a note of the sender's: what is sent again out of the archive would else be gone at once."""
    at = np.zeros(batch.num_rows, np.int64)
    if "ttl" in batch.schema.names:
        ttl = np.minimum(_numbers(batch.column("ttl"), 0), _LATEST - now)
        at = np.where(ttl > 0, now + ttl, 0)
    if bound:
        at = np.where(at > 0, np.minimum(at, now + bound), now + bound)
    return _unless_alike(np.minimum(at, _LATEST))


_LATEST = 1 << 53  # milliseconds: 285,000 years


def _due(batch: pa.RecordBatch, now: int) -> npt.NDArray[Any] | None:
    """Compute when each message may first be delivered; None if all may at once."""
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
    # On the wire it is 32 bits without a sign.
    return _unless_alike(((values == _GROUP_ENDS) | (values == _GROUP_ENDS & 0xFFFFFFFF)).astype(np.uint8))


def key_column(batch: pa.RecordBatch, key: str) -> pa.Array | None:
    """The texts of what a queue's option `key` names; None where no message has it."""
    if not key.startswith("properties."):
        return column_of(batch, key)
    properties = column_of(batch, "properties")
    return None if properties is None else pc.map_lookup(properties, key.removeprefix("properties."), "first")


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A user's column of a stored batch, whichever its form; None where no message has it. Null where a message cannot be
    decoded: its reader will be told."""
    if "message" not in batch.schema.names:
        return batch.column(name) if name in batch.schema.names else None
    found, odd = vectors(batch, [name])
    rows = np.flatnonzero(odd)
    column = found[name]
    if not len(rows):
        return column
    values = column.to_pylist()
    for row in rows.tolist():
        try:
            values[row] = reference.row(batch.column("message")[row].as_py(), None, [name])[name]
        except reference.REFUSALS:
            values[row] = None
    return pa.array(values, column.type)


def _coded(column: pa.Array | None) -> Coded | None:
    if column is None or column.null_count == len(column):
        return None
    encoded = pc.dictionary_encode(column)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False) + 1
    return Coded(encoded.dictionary.to_pylist(), codes)

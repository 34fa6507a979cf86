"""Messages as the journal stores them.

A journal payload is a mask of columns (8 bytes, little-endian), then an Arrow IPC record batch without a schema.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import stored_form, unpack
from .encoding import arrays
from .encoding.uniform_messages import UniformMessages

MASK_BYTES = 8

Payload: TypeAlias = "pa.RecordBatch | UniformMessages"


def as_batch(payload: Payload) -> pa.RecordBatch:
    return payload.batch if isinstance(payload, UniformMessages) else payload


class Stored(NamedTuple):
    """A journal payload in pieces, and its messages."""

    buffers: list[Any]
    payload: Payload

    @property
    def batch(self) -> pa.RecordBatch:
        return as_batch(self.payload)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buffers))

    @property
    def detached(self) -> Stored:
        """A copy whose batch is a view of the journal payload and keeps no other memory alive. For record batches only."""
        mask, message = self.buffers
        return Stored(self.buffers, unpack(int.from_bytes(mask, "little"), message))


def store(payload: Payload, mask: int | None = None) -> Stored:
    """Return a validated batch as a journal payload. With a `mask`, it has the stored form already."""
    if isinstance(payload, UniformMessages):
        return Stored([payload.mask.to_bytes(MASK_BYTES, "little"), *payload.serialized()], payload)
    if mask is None:
        mask, payload = stored_form(payload)
    return Stored([mask.to_bytes(MASK_BYTES, "little"), payload.serialize()], payload)


def mask_of(payload: pa.Buffer) -> int:
    return int.from_bytes(payload.slice(0, MASK_BYTES).to_pybytes(), "little")


# A message's stored size, which `maxBytesPerTrigger` counts, is that of its body or bare message, and of the texts of its
# properties. An int if all are equal, otherwise int64 of shape (rows,).


def encoded_sizes(messages: list[bytes]) -> int | npt.NDArray[np.int64]:
    """As `stored_sizes`, without Arrow, which is slow for a few messages."""
    lengths = list(map(len, messages)) or [0]
    return lengths[0] if lengths.count(lengths[0]) == len(lengths) else np.array(lengths, np.int64)


def stored_sizes(payload: pa.RecordBatch) -> int | npt.NDArray[np.int64]:
    sizes = np.zeros(payload.num_rows, np.int64)
    for name in ("body", "message"):
        if name in payload.schema.names:
            sizes += arrays.lengths(payload.column(name))
    if "properties" in payload.schema.names:
        maps = payload.column("properties")
        bounds = arrays.offsets(maps)
        for texts in (maps.keys, maps.items):  # whole children, which the map's offsets index
            ends = arrays.offsets(texts)[bounds] if len(texts) else np.zeros(len(bounds), np.int64)
            sizes += np.diff(ends) * arrays.valid(maps)
    if not len(sizes):
        return 0
    first = int(sizes[0])
    return first if bool((sizes == first).all()) else sizes

"""Messages as the journal stores them: a mask of columns, then a record batch; and packed blocks.

Where a packed block is kept is known here alone: see `open_block`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ..engine.columns import packing
from ..engine.columns.blocks import Block
from ..engine.model.queue import PackedBlock
from ..journal import Journal
from ..messages.columns import stored_form, unpack
from ..messages.encoding.alike import Payload, as_batch
from ..messages.encoding.lone import Lone

MASK_BYTES = 8  # a payload starts with its columns mask, little-endian


class Records(Protocol):
    """Payloads of records by position: the journal, or a view of another process's."""

    def payload(self, position: int) -> pa.Buffer:
        """Return the payload of the record at `position`: see `Journal.payload`."""


class Stored(NamedTuple):
    """A journal payload, and the messages of which it is made."""

    buffers: list[Any]
    payload: Payload

    @property
    def batch(self) -> pa.RecordBatch:
        """The batch that `load` will make of it."""
        return as_batch(self.payload)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the journal."""
        return sum(map(len, self.buffers))

    @property
    def detached(self) -> Stored:
        """Copy of it whose batch is a view of what the journal gets, and keeps nothing else alive. For record batches alone."""
        mask, message = self.buffers
        return Stored(self.buffers, unpack(int.from_bytes(mask, "little"), message))


def store(batch: Payload, mask: int | None = None) -> Stored:
    """A validated batch as a journal payload; with a mask it has the stored form already."""
    if isinstance(batch, Lone):
        return Stored([batch.mask.to_bytes(MASK_BYTES, "little"), *batch.octets()], batch)
    if mask is None:
        mask, batch = stored_form(batch)
    return Stored([mask.to_bytes(MASK_BYTES, "little"), batch.serialize()], batch)


def load(journal: Records, position: int) -> pa.RecordBatch:
    """The batch whose record is at `position`, a view of the mapped segment."""
    payload = journal.payload(position)
    return unpack(mask_of(payload), payload.slice(MASK_BYTES))


def mask_of(payload: pa.Buffer) -> int:
    """Return the mask of columns that the batch in this payload has."""
    return int.from_bytes(payload.slice(0, MASK_BYTES).to_pybytes(), "little")


def open_block(journal: Journal, entry: PackedBlock) -> Block:
    """An archived block, read back from where it went. What has been recorded since is so in there, too."""
    block = Block.restored(packing.unpack(journal.payload(entry.position)))
    if entry.recorded and block.unrecorded:
        block.recorded.set(block.unrecorded_rows(), entry.recorded, len(block.state))
    return block

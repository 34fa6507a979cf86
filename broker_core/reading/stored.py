"""Messages in the form of the journal; and packed blocks."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from ..engine.columns import packing
from ..engine.columns.blocks import Block
from ..engine.model.queue import PackedBlock
from ..journal import Journal
from ..messages.columns import unpack
from ..messages.payloads import MASK_BYTES, mask_of


class Records(Protocol):
    """The journal, or a view of another process's journal."""

    def payload(self, position: int) -> pa.Buffer: ...


def load(journal: Records, position: int) -> pa.RecordBatch:
    """Return the batch at `position`, a view of the mapped segment."""
    payload = journal.payload(position)
    return unpack(mask_of(payload), payload.slice(MASK_BYTES))


def open_block(journal: Journal, entry: PackedBlock) -> Block:
    """Read back an archived block. Rows that were recorded since are marked in the result."""
    block = Block.restored(packing.unpack(journal.payload(entry.position)))
    if entry.recorded and block.unrecorded:
        block.recorded.set(block.unrecorded_rows(), entry.recorded, len(block.state))
    return block

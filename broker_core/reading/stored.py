"""Record batches and packed blocks, read back from the journal.

Where a packed block is kept is known here alone: see `open_block`.
"""

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
    """Payloads of records by position: the journal, or a view of another process's."""

    def payload(self, position: int) -> pa.Buffer:
        """Return the payload of the record at `position`: see `Journal.payload`."""


def load(journal: Records, position: int) -> pa.RecordBatch:
    """The batch whose record is at `position`, a view of the mapped segment."""
    payload = journal.payload(position)
    return unpack(mask_of(payload), payload.slice(MASK_BYTES))


def open_block(journal: Journal, entry: PackedBlock) -> Block:
    """An archived block, read back from where it went. What has been recorded since is so in there, too."""
    block = Block.restored(packing.unpack(journal.payload(entry.position)))
    if entry.recorded and block.unrecorded:
        block.recorded.set(block.unrecorded_rows(), entry.recorded, len(block.state))
    return block

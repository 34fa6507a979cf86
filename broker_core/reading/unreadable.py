"""Errors for messages that cannot be read: removed by retention, or damaged on the disk."""

from __future__ import annotations

from typing import NoReturn

from .. import errors
from ..engine.columns.rowset import BLOCK_BITS
from .slices import BlockSlice

RETENTION = (
    "are gone: retention removed them. Keep them longer (retention_age_s, retention_bytes); with failOnDataLoss=false a query "
    "continues without them"
)


def data_loss(queue: str, block: int, why: str) -> errors.DataLoss:
    return errors.DataLoss(f"messages of {queue!r} around sequence number {block << BLOCK_BITS} {why}")


def refuse(queue: str, block_slice: BlockSlice, indexes: slice, error: errors.DamagedJournal) -> NoReturn:
    sequences = block_slice.sequences(indexes)
    raise errors.DamagedMessages.of(queue, int(sequences[0]), int(sequences[-1]), error) from error

"""Which messages of a block still have their payloads: retention takes the oldest segments, whoever refers to them."""

from __future__ import annotations

import numpy as np

from broker_core.engine.blocks import Block
from broker_core.engine.series import Rows


def within_retention(block: Block, rows: Rows, retained_from: int) -> Rows:
    """The rows whose payloads are still kept; `rows` itself when all are.

    Runs are not in the order of their payloads: a stage's are older than its publish, a dead letter's than its death.
    """
    positions = block.runs.position.array() << 3
    if not len(positions) or positions.min() >= retained_from:
        return rows
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    of = np.searchsorted(block.runs.row.array(), numbers, side="right") - 1
    kept = positions[of] >= retained_from
    return rows if kept.all() else numbers[kept]

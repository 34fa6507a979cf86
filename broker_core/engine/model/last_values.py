"""Consequences of new messages: which older values a newer one replaces, and which go from a ring that is too full.

It follows from the queue's state alone, live as at recovery, whatever brought the messages: a send, a publish, a route, a move.
"""

from __future__ import annotations

import numpy as np

from ..columns.dictionary import distinct
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints
from ..columns.states import AVAILABLE
from .queue import Queue


def superseded(queue: Queue, first: int) -> RowSet:
    """Return the messages of a last-value queue that have a newer value among those from sequence number `first` on. A held one
    is replaced when it comes back: see `stale`."""
    codes, sequences = _keyed(queue, RowSet.range(first, queue.next_sequence))
    if not len(codes):
        return RowSet()
    newest = queue.newest()
    before = newest[distinct(codes)] - 1
    newest[codes] = sequences + 1  # of equal codes the last one counts
    older = sequences[newest[codes] != sequences + 1]
    return RowSet.of_sequences(np.concatenate([np.sort(before[before >= 0]), older]))  # all of the former are below `first`


def stale(queue: Queue, rows: RowSet) -> RowSet:
    """Of rows that have come back to a last-value queue, those that a newer value came after."""
    codes, sequences = _keyed(queue, rows)
    return RowSet.of_sequences(sequences[queue.newest()[codes] > sequences + 1]) if len(codes) else RowSet()


def surplus(queue: Queue) -> RowSet:
    """Of a ring, the oldest AVAILABLE messages that have to go so that the rest keeps within its limits."""
    rules = queue.rules
    messages = queue.live + queue.staged - rules.max_messages if rules.max_messages else 0
    size = queue.bytes + queue.staged_bytes - rules.max_bytes if rules.max_bytes else 0
    parts = []
    for number in queue.blocks_with_available(None, 0):
        if messages <= 0 and size <= 0:
            break
        block = queue.blocks[number]
        rows = np.flatnonzero(block.state[: block.filled] == AVAILABLE)
        sizes = np.broadcast_to(block.sizes.get(rows), len(rows))
        enough = int(np.cumsum(sizes, dtype=np.int64).searchsorted(size)) + 1 if size > 0 else 0
        count = min(len(rows), max(messages, enough))
        parts.append((number, rows[:count]))
        messages -= count
        size -= int(sizes[:count].sum(dtype=np.int64))
    return RowSet.of(parts)


def _keyed(queue: Queue, rows: RowSet) -> tuple[Ints, Ints]:
    """Codes and sequence numbers of those of the rows that have a key."""
    codes, sequences = [], []
    for number, part in rows.items():
        block = queue.blocks[number]
        values = block.key.get(part)
        if not isinstance(values, int):
            has = values > 0
            codes.append(values[has])
            sequences.append(as_array(part)[has] + block.base)
    if not codes:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(codes), np.concatenate(sequences).astype(np.int64)

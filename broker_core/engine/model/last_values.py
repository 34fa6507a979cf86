"""Older values that AVAILABLE messages replace, and messages that a full ring drops.

The value of a key is the last arrival that has been AVAILABLE. A delayed message counts from the time when it is due.
"""

from __future__ import annotations

import numpy as np

from ..columns.dictionary import distinct
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints
from ..columns.states import AVAILABLE, DELAYED
from .queue import Queue


def replaced(queue: Queue, rows: RowSet) -> RowSet:
    """Note messages of a last-value queue that became AVAILABLE, or that links acquired as they arrived. Returns the older
    values. If a consumer holds one, it is archived when it returns."""
    codes, sequences = _keyed(queue, rows)
    if not len(codes):
        return RowSet()
    newest, places, keys = queue.newest(), sequences + 1, distinct(codes)
    before = newest[keys]
    arrivals = before.max() < places[0]  # nearly always: all are newer than the known values
    newest[codes] = places if arrivals else np.maximum(newest[codes], places)  # the last one of equal codes counts
    older = sequences[newest[codes] != places]
    earlier = before[(before > 0) & (before < newest[keys])] - 1
    return RowSet.of_sequences(np.concatenate([np.sort(earlier), older]) if arrivals else np.union1d(earlier, older))


def arrived(queue: Queue, first: int) -> RowSet:
    rows = RowSet.range(first, queue.next_sequence)
    if not queue.counts[DELAYED]:
        return rows
    return queue.select(rows, lambda block, part: block.state[part] != DELAYED)


def surplus(queue: Queue) -> RowSet:
    rules, (messages, size) = queue.rules, queue.occupied
    messages = messages - rules.max_messages if rules.max_messages else 0
    size = size - rules.max_bytes if rules.max_bytes else 0
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

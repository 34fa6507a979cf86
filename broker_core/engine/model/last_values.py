"""Consequences of messages that become AVAILABLE: older values that give way, and messages that a full ring drops.

Of the messages of a key that have ever been AVAILABLE, the one that arrived last is the value. A message that its sender delayed
becomes a candidate when it is due, by its arrival: it takes its old place in the queue.

It follows from the queue's state alone, live as at recovery, whatever brought the messages: a send, a publish, a route, a move.
"""

from __future__ import annotations

import numpy as np

from ..columns.dictionary import distinct
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints
from ..columns.states import AVAILABLE, DELAYED
from .queue import Queue


def replaced(queue: Queue, rows: RowSet) -> RowSet:
    """Note messages of a last-value queue that became AVAILABLE, or that links acquired with their arrival. Such messages arrived
    without a delay, came due, came back or were redriven. Returns the messages that give way: all but the last arrival of a key.

    A message that its sender delayed neither counts nor gives way before it is due. The messages returned may include some that a
    consumer holds: these give way when they come back.
    """
    codes, sequences = _keyed(queue, rows)
    if not len(codes):
        return RowSet()
    newest, places, keys = queue.newest(), sequences + 1, distinct(codes)
    before = newest[keys]
    arrivals = before.max() < places[0]  # as nearly always: all of them are newer than anything else
    newest[codes] = places if arrivals else np.maximum(newest[codes], places)  # they ascend: of equal codes the last one counts
    older = sequences[newest[codes] != places]
    earlier = before[(before > 0) & (before < newest[keys])] - 1
    return RowSet.of_sequences(np.concatenate([np.sort(earlier), older]) if arrivals else np.union1d(earlier, older))


def arrived(queue: Queue, first: int) -> RowSet:
    """Return the messages from sequence number `first` on that are not DELAYED."""
    rows = RowSet.range(first, queue.next_sequence)
    if not queue.counts[DELAYED]:
        return rows
    parts = ((number, as_array(part)) for number, part in rows.items())
    return RowSet.of((number, some[queue.blocks[number].state[some] != DELAYED]) for number, some in parts)


def surplus(queue: Queue) -> RowSet:
    """Of a ring, the oldest AVAILABLE messages that have to go so that the rest keeps within its limits."""
    rules = queue.rules
    messages = queue.live + queue.staged.messages - rules.max_messages if rules.max_messages else 0
    size = queue.bytes + queue.staged.bytes - rules.max_bytes if rules.max_bytes else 0
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

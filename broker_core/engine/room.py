"""How many messages of another queue a queue can take."""

from __future__ import annotations

import numpy as np

from broker_core.engine.limits import MAX_ORIGINS, MAX_OVERLAY_BYTES
from broker_core.engine.queues import Queue
from broker_core.engine.rowset import RowSet, head, row_count
from broker_core.engine.series import Rows


def accepts(queue: Queue, source: str) -> bool:
    """Whether dead letters of queue `source` may come in at all. A last-value queue is none for them: it would replace them."""
    if queue.name == source or queue.kind == "lastvalue":
        return False
    return source in queue.origins or len(queue.origins) < MAX_ORIGINS


def fitting(queue: Queue, source: Queue, rows: RowSet, messages: int = 0, size: int = 0) -> RowSet:
    """The first of the rows, for which there is room: all of them, unless the queue has limits. A queue whose overflow is *ring*
    drops nothing of its own for them: it is full too. `messages`, of `size` bytes, are on their way to it already."""
    if source.overlay_bytes and queue is not source and queue.overlay_bytes + source.overlay_bytes > MAX_OVERLAY_BYTES:
        rows = _without_overlays(source, rows)
    rules = queue.rules
    if rules.max_messages:
        rows = first_of(rows, max(0, rules.max_messages - queue.live - queue.staged - messages))
    if rules.max_bytes:
        rows = _within(source, rows, max(0, rules.max_bytes - queue.bytes - queue.staged_bytes - size))
    return rows


def first_of(rows: RowSet, count: int) -> RowSet:
    if rows.count <= count:
        return rows
    parts: list[tuple[int, Rows]] = []
    for number, part in rows.items():
        parts.append((number, head(part, count)))
        count -= row_count(parts[-1][1])
        if not count:
            break
    return RowSet.of(parts)


def _within(source: Queue, rows: RowSet, room: int) -> RowSet:
    if not rows:
        return rows
    sizes = [np.broadcast_to(source.blocks[number].sizes.get(part), row_count(part)) for number, part in rows.items()]
    fit = int(np.searchsorted(np.cumsum(np.concatenate(sizes), dtype=np.int64), room, side="right"))
    return first_of(rows, fit)


def _without_overlays(source: Queue, rows: RowSet) -> RowSet:
    """Those with nothing added to their annotations: for what was added to the others there may be no room."""
    parts: list[tuple[int, Rows]] = []
    for number, part in rows.items():
        added = np.array(list(source.blocks[number].overlays.among(part)), np.int64)
        numbers = np.arange(part.start, part.stop) if isinstance(part, slice) else part
        parts.append((number, np.delete(numbers, added)))
    return RowSet.of(parts)

"""Capacity of a queue for messages of another queue."""

from __future__ import annotations

import numpy as np

from ..columns.limits import MAX_ORIGINS, MAX_OVERLAY_BYTES
from ..columns.rowset import RowSet, as_array, head, row_count
from ..columns.series import Rows
from .admission import within_keys
from .queue import Queue
from .transfer import keys_of

#: By queue with limits, the messages and bytes that earlier parts of a decision bring to it. All parts are decided on one state.
Coming = dict[str, tuple[int, int]]


def accepts(queue: Queue, source: str) -> bool:
    """A last-value queue would replace dead letters."""
    if queue.name == source or queue.kind == "lastvalue":
        return False
    return source in queue.origins or len(queue.origins) < MAX_ORIGINS


def fitting(queue: Queue, source: Queue, rows: RowSet, coming: Coming) -> RowSet:
    """Return the first rows for which a queue has capacity, and add them to `coming`. A full ring drops nothing for them.

    Rows that are larger than the queue's limit, or would exceed `maxKeys`, are left out.
    """
    if source.overlay_bytes and queue is not source and queue.overlay_bytes + source.overlay_bytes > MAX_OVERLAY_BYTES:
        rows = _without_overlays(source, rows)
    rules = queue.rules
    if rules.key is not None and queue is not source:
        rows = _within_keys(queue, source, rows)
    if not rules.max_messages and not rules.max_bytes:
        return rows
    if rules.max_bytes:  # larger rows would keep back all later rows forever
        rows = source.select(rows, lambda block, part: block.sizes.array(part) <= rules.max_bytes)
    (taken, taken_bytes), (messages, size) = queue.occupied, coming.get(queue.name, (0, 0))
    if rules.max_messages:
        rows = first_of(rows, max(0, rules.max_messages - taken - messages))
    if rules.max_bytes:
        rows = _within(source, rows, max(0, rules.max_bytes - taken_bytes - size))
    coming[queue.name] = messages + rows.count, size + bytes_of(source, rows)
    return rows


def bytes_of(queue: Queue, rows: RowSet) -> int:
    return sum(queue.blocks[number].sizes.total(part, row_count(part)) for number, part in rows.items())


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


def _within(source: Queue, rows: RowSet, max_bytes: int) -> RowSet:
    if not rows:
        return rows
    sizes = [source.blocks[number].sizes.array(as_array(part)) for number, part in rows.items()]
    fit = int(np.searchsorted(np.cumsum(np.concatenate(sizes), dtype=np.int64), max_bytes, side="right"))
    return first_of(rows, fit)


def _within_keys(queue: Queue, source: Queue, rows: RowSet) -> RowSet:
    keys = keys_of(source, rows)
    return rows if keys is None else RowSet.of_sequences(rows.sequences()[within_keys(queue, keys)])


def _without_overlays(source: Queue, rows: RowSet) -> RowSet:
    """Keep the rows without added annotations."""
    parts: list[tuple[int, Rows]] = []
    for number, part in rows.items():
        added = np.array(list(source.blocks[number].overlays.among(part)), np.int64)
        parts.append((number, np.delete(as_array(part), added)))
    return RowSet.of(parts)

"""Transfer of messages from one queue to another. Both queues refer to the same payloads in the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..columns.attributes import Attributes, Coded
from ..columns.dictionary import Dictionary
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.runs import Run
from ..columns.series import Ints, Rows
from ..columns.states import DELAYED, Reason, State
from .queue import Queue


@dataclass(frozen=True)
class Cargo:
    """Messages as columns; None: every message has the default."""

    count: int
    sizes: int | Ints
    runs: list[Run]
    attributes: Attributes
    sequences: Ints  # in their former queue
    origin: Coded | None
    came_from: Ints | None
    reason: Ints | None
    overlays: dict[int, list[bytes]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)

    def died(self, queue: str, reason: Reason) -> Cargo:
        """Return the messages as dead letters of this queue. Earlier dead letters keep their origin."""
        before = np.zeros(self.count, np.int64) if self.origin is None else self.origin.codes.astype(np.int64)
        names = [*([] if self.origin is None else self.origin.names), queue]
        first = before == 0
        came_from = self.sequences + 1 if self.came_from is None else np.where(first, self.sequences + 1, self.came_from)
        attributes = replace(self.attributes, due=None)  # dead letters are visible immediately
        if reason == Reason.EXPIRED:
            attributes = replace(attributes, expiry=None)
        return replace(
            self,
            attributes=attributes,
            origin=Coded(names, np.where(first, len(names), before)),
            came_from=came_from,
            reason=np.full(self.count, reason),
        )

    def revived(self) -> Cargo:
        return replace(self, origin=None, came_from=None, reason=None, errors={})


def load(queue: Queue, rows: RowSet) -> Cargo:
    """`rows` are not ARCHIVED."""
    runs: list[Run] = []
    sizes: list[int | Ints] = []
    overlays: dict[int, list[bytes]] = {}
    errors: dict[int, str] = {}
    done = 0
    for number, part in rows.items():
        block = queue.blocks[number]
        runs += block.locations(part).runs()
        sizes.append(block.sizes.get(part))
        overlays.update({done + index: entries for index, entries in block.overlays.among(part).items()})
        if block.errors:
            errors.update({done + i: block.errors[row] for i, row in enumerate(as_array(part).tolist()) if row in block.errors})
        done += row_count(part)
    attributes = Attributes(
        priority=column(queue, rows, "priority"),
        expiry=_times(queue, rows, "expiry"),
        due=_delays(queue, rows),
        group=_coded(queue, rows, "group", queue.group_names),
        closes=column(queue, rows, "closes"),
        key=keys_of(queue, rows),
    )
    origin = column(queue, rows, "origin")
    return Cargo(
        done,
        _together(sizes, rows),
        runs,
        attributes,
        rows.sequences(),
        None if origin is None else Coded(queue.origins, origin),
        column(queue, rows, "came_from"),
        column(queue, rows, "reason"),
        overlays,
        errors,
    )


def unload(queue: Queue, cargo: Cargo, time: int) -> None:
    """The queue's `messageTtl` applies to the messages."""
    first, attributes = queue.next_sequence, cargo.attributes
    if ttl := queue.rules.message_ttl:
        latest = time // 1000 + ttl
        expiry = np.zeros(cargo.count, np.int64) if attributes.expiry is None else attributes.expiry
        attributes = replace(attributes, expiry=np.where(expiry > 0, np.minimum(expiry, latest), latest))
    queue.append(cargo.sizes, cargo.runs, time, attributes)
    marks = {"origin": _origins(queue, cargo.origin), "came_from": cargo.came_from, "reason": cargo.reason}
    done = 0
    for number, part in RowSet.range(first, queue.next_sequence).items():
        block, count = queue.blocks[number], row_count(part)
        for name, values in marks.items():
            if values is not None:
                getattr(block, name).put(part, values[done : done + count], len(block.state))
        rows = as_array(part)
        for index in [i for i in cargo.overlays if done <= i < done + count]:
            for entry in cargo.overlays[index]:
                queue.overlay_bytes += block.overlays.add(rows[index - done : index - done + 1], entry)
        block.note_errors({int(rows[i - done]): text for i, text in cargo.errors.items() if done <= i < done + count})
        done += count


def column(queue: Queue, rows: RowSet, name: str) -> Ints | None:
    """None: every row has 0."""
    return _joined(rows, lambda number, part: getattr(queue.blocks[number], name).get(part), np.uint8)


def _times(queue: Queue, rows: RowSet, name: str) -> Ints | None:
    """`expiry` or `due`, as from `Block.times`."""
    blocks = queue.blocks
    return _joined(rows, lambda number, part: blocks[number].times(getattr(blocks[number], name), part), np.int64)


def _joined(rows: RowSet, values_of: Callable[[int, Rows], Ints | int | None], zero: type[np.integer[Any]]) -> Ints | None:
    """A block without an array has zeros. None: every row has 0."""
    parts = []
    for number, part in rows.items():
        values = values_of(number, part)
        parts.append(values if isinstance(values, np.ndarray) else np.zeros(row_count(part), zero))
    return np.concatenate(parts) if any(part.any() for part in parts) else None


def _delays(queue: Queue, rows: RowSet) -> Ints | None:
    due = _times(queue, rows, "due") if queue.counts[State.DELAYED] else None
    if due is None:
        return None
    states = [queue.blocks[number].state[part] for number, part in rows.items()]
    due[np.concatenate(states) != DELAYED] = 0
    return due if due.any() else None


def keys_of(queue: Queue, rows: RowSet) -> Coded | None:
    return _coded(queue, rows, "key", queue.keys)


def _coded(queue: Queue, rows: RowSet, name: str, dictionary: Dictionary) -> Coded | None:
    codes = column(queue, rows, name)
    if codes is None:
        return None
    known = np.unique(codes[codes > 0])
    names = [dictionary.name(code) or "" for code in known.tolist()]
    return Coded(names, np.where(codes > 0, np.searchsorted(known, codes) + 1, 0))


def _origins(queue: Queue, origin: Coded | None) -> Ints | None:
    if origin is None:
        return None
    codes = np.zeros(len(origin.names) + 1, np.int64)
    for code in np.unique(origin.codes[origin.codes > 0]).tolist():
        name = origin.names[code - 1]
        if name not in queue.origins:
            queue.origins.append(name)
        codes[code] = queue.origins.index(name) + 1
    return codes[origin.codes]


def _together(sizes: list[int | Ints], rows: RowSet) -> int | Ints:
    if all(isinstance(size, int) and size == sizes[0] for size in sizes):
        return sizes[0] if sizes else 0
    counts = [row_count(part) for _, part in rows.items()]
    return np.concatenate([np.full(n, s) if isinstance(s, int) else s for n, s in zip(counts, sizes, strict=True)])

"""Counts of all queues, as columns, for frequent scrapes, plots and lists. Only changed queues are read again, a few at a time
under the lock."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..engine.columns.losses import DISK_FULL, DUPLICATE, FULL, NO_CONSUMER, OTHER, RING
from ..engine.columns.series import Ints
from ..engine.columns.states import ACQUIRED, ARCHIVED, AVAILABLE, DEFERRED, DELAYED, Reason
from ..engine.columns.totals import TOTALS
from ..engine.model.admission import fill
from ..engine.model.queue import Queue
from ..engine.model.state import BrokerState

LOSSES = {
    "refusedFull": FULL,
    "refusedDiskFull": DISK_FULL,
    "refusedNoConsumer": NO_CONSUMER,
    "refusedOther": OTHER,
    "droppedRing": RING,
    "droppedDuplicate": DUPLICATE,
}
LIVE = ("available", "acquired", "delayed", "deferred")
#: `oldest`: arrival of the oldest live message, in microseconds since 1970; 0 without one. `deadLetters`: live messages of a
#: dead-letter queue, and dead letters that stay in their queue. `collects`: 1 for a dead-letter queue. `fill`: used thousandths
#: of the limits, `NO_LIMIT` without one. Totals and losses count from the broker's start.
COLUMNS = (
    *LIVE,
    *("staged", "deadLetters", "bytes", "oldest", "consumers", "leases", "paused"),
    *TOTALS,
    *LOSSES,
    *("maxMessages", "maxBytes", "fill", "collects"),
)
NO_LIMIT = -1
QUEUES_AT_ONCE = 32  # read in one hold of the lock, 0.15 ms
_OF_OTHERS = ("deadLetters", "leases", "collects")  # depend on other queues and leases
_LIVE, _DEAD_LETTERS, _LEASES, _COLLECTS = slice(0, len(LIVE)), *map(COLUMNS.index, _OF_OTHERS)
_UNREAD = -1


class CountTable(NamedTuple):
    """The counts of all queues."""

    names: list[str]
    table: npt.NDArray[np.int64]  # a row for each of COLUMNS, a column for each name

    def of(self, column: str) -> npt.NDArray[np.int64]:
        values: npt.NDArray[np.int64] = self.table[COLUMNS.index(column)]
        return values


class _Oldest(NamedTuple):
    """The oldest live message of a queue at its last reading. No earlier message becomes live before a redrive."""

    queue: int  # id
    redriven: int
    block: int
    row: int
    time: int


class QueueCounts:
    """For any thread that does not hold the lock."""

    def __init__(self, state: BrokerState, lock: threading.Lock) -> None:
        self._state, self._lock = state, lock
        self._reading = threading.Lock()
        self._oldest: dict[str, _Oldest] = {}
        # The last reading of each queue, in order, without `_OF_OTHERS`.
        self._queues: list[Queue] = []
        self._names: list[str] = []
        self._changes: list[int] = []
        self._targets: list[str | None] = []
        self._fed: list[int] = []  # places of dead-letter queues
        self._table = np.zeros((len(COLUMNS), 0), np.int64)

    def read(self) -> CountTable:
        with self._reading:
            with self._lock:
                queues = list(self._state.queues.values())
                leases = Counter(lease.queue for lease in self._state.leases.values())
            if queues != self._queues:
                self._arrange(queues)
            self._read_changed()
            table = self._table.copy()
            table[_DEAD_LETTERS, self._fed] += table[_LIVE, self._fed].sum(0)
            table[_COLLECTS, self._fed] = 1
            if leases:
                table[_LEASES] = [leases[name] for name in self._names]
            return CountTable(list(self._names), table)

    def of_queue(self, name: str) -> dict[str, int]:
        """Return the counts by COLUMNS, except `_OF_OTHERS`; all 0 without such a queue."""
        with self._lock:
            queue = self._state.queues.get(name)
            row = dict(zip(COLUMNS, [0] * len(COLUMNS) if queue is None else self._row(queue), strict=True))
        return {column: count for column, count in row.items() if column not in _OF_OTHERS}

    def reasons(self, name: str) -> dict[str, int]:
        """Count all dead letters in a queue by reason. Reads every message."""
        totals = np.zeros(len(Reason), np.int64)
        for codes, _, _ in self._dead_letters(name):
            totals += np.bincount(codes, minlength=len(Reason))
        return {Reason(code).name.lower(): count for code, count in enumerate(totals.tolist()) if code and count}

    def death_groups(self, name: str) -> Counter[tuple[str, str]]:
        """Count the dead letters of `reasons` by reason and error text, which may be empty."""
        groups: Counter[tuple[int, str]] = Counter()
        for codes, rows, texts in self._dead_letters(name):
            groups.update((code, texts.get(row, "")) for code, row in zip(codes.tolist(), rows.tolist(), strict=True))
        return Counter({(Reason(code).name.lower(), text): count for (code, text), count in groups.items()})

    def _dead_letters(self, name: str) -> Iterator[tuple[Ints, Ints, dict[int, str]]]:
        """Yield by block the reasons of its dead letters, their rows, and the error texts by row."""
        with self._lock:
            queue = self._state.queues.get(name)
            numbers = [] if queue is None else list(queue.blocks)
        for number in numbers:
            with self._lock:
                queue = self._state.queues.get(name)
                block = None if queue is None else queue.blocks.get(number)
                if block is None or block.reason.values is None:
                    continue
                part = slice(0, block.filled)
                codes = block.reason.values[part]
                is_dead = (block.state[part] != ARCHIVED) | (np.asarray(block.stayed.get(part)) != 0)
                rows = np.flatnonzero(is_dead & (codes != 0))
                codes, texts = codes[rows], dict(block.errors or {})
            yield codes, rows, texts

    def _arrange(self, queues: list[Queue]) -> None:
        """Known queues keep their reading."""
        places = {queue: at for at, queue in enumerate(self._queues)}
        before = [places.get(queue) for queue in queues]
        table = np.zeros((len(COLUMNS), len(queues)), np.int64)
        known = [at for at, place in enumerate(before) if place is not None]
        table[:, known] = self._table[:, [place for place in before if place is not None]]
        self._queues, self._names, self._table = queues, [queue.name for queue in queues], table
        self._changes = [_UNREAD if place is None else self._changes[place] for place in before]
        self._targets = [None if place is None else self._targets[place] for place in before]
        self._find_fed()
        names = set(self._names)
        with self._lock:
            self._oldest = {name: oldest for name, oldest in self._oldest.items() if name in names}

    def _read_changed(self) -> None:
        changed = [at for at, (queue, seen) in enumerate(zip(self._queues, self._changes, strict=True)) if queue.changes != seen]
        for first in range(0, len(changed), QUEUES_AT_ONCE):
            if first:
                time.sleep(0)  # lets the interpreter serve others
            with self._lock:
                existing = self._state.queues
                some = [
                    (at, queue)
                    for at in changed[first : first + QUEUES_AT_ONCE]
                    if existing.get((queue := self._queues[at]).name) is queue
                ]
                for at, queue in some:
                    self._table[:, at] = self._row(queue)
                    self._changes[at], self._targets[at] = queue.changes, queue.rules.dead_letter_queue
        if changed:
            self._find_fed()

    def _find_fed(self) -> None:
        targets = set(self._targets)
        self._fed = [at for at, name in enumerate(self._names) if name in targets]

    def _row(self, queue: Queue) -> list[int]:
        counts, rules, used = queue.counts, queue.rules, fill(queue)
        oldest = self._oldest_of(queue) if queue.live else 0
        return [
            *(counts[AVAILABLE], counts[ACQUIRED], counts[DELAYED], counts[DEFERRED], queue.staged.messages, queue.stayed),
            *(queue.bytes, oldest, len(queue.consumers.subscriptions), 0, queue.paused),
            *queue.totals.row(queue.next_sequence, queue.ended),
            *(queue.losses[reason] for reason in LOSSES.values()),
            *(rules.max_messages, rules.max_bytes, NO_LIMIT if used is None else used, 0),
        ]

    def _oldest_of(self, queue: Queue) -> int:
        """Return the arrival of the first live message, which exists, in microseconds since 1970."""
        known = self._oldest.get(queue.name)
        if known is not None and known[:2] != (queue.id, queue.totals.redriven):
            known = None
        if known is not None:
            block = queue.blocks.get(known.block)
            if block is not None and known.row < block.filled and block.state[known.row] != ARCHIVED:
                return known.time
        first = 0 if known is None else known.block
        block = queue.blocks[min(number for number, block in queue.blocks.items() if number >= first and block.live)]
        begin = known.row if known is not None and known.block == block.number else 0
        row = begin + int((block.state[begin : block.filled] != ARCHIVED).argmax())
        arrived = block.runs.time[block.runs.row.run_of(row)]
        self._oldest[queue.name] = _Oldest(queue.id, queue.totals.redriven, block.number, row, arrived)
        return arrived

"""Matches of selectors, cached as bitmaps. Payloads never change, so the known matches of a block are a prefix that only grows.

The engine's search reads them (`View.known`) and stops at the first row that is not evaluated. The caller then evaluates a chunk
without the lock (`look_further`) and repeats its command.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine.columns.rowset import BLOCK_BITS, as_array
from ..engine.columns.states import ARCHIVED, AVAILABLE
from ..engine.decide.decision import need_queue
from ..engine.model.retention import with_payloads
from ..messages import assembly
from ..messages.payloads import Payload
from ..reading.records import SMALL_ROWS, OnDamage, record_reader, record_rows
from ..selectors import Presence, Selector, hints_of, matches, presence_of
from .bitmaps import MAX_BYTES, Cache, View
from .damage import Damage

if TYPE_CHECKING:
    from ..engine.columns.blocks import Block
    from ..engine.columns.intervals import Intervals
    from ..engine.columns.runs import Locations
    from ..engine.model.queue import Queue
    from ..engine.model.state import BrokerState
    from ..journal import Hold, Journal
    from ..reading.recent import Recent

log = logging.getLogger("penstock")

CHUNK_ROWS = 1 << 14  # evaluated in one step: a few milliseconds if the payloads are in memory
LEASE_CHUNKS = 4  # in one step for a lease, whose request has its own thread
JOINED_BYTES = 4 << 20  # of small neighbours that are copied into one batch; large messages are evaluated alone
MAX_PRESENCES = 1024  # over all queues; below 1 KiB each. The least recently compared are dropped
LOOK_S = 5.0  # of one request for a lease's first match; then the client repeats it


class SelectorMatcher:
    """For any thread without the broker's lock."""

    def __init__(self, state: BrokerState, journal: Journal, lock: threading.Lock, recent: Recent, damage: Damage) -> None:
        self._state, self._journal, self._lock, self._recent, self._damage = state, journal, lock, recent, damage
        self._cache = Cache(MAX_BYTES)
        self._presences = Presences()

    def view(self, queue: str, text: str) -> View:
        """Called under the broker's lock. `text`: the selector in canonical form."""
        return View(self._cache, text, need_queue(self._state, queue))

    def hints(self, queue: str, selector: Selector) -> list[str]:
        """Return hints for names that may be meant as fields, unless a compared message has such a property."""
        known = self._presences.hints(self._state.queues.get(queue), selector)
        return hints_of(selector) if known is None else known

    def compared_hints(self, queue: str, selector: Selector) -> list[str]:
        """As `hints`, but empty before a message was compared."""
        return self._presences.hints(self._state.queues.get(queue), selector) or []

    def look_further(
        self, queue_name: str, selector: Selector, number: int, view: View | None = None, *, chunks: int = 1
    ) -> bool:
        """Evaluate the next `chunks` of `CHUNK_ROWS` rows of a block. False if all rows are known, or the block is gone."""
        try:
            return self._look(queue_name, selector, number, view, chunks * CHUNK_ROWS)
        except errors.DataLoss:  # retention took a dead letter's payload just now
            return self._look(queue_name, selector, number, view, chunks * CHUNK_ROWS)

    def _look(self, queue_name: str, selector: Selector, number: int, view: View | None, most: int) -> bool:
        with self._lock:
            queue = self._state.queues.get(queue_name)
            block = None if queue is None else queue.blocks.get(number)
            if queue is None or block is None:
                return False
            view = view or self.view(queue_name, selector.text)
            known = view.bitmap(number)
            chunk = _chunk(block, known.rows, most, self._recent, self._state.dropped, self._journal.hold())
        if chunk is None:
            return False
        presence = presence_of(selector)
        view.saw(number, known.extended(self._evaluated(selector, chunk, queue_name, number, presence)))
        if presence is not None:
            self._presences.add(queue, selector, presence)
        with self._lock:
            self._cache.put(selector.text, queue, number, view.bitmap(number))  # or the longer one of another thread
        return True

    def _evaluated(
        self, selector: Selector, chunk: _RowChunk, queue: str, number: int, presence: Presence | None
    ) -> npt.NDArray[np.bool_]:
        def damaged(indexes: slice, error: errors.DamagedJournal) -> None:
            first, last = (int(chunk.rows[index]) + (number << BLOCK_BITS) for index in (indexes.start, indexes.stop - 1))
            self._damage.note(errors.DamagedMessages.of(queue, first, last, error))

        matching = np.zeros(chunk.stop - chunk.start, np.bool_)
        if len(chunk.rows):
            rows = evaluated(self._journal, selector, chunk.locations, chunk.batches, damaged, presence)
            matching[chunk.rows - chunk.start] = rows
        return matching

    def prepared(
        self,
        queue_name: str,
        selector: Selector,
        messages: int | None = None,
        max_bytes: int | None = None,
        until: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> View:
        """Return a view with at least `messages` known matches, or all of the queue; after `LOOK_S` possibly fewer.

        With priority levels the whole queue is evaluated: the highest message may be the last.
        """
        with self._lock:
            queue = need_queue(self._state, queue_name)
            view = self.view(queue_name, selector.text)
            numbers = list(queue.blocks_with_available(None, 0))
        left, room, end = messages, max_bytes, clock() + LOOK_S
        for number in numbers:
            if until is not None and number << BLOCK_BITS >= until:
                break
            while self.look_further(queue_name, selector, number, view, chunks=LEASE_CHUNKS):
                if clock() > end:
                    return view
            if queue.rules.levels > 1 or left is room is None:
                continue
            with self._lock:
                count, size = _waiting(queue, view, number, room is not None)
            left, room = None if left is None else left - count, None if room is None else room - size
            if (left is not None and left <= 0) or (room is not None and room <= 0):
                break
        return view


class Presences:
    """Lookalikes in selectors (see `selectors.lookalikes`) that no compared message of a queue has. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, str], Presence] = OrderedDict()

    def add(self, queue: Queue, selector: Selector, presence: Presence) -> None:
        """Merge the result of one evaluation. The first messages without such a property are logged once."""
        if not presence.compared:
            return
        key = queue.id, selector.text
        with self._lock:
            known = self._entries.pop(key, None)
            if known is not None:
                known.merge(presence)
            self._entries[key] = known or presence
            while len(self._entries) > MAX_PRESENCES:
                self._entries.popitem(last=False)
        if known is None and presence.absent:
            log.info("queue %r, selector %r: %s", queue.name, selector.text, "; ".join(presence.hints()))

    def hints(self, queue: Queue | None, selector: Selector) -> list[str] | None:
        """Return hints for lookalikes that no compared message has; None before the first comparison."""
        if not selector.lookalikes:  # an equal selector with another spelling may have some
            return []
        with self._lock:
            known = None if queue is None else self._entries.get((queue.id, selector.text))
            return None if known is None else known.hints()


class _RowChunk(NamedTuple):
    start: int
    stop: int
    rows: npt.NDArray[np.int64]  # the live rows among them, and settled rows that may become live again
    locations: Locations
    batches: Mapping[int, Payload]
    hold: Hold  # keeps the locations readable


def _chunk(block: Block, start: int, most: int, recent: Recent, dropped: Intervals, hold: Hold) -> _RowChunk | None:
    stop = min(block.filled, start + most)
    if start >= stop:
        return None
    # Of settled messages only dead letters that stayed can come back. Retention may have dropped the others.
    live = (block.state[start:stop] != ARCHIVED) | (np.asarray(block.stayed.get(slice(start, stop))) != 0)
    rows = as_array(with_payloads(block, np.flatnonzero(live) + start, dropped))
    locations = block.locations(slice(start, stop) if len(rows) == stop - start else rows)
    return _RowChunk(start, stop, rows, locations, recent.among(locations.position) if recent else {}, hold)


def _waiting(queue: Queue, view: View, number: int, with_sizes: bool) -> tuple[int, int]:
    """Count the known matches that are AVAILABLE, and if `with_sizes` their bytes."""
    block = queue.blocks.get(number)
    if block is None:
        return 0, 0
    known = view.known(queue, number)
    here = known & (block.state[: len(known)] == AVAILABLE)
    count = int(np.count_nonzero(here))
    return count, int(block.sizes.total(np.flatnonzero(here), count)) if with_sizes else 0


def evaluated(
    journal: Journal,
    selector: Selector,
    locations: Locations,
    batches: Mapping[int, Payload],
    damaged: OnDamage,
    presence: Presence | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which rows of `locations` match; rows of damaged records do not. `presence` collects lookalikes that messages
    have."""
    is_match = np.zeros(int(locations.rows.sum()), np.bool_)
    waiting: list[tuple[slice, pa.RecordBatch]] = []

    def evaluate() -> None:
        matching, done = matches(selector, assembly.joined([part for _, part in waiting]), presence), 0
        for indexes, part in waiting:
            is_match[indexes] = matching[done : done + part.num_rows]
            done += part.num_rows
        waiting.clear()

    rows = octets = 0
    for indexes, part in _payloads(journal, selector, locations, batches, damaged):
        large, size = part.num_rows >= SMALL_ROWS, part.nbytes
        full = rows >= SMALL_ROWS or octets + size > JOINED_BYTES
        if waiting and (large or full or _is_encoded(part) != _is_encoded(waiting[0][1])):
            evaluate()
            rows = octets = 0
        if large:
            is_match[indexes] = matches(selector, part, presence)
        else:
            waiting.append((indexes, part))
            rows += part.num_rows
            octets += size
    if waiting:
        evaluate()
    return is_match


def _is_encoded(payload: pa.RecordBatch) -> bool:
    return "message" in payload.schema.names


def _payloads(
    journal: Journal, selector: Selector, locations: Locations, batches: Mapping[int, Payload], damaged: OnDamage
) -> Iterator[tuple[slice, pa.RecordBatch]]:
    """Yield by record the indexes of its rows, and the columns that the selector needs."""

    read = record_reader(journal, batches)

    def needed(position: int) -> pa.RecordBatch:
        return selector.needed_columns(read(position))

    return ((part.extent.indexes, part.taken()) for part in record_rows(locations, needed, damaged))

"""Search: the next messages of a queue that a consumer may take, from a sequence number on.

They are AVAILABLE, and every filter admits them. A priority queue is searched level by level, the highest first. A message that
waits for its retry (DELAYED) keeps others waiting if the queue has to keep its order:

| queue | messages that wait with it |
|---|---|
| with message groups | later messages of its group |
| for one consumer at a time (`consumers` is exclusive or single) | all later messages |
| any other | none |

A message that its sender delayed keeps no others waiting.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..columns.limits import NEVER
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet, as_array, exclude, head, row_count
from ..columns.series import Ints, Rows
from ..columns.states import AVAILABLE, DELAYED
from ..columns.waiting import FirstRetries, RetriesOfBlock
from .exclusions import Exclusions

if TYPE_CHECKING:
    from ..columns.blocks import Block
    from .queue import Queue

_SCAN_ROWS = 1024  # rows that a search examines first
_WIDER = 8  # times as many rows in each next step
_NONE: Ints = np.zeros(0, np.int64)


class Filter(Protocol):
    """A condition on rows."""

    def concerns(self, block: Block) -> bool:
        """Return True if the filter may exclude a row of this block, which is rare."""
        ...

    def keep(self, block: Block, rows: Rows) -> Rows:
        """All rows are AVAILABLE, and ascend."""
        ...


class Unexpired(NamedTuple):
    """Excludes expired messages."""

    now: int  # milliseconds since 1970

    def concerns(self, block: Block) -> bool:
        return block.next_expiry <= self.now

    def keep(self, block: Block, rows: Rows) -> Rows:
        numbers = as_array(rows)
        return numbers[~block.expired(numbers, self.now)]


class Without(NamedTuple):
    """Excludes messages that this consumer has refused, or left unread."""

    rows: RowSet | Exclusions

    def concerns(self, block: Block) -> bool:
        return self.rows.rows(block.number) is not None

    def keep(self, block: Block, rows: Rows) -> Rows:
        gone = self.rows.rows(block.number)
        return rows if gone is None else exclude(rows, gone)


class Matching(Protocol):
    """The known matches of a selector. The caller evaluates further messages, and repeats its request."""

    def known(self, queue: Queue, block: int) -> npt.NDArray[np.bool_]:
        """Return by row whether it matches, as far as the selector is evaluated. For another queue: nothing."""
        ...


class Search(NamedTuple):
    """Limits of a search. A message larger than `max_bytes` is returned alone."""

    messages: int
    max_bytes: int | None = None
    until: int | None = None  # sequence number, excluded
    filters: Sequence[Filter] = ()
    matching: Matching | None = None


class Found(NamedTuple):
    """Result of a search."""

    rows: RowSet
    unknown: int | None = None  # sequence number where the search stopped, because the selector is not evaluated
    unevaluated: int | None = None  # last examined block, unless the selector is evaluated for all of its messages


NOTHING = Found(RowSet())


def find(queue: Queue, first: int, search: Search, level: int | None = 0) -> Found:
    """`level`: None for a browser, which reads all levels in order."""
    return _at_the_front(queue, first, search, level) or _RunningSearch(queue, search).through(level, first).result()


def _at_the_front(queue: Queue, first: int, search: Search, level: int | None) -> Found | None:
    """The frequent case: the messages are consecutive in the first block with AVAILABLE ones, and nothing excludes one. None:
    another case."""
    if len(queue.waiting) > 1 or search.matching is not None or search.until is not None or queue.paused:
        return None
    if level is not None and barrier(queue, level) != NEVER:
        return None
    number = queue.waiting[0].first
    if number is None or first >> BLOCK_BITS > number:
        return None
    block = queue.blocks[number]
    start, available = max(block.low, first - block.base), block.counts[AVAILABLE]
    if available != block.filled - block.low:
        return None
    count = min(search.messages, block.filled - start)
    if count < 1 or (count < search.messages and available < queue.waiting[0].total):
        return None
    size = block.sizes.uniform
    if search.max_bytes is not None and (size is None or size * count > search.max_bytes):
        return None
    for row_filter in search.filters:
        if row_filter.concerns(block):
            return None
    return Found(RowSet({number: slice(start, start + count)}))


def find_all(queue: Queue, search: Search) -> Found:
    """Search the whole queue, for a lease."""
    running = _RunningSearch(queue, search)
    for level in open_levels(queue):
        running.through(level, 0)
        if running.done:
            break
    return running.result()


def open_levels(queue: Queue) -> Iterator[int]:
    """Yield the levels that a consumer may take from, the highest first, down to a barrier."""
    for level in reversed(range(queue.rules.levels)):
        yield level
        if barrier(queue, level) != NEVER:
            break


class _RunningSearch:
    """The progress of one search."""

    def __init__(self, queue: Queue, search: Search) -> None:
        self._queue, self._search = queue, search
        self._left, self._room = search.messages, search.max_bytes
        self._until = search.until
        self._parts: list[tuple[int, Rows]] = []
        self._unknown: int | None = None
        self._unevaluated: int | None = None
        self.done = search.messages <= 0 or queue.paused

    def result(self) -> Found:
        parts = self._parts
        if len(parts) > 1 and any(following[0] <= part[0] for part, following in itertools.pairwise(parts)):
            parts = _merged(parts)  # of several levels
        return Found(RowSet.of(parts), self._unknown, self._unevaluated)

    def through(self, level: int | None, first: int) -> _RunningSearch:
        stop = NEVER if level is None else barrier(self._queue, level)  # browsers do not wait
        if stop != NEVER:
            self._until = stop if self._search.until is None else min(stop, self._search.until)
        if not self.done:
            for number in self._queue.blocks_with_available(level, first >> BLOCK_BITS):
                self._look(level, self._queue.blocks[number], first)
                if self.done or (self._until is not None and self._until < (number + 1) << BLOCK_BITS):
                    break
        return self

    def _look(self, level: int | None, block: Block, first: int) -> None:
        search = self._search
        start = max(0, first - block.base)
        stop = BLOCK_ROWS if self._until is None else self._until - block.base
        stop = min(stop, block.filled)
        matches = None
        if search.matching is not None:
            matches = search.matching.known(self._queue, block.number)
            self._unevaluated = block.number if len(matches) < block.filled else None
            if len(matches) < stop:
                stop, self._unknown, self.done = len(matches), block.base + max(start, len(matches)), True
        rows = self._eligible(block, level, start, stop, matches)
        count = row_count(rows)
        if self._room is not None and count:
            rows, used = within_bytes(block, rows, self._room, alone=not self._parts)
            self._room -= used
        taken = row_count(rows)
        if taken:
            self._parts.append((block.number, rows))
            self._left -= taken
        if self._left <= 0 or taken < count:
            self.done, self._unknown = True, None

    def _eligible(self, block: Block, level: int | None, start: int, stop: int, matches: npt.NDArray[np.bool_] | None) -> Rows:
        limit, filters = self._left, [row_filter for row_filter in self._search.filters if row_filter.concerns(block)]
        start, stop = max(start, block.low), min(stop, block.filled)
        if start >= stop:
            return slice(start, start)
        levels = None if level is None else block.level
        of_level: npt.NDArray[np.uint16] | None = None  # if set, `start` and `stop` are indexes of these rows
        if levels is not None and level is not None and block.full:
            of_level = block.of_level(level)
            if of_level is None:
                levels = None
        if levels is None and matches is None and not filters and block.counts[AVAILABLE] == block.filled - block.low:
            return slice(start, min(stop, start + limit))
        if of_level is not None:
            start = int(of_level.searchsorted(np.uint16(start)))
            stop = int(of_level.searchsorted(np.uint16(stop))) if stop < BLOCK_ROWS else len(of_level)
        parts: list[Ints] = []
        wanted, width = limit, max(_SCAN_ROWS, min(limit, BLOCK_ROWS))
        while wanted > 0 and start < stop:
            end = min(stop, start + width)
            if of_level is None:
                here = block.state[start:end] == AVAILABLE
                if levels is not None:
                    here &= levels[start:end] == level
                if matches is not None:
                    here &= matches[start:end]
                rows: Rows = np.flatnonzero(here) + start if start else np.flatnonzero(here)
            else:
                some = of_level[start:end].astype(np.int64)
                here = block.state[some] == AVAILABLE
                if matches is not None:
                    here &= matches[some]
                rows = some if here.all() else some[here]
            for row_filter in filters:
                rows = row_filter.keep(block, rows)
            parts.append(as_array(rows)[:wanted])
            wanted -= len(parts[-1])
            start, width = end, width * _WIDER
        return np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else slice(start, start)


def within_bytes(block: Block, rows: Rows, room: int, *, alone: bool) -> tuple[Rows, int]:
    """Return the first rows that fit `room` bytes, and their size. `alone`: at least one."""
    sizes = block.sizes.get(rows)
    least = 1 if alone else 0  # `room` is negative after a larger message
    if isinstance(sizes, int):
        fit = max(least, min(row_count(rows), room // sizes if sizes else row_count(rows)))
        return head(rows, fit), sizes * fit
    sums = np.cumsum(sizes, dtype=np.int64)
    fit = max(least, int(sums.searchsorted(room, side="right")))
    return head(rows, fit), int(sums[fit - 1]) if fit else 0


def _merged(parts: list[tuple[int, Rows]]) -> list[tuple[int, Rows]]:
    by_block: dict[int, list[Ints]] = {}
    for number, rows in parts:
        by_block.setdefault(number, []).append(as_array(rows))
    return [(number, np.sort(np.concatenate(several))) for number, several in sorted(by_block.items())]


def _first_retries(queue: Queue) -> FirstRetries:
    queue.first_retries = queue.first_retries or _find_first_retries(queue)
    return queue.first_retries


def _find_first_retries(queue: Queue) -> FirstRetries:
    waiting = [block for _, block in sorted(queue.blocks.items()) if block.counts[DELAYED]]
    levels, grouped = [NEVER] * queue.rules.levels, []
    for block in waiting:
        mine = block.retries = block.retries or _retries(block)
        for level, sequence in zip(mine.levels.tolist(), mine.of_levels.tolist(), strict=True):
            levels[level] = min(levels[level], sequence)
        if len(mine.groups):
            grouped.append(mine)
    if len(grouped) < 2:
        return FirstRetries(levels, *(grouped[0][2:] if grouped else (_NONE, _NONE)))
    lowest = np.full(1 + max(int(mine.groups[-1]) for mine in grouped), NEVER)  # by code
    for mine in reversed(grouped):  # so that the first block comes last
        lowest[mine.groups] = mine.of_groups
    groups = np.flatnonzero(lowest != NEVER)
    return FirstRetries(levels, groups, lowest[groups])


def _retries(block: Block) -> RetriesOfBlock:
    if block.returned.values is None:
        return RetriesOfBlock(_NONE, _NONE, _NONE, _NONE)
    delayed = np.flatnonzero(block.state[: block.filled] == DELAYED)
    rows = delayed[block.awaits_retry(delayed)]
    levels, first = np.unique(0 * rows if block.level is None else block.level[rows], return_index=True)
    codes, first_of_group = np.unique(block.group.array(rows).astype(np.int64), return_index=True)
    grouped = codes > 0
    return RetriesOfBlock(levels, rows[first] + block.base, codes[grouped], rows[first_of_group[grouped]] + block.base)


def _one_at_a_time(queue: Queue) -> bool:
    return queue.rules.consumers != "all"


def keeps_order(queue: Queue) -> bool:
    return bool(queue.counts[DELAYED]) and (queue.groups is not None or _one_at_a_time(queue))


def barrier(queue: Queue, level: int) -> int:
    """Return the sequence number before which consumers of this level stop. They take nothing of lower levels."""
    if not queue.counts[DELAYED] or not _one_at_a_time(queue):
        return NEVER
    return _first_retries(queue).levels[level]


class InTurn(NamedTuple):
    """Excludes messages after one of their group that waits for its retry."""

    groups: Ints
    lowest: Ints

    def concerns(self, block: Block) -> bool:
        return block.group.values is not None and block.base + block.filled > int(self.lowest.min())

    def keep(self, block: Block, rows: Rows) -> Rows:
        numbers = as_array(rows)
        codes = block.group.get(numbers)
        at = np.minimum(np.searchsorted(self.groups, codes), len(self.groups) - 1)
        waits = (self.groups[at] == codes) & (self.lowest[at] < numbers + block.base)
        rest: Rows = numbers[~waits]
        return rest


def in_turn(queue: Queue) -> list[InTurn]:
    if queue.groups is None or not queue.counts[DELAYED]:
        return []
    lowest = _first_retries(queue)
    return [InTurn(lowest.groups, lowest.of_groups)] if len(lowest.groups) else []

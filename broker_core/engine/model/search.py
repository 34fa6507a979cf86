"""Search for messages to take: the next eligible messages of a queue from a sequence number on.

A message is eligible when it is AVAILABLE and every filter lets it through: not expired, matched by the selector, not refused by
this link before, its group free or held by the same, not the taker's own. A queue of priorities is searched level by level, the
highest first; a link has a position in each.

One that waits for its retry is DELAYED, and keeps others waiting where the queue has to keep its order:

| queue | waits with it |
|---|---|
| with message groups | later messages of its group |
| for one consumer at a time (`consumers` is exclusive or single) | all that come later in the queue's order |
| any other | nothing |

It has been held before. A message that its sender delayed has not, and keeps nobody waiting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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

_SCAN_ROWS = 1024  # a link that wants three messages looks at this many rows first
_WIDER = 8  # and at so many times as many next
_NONE: Ints = np.zeros(0, np.int64)


class Filter(Protocol):
    """Lets some of a block's AVAILABLE rows through."""

    def concerns(self, block: Block) -> bool:
        """Say whether it may keep any row of this block back: most blocks need no look."""
        ...

    def keep(self, block: Block, rows: Rows) -> Rows:
        """Keep those of the rows, all AVAILABLE and in ascending order, that it lets through."""
        ...


class Unexpired(NamedTuple):
    """A message whose time has passed is never delivered, whether or not it has been put away yet."""

    now: int  # milliseconds since 1970

    def concerns(self, block: Block) -> bool:
        """Say whether a row of the block has expired."""
        return block.next_expiry <= self.now

    def keep(self, block: Block, rows: Rows) -> Rows:
        """Keep the rows that have not expired."""
        numbers = as_array(rows)
        return numbers[~block.expired(numbers, self.now)]


class Without(NamedTuple):
    """Not what this taker has refused, or what was given back to it unread."""

    rows: RowSet | Exclusions

    def concerns(self, block: Block) -> bool:
        """Say whether rows of this block are left out."""
        return self.rows.rows(block.number) is not None

    def keep(self, block: Block, rows: Rows) -> Rows:
        """Keep the rows that are not left out."""
        gone = self.rows.rows(block.number)
        return rows if gone is None else exclude(rows, gone)


class Matching(Protocol):
    """A selector over one queue: which rows are known to match. The rest is evaluated by who asks, who then asks again."""

    def known(self, queue: Queue, block: int) -> npt.NDArray[np.bool_]:
        """By row, from the block's first on, whether it matches; as far as evaluated. Nothing of any other queue."""
        ...


class Search(NamedTuple):
    """Limits of a search: at most so many messages, and bytes. One message larger than `max_bytes` travels alone."""

    messages: int
    max_bytes: int | None = None
    until: int | None = None  # sequence numbers from this one on are not looked at
    filters: Sequence[Filter] = ()
    matching: Matching | None = None


class Found(NamedTuple):
    """Result of a search."""

    rows: RowSet
    unknown: int | None = None  # the sequence number at which the search stopped, since nobody has evaluated the selector there
    unevaluated: int | None = None  # the block looked at last, if its selector is not evaluated for all of its messages


NOTHING = Found(RowSet())


def find(queue: Queue, first: int, search: Search, level: int | None = 0) -> Found:
    """Find the next eligible messages of a level from sequence number `first` on; of all levels, in order, if `level` is None."""
    return _at_the_front(queue, first, search, level) or _RunningSearch(queue, search).through(level, first).found()


def _at_the_front(queue: Queue, first: int, search: Search, level: int | None) -> Found | None:
    """As nearly always: all that is wanted, or there, are neighbours in the first block that has any, and nothing holds one of
    them back. None where that does not meet the eye; then a full search decides."""
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
    for each in search.filters:
        if each.concerns(block):
            return None
    return Found(RowSet({number: slice(start, start + count)}))


def find_all(queue: Queue, search: Search) -> Found:
    """The next eligible messages of the queue, higher levels first: for who takes from the whole queue, as a lease does."""
    running = _RunningSearch(queue, search)
    for level in reversed(range(queue.rules.levels)):
        running.through(level, 0)
        if running.done or barrier(queue, level) != NEVER:
            break
    return running.found()


class _RunningSearch:
    """One search under way: what it has found, and what is left to be found."""

    def __init__(self, queue: Queue, search: Search) -> None:
        self._queue, self._search = queue, search
        self._left, self._room = search.messages, search.max_bytes
        self._until = search.until
        self._parts: list[tuple[int, Rows]] = []
        self._unknown: int | None = None
        self._unevaluated: int | None = None
        self.done = search.messages <= 0 or queue.paused

    def found(self) -> Found:
        parts = self._parts
        if len(parts) > 1 and any(following[0] <= one[0] for one, following in itertools.pairwise(parts)):
            parts = _merged(parts)  # of several levels
        return Found(RowSet.of(parts), self._unknown, self._unevaluated)

    def through(self, level: int | None, first: int) -> _RunningSearch:
        stop = NEVER if level is None else barrier(self._queue, level)  # who browses, at all levels, keeps no order
        if stop != NEVER:
            self._until = stop if self._search.until is None else min(stop, self._search.until)
        if not self.done:
            for number in self._queue.blocks_with_available(level, first >> BLOCK_BITS):
                self._look(level, self._queue.blocks[number], first)
                if self.done or self._stops_in(number):
                    break
        return self

    def _stops_in(self, number: int) -> bool:
        until = self._until
        return until is not None and until < (number + 1) << BLOCK_BITS

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
            rows, used = _within(block, rows, self._room, alone=not self._parts)
            self._room -= used
        taken = row_count(rows)
        if taken:
            self._parts.append((block.number, rows))
            self._left -= taken
        if self._left <= 0 or taken < count:
            self.done, self._unknown = True, None

    def _eligible(
        self,
        block: Block,
        level: int | None,
        start: int,
        stop: int,
        matches: npt.NDArray[np.bool_] | None,
    ) -> Rows:
        """Return the first AVAILABLE rows of the level, from `start` up to `stop`, that pass all filters: as many as are left to
        find."""
        limit, filters = self._left, [row_filter for row_filter in self._search.filters if row_filter.concerns(block)]
        start, stop = max(start, block.low), min(stop, block.filled)
        if start >= stop:
            return slice(start, start)
        levels = None if level is None else block.level
        of_level: npt.NDArray[np.uint16] | None = (
            None  # where `start` and `stop` lead, if not to the block's rows one after another
        )
        if levels is not None and level is not None and block.full:
            of_level = block.of_level(level)
            if of_level is None:
                levels = None
        if levels is None and matches is None and not filters and block.counts[AVAILABLE] == block.filled - block.low:
            return slice(start, min(stop, start + limit))
        if of_level is not None:
            start = int(of_level.searchsorted(np.uint16(start)))
            stop = int(of_level.searchsorted(np.uint16(stop))) if stop < BLOCK_ROWS else len(of_level)
        found: list[Ints] = []
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
            found.append(as_array(rows)[:wanted])
            wanted -= len(found[-1])
            start, width = end, width * _WIDER
        return np.concatenate(found) if len(found) > 1 else found[0] if found else slice(start, start)


def _within(block: Block, rows: Rows, room: int, *, alone: bool) -> tuple[Rows, int]:
    """As many of the rows, from the first on, as fit `room` bytes; the first one always, if `alone`."""
    sizes = block.sizes.get(rows)
    least = 1 if alone else 0  # `room` is below zero after one larger message
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
    """Find the first messages that wait for their retry, anew after a change."""
    if queue.first_retries is None:
        queue.first_retries = _find_first_retries(queue)
    return queue.first_retries


def _find_first_retries(queue: Queue) -> FirstRetries:
    waiting = [block for _, block in sorted(queue.blocks.items()) if block.counts[DELAYED]]
    levels, found = [NEVER] * queue.rules.levels, []
    for block in waiting:
        mine = block.retries = block.retries or _retries(block)
        for level, sequence in zip(mine.levels.tolist(), mine.of_levels.tolist(), strict=True):
            levels[level] = min(levels[level], sequence)
        if len(mine.groups):
            found.append(mine)
    if len(found) < 2:
        return FirstRetries(levels, *(found[0][2:] if found else (_NONE, _NONE)))
    lowest = np.full(1 + max(int(mine.groups[-1]) for mine in found), NEVER)  # by code
    for mine in reversed(found):  # the first block's last
        lowest[mine.groups] = mine.of_groups
    groups = np.flatnonzero(lowest != NEVER)
    return FirstRetries(levels, groups, lowest[groups])


def _retries(block: Block) -> RetriesOfBlock:
    """Find the first messages of a block that wait for their retry."""
    if block.returned.values is None:
        return RetriesOfBlock(_NONE, _NONE, _NONE, _NONE)
    delayed = np.flatnonzero(block.state[: block.filled] == DELAYED)
    rows = delayed[block.returned.values[delayed] > 0]
    levels, first = np.unique(0 * rows if block.level is None else block.level[rows], return_index=True)
    codes, first_of_group = np.unique(np.broadcast_to(block.group.get(rows), len(rows)).astype(np.int64), return_index=True)
    grouped = codes > 0
    return RetriesOfBlock(levels, rows[first] + block.base, codes[grouped], rows[first_of_group[grouped]] + block.base)


def _one_at_a_time(queue: Queue) -> bool:
    return queue.rules.consumers != "all"


def keeps_order(queue: Queue) -> bool:
    """Say whether anything may wait behind a message of the queue that is DELAYED."""
    return bool(queue.counts[DELAYED]) and (queue.grouping is not None or _one_at_a_time(queue))


def barrier(queue: Queue, level: int) -> int:
    """Return the sequence number at which who takes messages of this level has to stop; NEVER: nowhere. At lower levels he may
    have none then."""
    if not queue.counts[DELAYED] or not _one_at_a_time(queue):
        return NEVER
    return _first_retries(queue).levels[level]


class InTurn(NamedTuple):
    """A search's filter: not what comes after a message of its own group that waits for its retry."""

    groups: Ints
    lowest: Ints

    def concerns(self, block: Block) -> bool:
        """Say whether the block may have later messages of such a group."""
        return block.group.values is not None and block.base + block.filled > int(self.lowest.min())

    def keep(self, block: Block, rows: Rows) -> Rows:
        """Keep rows before which none of their group waits."""
        numbers = as_array(rows)
        codes = block.group.get(numbers)
        at = np.minimum(np.searchsorted(self.groups, codes), len(self.groups) - 1)
        waits = (self.groups[at] == codes) & (self.lowest[at] < numbers + block.base)
        kept: Rows = numbers[~waits]
        return kept


def in_turn(queue: Queue) -> list[InTurn]:
    """Return the filter for a queue with groups, where any message waits for its retry."""
    if queue.grouping is None or not queue.counts[DELAYED]:
        return []
    lowest = _first_retries(queue)
    return [InTurn(lowest.groups, lowest.of_groups)] if len(lowest.groups) else []

"""A queue: blocks in order, who looks at them from where, and how far back a return sends them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from broker_core.engine.blocks import Block
from broker_core.engine.exclusions import Exclusions
from broker_core.engine.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet, clip, exclude, head, row_count
from broker_core.engine.series import Ints, Rows
from broker_core.engine.states import State

RETURN_LOG_ENTRIES = 4096  # beyond this the two oldest entries become one: a little more to search, never less


class ReturnLog:
    """Epoch → lowest place returned, as a suffix minimum: what came back since an epoch is one bisection away.

    Both lists rise: an entry is dropped as soon as a later one names a place that is not higher. So a return costs the same
    with one subscription and with a thousand: each looks here at its own next turn.
    """

    __slots__ = ("_epochs", "_places", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self._epochs: list[int] = []
        self._places: list[int] = []

    def add(self, place: int) -> None:
        self.epoch += 1
        while self._places and self._places[-1] >= place:
            self._places.pop()
            self._epochs.pop()
        self._epochs.append(self.epoch)
        self._places.append(place)
        if len(self._places) > RETURN_LOG_ENTRIES:
            del self._epochs[0], self._places[1]  # the lower place at the later epoch

    def lowest_since(self, epoch: int) -> int | None:
        """The lowest place returned after `epoch`."""
        at = bisect_right(self._epochs, epoch)
        return self._places[at] if at < len(self._places) else None


@dataclass
class Subscription:
    """A consumer that does not outlive the broker (a link): its place and what it has seen of the return log."""

    holder: int
    place: int = 0
    epoch: int = 0
    held: dict[int, int] = field(default_factory=dict)  # block → rows held there, so that losing the link looks only there
    excluded: Exclusions = field(default_factory=Exclusions)


@dataclass
class ArchivedBlock:
    """A full block without a live row, out of memory: where its columns lie in the journal."""

    number: int
    position: int  # log position of the record whose payload is the packed block
    highest_payload: int  # its rows are gone once retention has passed this log position
    first_time: int  # microseconds since 1970 of the first arrival
    last_time: int
    outcomes: list[int]  # the outcomes that occur


class Queue:
    """One queue. `enqueued` equals held + available + acquired + archived after every command."""

    def __init__(self, name: str, kind: str, options: dict[str, Any]) -> None:
        # persisted
        self.name = name
        self.kind = kind
        self.options = options
        self.next_sequence = 0
        self.blocks: dict[int, Block] = {}
        self.archive: dict[int, ArchivedBlock] = {}
        self.archived_away = 0  # archived messages of blocks that left memory
        self.unread = 0  # messages given back because a finished batch was never read
        # derived
        self.counts = [0] * len(State)  # of resident blocks
        self.bytes = 0  # stored bytes of what is not archived
        self.overlay_bytes = 0  # of resident blocks
        self.subscriptions: dict[int, Subscription] = {}
        self.returns = ReturnLog()
        self._available: npt.NDArray[np.int32] = np.zeros(4, np.int32)  # by block number
        self._low_block = 0  # no block before this one has an AVAILABLE row

    @property
    def archived(self) -> int:
        return self.counts[State.ARCHIVED] + self.archived_away

    def append(self, count: int, state: State, sizes: int | Ints, position: int, time: int, skip: int = 0) -> None:
        """Give `count` messages the next places; their payload is in the record at `position`, from its row `skip` on."""
        done = 0
        while done < count:
            number, row = self.next_sequence >> BLOCK_BITS, self.next_sequence & (BLOCK_ROWS - 1)
            take = min(count - done, BLOCK_ROWS - row)
            block = self.blocks.get(number)
            if block is None:
                block = self.blocks[number] = Block(number)
            part = sizes if isinstance(sizes, int) else sizes[done : done + take]
            block.fill(take, state, part, position, skip + done, time)
            self.bytes += part * take if isinstance(part, int) else int(part.sum(dtype=np.int64))
            self.counts[state] += take
            if state == State.AVAILABLE:
                self._count_available(number, take)
            self.next_sequence += take
            done += take

    def move(self, block: Block, rows: Rows, source: State, target: State) -> None:
        """Change rows of one block, all in `source`, and every count that follows from it."""
        count = row_count(rows)
        block.move(rows, count, source, target)
        self.counts[source] -= count
        self.counts[target] += count
        if source == State.AVAILABLE:
            self._count_available(block.number, -count)
        if target == State.AVAILABLE:
            self._count_available(block.number, count)
        if target == State.ARCHIVED:
            self.bytes -= block.sizes.total(rows, count)

    def adopt(self, block: Block) -> None:
        """Take in a restored block and derive what follows from it."""
        self.blocks[block.number] = block
        for state in State:
            self.counts[state] += block.counts[state]
        self._count_available(block.number, block.counts[State.AVAILABLE])
        self.overlay_bytes += block.overlays.bytes
        live = np.flatnonzero(block.state[: block.filled] != State.ARCHIVED)
        self.bytes += block.sizes.total(live, len(live))

    def drop(self, block: Block) -> None:
        """Let a block without a live row leave memory."""
        self.archived_away += block.counts[State.ARCHIVED]
        self.counts[State.ARCHIVED] -= block.counts[State.ARCHIVED]
        self.overlay_bytes -= block.overlays.bytes
        del self.blocks[block.number]

    def find(
        self,
        place: int,
        *,
        messages: int,
        max_bytes: int | None,
        until: int | None = None,
        without: RowSet | Exclusions | None = None,
    ) -> RowSet:
        """The next AVAILABLE messages from `place` on: at most `messages`, at most `max_bytes` of stored bytes.

        One message larger than `max_bytes` travels alone. `until` bounds the sequence numbers (excluded). `without` is never
        found; it costs a search in what of it lies behind `place`, however long the queue is.
        """
        if messages <= 0:
            return RowSet()
        parts: list[tuple[int, Rows]] = []
        left, room = messages, max_bytes
        for number in self._blocks_with_available(place):
            block = self.blocks[number]
            start, stop = max(0, place - block.base), BLOCK_ROWS if until is None else until - block.base
            skipped = without.rows(number) if without else None
            if skipped is not None:
                skipped = clip(skipped, start, BLOCK_ROWS)
            rows = block.available(start, stop, left + (row_count(skipped) if skipped is not None else 0))
            if skipped is not None:
                rows = head(exclude(rows, skipped), left)
            count = row_count(rows)
            if room is not None and count:
                rows, used = _within(block, rows, room, alone=not parts)
                room -= used
            if row_count(rows):
                parts.append((number, rows))
                left -= row_count(rows)
            if left <= 0 or row_count(rows) < count or stop < BLOCK_ROWS:
                break
        return RowSet.of(parts)

    def place_of(self, subscription: Subscription) -> int:
        """Where a subscription goes on: its own place, or an earlier one that something returned to since."""
        lowest = self.returns.lowest_since(subscription.epoch)
        return subscription.place if lowest is None else min(subscription.place, lowest)

    def _blocks_with_available(self, place: int) -> Iterator[int]:
        while self._low_block < len(self._available) and not self._available[self._low_block]:
            self._low_block += 1
        number, left = max(place >> BLOCK_BITS, self._low_block), self.counts[State.AVAILABLE]
        while left > 0 and number < len(self._available):
            if not self._available[number]:  # nearly always the next one has some
                number += int((self._available[number:] > 0).argmax())
                if not self._available[number]:
                    return
            left -= int(self._available[number])
            yield number
            number += 1

    def _count_available(self, number: int, change: int) -> None:
        if number >= len(self._available):
            grown = np.zeros(max(number + 1, 2 * len(self._available)), np.int32)
            grown[: len(self._available)] = self._available
            self._available = grown
        self._available[number] += change
        if change > 0:
            self._low_block = min(self._low_block, number)


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

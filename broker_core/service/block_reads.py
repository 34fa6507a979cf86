"""Looks at messages, live, packed or settled: slices of their blocks, taken under the broker's lock, and counts for a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..archive.read.files import Table
from ..archive.table.layout import table_url
from ..engine import BrokerState
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_BITS, RowSet, as_array, row_count
from ..engine.columns.series import Rows
from ..engine.decide.decision import need_queue
from ..engine.model.groups import not_held
from ..engine.model.queue import PackedBlock, Queue
from ..engine.model.recordings import NO_TABLE
from ..engine.model.retention import with_payloads
from ..journal import Hold, Journal
from ..reading.slices import BlockSlice, names_of, slice_of
from ..reading.stored import open_block
from ..reading.unreadable import RETENTION, data_loss
from .missing_rows import MissingRows


class BlockReads:
    """The part of `BrokerService` that shows messages and changes nothing."""

    state: BrokerState
    journal: Journal
    archive: str | None  # folder or URL of the archive
    _lock: threading.Lock

    @property
    def broker_id(self) -> str:
        """Name of the data directory, made when it was."""
        return self.journal.broker_id

    def slices(
        self,
        queue_name: str,
        rows: RowSet,
        select: Callable[[Queue, Block, Rows], Rows] | None = None,
        *,
        outcomes: bool = True,
        fail_on_data_loss: bool = True,
        missing: MissingRows | None = None,
    ) -> Iterator[BlockSlice]:
        """Yield a slice of each block with these messages, or of those among them that `select` picks.

        Without `outcomes` the slices leave out what became of the messages. Like any answer, a slice leaves only when what it
        shows is durable. `missing` is told of messages that the journal has no longer. Without it, raises DataLoss if there are
        any; without `fail_on_data_loss` the others are yielded. Raises Fenced where `select` cannot tell any longer.
        """
        picks = ((number, lambda block, part=part: part) for number, part in rows.items())
        for number, found, lost in self._slices(queue_name, picks, select, outcomes=outcomes):
            if lost is None and select is not None:
                raise not_held(queue_name)
            if lost is None or row_count(lost):
                if missing is not None:
                    missing.add(number, rows.rows(number) if lost is None else lost)
                elif fail_on_data_loss:
                    raise data_loss(queue_name, number, RETENTION)
            if found is not None:
                yield found

    def browse(
        self,
        queue_name: str,
        select: Callable[[Block], Any],
        first: int,
        last: int | None,
        archived: Callable[[PackedBlock], object] = lambda entry: True,
        missing: MissingRows | None = None,
    ) -> Iterator[BlockSlice]:
        """Yield a slice of each block with sequence numbers from `first` to `last`, of the rows that `select` picks.

        Packed blocks are included, but for those of which `archived` says no. `missing` is told of rows, and of blocks, that the
        journal has no longer.
        """
        numbers, stop, end = self._numbers(queue_name, first, last)
        self.journal.wait(end)  # that there is nothing to show is an answer too
        if missing is not None:
            missing.add_blocks({*range(max(first, 0) >> BLOCK_BITS, (stop >> BLOCK_BITS) + 1)}.difference(numbers))
        for number, found, lost in self._slices(queue_name, ((number, select) for number in numbers), archived=archived):
            if missing is not None and (lost is None or row_count(lost)):
                missing.add(number, lost)
            if found is not None:  # retention took the others while those before were read, or nothing is wanted of them
                yield found

    def _slices(
        self,
        queue_name: str,
        picks: Iterable[tuple[int, Callable[[Block], Rows]]],
        select: Callable[[Queue, Block, Rows], Rows] | None = None,
        *,
        outcomes: bool = True,
        archived: Callable[[PackedBlock], object] = lambda entry: True,
    ) -> Iterator[tuple[int, BlockSlice | None, Rows | None]]:
        """Yield for each block its number, a slice of the picked rows, and which of them the journal has no longer.

        The slice is None if the block is gone, and then so are the latter, or `archived` says no. A block in memory is copied
        under the lock.
        """

        def copied(queue: Queue, block: Block, pick: Callable[[Block], Rows]) -> tuple[BlockSlice, Rows]:
            picked = pick(block)
            kept = with_payloads(block, picked, dropped)
            lost = slice(0, 0) if kept is picked else np.setdiff1d(as_array(picked), as_array(kept), assume_unique=True)
            rows, lost = (kept, lost) if select is None else (select(queue, block, kept), select(queue, block, lost))
            return slice_of(block, rows, names_of(queue), outcomes=outcomes, hold=hold), lost

        hold: Hold | None = None
        for number, pick in picks:
            found: BlockSlice | None = None
            lost: Rows | None = None
            with self._lock:
                queue = need_queue(self.state, queue_name)
                block, entry = queue.blocks.get(number), queue.packed.get(number)
                dropped, hold, end = self.state.dropped, self.journal.hold(), self.journal.end
                if block is not None:
                    found, lost = copied(queue, block, pick)
            self.journal.wait(end)
            if block is None and entry is not None:
                lost = slice(0, 0)
                if archived(entry):
                    found, lost = copied(queue, open_block(self.journal, entry), pick)
            hold = None  # whoever uses the slice has it
            yield number, found, lost

    def table(self, queue_name: str) -> Table | None:
        """Describe the queue's table in the archive, with the passes that have ended and which lineages these are of. None where
        there is none, yet."""
        with self._lock:
            queue, end = need_queue(self.state, queue_name), self.journal.end
            passes = queue.recordings
            number, version = passes.finished, passes.version
        self.journal.wait(end)
        if self.archive is None or version == NO_TABLE:
            return None
        lineages = self.journal.lineage.until(str(queue.id), number)
        return Table(table_url(self.archive, queue.name), self.broker_id, queue.id, lineages, version)

    def _numbers(self, queue_name: str, first: int, last: int | None) -> tuple[list[int], int, int]:
        """The blocks with messages from sequence number `first` to `last`; the last of these that there is; the log's end."""
        with self._lock:
            queue = need_queue(self.state, queue_name)
            stop = queue.next_sequence - 1 if last is None else min(last, queue.next_sequence - 1)
            numbers = sorted(n for n in {*queue.blocks, *queue.packed} if first >> BLOCK_BITS <= n <= stop >> BLOCK_BITS)
            return numbers, stop, self.journal.end

    def count_blocks(
        self,
        queue_name: str,
        select: Callable[[Block], Any],
        archived: Callable[[PackedBlock], int],
        first: int,
        last: int | None,
    ) -> list[tuple[int, int, int]]:
        """Count what `browse` will find, block by block: first and last sequence number, and how many messages `select` picks.

        Of a block that has left memory as many as `archived` says at most: it is not opened."""
        numbers, stop, end = self._numbers(queue_name, first, last)
        found = []
        for number in numbers:
            begin, finish = max(first, number << BLOCK_BITS), min(stop, ((number + 1) << BLOCK_BITS) - 1)
            with self._lock:
                queue = need_queue(self.state, queue_name)
                block, entry = queue.blocks.get(number), queue.packed.get(number)
                count = row_count(select(block)) if block is not None else 0
                end = self.journal.end
            if block is None and entry is not None:
                count = min(finish - begin + 1, archived(entry))
            if count > 0:
                found.append((begin, finish, count))
        self.journal.wait(end)
        return found

"""Slices of blocks for readers, and counts for a plan."""

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
from ..engine.columns.series import Ints, Rows
from ..engine.commands import Now
from ..engine.decide.decision import need_queue
from ..engine.model.groups import not_held
from ..engine.model.queue import PackedBlock, Queue
from ..engine.model.recordings import NO_TABLE
from ..engine.model.retention import with_payloads
from ..journal import Hold, Journal
from ..reading.slices import RETENTION, BlockSlice, data_loss, lock_ends, names_of, slice_of
from ..reading.stored import open_block
from .missing_rows import MissingRows
from .stays import StayFacts, facts_of


class BlockReads:
    """The read-only part of `BrokerService`."""

    state: BrokerState
    journal: Journal
    archive: str | None
    _lock: threading.Lock
    _clock: Callable[[], Now]

    @property
    def broker_id(self) -> str:
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
        """Yield a slice of each block with these messages, as far as `select` picks them, when it is durable.

        `missing` collects the messages that the journal no longer has. Without `missing` they raise DataLoss, or with
        `fail_on_data_loss=False` are left out. Raises Fenced if rows that `select` needs are gone.
        """
        picks = ((number, lambda block, part=part: part) for number, part in rows.items())
        for number, part, lost in self._slices(queue_name, picks, select, outcomes=outcomes):
            if lost is None and select is not None:
                raise not_held(queue_name)
            if lost is None or row_count(lost):
                if missing is not None:
                    missing.add(number, rows.rows(number) if lost is None else lost)
                elif fail_on_data_loss:
                    raise data_loss(queue_name, number, RETENTION)
            if part is not None:
                yield part

    def browse(
        self,
        queue_name: str,
        select: Callable[[Block], Any],
        first: int,
        last: int | None,
        archived: Callable[[PackedBlock], object] = lambda entry: True,
        missing: MissingRows | None = None,
    ) -> Iterator[BlockSlice]:
        """Yield a slice of each block with sequence numbers from `first` to `last`, of the rows that `select` picks, and of
        packed blocks that `archived` admits. `missing` collects rows and blocks that the journal no longer has."""
        numbers, stop, end = self._numbers(queue_name, first, last)
        self.journal.wait(end)  # an empty result must be durable too
        if missing is not None:
            for number in {*range(max(first, 0) >> BLOCK_BITS, (stop >> BLOCK_BITS) + 1)}.difference(numbers):
                missing.add(number, None)
        for number, part, lost in self._slices(queue_name, ((number, select) for number in numbers), archived=archived):
            if missing is not None and (lost is None or row_count(lost)):
                missing.add(number, lost)
            if part is not None:  # None: retention dropped the block meanwhile, or `archived` excludes it
                yield part

    def _slices(
        self,
        queue_name: str,
        picks: Iterable[tuple[int, Callable[[Block], Rows]]],
        select: Callable[[Queue, Block, Rows], Rows] | None = None,
        *,
        outcomes: bool = True,
        archived: Callable[[PackedBlock], object] = lambda entry: True,
    ) -> Iterator[tuple[int, BlockSlice | None, Rows | None]]:
        """Yield for each block its number, a slice of the picked rows, and the rows that the journal no longer has.

        A lost block has no slice and no rows. A block that `archived` excludes has no slice.
        """

        def copied(queue: Queue, block: Block, pick: Callable[[Block], Rows]) -> tuple[BlockSlice, Rows]:
            picked = pick(block)
            existing = with_payloads(block, picked, dropped)
            lost = slice(0, 0) if existing is picked else np.setdiff1d(as_array(picked), as_array(existing), assume_unique=True)
            rows, lost = (existing, lost) if select is None else (select(queue, block, existing), select(queue, block, lost))
            locked = lock_ends(queue, block, rows, self._started_ms()) if outcomes else None
            return slice_of(block, rows, names_of(queue), outcomes=outcomes, hold=hold, locked=locked), lost

        hold: Hold | None = None
        for number, pick in picks:
            part: BlockSlice | None = None
            lost: Rows | None = None
            with self._lock:
                queue = need_queue(self.state, queue_name)
                block, entry = queue.blocks.get(number), queue.packed.get(number)
                dropped, hold, end = self.state.dropped, self.journal.hold(), self.journal.end
                if block is not None:
                    part, lost = copied(queue, block, pick)
            self.journal.wait(end)
            if block is None and entry is not None:
                lost = slice(0, 0)
                if archived(entry):
                    part, lost = copied(queue, open_block(self.journal, entry), pick)
            hold = None  # the slice has it
            yield number, part, lost

    def _started_ms(self) -> int:
        """By the present wall clock, in milliseconds since 1970."""
        now = self._clock()
        return now.wall // 1000 - self.state.uptime(now.up)

    def facts(self, queue_name: str, number: int, rows: Ints) -> dict[int, StayFacts]:
        """Return facts by sequence number. `rows`: of a block, ascending, at least one."""
        with self._lock:
            facts, end = facts_of(self.state, need_queue(self.state, queue_name), number, rows), self.journal.end
        self.journal.wait(end)
        return facts

    def table(self, queue_name: str) -> Table | None:
        """Return the queue's archive table, with finished recordings and lineages."""
        need_queue(self.state, queue_name)
        table = self.table_with_former(queue_name)
        return None if table is None or table.version == NO_TABLE else table

    def table_with_former(self, queue_name: str) -> Table | None:
        """As `table`, but includes former queues of this name, whose tables are the same. Without a queue, the id is that of a
        later one. The version is NO_TABLE if only former queues can have written the table."""
        with self._lock:
            queue, end = self.state.queues.get(queue_name), self.journal.end
            queue_id, number, version = self.state.next_queue_id, 0, NO_TABLE
            if queue is not None:
                queue_id, number, version = queue.id, queue.recordings.finished, queue.recordings.version
        self.journal.wait(end)
        if self.archive is None:
            return None
        lineages = self.journal.lineage.until(str(queue_id), number)
        return Table(table_url(self.archive, queue_name), self.broker_id, queue_id, lineages, version)

    def _numbers(self, queue_name: str, first: int, last: int | None) -> tuple[list[int], int, int]:
        """Return the existing blocks with these sequence numbers, the last number, and the log's end."""
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
        """Return first and last sequence number of each block, and how many messages `select` picks. `archived` estimates the
        number for a packed block."""
        numbers, stop, end = self._numbers(queue_name, first, last)
        counts = []
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
                counts.append((begin, finish, count))
        self.journal.wait(end)
        return counts

"""Browses: messages from the journal and from the archive's table, unchanged, as record batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..archive.read.files import Table
from ..client import timeouts
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_BITS, BLOCK_ROWS, as_array
from ..engine.columns.states import ARCHIVED
from ..engine.decide.decision import need_queue
from ..engine.decide.moves import redrivable
from ..engine.model.queue import PackedBlock
from ..engine.model.retention import stayed
from ..messages.columns import arrow_schema
from ..reading.batches import BatchRequest, record_batches
from ..reading.slices import BlockSlice
from ..selectors import Presence, Selector, parse
from ..service.broker import BrokerService
from ..service.matching import evaluated
from ..service.missing_rows import MissingRows
from .archive_reads import ArchiveReads, Batches, beyond, may_be_beyond, wanted_by
from .browse_plans import MaySelect, Select, archived, selection
from .requests import BrowseTicket


class Browses:
    """Messages of one broker's queues."""

    def __init__(self, service: BrokerService, archive: ArchiveReads) -> None:
        self._service, self._archive = service, archive

    def _note(self, queue: str, block_slice: BlockSlice, indexes: slice, error: errors.DamagedJournal) -> None:
        sequences = block_slice.sequences(indexes)
        self._service.damage.note(errors.DamagedMessages.of(queue, int(sequences[0]), int(sequences[-1]), error))

    def noting(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Report damaged messages in the log and in `queue.stat`."""
        try:
            yield from batches
        except errors.DamagedMessages as error:
            self._service.damage.note(error)
            raise

    def batches(self, slices: Iterable[BlockSlice], request: BatchRequest) -> Batches:
        """During a search without matches, regularly yield an empty batch, so that the reader can distinguish it from a broken
        network."""
        schema = arrow_schema(request.columns, stored=request.stored)
        for number, portion in enumerate(_portions(iter(slices))):
            if number:
                yield pa.RecordBatch.from_pylist([], schema)
            yield from self.noting(record_batches(self._service.journal, portion, request))

    def wall_time(self) -> datetime:
        return datetime.fromtimestamp(self._service.wall_ms() / 1000, timezone.utc)

    def due(self, queue: str, sequences: list[int]) -> dict[int, datetime]:
        times = {}
        for number in {sequence >> BLOCK_BITS for sequence in sequences}:
            rows = np.array(sorted(sequence % BLOCK_ROWS for sequence in sequences if sequence >> BLOCK_BITS == number))
            for sequence, facts in self._service.facts(queue, number, rows).items():
                if facts.due is not None:
                    times[sequence] = datetime.fromtimestamp(facts.due / 1000, timezone.utc)
        return times

    def last(self, queue: str) -> int:
        """Return -1 for a queue without messages."""
        return need_queue(self._service.state, queue).next_sequence - 1

    def browse(self, request: BrowseTicket, presence: Presence | None = None) -> Batches:
        """Raises PenstockError, now or while it is read. `presence` collects lookalikes of the selector that messages have."""
        select, may = selection(request), archived(request)
        table = self._service.table(request.queue) if "archived" in request.states else None
        if table is None and request.recorded_after is None:
            return self.batches(self._looked(request, select, may, presence), wanted_by(request))
        return self._with_recorded(request, table, select, may, presence)

    def _with_recorded(
        self, request: BrowseTicket, table: Table | None, select: Select, may: MaySelect, presence: Presence | None
    ) -> Batches:
        """Yield rows of the table unless the client reads it, then the other messages, then rows recorded meanwhile."""
        after = request.recorded_after
        if after is None:
            assert table is not None
            after = table.last_recording
            yield from self._archive.rows(table, request, presence=presence)
        missing = MissingRows()
        slices = self._looked(request, beyond(select, after), may_be_beyond(may, after), presence, missing)
        yield from self.batches(slices, wanted_by(request))
        table = self._service.table(request.queue) if missing else None
        if table is not None and table.last_recording > after:
            yield from self._archive.rows(table, request, after, missing, presence)

    def unsettled(self, queue: str, sequence: int, columns: list[str], *, stored: bool) -> Batches:
        """Yield one message unless it has ended, or if it is a dead letter that stayed."""
        row = sequence % BLOCK_ROWS

        def select(block: Block) -> Any:
            has_stayed = row in stayed(block, self._service.state.dropped)
            is_there = row < block.filled and (block.state[row] != ARCHIVED or has_stayed)
            return np.flatnonzero([is_there]) + row

        slices = self._service.browse(queue, select, sequence, sequence, lambda entry: False)
        return self.batches(slices, BatchRequest(columns, queue, stored=stored))

    def dead_letters(
        self, queue: str, selector: Selector, last: int, presence: Presence | None = None
    ) -> Iterator[npt.NDArray[np.int64]]:
        """Yield sequence numbers of matching dead letters by block, also of dead letters that stayed in their own queue."""

        def dead(block: Block) -> Any:
            return redrivable(block, self._service.state.dropped)

        for part in self._service.browse(queue, dead, 0, last, lambda entry: False):
            sequences = self.matches(queue, part, selector, presence) + part.base
            yield sequences[sequences <= last]

    def matches(self, queue: str, part: BlockSlice, selector: Selector, presence: Presence | None) -> npt.NDArray[np.int64]:
        damaged = partial(self._note, queue, part)
        is_match = evaluated(self._service.journal, selector, part.locations, part.batches, damaged, presence)
        rows: npt.NDArray[np.int64] = as_array(part.rows)[is_match]
        return rows

    def _looked(
        self,
        request: BrowseTicket,
        select: Select,
        may: Callable[[PackedBlock], object],
        presence: Presence | None,
        missing: MissingRows | None = None,
    ) -> Iterator[BlockSlice]:
        if request.selector is None:
            return self._service.browse(request.queue, select, request.first, request.last, may, missing)
        return self._matching(request, select, parse(request.selector), may, presence, missing)

    def _matching(
        self,
        request: BrowseTicket,
        select: Select,
        selector: Selector,
        may: Callable[[PackedBlock], object],
        presence: Presence | None,
        missing: MissingRows | None,
    ) -> Iterator[BlockSlice]:
        """Yield matching rows that are still selected after the evaluation."""
        for part in self._service.browse(request.queue, select, request.first, request.last, may, missing):
            rows = self.matches(request.queue, part, selector, presence)
            last = part.base + BLOCK_ROWS - 1
            yield from self._service.browse(request.queue, partial(of_these, select, rows), part.base, last, may, missing)


def _portions(slices: Iterator[BlockSlice]) -> Iterator[Iterator[BlockSlice]]:
    """Divide into portions of `ALIVE_S` seconds."""
    for block_slice in slices:
        yield _portion(block_slice, slices, time.monotonic() + timeouts.ALIVE_S)


def _portion(first: BlockSlice, slices: Iterator[BlockSlice], until: float) -> Iterator[BlockSlice]:
    yield first
    while time.monotonic() < until:
        block_slice = next(slices, None)
        if block_slice is None:
            return
        yield block_slice


def of_these(select: Select, rows: Any, block: Block) -> Any:
    return np.intersect1d(as_array(select(block)), rows, assume_unique=True)

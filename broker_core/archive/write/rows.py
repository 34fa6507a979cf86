"""Rows of a pass as rows of the table, in the order of their sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...engine.columns.blocks import Block
from ...engine.columns.packing import unpack
from ...engine.columns.rowset import RowSet, as_array
from ...engine.model.recordings import NO_TABLE
from ...errors import DataLoss
from ...journal.view import JournalView
from ...reading.batches import record_tables
from ...reading.dead_letters import QueueNames
from ...reading.slices import slice_of
from ..table import layout as table

READ_BYTES = 16 << 20  # of payload that are put together at once, where those are fewer rows than a row group has


class RecordingContent(NamedTuple):
    """Content of a pass, for the process that writes it."""

    queue: str  # name
    queue_id: int
    number: int
    lineage: str
    origins: Sequence[str]  # queues that its dead letters come from
    takers: Sequence[str]  # names of those who had its messages
    rows: RowSet
    blocks: dict[int, bytes]  # packed columns of blocks in memory
    packed: dict[int, int]  # log positions of those that have left it
    version: int = NO_TABLE  # of the table after the last pass that has ended
    inherited: bool = False  # it began before the directory was restored, under this lineage, whose broker may have ended it
    hold: Any = None  # of the journal: while it lives, no segment that is dropped leaves the disk


class RecordingRows:
    """The rows of a pass; `gone` counts those whose payloads are no longer in the journal, once all are read."""

    def __init__(self, content: RecordingContent, journal: JournalView) -> None:
        self._content, self._journal = content, journal
        self.gone = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield tables of the table's schema, each about a row group or less.

        A message whose payload is damaged is there with nulls and an `error`.
        """
        content = self._content
        names = QueueNames(content.queue, content.origins, content.takers)
        slices = (slice_of(block, rows, names) for block, rows in self._parts())
        for found in record_tables(self._journal, slices, table.STORED, content.queue, table.ROW_GROUP_ROWS, READ_BYTES):
            yield table.rows(found, queue_id=content.queue_id, number=content.number, lineage=content.lineage)

    def there(self) -> RowSet:
        """Return the rows whose payloads are in the journal."""
        return RowSet.of((block.number, rows) for block, rows in self._parts())

    def _parts(self) -> Iterator[tuple[Block, Any]]:
        for number, part in self._content.rows.items():
            rows = as_array(part)
            block = self._block(number)
            if block is None:
                self.gone += len(rows)
                continue
            there = self._journal.holds(block.positions(rows))
            self.gone += len(rows) - int(there.sum())
            if there.any():
                yield block, part if there.all() else rows[there]

    def _block(self, number: int) -> Block | None:
        columns = self._content.blocks.get(number)
        if columns is None:
            position = self._content.packed.get(number)
            if position is None:
                return None
            try:
                columns = self._journal.payload(position)
            except DataLoss:
                return None
        return Block.restored(unpack(columns))

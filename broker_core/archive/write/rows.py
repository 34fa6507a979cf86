"""The rows of a recording as rows of the table, in the order of their sequence numbers."""

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

READ_BYTES = 16 << 20  # of payload in one table, if those are fewer rows than a row group has


class RecordingContent(NamedTuple):
    """The content of a recording, for the process that writes it."""

    queue: str
    queue_id: int
    number: int
    lineage: str
    origins: Sequence[str]  # queues that its dead letters come from
    takers: Sequence[str]  # names of the last holders
    rows: RowSet
    blocks: dict[int, bytes]  # packed columns of the blocks in memory
    packed: dict[int, int]  # log positions of the other blocks
    version: int = NO_TABLE  # table version after the last completed recording
    inherited: bool = False  # it began before the directory was restored
    hold: Any = None  # of the journal: while it exists, dropped segments stay on the disk


class RecordingRows:
    """The rows of a recording. Once all are read, `gone` is the number of rows that the journal no longer has."""

    def __init__(self, content: RecordingContent, journal: JournalView) -> None:
        self._content, self._journal = content, journal
        self.gone = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield tables of the table's schema, each about a row group or less.

        If the payload of a message is damaged, its row has nulls and an `error`.
        """
        content = self._content
        names = QueueNames(content.queue, content.origins, content.takers)
        slices = (slice_of(block, rows, names) for block, rows in self._parts())
        for messages in record_tables(self._journal, slices, table.STORED, content.queue, table.ROW_GROUP_ROWS, READ_BYTES):
            yield table.rows(messages, queue_id=content.queue_id, number=content.number, lineage=content.lineage)

    def present(self) -> RowSet:
        return RowSet.of((block.number, rows) for block, rows in self._parts())

    def _parts(self) -> Iterator[tuple[Block, Any]]:
        for number, part in self._content.rows.items():
            rows = as_array(part)
            block = self._block(number)
            if block is None:
                self.gone += len(rows)
                continue
            is_present = self._journal.holds(block.positions(rows))
            self.gone += len(rows) - int(is_present.sum())
            if is_present.any():
                yield block, part if is_present.all() else rows[is_present]

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

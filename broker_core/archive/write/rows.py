"""The rows of a recording as rows of the table, in the order of their sequence numbers.

Messages of AMQP clients are decoded into columns here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...engine.columns.blocks import Block
from ...engine.columns.packing import unpack
from ...engine.columns.rowset import RowSet, as_array
from ...engine.model.recordings import NO_TABLE
from ...errors import DataLoss
from ...journal.view import JournalView
from ...messages import assembly
from ...messages.columns import BARE_COLUMNS, ENCODED_COLUMNS
from ...messages.conversion import ENVELOPE, Malformed
from ...reading.batches import record_tables
from ...reading.dead_letters import QueueNames
from ...reading.slices import slice_of
from ..table import layout as table

DECODED_ROWS = 4096  # of AMQP clients' messages: smaller batches, on average, are joined before they are decoded
READ_BYTES = 16 << 20  # of payload in one table, at most


class RecordingContent(NamedTuple):
    """The content of a recording."""

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
    archive_message: str | None = None  # the queue's option; None: as the setting
    hold: Any = None  # while it exists, dropped segments of the journal stay on the disk


class RecordingRows:
    """The rows of a recording. After `tables`, `gone` counts the rows that the journal no longer has."""

    def __init__(self, content: RecordingContent, journal: JournalView) -> None:
        self._content, self._journal = content, journal
        self.gone = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield tables of the table's schema, each about a row group or less.

        A row has nulls and an `error` if its payload is damaged. It has bytes and an `error` if they cannot be decoded.
        """
        content = self._content
        names = QueueNames(content.queue, content.origins, content.takers)
        slices = (slice_of(block, rows, names) for block, rows in self._parts())
        own: dict[str, int | str] = {"queueId": content.queue_id, "pass": content.number, "lineage": content.lineage}
        is_exact = content.archive_message != "columns"
        for messages in record_tables(self._journal, slices, table.STORED, content.queue, table.ROW_GROUP_ROWS, READ_BYTES):
            for batch in _batches(messages):
                yield pa.Table.from_batches([table_rows(batch, own, is_exact=is_exact)])

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


#: Columns that are decoded out of messages of AMQP clients.
_DECODED = tuple(name for name in table.COMMENTS if name in BARE_COLUMNS or name in ("annotations", ENVELOPE))


def _batches(messages: pa.Table) -> Iterator[pa.RecordBatch]:
    """Join small batches of AMQP clients' messages: each batch costs some hundred vector operations."""
    is_encoded = messages.column("message").null_count < messages.num_rows
    is_small = messages.num_rows < DECODED_ROWS * messages.column("message").num_chunks
    yield from (messages.combine_chunks() if is_encoded and is_small else messages).to_batches()


def table_rows(messages: pa.RecordBatch, own: Mapping[str, int | str], *, is_exact: bool = True) -> pa.RecordBatch:
    """Return rows of the table's schema. `messages` have the columns `table.STORED` and one form.

    `own` has the values of the columns `table.OWN`. Unless `is_exact`, exact bytes are left out.
    """
    count = messages.num_rows
    columns: dict[str, pa.Array] = {name: messages.column(name) for name in table.STORED}
    if columns["message"].null_count < count:
        columns |= _decoded(messages, is_exact=is_exact)
    else:
        columns |= {"bodyType": assembly.data_types(columns["body"]), ENVELOPE: assembly.nulls(pa.binary(), count)}
    columns |= {name: assembly.constant(own[name], type_, count) for name, type_ in table.OWN.items()}
    arrays = [columns[name] for name in table.FILE_SCHEMA.names]
    return pa.RecordBatch.from_arrays([*arrays, table.days_of(columns["enqueuedTime"])], schema=table.SCHEMA)


def _decoded(messages: pa.RecordBatch, *, is_exact: bool) -> dict[str, pa.Array]:
    """Return the columns that differ from the stored ones."""
    count, sequence = messages.num_rows, messages.column("sequenceNumber")
    malformed: Malformed = {}
    names = [name for name in messages.schema.names if name in ENCODED_COLUMNS or name == "annotations"]
    payload = messages.select([name for name in names if messages.column(name).null_count < count])
    decoded = assembly.computed(_DECODED, payload, sequence, malformed)
    columns = {name: assembly.representable(array) for name, array in decoded.items()}
    message = messages.column("message")
    if not columns[ENVELOPE].null_count:
        columns["message"] = assembly.nulls(pa.binary(), count)
    elif columns[ENVELOPE].null_count < count:
        columns["message"] = pc.if_else(columns[ENVELOPE].is_valid(), pa.scalar(None, pa.binary()), message)
    if malformed:
        columns["error"] = assembly.with_reasons(messages.column("error"), malformed, sequence, count)
    if not is_exact:
        columns |= dict.fromkeys(table.EXACT, assembly.nulls(pa.binary(), count))
        if malformed:  # nothing else has the content
            is_malformed = pc.is_in(sequence, value_set=pa.array(malformed, pa.int64()))
            columns["message"] = pc.if_else(is_malformed, message, pa.scalar(None, pa.binary()))
    return columns

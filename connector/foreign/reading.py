"""Reading in a task: rows of a batch's file, checked and decoded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core.errors import DataLoss
from ...broker_core.messages import assembly, conversion
from . import aside_files, batches
from .checksums import DamagedFile, damaged, missing
from .partition import Part, SpoolPartition
from .spool_files import SpoolFiles

log = logging.getLogger("penstock")


class _FileRows(NamedTuple):
    """A record batch, its first row in the file, and the rows to read of it."""

    batch: int
    row: int
    content: pa.RecordBatch
    some: range

    @property
    def sequence(self) -> int:
        """The sequence number of the record batch's first row."""
        return self.batch * batches.MOST_ROWS + self.row


def read_spooled(partition: SpoolPartition, columns: Sequence[str], fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """All rows are checked before the first is yielded. Raises DataLoss for a missing or damaged file.

    Messages that cannot be decoded are set aside in the spool, and left out.
    """
    store = SpoolFiles(partition.spool)
    with ExitStack() as stack:
        chunks = [chunk for part in partition.parts for chunk in _checked(stack, store, part, fail_on_data_loss)]
        for chunk in chunks:
            yield _converted(chunk, columns, store)


def _checked(stack: ExitStack, store: SpoolFiles, part: Part, fail_on_data_loss: bool) -> list[_FileRows]:
    file = store.open(part.file)
    if file is None:
        text = missing(store.url, part.file)
    else:
        stack.enter_context(file)
        try:
            return _chunks(file, part)
        except DamagedFile as error:
            text = damaged(store.url, part.file, error)
    if fail_on_data_loss:
        raise DataLoss(text)
    log.warning("%s. The rows %d to %d are left out, since failOnDataLoss is false", text, part.first, part.end - 1)
    return []


def _chunks(file: Any, part: Part) -> list[_FileRows]:
    reader = batches.opened(file, part.file, manifest=part.manifest).reader
    rows = []
    row = 0
    for number, count in enumerate(batches.counts_of(reader)):
        first, end = max(part.first - row, 0), min(part.end - row, count)
        if first < end:
            rows.append(_FileRows(part.batch, row, reader.get_batch(number), range(first, end)))
        row += count
    return rows


def _converted(chunk: _FileRows, columns: Sequence[str], store: SpoolFiles) -> pa.RecordBatch:
    batch, some, sequence = chunk.content, chunk.some, chunk.sequence
    decoded, malformed = _decoded(batch.slice(some.start, len(some)), columns, sequence + some.start)
    if malformed:
        # All of the record batch, so that a task of another plan writes the same file.
        whole = malformed if len(some) == batch.num_rows else _decoded(batch, columns, sequence)[1]
        _set_aside(chunk, store, {at - sequence: reason for at, reason in whole.items()})
        decoded = assembly.readable(decoded, sequence + some.start, malformed)
    return decoded


def _decoded(batch: pa.RecordBatch, columns: Sequence[str], sequence: int) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the columns, and the reason for each undecodable message, by sequence number."""
    cut = conversion.foreign_messages().cut(batch.column("message"))
    malformed: dict[int, str] = {sequence + at: reason for at, reason in cut.refused.items()}
    decoded = assembly.assemble(
        columns,
        cut.payload,
        {"queue": "", "sequenceNumber": sequence, "enqueuedTime": batch.column("received"), "deliveryCount": cut.attempts},
        malformed=malformed,
    )
    if "queue" in columns:
        place = list(columns).index("queue")
        decoded = decoded.set_column(place, decoded.schema.field(place), batch.column("queue").cast(pa.string()))
    return decoded, malformed


def _set_aside(chunk: _FileRows, store: SpoolFiles, reasons: dict[int, str]) -> None:
    """A repeated task writes the same file."""
    rows = sorted(reasons)
    taken = chunk.content.take(pa.array(rows))
    columns: dict[str, Any] = {
        "sequenceNumber": pa.array([chunk.sequence + at for at in rows], pa.int64()),
        "reason": pa.array([reasons[at] for at in rows], pa.string()),
        "queue": taken.column("queue").cast(pa.string()),
        "received": taken.column("received"),
        "message": taken.column("message"),
    }
    made = pa.record_batch(columns)
    store.put(aside_files.file_of(chunk.batch, chunk.row, len(rows)), lambda file: batches.write_file(file, made.schema, [made]))
    place = f"{store.url}/{aside_files.FOLDER}"
    log.warning("%d messages of batch %d cannot be decoded (%s), and are in %s", len(rows), chunk.batch, reasons[rows[0]], place)

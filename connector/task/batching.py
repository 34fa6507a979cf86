"""Record batches of the size that Spark wants."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ...broker_core.messages import assembly

# A smaller record batch costs Spark more fixed work than work for rows. A much larger one only costs memory.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 8 << 20
MOST_BYTES = 2 * BATCH_BYTES  # a larger one is sent in halves: it must fit the broker's limit and memory


def coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until they hold `BATCH_ROWS` rows or `BATCH_BYTES` bytes."""
    filled = (batch for batch in batches if batch.num_rows)
    # A large batch is not copied to join few rows before it.
    measured = ((b, b.num_rows, size := b.nbytes, True, b.num_rows >= BATCH_ROWS or size >= BATCH_BYTES) for b in filled)
    for group in assembly.grouped(measured, BATCH_ROWS, BATCH_BYTES):
        yield joined(group)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def converted(columns: Sequence[str], stored: Iterable[pa.RecordBatch], queue: str) -> Iterator[pa.RecordBatch]:
    """Convert stored messages into the requested columns. A message of invalid AMQP is named on stderr and left out."""
    for batch in coalesce(stored):
        malformed: dict[int, str] = {}
        yield assembly.converted(columns, batch, queue, malformed)
        for sequence, reason in malformed.items():
            print(f"penstock: message {sequence} of {queue!r} is not a valid AMQP message ({reason})", file=sys.stderr)


def halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide the batch into parts of at most `MOST_BYTES`, or of one row."""
    if batch.nbytes <= MOST_BYTES or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from halved(batch.slice(0, middle))
    yield from halved(batch.slice(middle))

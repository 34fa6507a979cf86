"""Rows on their way to the broker: in batches of a good size, by queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from ...broker_core.client.flight import Client
from ...broker_core.errors import InvalidColumn
from ...broker_core.messages import text_checks
from ..task.batching import BATCH_BYTES, BATCH_ROWS, coalesce, halved, joined

#: Rows and bytes that a task collects before it routes them to their queues.
MOST_ROUTED_ROWS, MOST_ROUTED_BYTES = 4 * BATCH_ROWS, 8 * BATCH_BYTES
MOST_ROUTED = 256  # batches under way to many queues: a task waits for the broker's disk once for all of them


def sent(client: Client, stage: dict[str, Any], batches: Iterable[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]) -> int:
    """Return the number of staged messages, without messages that an exchange drops. Without batches, nothing is sent."""
    ready = iter(batches)
    first = next(ready, None)
    if first is None:
        return 0
    schema, window = (first[0].schema, MOST_ROUTED) if isinstance(first, tuple) else (first.schema, 8)
    reply = client.put({"op": "stage", **stage}, schema, chain((first,), ready), window=window)
    return int(reply["messages"]) - int(reply.get("dropped", 0))


def coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (part for batch in coalesce(batches) for part in halved(batch))


def routed(prepared: Iterable[tuple[pa.Array | None, pa.RecordBatch]]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Yield batches, each with a header that names its queue, in the order of the rows within each queue.

    Many rows are sorted together, since a batch costs the broker more than a row.
    """
    names: list[pa.Array] = []
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for queues, rows in prepared:
        names.append(named_in(queues))
        waiting.append(rows)
        count, size = count + rows.num_rows, size + rows.nbytes
        if count >= MOST_ROUTED_ROWS or size >= MOST_ROUTED_BYTES:
            yield from _by_queue(names, waiting)
            names, waiting, count, size = [], [], 0, 0
    if waiting:
        yield from _by_queue(names, waiting)


def named_in(queues: pa.Array | None) -> pa.Array:
    assert queues is not None
    text_checks.validate(pa.record_batch({"queue": queues}))
    if queues.null_count:
        row = queues.is_null().index(True).as_py()
        raise InvalidColumn(f"column 'queue' is null in row {row}: name a queue in each row, or set the option queue")
    return queues


def _by_queue(names: list[pa.Array], waiting: list[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    for queue, part in by_queue(pa.concat_arrays(names), joined(waiting)):
        header = json.dumps({"queue": queue}).encode()
        yield from ((half, header) for half in halved(part))


def by_queue(queues: pa.Array, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each queue's rows in order. One sort for all queues: the cost does not grow with their number."""
    import pyarrow.compute as pc

    coded = queues.dictionary_encode()
    if len(coded.dictionary) == 1:
        yield coded.dictionary[0].as_py(), rows
        return
    order = pc.sort_indices(coded.indices)  # stable
    ordered = rows.take(order)
    begin = 0
    for count in sorted(pc.value_counts(coded.indices).to_pylist(), key=lambda entry: entry["values"]):
        yield coded.dictionary[count["values"]].as_py(), ordered.slice(begin, count["counts"])
        begin += count["counts"]

"""Outcomes of single messages that a stream has read, named by their column `delivery` (`operation=settle`).

They are staged and published like messages, and take effect when Spark has finished the batch of these messages. A message
without an outcome is *accepted*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ...broker_core.client.flight import Client
from ...broker_core.errors import InvalidColumn
from ...broker_core.messages import text_checks
from .routing import coalesced

#: `error`: the reason of a rejection, optional.
COLUMNS = {"delivery": pa.binary(), "outcome": pa.string(), "error": pa.string()}


def stage(client: Client, stage: dict[str, Any], batches: Iterable[pa.RecordBatch]) -> int:
    """Return the number of outcomes. The last one of a message counts."""
    count = 0
    for batch in coalesced(batches):
        for lease, part in by_lease(batch):
            count += int(client.put({"op": "settle", **stage, "lease": lease}, part.schema, [part])["messages"])
    return count


def prepared(batch: pa.RecordBatch, columns: dict[str, int]) -> pa.RecordBatch:
    sent = pa.RecordBatch.from_arrays([batch.column(index) for index in columns.values()], names=list(columns))
    text_checks.validate(sent)
    arrays = [sent.column(name).cast(COLUMNS[name]) for name in columns]
    chosen = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return chosen.filter(chosen.column("outcome").is_valid())


def by_lease(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A batch nearly always has one lease."""
    import pyarrow.compute as pc

    if batch.column("delivery").null_count:
        row = pc.index(pc.is_null(batch.column("delivery")), True).as_py()
        raise InvalidColumn(f"column 'delivery' is null in row {row}: pass the column of the stream on unchanged")
    while batch.num_rows:
        head, name = lease_of(batch.column("delivery")[0].as_py())
        mine = pc.starts_with(batch.column("delivery"), head)
        if pc.all(mine).as_py():
            yield name, batch
            return
        yield name, batch.filter(mine)
        batch = batch.filter(pc.invert(mine))


def lease_of(delivery: bytes) -> tuple[bytes, str]:
    """Return the name, and the prefix of all keys of the lease: version, length of the name, name."""
    length = int.from_bytes(delivery[1:3], "big")
    head = delivery[: 3 + length]
    try:
        if len(head) < 4 or head[0] != 1:
            raise ValueError
        return head, head[3:].decode()
    except ValueError:
        raise InvalidColumn(
            "column 'delivery' contains no key from a stream: name it in the stream's schema, and pass it on unchanged"
        ) from None

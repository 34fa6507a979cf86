"""`operation=settle`: what became of single messages that a stream has read, named by their column `delivery`.

Each task stages what its rows say, and the driver's commit publishes it, as with messages: all of a write holds, or nothing. It
takes effect when Spark has finished the batch that the messages are in, in which nothing said means *accepted*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ..broker_core.client.flight import Client
from ..broker_core.errors import InvalidRequest
from .batching import coalesce, halved

#: The columns of `operation=settle`. `error` may be left out: it says why, of what is rejected.
COLUMNS = {"delivery": pa.binary(), "outcome": pa.string(), "error": pa.string()}


def stage(client: Client, stage: dict[str, Any], batches: Iterable[pa.RecordBatch]) -> int:
    """Stage outcomes; return how many rows said them. Their order is kept: of several about one message the last counts."""
    count = 0
    for batch in (part for whole in coalesce(batches) for part in halved(whole)):
        for lease, part in by_lease(batch):
            count += int(client.put({"op": "settle", **stage, "lease": lease}, part.schema, [part])["messages"])
    return count


def prepared(batch: pa.RecordBatch, columns: dict[str, int]) -> pa.RecordBatch:
    """The columns that there are, with the types that the broker takes, without the rows that say nothing."""
    arrays = [batch.column(index).cast(COLUMNS[name]) for name, index in columns.items()]
    chosen = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    return chosen.filter(chosen.column("outcome").is_valid())


def by_lease(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each lease; nearly always there is one."""
    import pyarrow.compute as pc

    if batch.column("delivery").null_count:
        row = pc.index(pc.is_null(batch.column("delivery")), True).as_py()
        raise InvalidRequest(f"column 'delivery' is null in row {row}: hand on what the stream has read")
    while batch.num_rows:
        head, name = lease_of(batch.column("delivery")[0].as_py())
        mine = pc.starts_with(batch.column("delivery"), head)
        if pc.all(mine).as_py():
            yield name, batch
            return
        yield name, batch.filter(mine)
        batch = batch.filter(pc.invert(mine))


def lease_of(delivery: bytes) -> tuple[bytes, str]:
    """Return the octets that all deliveries of a lease begin with (version, length of the name, name), and the name."""
    length = int.from_bytes(delivery[1:3], "big")
    head = delivery[: 3 + length]
    try:
        if len(head) < 4 or head[0] != 1:
            raise ValueError
        return head, head[3:].decode()
    except ValueError:
        raise InvalidRequest(
            "column 'delivery' is none that a stream has read: name it in the stream's schema, and hand it on as it is"
        ) from None

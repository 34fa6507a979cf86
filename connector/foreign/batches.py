"""The form of a batch's file: an Arrow IPC file of complete messages, octet for octet as the broker sent them.

Each record batch is of one queue's messages or of several, in the order in which they came. The schema's metadata says the form's
version and the rows of each record batch, so that a planner cuts tasks without reading a row. To change the form: take a new
version, and keep reading this one, since a query that was updated has a file of the former kind before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core.errors import StorageError
from ...broker_core.messages.columns import TIMESTAMP as TIMESTAMP

VERSION = 1
#: Limits of one record batch: what a task decodes at once.
CHUNK_ROWS, CHUNK_BYTES = 1 << 16, 16 << 20
#: Rows of a batch at most. A message's sequence number is batch × this + row.
MOST_ROWS = 1 << 20

_VERSION, _ROWS = b"penstock.version", b"penstock.rows"
FIELDS = [
    pa.field("message", pa.binary(), nullable=False),
    pa.field("queue", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    pa.field("received", TIMESTAMP, nullable=False),
]
KEYS = pa.schema([pa.field("one", pa.uint64()), pa.field("other", pa.uint64())])


class Rows(NamedTuple):
    """Rows of a batch before it is written. `queues` is the index of each row's queue in `names`, `times` are microseconds."""

    message: pa.Array
    queues: pa.Array
    times: pa.Array
    names: Sequence[str]


def chunks(message: pa.Array, most_rows: int) -> list[int]:
    """Cut messages into record batches of at most so many rows, and `CHUNK_BYTES` where a row is not larger by itself."""
    import numpy as np
    from pyarrow import compute

    ends = np.cumsum(compute.binary_length(message).to_numpy(), dtype=np.int64)
    found: list[int] = []
    row = 0
    while row < len(ends):
        before = int(ends[row - 1]) if row else 0
        fits = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")) - row
        found.append(max(1, min(fits, most_rows, CHUNK_ROWS, len(ends) - row)))
        row += found[-1]
    return found


def write(file: Any, rows: Rows, counts: Sequence[int]) -> None:
    """Write a batch into an open file."""
    metadata = {_VERSION: str(VERSION).encode(), _ROWS: json.dumps(list(counts)).encode()}
    schema = pa.schema(FIELDS, metadata=metadata)
    queues = pa.DictionaryArray.from_arrays(rows.queues, pa.array(rows.names, pa.string()))
    arrays = [rows.message, queues, rows.times]
    with pa.ipc.new_file(file, schema) as writer:
        first = 0
        for count in counts:
            writer.write_batch(pa.RecordBatch.from_arrays([array.slice(first, count) for array in arrays], schema=schema))
            first += count


def opened(file: Any, name: str) -> Any:
    """Return a reader of a batch's file. Raises StorageError where it is none, or of another version."""
    try:
        reader = pa.ipc.open_file(file)
    except pa.ArrowException as error:
        raise StorageError(f"the file {name} of the spool cannot be read: {error}. Was it changed by hand?") from error
    version = (reader.schema.metadata or {}).get(_VERSION)
    if version != str(VERSION).encode():
        raise StorageError(
            f"the file {name} of the spool has version {version!r}; this connector reads {VERSION}: use a newer one"
        )
    return reader


def counts_of(reader: Any) -> list[int]:
    """Return the rows of each record batch."""
    return [int(count) for count in json.loads(reader.schema.metadata[_ROWS])]


def write_keys(file: Any, one: Any, other: Any) -> None:
    """Write the keys of a batch's messages that have an id."""
    with pa.ipc.new_file(file, KEYS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(one), pa.array(other)], schema=KEYS))


def read_keys(file: Any, name: str) -> tuple[Any, Any]:
    """Read what `write_keys` wrote, as numpy arrays."""
    try:
        found = pa.ipc.open_file(file).read_all()
        return found.column("one").to_numpy(), found.column("other").to_numpy()
    except (pa.ArrowException, KeyError) as error:
        raise StorageError(f"the file {name} of the spool cannot be read: {error}. Was it changed by hand?") from error

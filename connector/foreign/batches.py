"""The file of a batch: an Arrow IPC file of complete messages, byte for byte as the broker sent them, and checksums behind it.

The schema's metadata have the rows of each record batch, so a planner cuts tasks without reading a row. They also have a random
id, the same as in the file of the batch's keys.

To change the format of a batch or of keys: raise its version, and keep the previous one in `READABLE` or `READABLE_KEYS`, since
an updated query still has such files. A new format of keys changes which messages are recognised: compute keys of the previous
version again from their batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core import executor_modules
from ...broker_core.errors import StorageError
from ...broker_core.messages.columns import TIMESTAMP as TIMESTAMP
from .checksums import Checked, DamagedFile

VERSION, KEYS_VERSION = b"1", b"1"
READABLE, READABLE_KEYS = (VERSION,), (KEYS_VERSION,)
CHUNK_ROWS, CHUNK_BYTES = 1 << 16, 4 << 20  # of one record batch, which a task decodes as a whole
MOST_ROWS = 1 << 20  # of a batch; the sequence number of a message is batch × this + row

_VERSION, _ROWS, _PAIR = b"penstock.version", b"penstock.rows", b"penstock.pair"
FIELDS = [
    pa.field("message", pa.binary(), nullable=False),
    pa.field("queue", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    pa.field("received", TIMESTAMP, nullable=False),
]
KEYS = pa.schema([pa.field("left", pa.uint64()), pa.field("right", pa.uint64())])
MERGED_KEYS = KEYS.append(pa.field("batch", pa.int64()))


class Rows(NamedTuple):
    """Rows of a batch. `queues` are indexes in `names`, `times` microseconds."""

    message: pa.Array
    queues: pa.Array
    times: pa.Array
    names: Sequence[str]


def array_of(values: Any, kind: Any) -> pa.Array:
    """`pa.array` would import pandas first, which takes a third of a second."""
    import numpy as np

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def mask_of(values: Any) -> pa.Array:
    """For booleans, also without pandas."""
    import numpy as np

    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def numbers_of(array: pa.Array, kind: Any) -> Any:
    """Return the values of an array without nulls. `to_numpy` would also import pandas."""
    import numpy as np

    values = array.buffers()[1] if len(array) else None
    if values is None:
        return np.empty(0, kind)
    return np.frombuffer(values, kind, count=array.offset + len(array))[array.offset :]


def _strings(values: Sequence[str]) -> pa.Array:
    import numpy as np

    octets = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, octets)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(octets), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(octets))])


def chunks(message: pa.Array, most_rows: int) -> list[int]:
    """Return the rows of each record batch: at most `most_rows`, and `CHUNK_BYTES` unless one row is larger."""
    import numpy as np

    offsets = executor_modules.module("messages.encoding.octets").offsets_of(message)
    ends = offsets[1:].astype(np.int64) - offsets[0]
    counts: list[int] = []
    row = 0
    while row < len(ends):
        before = int(ends[row - 1]) if row else 0
        fits = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")) - row
        counts.append(max(1, min(fits, most_rows, CHUNK_ROWS, len(ends) - row)))
        row += counts[-1]
    return counts


def write(file: Any, rows: Rows, counts: Sequence[int], pair: str) -> None:
    metadata = {_VERSION: VERSION, _ROWS: json.dumps(list(counts)).encode(), _PAIR: pair.encode()}
    schema = pa.schema(FIELDS, metadata=metadata)
    queues = pa.DictionaryArray.from_arrays(rows.queues, _strings(rows.names))
    arrays = [rows.message, queues, rows.times]
    parts = ([array.slice(end - count, count) for array in arrays] for count, end in zip(counts, accumulate(counts), strict=True))
    write_file(file, schema, (pa.RecordBatch.from_arrays(part, schema=schema) for part in parts))


def write_file(file: Any, schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> None:
    with pa.ipc.new_file(file, schema) as writer:
        for part in parts:
            writer.write_batch(part)


class OpenedBatch(NamedTuple):
    """Reader of a batch's file, the hash of its manifest, and the random id."""

    reader: Any
    manifest: str
    pair: str


def opened(file: Any, name: str, *, spool: str | None = None, manifest: str | None = None) -> OpenedBatch:
    """Return a reader that checks the bytes that it reads. `spool` and `manifest`: the expected id and hash; None: any.

    Raises DamagedFile, also from the reader's own calls, and StorageError for another version.
    """
    view = Checked(file, name, spool=spool, manifest=manifest)
    try:
        reader = pa.ipc.open_file(view)
    except pa.ArrowException as error:
        raise DamagedFile(f"Arrow cannot read it: {error}") from error
    _check_version(reader, name, READABLE)
    return OpenedBatch(reader, view.manifest, _pair_of(reader) or "")


def _check_version(reader: Any, name: str, readable: tuple[bytes, ...]) -> None:
    version = (reader.schema.metadata or {}).get(_VERSION)
    if version not in readable:
        raise StorageError(
            f"the file {name} of the spool has version {version!r}, and this connector reads {readable[-1]!r}: use a newer"
            " connector; for a spool of a development version before 0.1.0, name an empty folder and start with a new checkpoint"
        )


def counts_of(reader: Any) -> list[int]:
    return [int(count) for count in json.loads(reader.schema.metadata[_ROWS])]


def _pair_of(reader: Any) -> str | None:
    """None for merged keys."""
    pair = (reader.schema.metadata or {}).get(_PAIR)
    return None if pair is None else pair.decode()


def write_keys(file: Any, left: Any, right: Any, pair: str) -> None:
    _write_keys(file, KEYS, [left, right], {_PAIR: pair.encode()})


def write_merged_keys(file: Any, left: Any, right: Any, batch: Any) -> None:
    _write_keys(file, MERGED_KEYS, [left, right, batch], {})


def _write_keys(file: Any, fields: pa.Schema, columns: list[Any], metadata: dict[bytes, bytes]) -> None:
    schema = fields.with_metadata({_VERSION: KEYS_VERSION, **metadata})
    arrays = [array_of(column, field.type) for column, field in zip(columns, fields, strict=True)]
    write_file(file, schema, [pa.RecordBatch.from_arrays(arrays, schema=schema)])


class Keys(NamedTuple):
    """Keys in two halves, as numpy arrays; `batch` is the batch of each merged key."""

    left: Any
    right: Any
    batch: Any
    pair: str | None


NO_KEYS = Keys((), (), None, None)


def read_keys(file: Any, name: str, *, spool: str | None = None, merged: bool = False) -> Keys:
    """`spool`: the expected id; None: any. Raises DamagedFile, and StorageError for another version."""
    import numpy as np

    fields = MERGED_KEYS if merged else KEYS
    view = Checked(file, name, spool=spool)
    try:
        reader = pa.ipc.open_file(view)
        _check_version(reader, name, READABLE_KEYS)
        if not reader.schema.equals(fields):
            raise DamagedFile("it has other columns than keys have")
        parts = [reader.get_batch(number).columns for number in range(reader.num_record_batches)]
        kinds = (np.uint64, np.uint64, np.int64)[: len(fields)]
        columns = [
            np.concatenate([np.empty(0, kind), *(numbers_of(part[place], kind) for part in parts)])
            for place, kind in enumerate(kinds)
        ]
        return Keys(columns[0], columns[1], columns[2] if merged else None, _pair_of(reader))
    except pa.ArrowException as error:
        raise DamagedFile(f"Arrow cannot read it: {error}") from error

"""The form of a batch's file: an Arrow IPC file of complete messages, octet for octet as the broker sent them.

Each record batch is of one queue's messages or of several, in the order in which they came. The schema's metadata says the form's
version and the rows of each record batch, so that a planner cuts tasks without reading a row. To change the form: take a new
version, and keep reading this one, since a query that was updated has a file of the former kind before it.

A batch's file and the file of its keys have the same random id in their metadata; files written before pairs were have none.
Checksums follow the IPC file (`checksums`). Batches of version 1 and keys of versions 1 and 2 have none, and are read unchecked.

Files of keys have their own version, which determines how a key is made. Keys of version 1 contain 32 bits of a message's content
and cannot be compared with later ones. They are computed again if the batch's file is still there, and forgotten if it is not. To
change a key: take a new version, and treat the former ones likewise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core import shipped
from ...broker_core.errors import StorageError
from ...broker_core.messages.columns import TIMESTAMP as TIMESTAMP
from .checksums import Checked, Damaged, is_plain

VERSION, KEYS_VERSION = 2, 3
#: Limits of one record batch: what a task decodes at once.
CHUNK_ROWS, CHUNK_BYTES = 1 << 16, 4 << 20
#: Rows of a batch at most. A message's sequence number is batch × this + row.
MOST_ROWS = 1 << 20

_VERSION, _ROWS, _PAIR = b"penstock.version", b"penstock.rows", b"penstock.pair"
FIELDS = [
    pa.field("message", pa.binary(), nullable=False),
    pa.field("queue", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    pa.field("received", TIMESTAMP, nullable=False),
]
KEYS = pa.schema([pa.field("one", pa.uint64()), pa.field("other", pa.uint64())])
#: Keys of several batches.
MERGED_KEYS = KEYS.append(pa.field("batch", pa.int64()))


class Rows(NamedTuple):
    """Rows of a batch before it is written. `queues` is the index of each row's queue in `names`, `times` are microseconds."""

    message: pa.Array
    queues: pa.Array
    times: pa.Array
    names: Sequence[str]


def array_of(values: Any, kind: Any) -> pa.Array:
    """Make an array of numpy's values. `pa.array` would import pandas first, which takes a planner a third of a second."""
    import numpy as np

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def mask_of(values: Any) -> pa.Array:
    """Make an array of numpy's truth values, also without pandas."""
    import numpy as np

    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def numbers_of(array: pa.Array, kind: Any) -> Any:
    """Return the values of an array without nulls as numpy's of this kind. `to_numpy` would import pandas, too."""
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
    """Cut messages into record batches of at most so many rows, and `CHUNK_BYTES` where a row is not larger by itself."""
    import numpy as np

    offsets = shipped.module("messages.encoding.octets").offsets_of(message)
    ends = offsets[1:].astype(np.int64) - offsets[0]
    found: list[int] = []
    row = 0
    while row < len(ends):
        before = int(ends[row - 1]) if row else 0
        fits = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right")) - row
        found.append(max(1, min(fits, most_rows, CHUNK_ROWS, len(ends) - row)))
        row += found[-1]
    return found


def write(file: Any, rows: Rows, counts: Sequence[int], pair: str) -> None:
    """Write a batch into an open file; `pair` is the id that its keys have, too."""
    metadata = {_VERSION: str(VERSION).encode(), _ROWS: json.dumps(list(counts)).encode(), _PAIR: pair.encode()}
    schema = pa.schema(FIELDS, metadata=metadata)
    queues = pa.DictionaryArray.from_arrays(rows.queues, _strings(rows.names))
    arrays = [rows.message, queues, rows.times]
    with pa.ipc.new_file(file, schema) as writer:
        first = 0
        for count in counts:
            writer.write_batch(pa.RecordBatch.from_arrays([array.slice(first, count) for array in arrays], schema=schema))
            first += count


class Opened(NamedTuple):
    """Reader of a batch's file, and the hash of its manifest; None in a file of version 1."""

    reader: Any
    manifest: str | None


def opened(file: Any, name: str, *, spool: str | None = None, manifest: str | None = None) -> Opened:
    """Return a reader of a batch's file, which checks what it reads.

    `spool` is the spool's id, `manifest` the hash in the offset; None: any. Raises Damaged, also from the reader's own calls, and
    StorageError for a newer version.
    """
    view = _checked(file, name, spool, manifest)
    try:
        reader = pa.ipc.open_file(view or file)
    except pa.ArrowException as error:
        raise Damaged(f"Arrow cannot read it: {error}") from error
    version = (reader.schema.metadata or {}).get(_VERSION, b"")
    _check_version(name, version, VERSION, checked=view is not None, unchecked=(b"1",))
    return Opened(reader, None if view is None else view.manifest)


def _checked(file: Any, name: str, spool: str | None, manifest: str | None) -> Checked | None:
    """Return the file as Arrow is to read it; None if it has no checksums and needs none."""
    if manifest is None and is_plain(file):
        return None
    return Checked(file, name, spool=spool, manifest=manifest)


def _check_version(name: str, version: bytes, newest: int, *, checked: bool, unchecked: tuple[bytes, ...]) -> None:
    if version not in (*unchecked, str(newest).encode()):
        raise StorageError(
            f"the file {name} of the spool has version {version!r}; this connector reads {newest}: use a newer one"
        )
    if not checked and version not in unchecked:
        raise Damaged("its end, which has the checksums, is missing")


def counts_of(reader: Any) -> list[int]:
    """Return the rows of each record batch."""
    return [int(count) for count in json.loads(reader.schema.metadata[_ROWS])]


def pair_of(reader: Any) -> str | None:
    """Return the id that a batch shares with its keys; None in a file written before pairs were."""
    found = (reader.schema.metadata or {}).get(_PAIR)
    return None if found is None else found.decode()


def write_keys(file: Any, one: Any, other: Any, pair: str | None) -> None:
    """Write the keys of a batch's messages that have an id; `pair` is the batch's."""
    _write_keys(file, KEYS, [one, other], {} if pair is None else {_PAIR: pair.encode()})


def write_merged_keys(file: Any, one: Any, other: Any, batch: Any) -> None:
    """Write the keys of several batches; `batch` is that of each."""
    _write_keys(file, MERGED_KEYS, [one, other, batch], {})


def _write_keys(file: Any, fields: pa.Schema, columns: list[Any], metadata: dict[bytes, bytes]) -> None:
    schema = fields.with_metadata({_VERSION: str(KEYS_VERSION).encode(), **metadata})
    arrays = [array_of(column, field.type) for column, field in zip(columns, fields, strict=True)]
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


class Keys(NamedTuple):
    """Keys out of a file, as numpy arrays; none at all where they are of a former version. `batch` is each one's, of several."""

    one: Any
    other: Any
    batch: Any
    pair: str | None
    former: bool


NO_KEYS = Keys((), (), None, None, False)


def read_keys(file: Any, name: str, *, spool: str | None = None, merged: bool = False) -> Keys:
    """Read what `write_keys` wrote, also in a former version, or `write_merged_keys`.

    `spool` is the spool's id; None: any. Raises Damaged, and StorageError for a newer version.
    """
    import numpy as np

    fields = MERGED_KEYS if merged else KEYS
    view = _checked(file, name, spool, None)
    try:
        reader = pa.ipc.open_file(view or file)
        version = (reader.schema.metadata or {}).get(_VERSION, b"1")
        _check_version(name, version, KEYS_VERSION, checked=view is not None, unchecked=(b"1", b"2"))
        if not reader.schema.equals(fields):
            raise Damaged("it has other columns than keys have")
        if version == b"1":
            return NO_KEYS._replace(pair=pair_of(reader), former=True)
        parts = [reader.get_batch(number).columns for number in range(reader.num_record_batches)]
        kinds = (np.uint64, np.uint64, np.int64)[: len(fields)]
        columns = [
            np.concatenate([np.empty(0, kind), *(numbers_of(part[place], kind) for part in parts)])
            for place, kind in enumerate(kinds)
        ]
        return Keys(columns[0], columns[1], columns[2] if merged else None, pair_of(reader), False)
    except pa.ArrowException as error:
        raise Damaged(f"Arrow cannot read it: {error}") from error

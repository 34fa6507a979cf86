"""Table of a queue's settled messages: its columns, its folder, and the way from its rows to the columns of a read.

A row holds a message as the journal did, columnar or encoded (see `messages.columns`), so that it can be sent again octet for
octet, and all that the broker says of it once it has ended. What is asked for and not stored is converted on the way out, as it
is for messages that come from the broker: `rows_of_read` gives what a broker sends for `stored: true`, and
`messages.assembly.converted` the columns that somebody asked for.

The table is a persisted format, read by others too. To change it: add a nullable column to those of a read, and to `ADDED`,
nothing else. Tables of before get it at their next commit, and a reader finds nulls where a file of before does not have it. A
column may never change its type or leave.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...messages import assembly
from ...messages.columns import COLUMNS as MESSAGE
from ...messages.columns import arrow_schema

#: Columns that a read has and the table does not: each of its rows is archived, and none can be settled any more.
_NOT_IN_TABLE = ("state", "delivery")
STATE = "archived"

#: Columns to ask for, as they are stored, of who makes rows of the table: for `rows`.
STORED: tuple[str, ...] = tuple(name for name in MESSAGE if name not in _NOT_IN_TABLE)
#: The table's own. `queueId`: a queue that is declared anew under an old name is another one, with numbers from 0 on. `pass`: the
#: archiver's, of which each is one commit. `lineage`: which life of the data directory has written the row.
OWN: dict[str, pa.DataType] = {"queueId": pa.int64(), "pass": pa.int64(), "lineage": pa.string()}
#: The partition column: the day of `enqueuedTime` in UTC. Its value stands in the path of a file, not in the file.
DAY = "day"

#: Columns that tables made by earlier versions may lack.
ADDED = frozenset({"holder"})

FILE_SCHEMA: pa.Schema = pa.schema(
    [
        *(pa.field(name, MESSAGE[name].type, nullable=MESSAGE[name].nullable) for name in STORED),
        *(pa.field(name, type_, nullable=False) for name, type_ in OWN.items()),
    ]
)
SCHEMA: pa.Schema = FILE_SCHEMA.append(pa.field(DAY, pa.date32(), nullable=False))

#: Rows of a row group, of which a reader takes all or none: a task of a read may be as small.
ROW_GROUP_ROWS = 1 << 17

_CUT = re.compile(rb"-(x[0-9A-F]?)?$")  # what may be the begin of such a form
FOLDER_BYTES = 200  # of a folder's name; file systems allow 255
_HASH_DIGITS = 16
_DAY_US = 24 * 3600 * 1_000_000
#: Octets of a queue's name that its folder has in another form: every octet that some reader of paths or URLs takes for more than
#: a character, a dot or underscore that would hide the folder, a dot at the end, and a hyphen that would look like such a form.
_ESCAPED = re.compile(rb"[^A-Za-z0-9_.-]|^[._]|\.$|-(?=x(?:[0-9A-F]{2}|x))")


def folder_name(queue: str) -> str:
    """Name the folder of a queue's table, in at most `FOLDER_BYTES` ASCII characters; different for different names.

    Letters, digits and `_ . -` stand for themselves, and every other octet of the name in UTF-8 is `-xHH`. So the folder's name
    means the same in a path, a URL, a glob and a key of an object store: `=` would make it a partition of Hive, and `%`, `:`, `~`
    and the like mean something to one of them. A dot or an underscore at the begin, which would hide the folder, is written so as
    well. A name that is too long ends with a hash of all of it.
    """
    octets = queue.encode()
    name = _ESCAPED.sub(lambda found: b"-x%02X" % found[0][0], octets)
    if len(name) > FOLDER_BYTES:
        ending = b"-xx" + hashlib.sha256(octets).hexdigest()[:_HASH_DIGITS].encode()  # no other name has `-xx` in it
        name = _CUT.sub(b"", name[: FOLDER_BYTES - len(ending)]) + ending
    return name.decode()


def table_url(archive: str, queue: str) -> str:
    """Return where a queue's table lies, below the archive: a folder, or an object store's URL."""
    return f"{archive.rstrip('/')}/{folder_name(queue)}"


def rows(batch: assembly.Payload, *, queue_id: int, number: int, lineage: str) -> assembly.Payload:
    """Make rows of the table, of `SCHEMA`, from archived messages with the columns `STORED` as they are stored.

    `number` is the pass that writes them. Of a table the column `enqueuedTime` has one chunk.
    """
    count = batch.num_rows
    own: dict[str, int | str] = {"queueId": queue_id, "pass": number, "lineage": lineage}
    arrays: list[Any] = [batch.column(name) for name in STORED]
    arrays += [assembly.constant(own[name], type_, count) for name, type_ in OWN.items()]
    times = batch.column("enqueuedTime")
    days = _days(times.chunk(0) if isinstance(times, pa.ChunkedArray) else times)
    return type(batch).from_arrays([*arrays, days], schema=SCHEMA)


def _days(times: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    # Without the time zone, for which Arrow would ask the system's database: the numbers are those of UTC.
    ends = pc.min_max(times.view(pa.int64()))
    first, last = (ends[end].as_py() // _DAY_US for end in ("min", "max")) if len(times) else (0, 0)
    if first == last:  # as nearly always
        return assembly.constant(first, pa.int32(), len(times)).view(pa.date32())
    return pc.floor_temporal(times.view(pa.timestamp("us")), unit="day").cast(pa.date32())


def needed(columns: Sequence[str]) -> list[str]:
    """Name the columns of the table's files that a read of `columns` needs, in the files' order: for `rows_of_read`."""
    wanted = {*assembly.needed(columns), "sequenceNumber"} - {"queue"}
    return [name for name in FILE_SCHEMA.names if name in wanted]


def rows_of_read(columns: Sequence[str], found: pa.RecordBatch, queue: str) -> pa.RecordBatch:
    """Rows of the table as the broker sends those of a queue: a batch of `assembly.needed(columns)` as they are stored.

    `found` has at least the columns `needed(columns)`, of whatever Arrow types the file's writer chose; what an older file does
    not have is null. `assembly.converted` makes `columns` of it.
    """
    schema = arrow_schema(assembly.needed(columns), stored=True)
    count = found.num_rows
    arrays = []
    for field in schema:
        if field.name == "state":
            arrays.append(assembly.constant(STATE, field.type, count))
        elif field.name == "queue":
            arrays.append(assembly.constant(queue, field.type, count))
        elif field.name in found.schema.names:
            arrays.append(_typed(found.column(field.name), field.type))
        else:
            arrays.append(assembly.nulls(field.type, count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values as this type: whoever compacts a table may write large strings, views or dictionaries."""
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        return _typed(array.dictionary_decode(), wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays(
            [_typed(array.keys, wanted.key_type), _typed(array.items, wanted.item_type)],
            fields=[wanted.key_field, wanted.item_field],
        )
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array.cast(wanted)

"""Layout of an archive table, and the conversion of its rows to those of a read.

A row is a settled message, in columns that any program can read. They are the same for all senders. The exact bytes of an AMQP
client's bare message are `envelope` followed by `body`, or `message` if it does not end with its body. Spark sends columns, so
its rows have neither.

To change this persisted format: add a nullable column to `COMMENTS` and `ADDED`, nothing else. The next commit adds the column to
existing tables. In files without it, readers find nulls. A column never changes its type, and is never removed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from ...messages import assembly, conversion
from ...messages.columns import BARE_COLUMNS, NOBODY, NOT_NULL, arrow_schema
from ...messages.columns import COLUMNS as MESSAGE

STATE = "archived"  # of all rows

#: All columns in their order, with their comments in the table.
COMMENTS: dict[str, str] = {
    "sequenceNumber": "Number of the message in its queue, from 0",
    "enqueuedTime": "Time of arrival in the queue",
    "messageId": "Id that the sender gave; a uuid, ulong or binary id as text",
    "correlationId": "Id of the message that this one answers or belongs to, as text",
    "subject": "Subject",
    "body": "Body: the bytes of data, a text in UTF-8, or JSON, as bodyType states",
    "bodyType": "Kind of body: data, string, binary or json; null without a body",
    "properties": "Application properties, with values as text",
    "outcome": "How the message ended: accepted, rejected, expired, …",
    "settledTime": "Time when it ended",
    "error": "Why it was rejected, or why its content cannot be read",
    "holder": "Query, client or operator that ended the message",
    "deliveryCount": "Failed deliveries before the last one",
    "failures": "The last of these failed deliveries, as JSON: time, cause, holder, error",
    "contentType": "Content type, such as application/json",
    "contentEncoding": "Content encoding, such as gzip",
    "to": "Address that the sender wrote",
    "replyTo": "Address for answers",
    "groupId": "Group",
    "groupSequence": "Place in the group",
    "userId": "User id that the sender wrote",
    "priority": "Priority, 0 to 9; null if the sender set none",
    "durable": "Durability that the sender asked for; null if it set none",
    "ttl": "Time to live in milliseconds",
    "creationTime": "Time that the sender wrote as that of creation",
    "absoluteExpiryTime": "Time that the sender wrote as that of expiry",
    "deliveryTime": "Earliest time of delivery, of a message that Spark delayed",
    "annotations": "Message annotations, with values as text",
    "queue": "Name of the queue",
    "message": "Exact bytes of an AMQP client's bare message that does not end with its body",
    "envelope": "Exact bytes before the body: an AMQP client's bare message is envelope || body",
    "encodedAnnotations": "Exact bytes of an AMQP client's message annotations",
    "footer": "Exact bytes of an AMQP client's footer",
    "queueId": "Id of the queue; a queue that is declared again has a new one, and numbers its messages from 0",
    "pass": "Number of the recording",
    "lineage": "Data directory of the broker that wrote the row",
}
ENVELOPE = conversion.ENVELOPE
#: Exact bytes, which the queue option `archiveMessage=columns` leaves out.
EXACT = ("message", ENVELOPE, "encodedAnnotations", "footer")
OWN: dict[str, pa.DataType] = {"queueId": pa.int64(), "pass": pa.int64(), "lineage": pa.string()}
_TYPES = {**{name: column.type for name, column in MESSAGE.items()}, ENVELOPE: pa.binary(), **OWN}
_NOT_NULL = {*NOT_NULL, *OWN}
#: Columns of a read of the journal, in the stored form.
STORED: tuple[str, ...] = tuple(name for name in COMMENTS if name in MESSAGE)
#: Columns of both the table and a read. (A read makes `message` out of several columns.)
READABLE: tuple[str, ...] = tuple(name for name in STORED if name not in EXACT and MESSAGE[name].read != NOBODY)
#: Columns that tables of earlier versions may lack.
ADDED: frozenset[str] = frozenset({"failures"})

LOG = "_delta_log"  # folder in a table's folder
#: The day of `enqueuedTime` in UTC. A file has its value in the path, not in a column.
DAY = "day"
PARTITION = [DAY]
_DAY_US = 24 * 3600 * 1_000_000


def partition_folder(day: str) -> str:
    return f"{DAY}={day}"


def day_of(path: str) -> str | None:
    """Return the day of a file; None if its path contains none."""
    name, _, day = path.split("/", 1)[0].partition("=")
    return day if name == DAY and day[:1].isdigit() else None


def before(day: date) -> str:
    return f"{DAY} < '{day.isoformat()}'"


def by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Divide rows of `SCHEMA` into runs of one day, as rows of `FILE_SCHEMA`."""
    import pyarrow.compute as pc

    remaining, start = rows.select(FILE_SCHEMA.names), 0
    for chunk in rows.column(DAY).chunks:
        runs: Any = pc.run_end_encode(chunk)
        first = start
        for end, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield day.isoformat(), remaining.slice(start, first + end - start)
            start = first + end


def with_day(rows: pa.Table, day: str) -> pa.Table:
    days = pa.repeat(pa.scalar(day).cast(pa.date32()), rows.num_rows)
    return pa.table([*rows.columns, days], schema=SCHEMA)


def days_of(times: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    # As numbers in UTC: for a time zone, Arrow would ask the system's database.
    ends = pc.min_max(times.view(pa.int64()))
    first, last = (ends[end].as_py() // _DAY_US for end in ("min", "max")) if len(times) else (0, 0)
    if first == last:  # nearly always
        return assembly.constant(first, pa.int32(), len(times)).view(pa.date32())
    return pc.floor_temporal(times.view(pa.timestamp("us")), unit="day").cast(pa.date32())


FILE_SCHEMA: pa.Schema = pa.schema([pa.field(name, _TYPES[name], nullable=name not in _NOT_NULL) for name in COMMENTS])
SCHEMA: pa.Schema = FILE_SCHEMA.append(pa.field(DAY, pa.date32(), nullable=False))

#: The schema of a new table, with the comments.
COMMENTED: pa.Schema = pa.schema(
    [field.with_metadata({"comment": COMMENTS.get(field.name, "Day of arrival, in UTC")}) for field in SCHEMA]
)

#: Rows of a row group, the smallest task of a read.
ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 64 << 20  # before compression, if those are fewer rows
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1  # half the time of the default level; files a few hundredths larger
#: Columns without a dictionary: all values differ, and it took a quarter of the time.
_NO_DICTIONARY = frozenset({"sequenceNumber"})
#: Columns without useful statistics: nearly all rows have a value, or nulls look like empty maps.
_NO_STATISTICS = frozenset({"body", "properties", "annotations"})
_LEAVES_OF_MAP = (".key_value.key", ".key_value.value")
#: Columns with ranges in the table's log.
LOG_STATISTICS = ("sequenceNumber", "enqueuedTime", "settledTime", "outcome", "queueId", "pass", "lineage")
#: Without this property, other writers would write statistics of the first 32 columns.
PROPERTIES = {"delta.dataSkippingStatsColumns": ",".join(LOG_STATISTICS)}


#: Columns with a Bloom filter in each row group.
FILTERED = ("messageId", "correlationId")
FALSE_POSITIVES = 0.01  # of a filter, which takes about 2 bytes for each row


def file_options(rows: pa.Table) -> dict[str, Any]:
    """Return the options of a file. Filters are made for the number of `rows`, its first row group."""
    filters = {
        name: {"ndv": max(1, rows.num_rows), "fpp": FALSE_POSITIVES}
        for name in FILTERED
        if rows.column(name).null_count < rows.num_rows
    }
    return {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": _leaves(_NO_DICTIONARY),
        "write_statistics": _leaves(_NO_STATISTICS),
        "bloom_filter_options": filters,
    }


def _leaves(without: frozenset[str]) -> list[str]:
    """Return columns as Parquet names them: a map has one for keys and one for values."""
    names = [name for name in FILE_SCHEMA.names if name not in without]
    is_map = {name: pa.types.is_map(FILE_SCHEMA.field(name).type) for name in names}
    return [f"{name}{leaf}" for name in names for leaf in (_LEAVES_OF_MAP if is_map[name] else ("",))]


FOLDER_BYTES = 200  # of a folder's name; file systems allow 255
_HASH_DIGITS = 16
#: Bytes with a meaning in paths or URLs, a leading dot or underscore (which hide a folder), a trailing dot, and the start of an
#: escape.
_ESCAPED = re.compile(rb"[^A-Za-z0-9_.-]|^[._]|\.$|-(?=x(?:[0-9A-F]{2}|x))")
_ESCAPE = re.compile(rb"-x([0-9A-F]{2})")
_PARTIAL_ESCAPE = re.compile(rb"-(x[0-9A-F]?)?$")


def folder_name(queue: str) -> str:
    """Name the folder of a queue's table, in at most `FOLDER_BYTES` ASCII characters. Different queues have different folders.

    Bytes of `_ESCAPED` become `-xHH`. So the name means the same in a path, a URL, a glob and a key of an object store. (`=`
    would make it a partition of Hive.) A name that is too long ends with a hash of the whole name.
    """
    octets = queue.encode()
    name = _ESCAPED.sub(lambda match: b"-x%02X" % match[0][0], octets)
    if len(name) > FOLDER_BYTES:
        ending = b"-xx" + hashlib.sha256(octets).hexdigest()[:_HASH_DIGITS].encode()  # no other name contains `-xx`
        name = _PARTIAL_ESCAPE.sub(b"", name[: FOLDER_BYTES - len(ending)]) + ending
    return name.decode()


def queue_in(folder: str) -> str | None:
    """Return the queue of a folder; None if the folder's name is cut, or is not that of a queue."""
    try:
        name = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), folder.encode()).decode()
    except UnicodeDecodeError:
        return None
    return name if folder_name(name) == folder else None


def table_url(archive: str, queue: str) -> str:
    return f"{archive.rstrip('/')}/{folder_name(queue)}"


def needed(columns: Sequence[str]) -> list[str]:
    """Return the columns of the table that `rows_of_read` needs for `columns`."""
    wanted = {*columns, "sequenceNumber", "bodyType"} - {"queue"}
    if "message" in columns:
        wanted |= {*assembly.needed(columns), ENVELOPE, "body"}
    elif not BARE_COLUMNS.isdisjoint(columns):
        wanted.add("message")
    return [name for name in FILE_SCHEMA.names if name in wanted]


def useful(present: list[str], columns: Sequence[str], *, all_exact: bool) -> list[str]:
    """Leave out columns of `needed` that are useless for this row group.

    `bodyType` is needed only with a `message`. Messages are encoded from columns only if some rows have no exact bytes.
    """
    needless = frozenset({"bodyType"} if "message" not in present else ())
    if all_exact and "message" in columns:
        needless = BARE_COLUMNS - {"body"}
    return [name for name in present if name in columns or name not in needless]


def rows_of_read(columns: Sequence[str], rows: pa.RecordBatch, queue: str) -> pa.RecordBatch:
    """Convert rows of the table to a batch of `assembly.needed(columns)` in the stored form, as the broker sends rows of a queue.

    `rows` has the columns `needed(columns)`, in the Arrow types that a writer chose. A column that the file lacks is null. Unless
    `message` is one of `columns`, only rows without a type of body have it: they have no body, or cannot be decoded, which the
    reader finds out again.
    """
    schema = arrow_schema(assembly.needed(columns), stored=True)
    count, constants = rows.num_rows, {"state": STATE, "queue": queue}
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(assembly.constant(constants[field.name], field.type, count))
        elif field.name == "message" and field.name in columns:
            arrays.append(exact_messages(rows))
        elif field.name == "message":
            arrays.append(_undecoded(rows))
        elif field.name in rows.schema.names:
            arrays.append(_typed(rows.column(field.name), field.type))
        else:
            arrays.append(assembly.nulls(field.type, count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def exact_messages(rows: pa.RecordBatch) -> pa.Array:
    """Return the bare messages of AMQP clients, byte for byte. Rows without exact bytes are null."""
    import pyarrow.compute as pc

    message, envelope = (_column(rows, name, pa.binary()) for name in ("message", ENVELOPE))
    if envelope.null_count == len(envelope):
        return message
    joined = pc.binary_join_element_wise(envelope, _column(rows, "body", pa.binary()), b"")
    return joined if message.null_count == len(message) else pc.coalesce(message, joined)


def _undecoded(rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    message = _column(rows, "message", pa.binary())
    if message.null_count == len(message):
        return message
    return pc.if_else(_column(rows, "bodyType", pa.string()).is_null(), message, pa.scalar(None, pa.binary()))


def _column(rows: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    return _typed(rows.column(name), type_) if name in rows.schema.names else assembly.nulls(type_, rows.num_rows)


def _typed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert the large strings, views or dictionaries of other writers."""
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        return _typed(array.dictionary_decode(), wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        children = [_typed(array.keys, wanted.key_type), _typed(array.items, wanted.item_type)]
        entries = pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array.cast(wanted)

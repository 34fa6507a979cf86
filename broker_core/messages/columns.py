"""Columns of a message: names, Arrow types, and the stored form.

A block of messages is *columnar* (column `body`, sent by Spark) or *encoded* (column `message`: the bare AMQP message exactly as
it came). The other sections of an AMQP client's message are stored as they came, in internal columns, which users cannot send or
name.

Pure pyarrow, since Spark's planner and executors use it. `pyarrow.compute` is imported inside functions: it takes 30 ms, and
planning does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from ..errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np

    Integers: TypeAlias = "int | pa.Array | np.ndarray[Any, Any] | Sequence[int]"

TIMESTAMP = pa.timestamp("us", tz="UTC")
# Field names and nullability are those of Spark's MapType: record batches must match Spark's schema exactly.
STRING_MAP = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=True))


class Column(NamedTuple):
    """The source of schemas, masks, Spark's types, the checks of AMQP's ranges, and the columns of each path."""

    type: pa.DataType
    bit: int | None  # of a payload's mask; a new column gets the next one. None: a system column, added by the broker
    section: str | None  # of an AMQP message
    wire: str | None = None  # type of the field, or of the map's keys. OCTETS: the whole section as it came
    nullable: bool = True
    default: bool = False  # returned by a source
    read: str = "any"  # Spark reads that may name it: "any", `BATCH` or `NOBODY`
    written: bool = False  # by a sink, which ignores other columns, so that rows can be written as they were read
    mapped: bool = True  # a task on the broker's host can compute it from a file and the messages' location


BATCH, NOBODY, OCTETS = "batch", "nobody", "octets"
HEADER, ANNOTATIONS, PROPERTIES = "header", "message-annotations", "properties"
APPLICATION_PROPERTIES, BODY, BARE, FOOTER = "application-properties", "body", "bare message", "footer"


def _stored(type_: pa.DataType, bit: int, section: str, wire: str | None = None, *, default: bool = False) -> Column:
    return Column(type_, bit, section, wire, default=default, written=True)


def _sent(type_: pa.DataType, bit: int, section: str, wire: str) -> Column:
    return Column(type_, bit, section, wire, read=NOBODY, written=True)


def _internal(bit: int, section: str) -> Column:
    return Column(pa.binary(), bit, section, OCTETS, read=NOBODY)


def _ended(type_: pa.DataType) -> Column:
    return Column(type_, None, None, read=BATCH, mapped=False)


#: Every column, in the order in which a source returns the default columns.
COLUMNS: dict[str, Column] = {
    "queue": Column(pa.string(), None, None, nullable=False, default=True, written=True),
    "sequenceNumber": Column(pa.int64(), None, None, nullable=False, default=True),
    "enqueuedTime": Column(TIMESTAMP, None, None, nullable=False, default=True),
    "body": _stored(pa.binary(), 0, BODY, default=True),
    "bodyType": Column(pa.string(), None, BODY),  # data, string, binary or json
    "messageId": _stored(pa.string(), 1, PROPERTIES, "message-id", default=True),
    "correlationId": _stored(pa.string(), 2, PROPERTIES, "message-id", default=True),
    "subject": _stored(pa.string(), 3, PROPERTIES, "string", default=True),
    "to": _stored(pa.string(), 4, PROPERTIES, "string", default=True),
    "replyTo": _stored(pa.string(), 5, PROPERTIES, "string", default=True),
    "contentType": _stored(pa.string(), 6, PROPERTIES, "symbol", default=True),
    "groupId": _stored(pa.string(), 7, PROPERTIES, "string", default=True),
    "userId": _stored(pa.string(), 8, PROPERTIES, "binary", default=True),
    "contentEncoding": _stored(pa.string(), 9, PROPERTIES, "symbol", default=True),
    "priority": _stored(pa.int16(), 10, HEADER, "ubyte", default=True),
    "durable": _stored(pa.bool_(), 11, HEADER, "boolean", default=True),
    "creationTime": _stored(TIMESTAMP, 12, PROPERTIES, "timestamp", default=True),
    "absoluteExpiryTime": _stored(TIMESTAMP, 13, PROPERTIES, "timestamp", default=True),
    "deliveryCount": Column(pa.int32(), None, None, default=True),
    "properties": _stored(STRING_MAP, 14, APPLICATION_PROPERTIES, "string", default=True),
    "message": _stored(pa.binary(), 17, BARE, OCTETS),  # of an encoded block
    "annotations": _stored(STRING_MAP, 16, ANNOTATIONS, "symbol"),
    "groupSequence": _stored(pa.int64(), 15, PROPERTIES, "uint"),
    "delivery": Column(pa.binary(), None, None, mapped=False),
    "state": _ended(pa.string()),
    "outcome": _ended(pa.string()),
    "settledTime": _ended(TIMESTAMP),
    "error": _ended(pa.string()),
    "holder": _ended(pa.string()),  # the query, client with its user, or operator that ended the message
    "failures": _ended(pa.string()),  # the last failed deliveries in the queue, as JSON
    "lockedUntil": _ended(TIMESTAMP),  # of an acquired message; null: its lock has no end
    "ttl": _sent(pa.int64(), 18, HEADER, "uint"),  # milliseconds
    "deliveryTime": _sent(TIMESTAMP, 19, ANNOTATIONS, "timestamp"),
    "encodedAnnotations": _internal(20, ANNOTATIONS),  # the whole section, descriptor included
    "footer": _internal(21, FOOTER),  # the whole section
}

#: Stored in the journal, in the order of their bits.
MESSAGE_COLUMNS: dict[str, pa.DataType] = {
    name: column.type for bit in range(len(COLUMNS)) for name, column in COLUMNS.items() if column.bit == bit
}
#: Added by the broker, or computed from other columns.
SYSTEM_COLUMNS: dict[str, pa.DataType] = {name: column.type for name, column in COLUMNS.items() if column.bit is None}
INTERNAL_COLUMNS = frozenset(n for n, column in COLUMNS.items() if column.read == NOBODY and not column.written)
NOT_NULL = frozenset(name for name, column in COLUMNS.items() if not column.nullable)
DEFAULT_COLUMNS: tuple[str, ...] = tuple(name for name, column in COLUMNS.items() if column.default)
#: Parts of a bare AMQP message: never stored with `message`.
BARE_COLUMNS = frozenset(n for n, column in COLUMNS.items() if column.section in (PROPERTIES, APPLICATION_PROPERTIES, BODY))
#: Of an encoded message: fields of its header, and bytes of its other sections.
ENCODED_COLUMNS: tuple[str, ...] = tuple(
    name for name in MESSAGE_COLUMNS if COLUMNS[name].section == HEADER or COLUMNS[name].wire == OCTETS
)
OUTCOME_COLUMNS = frozenset(name for name, column in COLUMNS.items() if column.read == BATCH)
NOT_MAPPED = frozenset(name for name, column in COLUMNS.items() if not column.mapped)

_BITS = {name: 1 << i for i, name in enumerate(MESSAGE_COLUMNS)}
SENT_COLUMNS: tuple[str, ...] = tuple(name for name in MESSAGE_COLUMNS if name not in INTERNAL_COLUMNS)
_TYPES = {**{name: MESSAGE_COLUMNS[name] for name in SENT_COLUMNS}, **SYSTEM_COLUMNS}


class _Cached:
    """Unlike `functools.lru_cache`, it can be pickled: Spark Connect ships this module by value."""

    def __init__(self, function: Callable[..., Any], limit: int) -> None:
        self._function = function
        self._limit = limit
        self._answers: dict[Any, Any] = {}

    def __call__(self, *key: Any) -> Any:
        answer = self._answers.get(key)
        if answer is None:
            answer = self._function(*key)
            if len(self._answers) >= self._limit:
                self._answers = {}  # replaced, not cleared: another thread may be reading it
            self._answers[key] = answer
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        return _Cached, (self._function, self._limit)


def cached(limit: int) -> Callable[[Callable[..., Any]], _Cached]:
    return lambda function: _Cached(function, limit)


@cached(256)
def _arrow_schema(columns: tuple[str, ...], stored: bool) -> pa.Schema:
    for i, name in enumerate(columns):
        if name not in _TYPES and not (stored and name in INTERNAL_COLUMNS):
            raise InvalidRequest(f"there is no column {name!r}; allowed are {', '.join(_TYPES)}")
        if name in columns[:i]:
            raise InvalidRequest(f"column {name!r} is named twice")
    return pa.schema([pa.field(name, COLUMNS[name].type, nullable=COLUMNS[name].nullable) for name in columns])


def arrow_schema(columns: Sequence[str], *, stored: bool = False) -> pa.Schema:
    return _arrow_schema(tuple(columns), stored)


@cached(4096)
def payload_schema(mask: int) -> pa.Schema:
    if not 0 <= mask < 1 << len(MESSAGE_COLUMNS):
        raise InvalidRequest(
            f"a payload holds columns that this version does not know (mask {mask:#x}, {len(MESSAGE_COLUMNS)} are known);"
            " read it with the version that wrote it"
        )
    return pa.schema([pa.field(name, type_) for name, type_ in MESSAGE_COLUMNS.items() if mask & _BITS[name]])


def mask_of(columns: Iterable[str]) -> int:
    return sum(_BITS[name] for name in columns)


def is_encoded(mask: int) -> bool:
    return bool(mask & _BITS["message"])


def stored_form(batch: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
    """Return the mask of a validated batch, and its message columns that have a value."""
    rows = batch.num_rows
    stored = {name: batch.column(i) for i, name in enumerate(batch.schema.names) if name in MESSAGE_COLUMNS}
    used = {name: stored[name] for name in MESSAGE_COLUMNS if name in stored and stored[name].null_count < rows}
    mask = mask_of(used)
    # `from_arrays`: a record batch without columns has no length to infer.
    return mask, pa.RecordBatch.from_arrays(list(used.values()), schema=payload_schema(mask))


def unpack(mask: int, buffer: pa.Buffer) -> pa.RecordBatch:
    """Return the batch of an IPC message without a schema. Its arrays are views of `buffer`."""
    return pa.ipc.read_record_batch(buffer, payload_schema(mask))


def any_durable(batch: pa.RecordBatch) -> bool:
    import pyarrow.compute as pc

    return "durable" in batch.schema.names and bool(pc.any(batch.column("durable")).as_py())

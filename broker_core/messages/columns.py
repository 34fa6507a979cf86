"""A message in columns: names, Arrow types, the stored form, and the schema of a stream that leaves the broker
(`assembly` makes its batches).

Pure pyarrow, since the broker, the connector's planner and Spark's executors all use it. Nothing here loops over messages.
`pyarrow.compute` is imported where it is used: it takes 30 ms, and Spark's planning workers need only names and types.

Two kinds of columns:
- *message columns* travel with the message and are what the journal stores (`MESSAGE_COLUMNS`);
- *system columns* are the broker's, added on the way out (`SYSTEM_COLUMNS`).

A block of messages is *columnar* (column `body`, sent by Spark) or *encoded* (column `message`: the bare AMQP message exactly as
it came; the columns that a bare message carries inside are then not stored beside it). What an AMQP client sent around its bare
message is kept as it came in columns of our own (`INTERNAL_COLUMNS`), which nobody sends or asks for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.broker_core.errors import InvalidRequest, ResourceLimit
from penstock.broker_core.messages import representable

if TYPE_CHECKING:
    import numpy as np

    Integers: TypeAlias = "int | pa.Array | np.ndarray[Any, Any] | Sequence[int]"

TIMESTAMP = pa.timestamp("us", tz="UTC")
# Field names and nullability are Spark's (`to_arrow_type` of a MapType): record batches must equal what it expects to the letter.
STRING_MAP = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=True))

#: The persisted order: bit i of a payload's `columns` mask is the i-th of these.
#: To change the format: append at the end, nothing else. A column may never move, change its type or leave; one that is no longer
#: wanted keeps its place. A reader that meets a bit it does not know refuses the payload (see `payload_schema`).
MESSAGE_COLUMNS: dict[str, pa.DataType] = {
    "body": pa.binary(),
    "messageId": pa.string(),
    "correlationId": pa.string(),
    "subject": pa.string(),
    "to": pa.string(),
    "replyTo": pa.string(),
    "contentType": pa.string(),
    "groupId": pa.string(),
    "userId": pa.string(),
    "contentEncoding": pa.string(),
    "priority": pa.int16(),
    "durable": pa.bool_(),
    "creationTime": TIMESTAMP,
    "absoluteExpiryTime": TIMESTAMP,
    "properties": STRING_MAP,
    "groupSequence": pa.int64(),
    "annotations": STRING_MAP,
    "message": pa.binary(),  # the bare AMQP message of an encoded block
    "ttl": pa.int64(),  # milliseconds
    "deliveryTime": TIMESTAMP,
    "encodedAnnotations": pa.binary(),  # the whole section of message annotations as it came, descriptor included
    "footer": pa.binary(),  # the whole footer as it came
}
#: Stored beside an encoded message, never a user's: refused where columns come in, and where they are asked for.
INTERNAL_COLUMNS = frozenset({"encodedAnnotations", "footer"})

#: Added by the broker on the way out; never stored with a message.
SYSTEM_COLUMNS: dict[str, pa.DataType] = {
    "queue": pa.string(),
    "sequenceNumber": pa.int64(),
    "enqueuedTime": TIMESTAMP,
    "deliveryCount": pa.int32(),
    "delivery": pa.binary(),
    "state": pa.string(),
    "outcome": pa.string(),
    "settledTime": TIMESTAMP,
    "error": pa.string(),
}
NOT_NULL = frozenset({"queue", "sequenceNumber", "enqueuedTime"})

#: What a source gives when nobody asks for anything else, in this order.
DEFAULT_COLUMNS: tuple[str, ...] = (
    "queue",
    "sequenceNumber",
    "enqueuedTime",
    "body",
    "messageId",
    "correlationId",
    "subject",
    "to",
    "replyTo",
    "contentType",
    "groupId",
    "userId",
    "contentEncoding",
    "priority",
    "durable",
    "creationTime",
    "absoluteExpiryTime",
    "deliveryCount",
    "properties",
)

#: The columns that a bare AMQP message carries inside itself: never beside `message`.
BARE_COLUMNS = frozenset(
    {
        "body",
        "messageId",
        "correlationId",
        "subject",
        "to",
        "replyTo",
        "contentType",
        "groupId",
        "userId",
        "contentEncoding",
        "creationTime",
        "absoluteExpiryTime",
        "properties",
        "groupSequence",
    }
)

_BITS = {name: 1 << i for i, name in enumerate(MESSAGE_COLUMNS)}
#: What may be sent, and what may be asked for.
SENT_COLUMNS: tuple[str, ...] = tuple(name for name in MESSAGE_COLUMNS if name not in INTERNAL_COLUMNS)
_TYPES = {**{name: MESSAGE_COLUMNS[name] for name in SENT_COLUMNS}, **SYSTEM_COLUMNS}


class _Kept:
    """The last answers of a function. Spark Connect ships this module by value, which `functools.lru_cache` does not survive."""

    def __init__(self, function: Callable[..., Any], limit: int) -> None:
        self._function = function
        self._limit = limit
        self._answers: dict[Any, Any] = {}

    def __call__(self, *key: Any) -> Any:
        answer = self._answers.get(key)
        if answer is None:
            answer = self._function(*key)
            if len(self._answers) >= self._limit:
                self._answers = {}  # replaced, not emptied: another thread may be reading it
            self._answers[key] = answer
        return answer

    def __reduce__(self) -> tuple[Any, ...]:
        return _Kept, (self._function, self._limit)


def kept(limit: int) -> Callable[[Callable[..., Any]], _Kept]:
    """Keeps the last `limit` answers of a function; a class's `__reduce__` is what `functools.lru_cache` lacks."""
    return lambda function: _Kept(function, limit)


# --- Schemas ---------------------------------------------------------------------------------------------------------------


@kept(256)
def _arrow_schema(columns: tuple[str, ...], stored: bool) -> pa.Schema:
    for i, name in enumerate(columns):
        if name not in _TYPES and not (stored and name in INTERNAL_COLUMNS):
            raise InvalidRequest(f"there is no column {name!r}; allowed are {', '.join(_TYPES)}")
        if name in columns[:i]:
            raise InvalidRequest(f"column {name!r} is named twice")
    types = {**MESSAGE_COLUMNS, **SYSTEM_COLUMNS}
    return pa.schema([pa.field(name, types[name], nullable=name not in NOT_NULL) for name in columns])


def arrow_schema(columns: Sequence[str], *, stored: bool = False) -> pa.Schema:
    """The schema of an outgoing stream of these columns, in this order: to the letter what Spark expects of them.

    With `stored`, of a stream of columns as they are stored: the internal ones are then allowed. Raises InvalidRequest for an
    unknown or repeated name.
    """
    return _arrow_schema(tuple(columns), stored)


def payload_schema(mask: int) -> pa.Schema:
    """The schema of a stored payload: the message columns whose bits are set, in mask order, all nullable."""
    return _payload_schema(mask)


@kept(4096)
def _payload_schema(mask: int) -> pa.Schema:
    if not 0 <= mask < 1 << len(MESSAGE_COLUMNS):
        raise InvalidRequest(
            f"a payload holds columns that this version does not know (mask {mask:#x}, {len(MESSAGE_COLUMNS)} are known);"
            " read it with the version that wrote it"
        )
    return pa.schema([pa.field(name, type_) for name, type_ in MESSAGE_COLUMNS.items() if mask & _BITS[name]])


def mask_of(columns: Iterable[str]) -> int:
    """The mask of a payload with these columns."""
    return sum(_BITS[name] for name in columns)


def is_encoded(mask: int) -> bool:
    """Is a payload with this mask one of encoded messages?"""
    return bool(mask & _BITS["message"])


# --- The stored form -------------------------------------------------------------------------------------------------------


def stored_form(batch: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
    """Return the stored form of a validated batch: its mask, and the batch as `unpack` gives it back.

    Columns that are null in every row are not stored, nor are those that are no message columns.
    """
    rows = batch.num_rows
    stored = {name: batch.column(i) for i, name in enumerate(batch.schema.names) if name in MESSAGE_COLUMNS}
    kept = {name: stored[name] for name in MESSAGE_COLUMNS if name in stored and stored[name].null_count < rows}
    mask = mask_of(kept)
    # By `from_arrays`, since a record batch without columns (no rows) has no length to infer.
    return mask, pa.RecordBatch.from_arrays(list(kept.values()), schema=payload_schema(mask))


def pack(batch: pa.RecordBatch) -> tuple[int, pa.Buffer]:
    """The stored form of a validated batch: its mask, and one Arrow IPC record-batch message without a schema."""
    mask, stored = stored_form(batch)
    return mask, stored.serialize()


def unpack(mask: int, buffer: pa.Buffer) -> pa.RecordBatch:
    """The inverse of `pack`. The arrays are views of `buffer`: nothing is copied, and they keep it alive."""
    return pa.ipc.read_record_batch(buffer, payload_schema(mask))


def sizes(batch: pa.RecordBatch) -> int | np.ndarray[Any, Any]:
    """Stored bytes of each message: body (or bare message) plus the texts of its properties.

    This is what `maxBytesPerTrigger` counts. An int when all are equal, else int64 of shape (rows,).
    """
    import numpy as np

    lengths = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("body", "message"):
        if name in batch.schema.names:
            lengths += _where_valid(batch.column(name), np.diff(_offsets(batch.column(name))))
    if "properties" in batch.schema.names:
        maps = batch.column("properties")
        bounds = _offsets(maps)
        for texts in (maps.keys, maps.items):
            # `keys` and `items` are the whole children, so the map's own offsets index them.
            ends = _offsets(texts)[bounds] if len(texts) else np.zeros(len(bounds), dtype=np.int64)
            lengths += _where_valid(maps, np.diff(ends))
    if len(lengths) == 0:
        return 0
    first = int(lengths[0])
    return first if bool((lengths == first).all()) else lengths


def any_durable(batch: pa.RecordBatch) -> bool:
    """Does any message's header say durable? A header that says nothing does not."""
    import pyarrow.compute as pc

    return "durable" in batch.schema.names and bool(pc.any(batch.column("durable")).as_py())


def _offsets(array: pa.Array) -> np.ndarray[Any, Any]:
    """The n+1 offsets of a binary, string or map array, as int64."""
    import numpy as np

    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int32, count=array.offset + len(array) + 1)[array.offset :].astype(np.int64)


def _where_valid(array: pa.Array, lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import pyarrow.compute as pc

    # Arrow lets a null slot have a length; nothing of it is stored for us.
    if array.null_count == 0:
        return lengths
    zeroed: np.ndarray[Any, Any] = lengths * pc.is_valid(array).to_numpy(zero_copy_only=False)
    return zeroed


# --- Messages that come in -------------------------------------------------------------------------------------------------


def validate(batch: pa.RecordBatch, most_bytes: int | None = None) -> pa.RecordBatch:
    """An incoming batch with known columns of the right types, in mask order, or InvalidRequest naming column and row.

    A string body becomes its UTF-8 bytes; large, view and dictionary forms of a type, and other widths of an integer, are cast.
    Exactly one of `body` and `message` must be there, with a value in every row, and nothing beside it that AMQP cannot say. What
    is inside a `message` is not looked at: see `encoding.sections`. ResourceLimit when the columns would have more than
    `most_bytes` once they are cast, which is reckoned before: a dictionary or views say one value many times.
    """
    try:
        names = batch.schema.names
        _check_names(names)
        found = {name: batch.column(names.index(name)) for name in MESSAGE_COLUMNS if name in names}
        for name, array in found.items():
            _check_type(name, array.type)
    except UnicodeDecodeError:
        raise InvalidRequest("the record batch is malformed: a name in its schema is not UTF-8") from None
    try:
        # Offsets and UTF-8 from outside are checked before anything follows them: once journaled they would be there for good.
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"the record batch is malformed: {error}") from error
    if most_bytes is not None and any(array.type != MESSAGE_COLUMNS[name] for name, array in found.items()):
        nbytes = sum(_nbytes(array, MESSAGE_COLUMNS[name]) for name, array in found.items())
        if nbytes > most_bytes:
            raise ResourceLimit(
                f"a record batch has at most {most_bytes} bytes, this one {nbytes} once its columns have the types that messages"
                " have: send smaller ones"
            )
    columns = {name: _column(name, array) for name, array in found.items()}
    content = "body" if "body" in columns else "message"
    if columns[content].null_count:
        import pyarrow.compute as pc

        row = pc.index(pc.is_null(columns[content]), True).as_py()
        raise InvalidRequest(f"column {content!r} is null in row {row}; every message needs one (it may be empty)")
    representable.check(columns)
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema([pa.field(name, MESSAGE_COLUMNS[name]) for name in columns])
    )


def _check_names(names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name not in SENT_COLUMNS:
            raise InvalidRequest(f"there is no message column {name!r}; allowed are {', '.join(SENT_COLUMNS)}")
        if name in names[:i]:
            raise InvalidRequest(f"column {name!r} is named twice")
    check_content(names)


def check_content(names: Sequence[str]) -> None:
    """Raise InvalidRequest unless exactly one of `body` and `message` is named, and nothing that a `message` holds inside."""
    if "message" in names:
        for name in names:
            if name in BARE_COLUMNS:
                raise InvalidRequest(f"column {name!r} stands beside 'message', which is sent exactly as it is: drop one")
    elif "body" not in names:
        raise InvalidRequest("there is no content: name a column 'body' (binary or string) or 'message' (a bare AMQP message)")


def _check_type(name: str, found: pa.DataType) -> None:
    """Raise InvalidRequest for a type that is none of those that are taken, before anything looks into such an array."""
    wanted = MESSAGE_COLUMNS[name]
    inner = found.value_type if pa.types.is_dictionary(found) else found
    nested = inner != found and (pa.types.is_dictionary(inner) or pa.types.is_nested(inner))
    if nested or (inner != wanted and not _castable(inner, wanted, name)):
        raise InvalidRequest(f"column {name!r} has type {found}; it must be {wanted}")


def _column(name: str, array: pa.Array) -> pa.Array:
    wanted = MESSAGE_COLUMNS[name]
    if array.type == wanted:
        return array
    try:
        return _cast(array, wanted)
    except pa.ArrowException as error:
        raise InvalidRequest(f"column {name!r} has a value that does not fit {wanted}: {error}") from error


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        values = _cast(array.dictionary, wanted)
        return values if len(values) == 0 and len(array) == 0 else values.take(array.indices)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        texts = [_cast(child, pa.string()) for child in (array.keys, array.items)]
        entries = pa.StructArray.from_arrays(texts, fields=[wanted.key_field, wanted.item_field])
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array if array.type == wanted else _without_hidden(array).cast(wanted)


def _without_hidden(array: pa.Array) -> pa.Array:
    """Views without what their null slots hold: nobody has checked where that points, and a cast follows it."""
    import numpy as np

    if not _is_view(array.type) or not array.null_count:
        return array
    validity, views, *data = array.buffers()
    slots = np.frombuffer(views, np.uint8)[: 16 * (array.offset + len(array))].reshape(-1, 16).copy()
    slots[array.offset :][array.is_null().to_numpy(zero_copy_only=False)] = 0
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(slots), *data], array.null_count, array.offset)


def _nbytes(array: pa.Array, wanted: pa.DataType) -> int:
    """The bytes of a validated array once it has that type; nothing of the kind is made."""
    types = pa.types
    if array.type == wanted:
        return int(array.get_total_buffer_size())
    if types.is_map(array.type):
        return 4 * len(array) + sum(_nbytes_of_texts(child) for child in (array.keys, array.items))
    if types.is_binary(wanted) or types.is_string(wanted):
        return _nbytes_of_texts(array)
    return 8 * len(array)  # numbers, times, and offsets of a map of which all are null


def _nbytes_of_texts(array: pa.Array) -> int:
    return 4 * len(array) + int(_lengths(array).sum())


def _lengths(array: pa.Array) -> np.ndarray[Any, Any]:
    """The length of each value of a binary or string array, of whatever kind; 0 where it is null."""
    import numpy as np

    types, found = pa.types, array.type
    rows = len(array)
    if types.is_null(found) or not rows:
        return np.zeros(rows, np.int64)
    if types.is_dictionary(found):
        of = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        lengths = _lengths(array.dictionary)
        if not len(lengths):  # all null
            return np.zeros(rows, np.int64)
        return _where_valid(array, lengths[of])
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(rows, np.int64)
    if _is_view(found):
        views = np.frombuffer(buffer, np.int32, 4 * (array.offset + rows)).reshape(-1, 4)
        return _where_valid(array, views[array.offset :, 0].astype(np.int64))
    kind = np.int64 if types.is_large_binary(found) or types.is_large_string(found) else np.int32
    lengths = np.diff(np.frombuffer(buffer, kind, array.offset + rows + 1)[array.offset :])
    return lengths.astype(np.int64)


def _is_view(found: pa.DataType) -> bool:
    return bool(pa.types.is_binary_view(found) or pa.types.is_string_view(found))


def _castable(found: pa.DataType, wanted: pa.DataType, name: str) -> bool:
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_binary(wanted):
        return _is_binary(found) or (name == "body" and _is_string(found))
    if types.is_string(wanted):
        return _is_string(found)
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    if types.is_timestamp(wanted):
        # A time without a zone could be anybody's.
        return bool(types.is_timestamp(found) and found.tz is not None)
    if types.is_map(wanted):
        return bool(types.is_map(found)) and _is_string(found.key_type) and _is_string(found.item_type)
    return False


def _is_binary(found: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found))


def _is_string(found: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))

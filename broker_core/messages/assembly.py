"""Record batches of requested columns, from stored rows and the broker's own columns.

Pure pyarrow, since the broker and Spark's executors use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ..errors import PenstockError
from . import conversion
from .columns import BARE_COLUMNS, MESSAGE_COLUMNS, SENT_COLUMNS, SYSTEM_COLUMNS, TIMESTAMP, arrow_schema, cached
from .conversion import Malformed

if TYPE_CHECKING:
    from .columns import Integers


#: First and last time that a read returns, in microseconds since 1970; other times are null. Spark's `collect` and Python UDFs
#: convert times to local time, UTC-16 to UTC+14, and Python's datetime has the years 1 to 9999. At the beginning, Python also
#: computes the day before.
FIRST_TIME = -62_135_596_800_000_000 + 48 * 3_600_000_000
LAST_TIME = 253_402_300_799_999_999 - 14 * 3_600_000_000

#: Stored rows: a batch, or a table of several chunks.
Payload = TypeVar("Payload", pa.RecordBatch, pa.Table)


def assemble(
    columns: Sequence[str],
    payload: Payload,
    system: Mapping[str, Any],
    *,
    stored: bool = False,
    malformed: Malformed,
) -> Payload:
    """Return exactly `arrow_schema(columns)` with the rows of `payload`, which have one form. A `stored` table stays a table.

    `system` contains values of system columns: `queue` and `sequenceNumber` always. A value is one for all rows, or one for
    each row; a single `sequenceNumber` is the first row's. Times are microseconds since 1970. Other columns are converted from
    the other form, or null.

    With `stored` nothing is converted. A message that cannot be decoded is added to `malformed`, by sequence number: its
    converted columns are null, and `error` contains the reason.
    """
    schema = arrow_schema(columns, stored=stored)
    rows, sequence = payload.num_rows, system["sequenceNumber"]
    unreadable: Malformed = {}
    made = {} if stored else computed(schema.names, payload, sequence, unreadable)
    malformed |= unreadable
    if unreadable and "error" in schema.names:
        system = {**system, "error": with_reasons(system.get("error"), unreadable, sequence, rows)}
    arrays = []
    for name in schema.names:
        if name in MESSAGE_COLUMNS:
            array = made[name] if name in made else _payload_column(name, payload)
            arrays.append(array if stored else representable(array))
        elif name == "sequenceNumber":
            arrays.append(_sequences(sequence, rows))
        elif name in made:
            arrays.append(_known_or(system.get(name), made[name]))
        else:
            arrays.append(_values(system.get(name), SYSTEM_COLUMNS[name], rows))
    return type(payload).from_arrays(arrays, schema=schema)


def _known_or(known: pa.Array | None, computed_values: pa.Array) -> pa.Array:
    """Known values win: the archive keeps the type of the sender's body."""
    if known is None:
        return computed_values
    import pyarrow.compute as pc

    return pc.coalesce(known, computed_values)


def _payload_column(name: str, payload: pa.RecordBatch | pa.Table) -> Any:
    index = payload.schema.get_field_index(name)
    return payload.column(index) if index >= 0 else nulls(MESSAGE_COLUMNS[name], payload.num_rows)


def representable(array: pa.Array) -> pa.Array:
    """Return null for times that Python's datetime cannot represent in every time zone."""
    if array.type != TIMESTAMP or array.null_count == len(array):
        return array
    import pyarrow.compute as pc

    numbers = array.view(pa.int64())
    ends = pc.min_max(numbers)
    if ends["min"].as_py() >= FIRST_TIME and ends["max"].as_py() <= LAST_TIME:
        return array
    holds = pc.and_(pc.greater_equal(numbers, FIRST_TIME), pc.less_equal(numbers, LAST_TIME))
    return pc.if_else(holds, array, pa.scalar(None, TIMESTAMP))


def with_reasons(error: pa.Array | None, malformed: Malformed, sequence: Integers, rows: int) -> pa.Array:
    import pyarrow.compute as pc

    reasons = pa.array([f"malformed: {reason}" for reason in malformed.values()], pa.string())
    places = pc.index_in(_sequences(sequence, rows), value_set=pa.array(malformed, pa.int64()))
    texts = reasons.take(places)
    return texts if error is None else pc.coalesce(error, texts)


def _sequences(sequence: Integers, rows: int) -> pa.Array:
    return rising(sequence, rows) if isinstance(sequence, int) else _values(sequence, pa.int64(), rows)


def readable(batch: pa.RecordBatch, sequence: Integers, malformed: Malformed) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return batch.filter(pc.invert(pc.is_in(_sequences(sequence, batch.num_rows), value_set=pa.array(malformed, pa.int64()))))


def computed(names: Sequence[str], payload: pa.RecordBatch, sequence: Integers, malformed: Malformed) -> dict[str, pa.Array]:
    """Return the columns of `names` that `payload`, which has one form, lacks and the other form determines. For encoded
    messages, `names` may contain `conversion.ENVELOPE`.
    """
    held = payload.schema.names
    if not payload.num_rows:
        return {}
    if "message" not in held:
        columns = {"message": conversion.encoded(payload, sequence, malformed)} if "message" in names and "body" in held else {}
        if "bodyType" in names and "body" in held:
            columns["bodyType"] = data_types(payload.column("body"))
        return columns
    wanted = [name for name in names if name in BARE_COLUMNS or name == conversion.ENVELOPE]
    if "annotations" in names and "encodedAnnotations" in held:
        wanted.append("annotations")
    made = conversion.decoded(payload, wanted, sequence, malformed) if wanted else {}
    if "annotations" in made and "annotations" in held:  # some rows are encoded, others are texts from Spark
        import pyarrow.compute as pc

        made["annotations"] = pc.coalesce(made["annotations"], payload.column("annotations"))
    return made


def data_types(body: pa.Array) -> pa.Array:
    """The body of a columnar row is one data section."""
    types = constant("data", pa.string(), len(body))
    if not body.null_count:
        return types
    import pyarrow.compute as pc

    return pc.if_else(body.is_valid(), types, pa.scalar(None, pa.string()))


def needed(columns: Sequence[str]) -> list[str]:
    names = dict.fromkeys(["sequenceNumber", *columns])
    if "bodyType" in names:
        names["body"] = None
    if "message" in names:
        names.update(dict.fromkeys(name for name in SENT_COLUMNS if name in BARE_COLUMNS))
    if not BARE_COLUMNS.isdisjoint(names):
        names["message"] = None
    if "annotations" in names:
        names["encodedAnnotations"] = names["message"] = None
    return list(names)


def converted(columns: Sequence[str], batch: pa.RecordBatch, queue: str, malformed: Malformed) -> pa.RecordBatch:
    """Return `columns` from a batch of `needed(columns)`, whose rows may have both forms."""
    if "message" not in batch.schema.names:
        return batch.select(list(columns))
    form = batch.column("message").is_valid()
    encoded_rows = batch.num_rows - batch.column("message").null_count
    if encoded_rows in (0, batch.num_rows):
        return _converted(columns, batch, queue, malformed)
    import pyarrow.compute as pc

    columnar = pc.invert(form)
    parts = [_converted(columns, batch.filter(mask), queue, malformed) for mask in (form, columnar)]
    # Restore the order: the places of the encoded rows, then of the columnar rows.
    places = pa.concat_arrays([pc.indices_nonzero(form), pc.indices_nonzero(columnar)])
    return joined(parts).take(pc.array_sort_indices(places))


def _converted(columns: Sequence[str], batch: pa.RecordBatch, queue: str, malformed: Malformed) -> pa.RecordBatch:
    system = {name: batch.column(name) for name in SYSTEM_COLUMNS if name in batch.schema.names}
    names = [name for name in MESSAGE_COLUMNS if name in batch.schema.names and batch.column(name).null_count < batch.num_rows]
    return assemble(columns, batch.select(names), {**system, "queue": queue}, malformed=malformed)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of one form. Missing columns are null."""
    if len(batches) == 1:
        return batches[0]
    if all(batch.schema == batches[0].schema for batch in batches):
        return pa.concat_batches(batches)
    schema = _common_schema(batches)
    same = [pa.RecordBatch.from_arrays([_payload_column(name, b) for name in schema.names], schema=schema) for b in batches]
    return pa.concat_batches(same)


def stacked(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return one table, without a copy. Missing columns are null."""
    if all(batch.schema == batches[0].schema for batch in batches):
        return pa.Table.from_batches(batches)
    schema = _common_schema(batches)
    chunks = ([_payload_column(name, batch) for batch in batches] for name in schema.names)
    return pa.Table.from_arrays([pa.chunked_array(column) for column in chunks], schema=schema)


def _common_schema(batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    names = [name for name in MESSAGE_COLUMNS if any(name in batch.schema.names for batch in batches)]
    return pa.schema([pa.field(name, MESSAGE_COLUMNS[name]) for name in names])


Item = TypeVar("Item")


def grouped(items: Iterable[tuple[Item, int, int, bool, bool]], most_rows: int, most_bytes: int) -> Iterator[list[Item]]:
    """Group neighbors into batches of one form, of about `most_rows` rows or `most_bytes` bytes.

    An item is (item, rows, bytes, form, is large). A large item is a group on its own, so that it need not be copied. If `items`
    raises an error, the group before it comes first.
    """
    group: list[Item] = []
    all_rows = all_bytes = 0
    form = False  # of the group
    try:
        for item, rows, size, its_form, is_large in items:
            if group and (is_large or its_form != form):
                yield group
                group, all_rows, all_bytes = [], 0, 0
            group.append(item)
            all_rows += rows
            all_bytes += size
            form = its_form
            if is_large or all_rows >= most_rows or all_bytes >= most_bytes:
                yield group
                group, all_rows, all_bytes = [], 0, 0
    except PenstockError:
        if group:
            yield group
        raise
    if group:
        yield group


def _values(value: Any, type_: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return nulls(type_, rows)
    if isinstance(value, (int, str, bytes)):
        return constant(value, type_, rows)
    array = value if isinstance(value, pa.Array) else pa.array(value)
    if array.type == type_:
        return array
    return array.view(type_) if pa.types.is_timestamp(type_) and pa.types.is_int64(array.type) else array.cast(type_)


# Constant columns are slices of cached arrays, one for each value and power of two, so batches of any lengths build few. The
# caches are small, since a constant string column can be big.


def constant(value: int | str | bytes, type_: pa.DataType, rows: int) -> pa.Array:
    return _repeated(value, type_, _room(rows)).slice(0, rows)


def nulls(type_: pa.DataType, rows: int) -> pa.Array:
    return _all_null(type_, _room(rows)).slice(0, rows)


def rising(first: int, rows: int) -> pa.Array:
    import pyarrow.compute as pc

    return pc.add(_counted(_room(rows)).slice(0, rows), first)


def _room(rows: int) -> int:
    return 1 << max(rows - 1, 0).bit_length()


@cached(64)
def _repeated(value: int | str | bytes, type_: pa.DataType, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type=type_), length)


@cached(128)
def _all_null(type_: pa.DataType, length: int) -> pa.Array:
    return pa.nulls(length, type=type_)


@cached(4)
def _counted(length: int) -> pa.Array:
    """Return 0, 1, 2, … without numpy, which an executor may lack."""
    import pyarrow.compute as pc

    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), length), start=-1)

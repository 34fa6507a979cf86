"""Every type, unit and kind of Arrow's format: a real broker accepts it, or refuses it by an error that names column and type."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.flight_plane import arrow_ipc, arrow_types, protobuf

from .octets import call, put
from .test_bad_clients import address

SCHEMA, FIELDS, TYPE_NUMBER, TYPE = 2, 1, 2, 3  # slots of a flatbuffer's tables
ITEM = pa.field("item", pa.int8())
#: One array type for each member of the format's union, and each unit and width of it that pyarrow has.
TYPES: list[pa.DataType] = [
    pa.null(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.binary(), pa.string(), pa.bool_(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view()),
    *(pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.month_day_nano_interval(),
    *(pa.list_(ITEM), pa.large_list(ITEM), pa.list_view(ITEM), pa.large_list_view(ITEM), pa.list_(ITEM, 2)),
    *(pa.struct([ITEM]), pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.month_day_nano_interval())),
    *(pa.dense_union([ITEM]), pa.sparse_union([ITEM])),
    *(pa.binary(3), pa.run_end_encoded(pa.int32(), pa.string())),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
    *(pa.uuid(), pa.json_(pa.string()), pa.bool8(), pa.opaque(pa.binary(), "type", "vendor")),
]
#: The types that a message column accepts; all others are refused.
TAKEN = {
    "body": {"null", "binary", "string", "large_binary", "large_string", "binary_view", "string_view"},
    "subject": {"null", "string", "large_string", "string_view"},
    "priority": {"null", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"},
    "durable": {"null", "bool"},
    "creationTime": {"null", *(f"timestamp[{unit}, tz=UTC]" for unit in ("s", "ms", "us", "ns"))},
    "properties": {"null", "map<string, string>"},
}
DICTIONARIES = {"body": {"string"}, "subject": {"string"}, "priority": {"int64"}}


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Broker(tmp_path_factory.mktemp("types"), fsync="never") as broker:
        broker.declare("q")
        host, port = address(broker)
        with grpc.insecure_channel(f"{host}:{port}") as made:
            yield made


def refusal(channel: Any, messages: list[bytes]) -> str | None:
    """The broker's error, which is never an internal one; None where the put is accepted."""
    try:
        call(channel, "DoPut", *messages)
    except grpc.RpcError as error:
        text = str(error.details())
        assert "internal" not in text.lower(), text
        assert "internal error" not in text, text
        return text
    return None


def empty(column: str, type_: pa.DataType) -> pa.RecordBatch:
    """A batch without rows: its types alone decide."""
    fields = [pa.field(column, type_)] if column == "body" else [pa.field("body", pa.binary()), pa.field(column, type_)]
    schema = pa.schema(fields)
    return pa.RecordBatch.from_arrays([_nothing(field.type) for field in schema], schema=schema)


def _nothing(type_: pa.DataType) -> pa.Array:
    """An array without elements: pyarrow makes none of a union from a list."""
    if not pa.types.is_union(type_):
        return pa.array([], type_)
    numbers, values = pa.array([], pa.int8()), [pa.array([], pa.int8())]
    if type_.mode == "dense":
        return pa.UnionArray.from_dense(numbers, pa.array([], pa.int32()), values, ["item"])
    return pa.UnionArray.from_sparse(numbers, values, ["item"])


def is_taken(column: str, type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return str(type_.value_type) in DICTIONARIES.get(column, ())
    return str(type_) in TAKEN[column]


@pytest.mark.parametrize("column", TAKEN)
def test_every_type_is_taken_or_refused_by_column_and_type(channel: Any, column: str) -> None:
    for type_ in TYPES:
        text = refusal(channel, put("q", empty(column, type_)))
        if is_taken(column, type_):
            assert text is None, (column, type_, text)
        else:
            assert text is not None, (column, type_)
            assert f"column '{column}' has " in text, (type_, text)


def patched(schema: pa.Schema, column: int, *changes: tuple[bool, int, str, int]) -> bytes:
    """A schema's metadata in which numbers of a column are changed: (of its type's table?, slot, format, number)."""
    data = bytearray(schema.serialize()[8:])
    field = arrow_ipc._Table(memoryview(bytes(data)), arrow_ipc._offset(memoryview(data), 0)).table(SCHEMA).tables(FIELDS)[column]
    for of_type, slot, form, number in changes:
        table = field.table(TYPE) if of_type else field
        place = table._field(slot)
        assert place is not None
        struct.pack_into(form, data, place, number)
    return bytes(data)


def with_metadata(metadata: bytes) -> list[bytes]:
    """A put of this schema, and of no batch."""
    first = put("q", empty("body", pa.binary()))[0]
    fields = protobuf.parse("", first)
    descriptor = bytes(fields[protobuf.FLIGHT_DESCRIPTOR])
    return [protobuf.octets(protobuf.FLIGHT_DESCRIPTOR, descriptor) + protobuf.octets(protobuf.DATA_HEADER, metadata)]


def test_every_number_of_a_type_and_those_of_the_future(channel: Any) -> None:
    """Also the types that pyarrow cannot make: the schema has only their number."""
    schema = pa.schema([("body", pa.binary()), ("subject", pa.string())])
    for number in range(256):
        reason = refusal(channel, with_metadata(patched(schema, 1, (False, TYPE_NUMBER, "<B", number))))
        if number in arrow_types.ACCEPTED:
            continue  # its other fields are those of a text: pyarrow reads it, or calls it malformed
        assert reason is not None, number
        name = arrow_types.NAMES[number] if number < len(arrow_types.NAMES) else f"with the number {number}"
        assert f"column 'subject' has the Arrow type {name}" in reason, reason
    unknown = pa.schema([("body", pa.binary()), ("x", pa.string())])
    assert "no message column 'x'" in str(refusal(channel, put("q", empty("x", pa.float64()))))
    reason = refusal(channel, with_metadata(patched(unknown, 1, (False, TYPE_NUMBER, "<B", 200))))
    assert "column 'x' has the Arrow type with the number 200" in str(reason)


def test_interval_of_months_was_an_internal_error(channel: Any) -> None:
    """pyarrow has no class for it: KeyError 21."""
    schema = pa.schema([("body", pa.month_day_nano_interval())])
    _, *batches = put("q", pa.record_batch([pa.nulls(1, schema.field(0).type)], schema=schema))
    for unit in (0, 1, 3, 99):
        text = refusal(channel, [*with_metadata(patched(schema, 0, (True, 0, "<h", unit))), *batches])
        assert text is not None
        assert "column 'body' has the Arrow type interval; it must be binary" in text


def test_units_and_widths_that_do_not_exist_are_no_internal_error(channel: Any) -> None:
    numbers = (0, 1, 5, 7, 63, 127)
    for number in numbers:
        width = pa.schema([("body", pa.binary()), ("priority", pa.int16())])
        refusal(channel, with_metadata(patched(width, 1, (True, 0, "<i", number))))
        unit = pa.schema([("body", pa.binary()), ("creationTime", pa.timestamp("us", "UTC"))])
        refusal(channel, with_metadata(patched(unit, 1, (True, 0, "<h", number))))


@pytest.mark.parametrize(
    ("slot", "form", "good", "text"),
    [(0, "<h", (3, 4), "metadata version"), (1, "<B", (1,), "is not expected here")],
    ids=["metadata version", "kind of message"],
)
def test_versions_and_kinds_of_messages(channel: Any, slot: int, form: str, good: tuple[int, ...], text: str) -> None:
    data = pa.schema([("body", pa.binary())]).serialize()[8:]
    place = arrow_ipc._Table(memoryview(data), arrow_ipc._offset(memoryview(data), 0))._field(slot)
    assert place is not None
    for number in (*range(8), 100):
        changed = bytearray(data)
        struct.pack_into(form, changed, place, number)
        reason = refusal(channel, with_metadata(bytes(changed)))
        assert (reason is None) == (number in good), (number, reason)
        assert reason is None or text in reason or "malformed" in reason, reason


def test_the_list_is_that_of_the_format() -> None:
    """pyarrow writes the numbers of its types: each has the name that the list gives it."""
    known = {
        "floating point": pa.float64(),
        "decimal": pa.decimal128(5, 2),
        "date": pa.date32(),
        "time": pa.time32("s"),
        "timestamp": pa.timestamp("s"),
        "interval": pa.month_day_nano_interval(),
        "list": pa.list_(ITEM),
        "struct": pa.struct([ITEM]),
        "union": pa.dense_union([ITEM]),
        "fixed size binary": pa.binary(3),
        "fixed size list": pa.list_(ITEM, 2),
        "map": pa.map_(pa.string(), pa.string()),
        "duration": pa.duration("s"),
        "large binary": pa.large_binary(),
        "large utf8": pa.large_string(),
        "large list": pa.large_list(ITEM),
        "run-end encoded": pa.run_end_encoded(pa.int32(), pa.string()),
        "binary view": pa.binary_view(),
        "utf8 view": pa.string_view(),
        "list view": pa.list_view(ITEM),
        "large list view": pa.large_list_view(ITEM),
        "null": pa.null(),
        "int": pa.int8(),
        "binary": pa.binary(),
        "utf8": pa.string(),
        "bool": pa.bool_(),
    }
    assert set(arrow_types.NAMES) == {"none", *known}
    for name, type_ in known.items():
        data = memoryview(pa.schema([("x", type_)]).serialize()[8:])
        [field] = arrow_ipc._Table(data, arrow_ipc._offset(data, 0)).table(SCHEMA).tables(FIELDS)
        assert arrow_types.NAMES[field.scalar(TYPE_NUMBER, "<B")] == name

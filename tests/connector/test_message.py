"""Messages in columns: packing is reversible, sizes are as a person would count them, and invalid data is refused."""

from __future__ import annotations

import inspect
import sys
from datetime import datetime, timezone
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import UInt
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages import assembly, batch_checks
from penstock.broker_core.messages import columns as message_columns
from penstock.broker_core.messages.columns import (
    DEFAULT_COLUMNS,
    INTERNAL_COLUMNS,
    MESSAGE_COLUMNS,
    SENT_COLUMNS,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    arrow_schema,
    payload_schema,
    stored_form,
    unpack,
)
from penstock.broker_core.messages.payloads import stored_sizes

TEXT = st.text(max_size=6)
SYMBOL = st.text(st.characters(max_codepoint=127), max_size=6)
TIME = st.integers(0, 2**50)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(SENT_COLUMNS, TEXT),
    **dict.fromkeys(("contentType", "contentEncoding"), SYMBOL),
    "priority": st.integers(0, 255),
    "durable": st.booleans(),
    "creationTime": TIME,
    "absoluteExpiryTime": TIME,
    "deliveryTime": TIME,
    "groupSequence": st.integers(0, 2**32 - 1),
    "ttl": st.integers(0, 2**32 - 1),
    "properties": st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=3, unique_by=lambda pair: pair[0]),
    "annotations": st.lists(st.tuples(SYMBOL, TEXT), max_size=2, unique_by=lambda pair: pair[0]),
}
BERLIN = pa.timestamp("ms", tz="Europe/Berlin")
PAIRS = pa.map_(pa.string(), pa.string())
COUNTS = pa.map_(pa.string(), pa.int64())
OPTIONAL = [name for name in SENT_COLUMNS if name not in ("body", "message")]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 12))
    names = draw(st.lists(st.sampled_from(OPTIONAL), unique=True, max_size=6))
    columns = {"body": pa.array(draw(st.lists(st.binary(max_size=8), min_size=rows, max_size=rows)), pa.binary())}
    for name in names:
        values = draw(st.lists(st.none() | VALUES[name], min_size=rows, max_size=rows))
        columns[name] = pa.array(values, MESSAGE_COLUMNS[name])
    batch = pa.record_batch(columns)
    first = draw(st.integers(0, rows - 1))
    return batch.slice(first, draw(st.integers(1, rows - first)))


def stored_bytes(row: dict[str, Any]) -> int:
    properties = row.get("properties") or []
    return len(row["body"]) + sum(len(key.encode()) + len((value or "").encode()) for key, value in properties)


def pack(stored: tuple[int, pa.RecordBatch]) -> tuple[int, pa.Buffer]:
    mask, batch = stored
    return mask, batch.serialize()


@given(batches())
def test_what_is_packed_is_unpacked(batch: pa.RecordBatch) -> None:
    mask, buffer = pack(stored_form(batch_checks.validate(batch)))
    back = unpack(mask, buffer)
    back.validate(full=True)
    names = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
    assert set(back.schema.names) == set(names)
    assert back.to_pylist() == [{name: row[name] for name in back.schema.names} for row in batch.to_pylist()]
    assert back.schema.equals(payload_schema(mask))


@given(batches())
def test_sizes_are_body_and_properties(batch: pa.RecordBatch) -> None:
    expected = [stored_bytes(row) for row in batch.to_pylist()]
    for form in (batch, unpack(*pack(stored_form(batch_checks.validate(batch))))):
        sizes = stored_sizes(form)
        if isinstance(sizes, int):
            assert set(expected) == {sizes}
        else:
            assert sizes.dtype == np.int64
            assert sizes.tolist() == expected
            assert len(set(expected)) > 1


@given(batches(), st.integers(0, 2**40), st.booleans())
def test_assemble_gives_exactly_the_schema_and_what_was_there(batch: pa.RecordBatch, first: int, spread: bool) -> None:
    payload = batch_checks.validate(batch)
    rows = payload.num_rows
    sequence: Any = np.arange(first, first + 3 * rows, 3) if spread else first
    columns = [name for name in (*SENT_COLUMNS, *SYSTEM_COLUMNS) if name != "message"]
    record = assembly.assemble(
        columns,
        payload,
        {
            "queue": "q",
            "sequenceNumber": sequence,
            "enqueuedTime": np.full(rows, 5) if spread else 5,
            "deliveryCount": 2,
            "settledTime": 7,
            "state": "available",
        },
        malformed={},
    )
    record.validate(full=True)
    assert record.schema.equals(arrow_schema(columns))
    assert record.column("sequenceNumber").to_pylist() == [first + i * (3 if spread else 1) for i in range(rows)]
    assert set(record.column("queue").to_pylist()) == {"q"}
    assert set(record.column("enqueuedTime").cast(pa.int64()).to_pylist()) == {5}
    assert set(record.column("deliveryCount").to_pylist()) == {2}
    assert set(record.column("settledTime").cast(pa.int64()).to_pylist()) == {7}
    assert record.column("outcome").null_count == rows
    for name in SENT_COLUMNS:
        if name in payload.schema.names:
            assert record.column(name).equals(payload.column(name))
        elif name != "message":
            assert record.column(name).null_count == rows


def test_the_mask_order_is_a_persisted_format() -> None:
    """Columns may only ever be added at the end of this list."""
    assert list(MESSAGE_COLUMNS)[:22] == [
        *(
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
        ),
        *("priority", "durable", "creationTime", "absoluteExpiryTime", "properties", "groupSequence"),
        *("annotations", "message", "ttl", "deliveryTime", "encodedAnnotations", "footer"),
    ]
    mask, _ = stored_form(pa.record_batch({"body": pa.array([b"x"]), "deliveryTime": pa.array([1], TIMESTAMP)}))
    assert mask == 1 | 1 << 19


def test_a_payload_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="version that wrote it"):
        payload_schema(1 << len(MESSAGE_COLUMNS))


def test_a_version_2_of_the_mask_reads_version_1_and_is_refused_by_it() -> None:
    """The recipe of `COLUMNS`: a new column gets the next bit."""
    last = '    "footer": _internal(21, FOOTER),'
    source = inspect.getsource(message_columns)
    assert source.count(last) == 1
    newer: Any = ModuleType("columns of version 2")
    newer.__dict__["__package__"] = message_columns.__package__
    added = '"color": _stored(pa.string(), 22, PROPERTIES, "string"),'
    exec(compile(source.replace(last, f"{last}\n    {added}"), "columns.py", "exec"), newer.__dict__)
    batch = pa.record_batch({"body": pa.array([b"x"]), "footer": pa.array([b"y"])})
    assert newer.unpack(*pack(stored_form(batch))).equals(batch)
    mask, buffer = pack(newer.stored_form(batch.append_column("color", pa.array(["red"]))))
    assert newer.unpack(mask, buffer).column("color").to_pylist() == ["red"]
    with pytest.raises(InvalidRequest, match="version that wrote it"):
        unpack(mask, buffer)


def test_unpack_copies_nothing() -> None:
    body = pa.array([b"x" * 1000] * 100)
    mask, buffer = pack(stored_form(pa.record_batch({"body": body})))
    data = unpack(mask, buffer).column(0).buffers()[2]
    assert buffer.address <= data.address < buffer.address + buffer.size


def test_a_batch_without_rows() -> None:
    none = batch_checks.validate(pa.record_batch({"body": pa.array([], pa.binary())}))
    back = unpack(*pack(stored_form(none)))
    assert stored_sizes(back) == 0
    record = assembly.assemble(DEFAULT_COLUMNS, back, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={})
    assert record.schema.equals(arrow_schema(DEFAULT_COLUMNS))
    assert record.num_rows == 0


def test_null_slots_with_a_length_count_nothing() -> None:
    """Arrow allows it, and a sender may do it."""
    keys = pa.array(["a", "bb", "ccc"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), keys, pa.array(["x", "y", "z"]))
    hidden = pa.Array.from_buffers(maps.type, 2, [pa.py_buffer(b"\x01"), maps.buffers()[1]], children=[maps.values])
    assert hidden.to_pylist() == [[("a", "x")], None]
    sizes = stored_sizes(pa.record_batch({"body": pa.array([b"", b""]), "properties": hidden}))
    assert list(sizes) == [2, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "array", "expected"),
    [
        ("body", pa.array(["é"]), "é".encode()),
        ("body", pa.array([b"x"], pa.large_binary()), b"x"),
        ("body", pa.array(["x"], pa.large_string()), b"x"),
        ("body", pa.array(["x"]).dictionary_encode(), b"x"),
        ("subject", pa.array(["x"], pa.large_string()), "x"),
        ("subject", pa.array(["x"]).dictionary_encode(), "x"),
        ("priority", pa.array([7], pa.int64()), 7),
        ("priority", pa.array([7], pa.int8()), 7),
        ("subject", pa.nulls(1), None),
        (
            "creationTime",
            pa.array([1], BERLIN),
            datetime(1970, 1, 1, microsecond=1000, tzinfo=timezone.utc),
        ),
        ("properties", pa.array([[("a", "b")]], pa.map_(pa.large_string(), pa.large_string())), [("a", "b")]),
    ],
)
def test_other_forms_of_a_type_are_cast(column: str, array: pa.Array, expected: object) -> None:
    columns = {"body": pa.array([b""]), column: array}
    valid = batch_checks.validate(pa.record_batch(columns))
    assert valid.schema.field(column).type == MESSAGE_COLUMNS[column]
    assert valid.column(column).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"bdy": pa.array([b"x"])}, "no message column 'bdy'; allowed are body"),
        ({"subject": pa.array(["x"])}, "no content"),
        ({"body": pa.array([b"x"]), "message": pa.array([b"x"])}, "drop one"),
        ({"message": pa.array([b"x"]), "subject": pa.array(["x"])}, "'subject' cannot be combined with 'message'"),
        ({"body": pa.array([b"x", None])}, "'body' is null in row 1"),
        ({"message": pa.array([None, b"x"])}, "'message' is null in row 0"),
        ({"body": pa.array([1])}, "'body' has type int64; it must be binary"),
        ({"message": pa.array(["x"])}, "'message' has type string; it must be binary"),
        ({"body": pa.array([b"x"]), "creationTime": pa.array([1], pa.timestamp("us"))}, "'creationTime' has type timestamp"),
        ({"body": pa.array([b"x"]), "priority": pa.array([2**40])}, "'priority' has a value that does not fit"),
        (
            {"body": pa.array([b"x"] * 3), "priority": pa.array([0, None, 256])},
            "'priority' is 256 in row 2; allowed are 0",
        ),
        ({"body": pa.array([b"x"]), "ttl": pa.array([-1])}, "'ttl' is -1 in row 0"),
        (
            {"body": pa.array([b"x"]), "properties": pa.array([[("a", 1)]], COUNTS)},
            "'properties' has type",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_column_and_row(columns: dict[str, pa.Array], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        batch_checks.validate(pa.record_batch(columns))


@pytest.mark.parametrize("name", sorted(INTERNAL_COLUMNS))
def test_what_is_stored_for_the_broker_alone_can_neither_be_sent_nor_asked_for(name: str) -> None:
    sent = pa.record_batch({"message": pa.array([b"x"]), name: pa.array([b"y"])})
    with pytest.raises(InvalidRequest, match=f"no message column '{name}'"):
        batch_checks.validate(sent)
    with pytest.raises(InvalidRequest, match=f"no column '{name}'"):
        arrow_schema(["message", name])
    assert unpack(*pack(stored_form(sent))).to_pylist() == sent.to_pylist()


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="named twice"):
        batch_checks.validate(pa.RecordBatch.from_arrays([pa.array([b"x"]), pa.array([b"y"])], names=["body", "body"]))
    with pytest.raises(InvalidRequest, match="named twice"):
        arrow_schema(["body", "body"])


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, 99, 6], [0, -1, 6]])
def test_offsets_that_point_outside_are_refused(offsets: list[int]) -> None:
    """Offsets come from the network; once journaled they would be followed for ever."""
    evil = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"abcdef")])
    with pytest.raises(InvalidRequest, match="malformed"):
        batch_checks.validate(pa.record_batch({"body": evil}))


def test_text_that_is_no_utf8_is_refused() -> None:
    evil = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    with pytest.raises(InvalidRequest, match=r"column 'subject' is not UTF-8 in row 0 .*make_valid_utf8"):
        batch_checks.validate(pa.record_batch({"body": pa.array([b""]), "subject": evil}))


BARE = Message(properties=Properties(subject="s"), application_properties={"k": UInt(1)}, data=[b"x"]).encode()


def test_what_is_asked_for_is_made_from_the_other_form() -> None:
    columnar = pa.record_batch(
        {"body": pa.array([b"x"]), "subject": pa.array(["s"]), "properties": pa.array([[("k", "1")]], PAIRS)}
    )
    encoded = pa.record_batch({"message": pa.array([BARE]), "priority": pa.array([3], pa.int16())})
    columns = ["subject", "body", "priority", "properties", "ttl"]
    batch = assembly.assemble(columns, encoded, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={})
    assert batch.schema.equals(arrow_schema(columns))
    assert batch.to_pylist() == [{"subject": "s", "body": b"x", "priority": 3, "properties": [("k", "1")], "ttl": None}]
    batch = assembly.assemble(
        ["message", "subject"], columnar, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={}
    )
    [row] = batch.to_pylist()
    back = decode_message(row["message"])
    assert back.properties is not None
    assert (back.properties.subject, back.data, back.application_properties) == ("s", [b"x"], {"k": "1"})


def mixed() -> list[pa.RecordBatch]:
    """One row each, in either form."""
    return [
        pa.record_batch({"body": pa.array([b"0"]), "subject": pa.array(["zero"])}),
        pa.record_batch({"message": pa.array([BARE]), "footer": pa.array([b"\0Sx\xc1\1\0"])}),
        pa.record_batch({"body": pa.array([b"2"]), "priority": pa.array([2], pa.int16())}),
        pa.record_batch({"message": pa.array([BARE]), "encodedAnnotations": pa.array([b"\0Sr\xc1\5\2\xa3\1a\x41"])}),
    ]


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [0, 2], [1, 3], [3]])
def test_stored_columns_of_both_forms_become_what_was_asked_for(rows: list[int]) -> None:
    """Work of an executor with the stored columns that a broker elsewhere sends it."""
    columns = ["sequenceNumber", "subject", "body", "priority", "annotations", "state"]
    sent = [mixed()[row] for row in rows]
    numbered = [
        assembly.assemble(columns, b, {"queue": "q", "sequenceNumber": n, "enqueuedTime": 0, "state": "available"}, malformed={})
        for n, b in enumerate(sent)
    ]
    asked = assembly.needed(columns)
    stored = [
        assembly.assemble(
            asked, b, {"queue": "q", "sequenceNumber": n, "enqueuedTime": 0, "state": "available"}, stored=True, malformed={}
        )
        for n, b in enumerate(sent)
    ]
    assert all(batch.schema.equals(arrow_schema(asked, stored=True)) for batch in stored)
    converted = assembly.converted(columns, pa.concat_batches(stored), "q", {})
    assert converted.schema.equals(arrow_schema(columns))
    assert converted.to_pylist() == pa.concat_batches(numbered).to_pylist()
    assert [row["body"] for row in converted.to_pylist()] == [[b"0", b"x", b"2", b"x"][row] for row in rows]


def test_payloads_of_one_form_are_joined_whatever_columns_they_have() -> None:
    batch = assembly.joined([mixed()[1], mixed()[3]])
    assert batch.schema.names == ["message", "encodedAnnotations", "footer"]
    assert [row["footer"] is None for row in batch.to_pylist()] == [False, True]


@pytest.mark.parametrize("sequence", [40, [40, 77], pa.array([40, 77]), np.array([40, 77])])
def test_what_is_no_message_is_noted_by_its_number(sequence: Any) -> None:
    damaged = pa.record_batch({"message": pa.array([BARE, b"\0Ss\xc0\xff"])})
    number = 41 if sequence is not None and isinstance(sequence, int) else 77
    batch = assembly.assemble(["message"], damaged, {"queue": "q", "sequenceNumber": sequence, "enqueuedTime": 0}, malformed={})
    assert batch.column(0).to_pylist() == [BARE, b"\0Ss\xc0\xff"]
    # A caller that can continue without it gets its number, and the reason.
    malformed: dict[int, str] = {}
    batch = assembly.assemble(
        ["body", "error"], damaged, {"queue": "q", "sequenceNumber": sequence, "enqueuedTime": 0}, malformed=malformed
    )
    assert list(malformed) == [number]
    assert batch.column("error").to_pylist() == [None, f"malformed: {malformed[number]}"]
    assert batch.column("body")[1].as_py() is None
    assert assembly.readable(batch, sequence, malformed).num_rows == 1


def test_a_columnar_row_that_amqp_cannot_say_is_found_among_the_others() -> None:
    """As an old version stored it: its encoding cannot be had, that of the others can."""
    rows = {"body": pa.array([b"x"] * 9), "groupSequence": pa.array([1] * 6 + [-5] + [2] * 2, pa.int64())}
    malformed: dict[int, str] = {}
    batch = assembly.assemble(
        ["message"], pa.record_batch(rows), {"queue": "q", "sequenceNumber": 10, "enqueuedTime": 0}, malformed=malformed
    )
    assert list(malformed) == [16]
    assert "groupSequence" in malformed[16]
    assert [octets is None for octets in batch.column(0).to_pylist()] == [False] * 6 + [True] + [False] * 2


def test_without_numpy_an_encoded_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.broker_core.messages.encoding.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(InvalidRequest, match="install numpy"):
        assembly.assemble(["body"], mixed()[1], {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={})


def test_the_module_survives_being_shipped_by_value() -> None:
    """Spark Connect: cached values stay behind."""
    arrow_schema(["body"])
    module = sys.modules[arrow_schema.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        shipped = cloudpickle.dumps(arrow_schema)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert cloudpickle.loads(shipped)(["body"]).equals(arrow_schema(["body"]))

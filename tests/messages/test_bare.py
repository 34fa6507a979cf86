"""Columns as bare AMQP messages: byte for byte those of the library's encoder, and as proton reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.broker_core.amqp.messages import decode_message, scan
from penstock.broker_core.errors import InvalidRequest, ResourceLimit
from penstock.broker_core.messages.columns import BARE_COLUMNS, MESSAGE_COLUMNS, STRING_MAP
from penstock.broker_core.messages.encoding import bare_encoder
from penstock.broker_core.messages.encoding.bare_encoder import annotation_sections, bare_messages

from .amqp_values import STEADY
from .columnar import bare_message, batches, milliseconds

COLUMNS = tuple(sorted(BARE_COLUMNS))


def batch_of(**values: Any) -> pa.RecordBatch:
    """A batch of equally long columns. A body is added to columns without one."""
    rows = len(next(iter(values.values())))
    values.setdefault("body", [b""] * rows)
    return pa.record_batch({name: pa.array(column, MESSAGE_COLUMNS[name]) for name, column in values.items()})


@given(batches(COLUMNS))
@settings(STEADY, max_examples=400)
def test_rows_are_to_the_octet_what_the_encoder_makes_of_them(batch: pa.RecordBatch) -> None:
    assert bare_messages(batch).to_pylist() == [bare_message(row).encode() for row in batch.to_pylist()]


@given(batches(COLUMNS))
@settings(STEADY, max_examples=150)
def test_proton_reads_the_same_values(batch: pa.RecordBatch) -> None:
    proton = pytest.importorskip("proton")
    for row, octets in zip(batch.to_pylist(), bare_messages(batch).to_pylist(), strict=True):
        message = proton.Message()
        message.decode(octets)
        assert message.body == row["body"]
        assert (message.properties or {}) == dict(row.get("properties") or {})
        assert message.user_id == (row.get("userId") or "").encode()
        assert (message.id or "", message.correlation_id or "") == (row.get("messageId") or "", row.get("correlationId") or "")
        theirs = message.subject, message.address, message.reply_to, message.group_id
        names = "subject", "to", "replyTo", "groupId"
        # Its other texts are C strings, and an absent symbol is "None" in its binding.
        assert [text or "" for text in theirs] == [(row.get(name) or "").split("\0")[0] for name in names]
        for name, symbol in [("contentType", message.content_type), ("contentEncoding", message.content_encoding)]:
            assert symbol == ("None" if row.get(name) is None else row[name].split("\0")[0])
        assert message.group_sequence == (row.get("groupSequence") or 0)
        for ours, theirs in [("creationTime", message.creation_time), ("absoluteExpiryTime", message.expiry_time)]:
            assert theirs == (milliseconds(row.get(ours)) or 0) / 1000


@given(batches(COLUMNS))
@settings(STEADY, max_examples=50)
def test_sections_are_there_only_where_something_is_said(batch: pa.RecordBatch) -> None:
    for row, octets in zip(batch.to_pylist(), bare_messages(batch).to_pylist(), strict=True):
        fields = [name for name in row if name not in ("body", "properties") and row[name] is not None]
        codes = ([0x73] if fields else []) + ([0x74] if row.get("properties") is not None else []) + [0x75]
        assert [section.code for section in scan(octets)] == codes


@pytest.mark.parametrize("length", [250, 251, 252, 253, 254, 255, 256, 257, 70_000])
@pytest.mark.parametrize("column", ["messageId", "groupId", "body", "properties"])
def test_sizes_on_both_sides_of_an_octet(column: str, length: int) -> None:
    value: Any = {"body": b"x" * length, "properties": [("k", "x" * length)]}.get(column, "x" * length)
    short: Any = {"body": b"x", "properties": [("k", None)]}.get(column, "x")
    batch = batch_of(**{column: [value, short]})
    assert bare_messages(batch).to_pylist() == [bare_message(row).encode() for row in batch.to_pylist()]


@pytest.mark.parametrize("entries", [126, 127, 128, 129, 40_000])
def test_maps_of_many_entries(entries: int) -> None:
    batch = batch_of(properties=[[(f"{i}", None) for i in range(entries)], None, []])
    assert bare_messages(batch).to_pylist() == [bare_message(row).encode() for row in batch.to_pylist()]


def test_nulls_that_have_a_length_are_nothing() -> None:
    """Arrow lets a null slot keep its octets, and its entries."""

    def masked(array: pa.Array, row: int) -> pa.Array:
        bits = np.packbits([i != row for i in range(len(array))], bitorder="little")
        buffers = [pa.py_buffer(bits.tobytes()), *array.buffers()[1:]]
        if pa.types.is_map(array.type):
            entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[STRING_MAP.key_field, STRING_MAP.item_field])
            return pa.Array.from_buffers(array.type, len(array), buffers[:2], children=[entries])
        return pa.Array.from_buffers(array.type, len(array), buffers)

    subject = masked(pa.array(["one", "twö", "three"]), 1)
    kind = masked(pa.array(["a", "nö", "c"]), 1)  # the bytes of a null need not be a symbol
    maps = masked(pa.array([[("a", "1")], [("b", "2"), ("b", "3")], [("c", "4")]], STRING_MAP), 1)
    body, group = pa.array([b"1", b"2", b"3"]), pa.array(["g", "g", "g"])
    batch = pa.record_batch({"body": body, "subject": subject, "contentType": kind, "groupId": group, "properties": maps})
    assert batch.to_pylist()[1] == {"body": b"2", "subject": None, "contentType": None, "groupId": "g", "properties": None}
    assert bare_messages(batch).to_pylist() == [bare_message(row).encode() for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("columns", "row", "name"),
    [
        ({"groupSequence": [1, -1]}, 1, "groupSequence"),
        ({"groupSequence": [None, 0, 2**32]}, 2, "groupSequence"),
        ({"contentType": ["a", None, "text/€"]}, 2, "contentType"),
        ({"contentEncoding": ["ü", "a"]}, 0, "contentEncoding"),
        ({"properties": [None, [("a", "1")], [("a", "1"), ("b", ""), ("a", "2")]]}, 2, "properties"),
    ],
)
def test_what_amqp_cannot_say_is_refused_with_column_and_row(columns: dict[str, Any], row: int, name: str) -> None:
    batch = batch_of(**columns)
    with pytest.raises(InvalidRequest, match=rf"'{name}' in row {row}\b"):
        bare_messages(batch)
    with pytest.raises(InvalidRequest, match=rf"'{name}' in row {row - 1}\b" if row else rf"'{name}' in row 0\b"):
        bare_messages(batch.slice(min(row, 1)))


def test_more_octets_than_a_column_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_encoder, "MAX_BYTES", 100)
    bare_messages(batch_of(body=[b"x" * 40] * 2))
    with pytest.raises(ResourceLimit):
        bare_messages(batch_of(body=[b"x" * 40] * 3))


# --- Annotations


@given(batches(("body", "annotations", "deliveryTime")))
@settings(STEADY, max_examples=150)
def test_annotations_are_symbols_and_the_delivery_time_is_one_of_them(batch: pa.RecordBatch) -> None:
    sections = annotation_sections(batch)
    for i, row in enumerate(batch.to_pylist()):
        expected: dict[str, Any] | None = None
        if row.get("deliveryTime") is not None or row.get("annotations") is not None:
            expected = dict(row.get("annotations") or [])
            if row.get("deliveryTime") is not None:
                expected["x-opt-delivery-time"] = milliseconds(row["deliveryTime"])
        octets = b"" if sections is None else sections[i].as_py()
        assert decode_message(octets).message_annotations == expected


def test_a_delivery_time_of_its_own_stands_for_the_one_in_the_map() -> None:
    time = 1_700_000_000_000_000
    maps = [[("a", "1"), ("x-opt-delivery-time", "old"), ("b", "2")], [("x-opt-delivery-time", "old")], None]
    batch = batch_of(annotations=maps, deliveryTime=[time, None, time])
    sections = annotation_sections(batch)
    assert sections is not None
    assert [decode_message(octets.as_py()).message_annotations for octets in sections] == [
        {"x-opt-delivery-time": time // 1000, "a": "1", "b": "2"},
        {"x-opt-delivery-time": "old"},
        {"x-opt-delivery-time": time // 1000},
    ]


def test_a_key_that_is_no_symbol_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'annotations' in row 2"):
        annotation_sections(batch_of(annotations=[None, [("a", "ü"), ("b", None)], [("c", ""), ("ü", "")]]))

"""Texts that are not UTF-8 are refused with their column, their row and a remedy, in every type that holds texts."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.errors import InvalidColumn, InvalidRequest
from penstock.broker_core.messages import batch_checks, text_checks

BAD = b"A\xffB"
OCTETS = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def strings(values: list[bytes | None], kind: Any = None) -> pa.Array:
    kind = kind or pa.string()
    return pa.array(values, OCTETS[kind]).view(kind)


def maps(rows: list[list[tuple[bytes, bytes]] | None]) -> pa.Array:
    octets = pa.array(rows, pa.map_(pa.binary(), pa.binary()))
    return octets.view(pa.map_(pa.string(), pa.string()))


@pytest.mark.parametrize("kind", OCTETS)
@pytest.mark.parametrize("name", ["subject", "body"])
def test_a_text_is_named_by_column_and_row(kind: pa.DataType, name: str) -> None:
    values = strings([b"skipped \xff", b"x", None, "ü".encode(), BAD, b"\xfe"], kind).slice(1)
    columns = {"body": pa.array([b"x"] * 5)} | {name: values}
    with pytest.raises(InvalidColumn) as refusal:
        batch_checks.validate(pa.record_batch(columns))
    error_text = str(refusal.value)
    assert error_text.startswith(f"column {name!r} is not UTF-8 in row 3 (b'A\\xffB'): texts must be UTF-8.")
    assert f"make_valid_utf8({name})" in error_text
    assert ("a binary column 'body' takes any bytes" in error_text) == (name == "body")


@pytest.mark.parametrize(("row", "part"), [([(b"a", b"b"), (BAD, b"")], "keys"), ([(b"a", b"b"), (b"c", BAD)], "values")])
@pytest.mark.parametrize("name", ["properties", "annotations"])
def test_a_map_is_named_by_row_and_whether_it_is_a_key(row: Any, part: str, name: str) -> None:
    values = maps([[(BAD, BAD)], [(b"x", b"y")], None, [], row, [(b"z", BAD)]]).slice(1)
    with pytest.raises(InvalidColumn) as refusal:
        batch_checks.validate(pa.record_batch({"body": pa.array([b"x"] * 5), name: values}))
    assert str(refusal.value).startswith(f"column {name!r} has {part} that are not UTF-8 in row 3 (b'A\\xffB')")
    assert f"transform_{part}({name}, (k, v) -> make_valid_utf8({part[0]}))" in str(refusal.value)


def test_a_dictionary_is_named_by_its_first_row() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 2], pa.int8()), strings([b"a", b"b", BAD]))
    with pytest.raises(InvalidColumn, match=r"column 'subject' is not UTF-8 in row 1 "):
        batch_checks.validate(pa.record_batch({"body": pa.array([b"x"] * 4), "subject": values}))


def test_a_long_text_is_shown_in_part() -> None:
    with pytest.raises(InvalidColumn) as refusal:
        text_checks.validate(pa.record_batch({"to": strings([b"\xff" * 1000])}))
    assert len(str(refusal.value)) < 400
    assert "…" in str(refusal.value)


def test_another_fault_is_another_error_and_nothing_follows_its_offsets() -> None:
    offsets = pa.py_buffer(bytes.fromhex("00000000 ffffff7f 01000000"))
    wild = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff")])
    with pytest.raises(InvalidRequest, match="the record batch is malformed"):
        text_checks.validate(pa.record_batch({"subject": wild}))


def test_a_view_into_a_buffer_that_is_not_there_is_refused() -> None:
    """Found by the mutated inputs: pyarrow reports it as an error of its own kind."""
    text, views = b"a text that is too long for the view itself", struct.pack("<i4sii", 43, b"a te", 7, 0)
    wild = pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(views), pa.py_buffer(text)])
    with pytest.raises(InvalidRequest, match="the record batch is malformed"):
        text_checks.validate(pa.record_batch({"subject": wild, "body": pa.array([b""])}))

"""Messages in columns can leave as AMQP: values that `bare_encoder` would refuse are refused on arrival, and no others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages import batch_checks, value_checks
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS
from penstock.broker_core.messages.encoding.bare_encoder import annotation_sections, bare_messages
from penstock.broker_core.messages.encoding.leaving import leaving

from .amqp_values import STEADY

KEYS = st.sampled_from(["a", "b", "ü", "x-opt-a", ""])
ANYTHING: dict[str, st.SearchStrategy[Any]] = {
    "contentType": st.sampled_from(["text/plain", "", "tëxt"]),
    "contentEncoding": st.sampled_from(["gzip", "\x7f", "\x80"]),
    "groupSequence": st.sampled_from([0, 2**32 - 1, 2**32, -1, -(2**63)]),
    "properties": st.lists(st.tuples(KEYS, st.none() | st.just("ü")), max_size=3),
    "annotations": st.lists(st.tuples(KEYS, st.none() | st.just("v")), max_size=3),
    "subject": st.sampled_from(["", "ü", "\0"]),
    "creationTime": st.sampled_from([-(2**63), -1, 2**63 - 1]),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 5))
    columns = {"body": pa.array([b""] * rows, pa.binary())}
    for name in draw(st.lists(st.sampled_from(sorted(ANYTHING)), unique=True)):
        alike = draw(st.booleans())  # as the messages of one producer are
        cell = st.just(draw(ANYTHING[name])) if alike else st.none() | ANYTHING[name]
        values = draw(st.lists(cell, min_size=rows, max_size=rows))
        kind = MESSAGE_COLUMNS[name]
        columns[name] = pa.array(values, pa.int64()).view(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
    batch = pa.record_batch(columns)
    first = draw(st.integers(0, rows - 1))
    return batch.slice(first)


def refusal(batch: pa.RecordBatch) -> InvalidRequest | None:
    try:
        bare_messages(batch)
        annotation_sections(batch)
    except InvalidRequest as error:
        return error
    return None


@STEADY
@given(batches(), st.sampled_from([value_checks.FEW, 0]))
def test_exactly_what_could_not_leave_is_refused_with_a_row_that_is_to_blame(batch: pa.RecordBatch, few: int) -> None:
    """Both ways of looking for a key that stands twice."""
    original, value_checks.FEW = value_checks.FEW, few
    try:
        if refusal(batch) is None:
            validated = batch_checks.validate(batch)
            assert len(leaving(validated, 0, 0, {})) == batch.num_rows
            return
        with pytest.raises(InvalidRequest, match=r"column '\w+' .* in row \d+; ") as raised:
            batch_checks.validate(batch)
    finally:
        value_checks.FEW = original
    column, row = str(raised.value).split("'")[1], int(str(raised.value).rsplit(" in row ", 1)[1].split(";")[0])
    alone = batch.slice(row, 1).select(["body", column])
    assert refusal(alone) is not None, (column, row)


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("groupSequence", [0, None, 2**32], "'groupSequence' is 4294967296 in row 2; allowed are 0 to 4294967295"),
        ("contentType", [None, "ü", "x"], "'contentType' has 'ü' in row 1; it is a symbol in AMQP, and symbols are ASCII"),
        ("annotations", [[("a", "")], None, [("a", ""), ("ü", "")]], "'annotations' has 'ü' in row 2; it is a symbol"),
        ("annotations", [[("ü", "")]] * 3, "'annotations' has 'ü' in row 0; it is a symbol"),
        (
            "properties",
            [None, [("a", "1")], [("ü", "1"), ("b", None), ("ü", "2")]],
            "'properties' has the key 'ü' twice in row 2; ",
        ),
        ("properties", [[("a", "1"), ("a", "1")]] * 3, "'properties' has the key 'a' twice in row 0; a map has each key once"),
    ],
)
def test_the_error_says_what_is_wrong_where_and_why(name: str, values: list[Any], says: str) -> None:
    batch = pa.record_batch({"body": pa.array([b"x"] * 3), name: pa.array(values, MESSAGE_COLUMNS[name])})
    with pytest.raises(InvalidRequest, match=says):
        batch_checks.validate(batch)


def test_the_entries_of_a_null_are_nobodys() -> None:
    """Arrow lets a null slot have a length."""
    keys = pa.array(["a", "ü", "ü"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), keys, pa.array(["x", "y", "z"]))
    hidden = pa.Array.from_buffers(maps.type, 2, [pa.py_buffer(b"\x01"), maps.buffers()[1]], children=[maps.values])
    sent = pa.record_batch({"body": pa.array([b"", b""]), "annotations": hidden, "properties": hidden})
    assert batch_checks.validate(sent).column("properties").to_pylist() == [[("a", "x")], None]

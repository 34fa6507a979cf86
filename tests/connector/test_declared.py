"""Rows as a user's schema declares them: a body of type string, and bodies that are not UTF-8."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.broker_core.errors import InvalidColumn, InvalidOption
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.task.declared import DeclaredRows

TEXT = StructType([StructField("body", StringType())])
#: The first and the last byte of each row of RFC 3629's table, and their neighbours.
EDGES = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF)
EDGES += (0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF)


def declared(schema: StructType = TEXT, **options: str) -> DeclaredRows:
    return DeclaredRows.of(schema, Options(options))


def decoded(octets: bytes | None) -> str | None:
    try:
        return None if octets is None else octets.decode()
    except UnicodeDecodeError:
        return None


def read(bodies: list[bytes | None]) -> list[str | None]:
    (batch,) = declared().rows([pa.record_batch({"body": pa.array(bodies, pa.binary())})])
    assert batch.schema == pa.schema({"body": pa.string()})
    return batch.column(0).to_pylist()


def test_the_edges_of_utf_8() -> None:
    bodies: list[bytes | None] = [bytes(octets) for length in (1, 2, 3) for octets in product(EDGES, repeat=length)]
    bodies += [bytes((0xF0, *octets)) for octets in product(EDGES, repeat=3)]
    bodies += [bytes((0xF4, *octets, 0x80)) for octets in product(EDGES, repeat=2)]
    assert read(bodies) == list(map(decoded, bodies))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.text(max_size=12).map(str.encode)), min_size=1, max_size=20))
def test_a_body_that_is_not_utf_8_is_null(bodies: list[bytes | None]) -> None:
    assert read(bodies) == list(map(decoded, bodies))


def test_valid_texts_are_not_copied() -> None:
    bodies = pa.array([b"x", "ü".encode()], pa.binary())
    (batch,) = declared().rows([pa.record_batch({"body": bodies})])
    assert batch.column(0).buffers()[2].address == bodies.buffers()[2].address


def test_with_an_error_the_message_and_the_remedy_are_named() -> None:
    rows = declared(invalidText="error")
    assert rows.columns == ("body", "queue", "sequenceNumber")
    batch = pa.record_batch({"body": [b"ok", b"caf\xe9" + 40 * b"x"], "queue": ["q", "q"], "sequenceNumber": [7, 8]})
    (valid,) = rows.rows([batch.slice(0, 1)])
    assert valid.to_pylist() == [{"body": "ok"}]
    with pytest.raises(
        InvalidColumn, match=r"body of message 8 of queue 'q' is not UTF-8 \(b'caf\\xe9x+'…\): with invalidText=null"
    ):
        list(rows.rows([batch]))


def test_nothing_more_is_requested_than_the_declared_columns_need() -> None:
    numbered = StructType([*TEXT, StructField("sequenceNumber", LongType())])
    assert declared(numbered).columns == ("body", "sequenceNumber")
    assert declared(numbered, invalidText="ERROR").columns == ("body", "sequenceNumber", "queue")
    assert declared(source_schema(("body",)), invalidText="error") == DeclaredRows(("body",), (True,))


def test_another_value_is_refused() -> None:
    with pytest.raises(InvalidOption, match="invalidText cannot be 'replace'; it must be null or error"):
        Options({"invalidText": "replace"})

"""Spark's types and Arrow's are equal; a user's schema is checked against them."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS, SENT_COLUMNS, SYSTEM_COLUMNS, arrow_schema
from penstock.connector.schema import READ_ONLY, TYPES, check_source, default_schema, sink_columns, source_schema

_DDL: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "MAP<STRING, STRING>": MapType(StringType(), StringType()),
    "MAP<STRING, INT>": MapType(StringType(), IntegerType()),
}


def ddl(text: str) -> StructType:
    """As Spark's, for the few types here, without a JVM."""
    fields = []
    for column in re.split(r", (?![^<]*>)", text):
        name, kind = column.removesuffix(" NOT NULL").split(" ", 1)
        fields.append(StructField(name, _DDL[kind], not column.endswith(" NOT NULL")))
    return StructType(fields)


def test_every_column_has_a_type_in_both_worlds() -> None:
    assert set(TYPES) == set(SENT_COLUMNS) | set(SYSTEM_COLUMNS)


@pytest.mark.parametrize("columns", [DEFAULT_COLUMNS, tuple(TYPES), *((name,) for name in TYPES)])
def test_arrow_schema_is_what_spark_expects(columns: tuple[str, ...]) -> None:
    expected = to_arrow_schema(source_schema(columns), timezone="UTC")
    schema = arrow_schema(columns)
    assert schema.equals(expected, check_metadata=True)
    # `equals` of a map looks past the names of its parts, and Spark's Java side does not.
    assert str(schema) == str(expected)


def test_the_default_schema_is_the_design() -> None:
    assert default_schema().simpleString() == (
        "struct<queue:string,sequenceNumber:bigint,enqueuedTime:timestamp,body:binary,messageId:string,correlationId:string,"
        "subject:string,to:string,replyTo:string,contentType:string,groupId:string,userId:string,contentEncoding:string,"
        "priority:smallint,durable:boolean,creationTime:timestamp,absoluteExpiryTime:timestamp,deliveryCount:int,"
        "properties:map<string,string>>"
    )
    assert all(field.nullable for field in default_schema())  # else INSERT INTO a view must name them all


@pytest.mark.parametrize("stream", [True, False])
def test_a_schema_may_name_any_subset(stream: bool) -> None:
    check_source(default_schema(), stream=stream)
    check_source(ddl("body BINARY, queue STRING"), stream=stream)
    check_source(ddl("body STRING"), stream=stream)
    check_source(ddl("sequenceNumber BIGINT NOT NULL, annotations MAP<STRING, STRING>, delivery BINARY"), stream=stream)


@pytest.mark.parametrize(
    ("text", "stream", "says"),
    [
        ("bdy BINARY", False, "no source column 'bdy': did you mean 'body'\\? Allowed are queue"),
        ("BODY BINARY", False, "did you mean 'body'\\? Names are case-sensitive here"),
        ("body INT", False, "must be binary or string"),
        ("message STRING", False, "must be binary \\(cast"),
        ("priority INT", True, "must be smallint"),
        ("body BINARY NOT NULL", False, "leave NOT NULL out"),
        ("state STRING", True, "for batch reads"),
        ("ttl BIGINT", False, "the sink's"),
        ("properties MAP<STRING, INT>", False, "must be map<string,string>"),
        ("body BINARY, body BINARY", False, "twice"),
    ],
)
def test_a_wrong_schema_is_refused(text: str, stream: bool, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        check_source(ddl(text), stream=stream)


def test_an_empty_schema_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="names no column"):
        check_source(StructType([]), stream=True)


def test_what_was_read_can_be_written_back() -> None:
    everything = source_schema(tuple(name for name in TYPES if name not in ("message", "ttl", "deliveryTime")))
    columns = sink_columns(everything, queue="copy", ignore_unknown=False)
    assert set(columns) == set(TYPES) - READ_ONLY - {"message", "ttl", "deliveryTime", "queue"}


def test_the_option_queue_wins_over_the_column() -> None:
    schema = ddl("queue STRING, body STRING")
    assert sink_columns(schema, queue="copy", ignore_unknown=False) == {"body": 1}
    assert sink_columns(schema, queue=None, ignore_unknown=False) == {"queue": 0, "body": 1}


def test_sink_columns_match_whatever_their_case() -> None:
    assert sink_columns(ddl("BODY STRING, messageid STRING"), queue="q", ignore_unknown=False) == {"body": 0, "messageId": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("value STRING", "no sink column 'value': did you mean 'body'\\? Rename or drop it.*ignoreUnknownColumns"),
        ("subject STRING", "no content"),
        ("body STRING, message BINARY", "'body' cannot be combined with 'message'"),
        ("message BINARY, subject STRING", "'subject' cannot be combined with 'message'"),
        ("message STRING", "must be binary"),
        ("body INT", "must be binary or string"),
        ("body STRING, properties MAP<STRING, INT>", "must be map<string,string>; cast it"),
        ("body STRING, creationTime TIMESTAMP_NTZ", "has a time zone"),
        ("body STRING, creationTime BIGINT", "use timestamp_millis\\(creationTime\\) for milliseconds"),
        ("body STRING, priority STRING", "must be smallint"),
        ("body STRING, Body STRING", "twice"),
    ],
)
def test_a_wrong_dataframe_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        sink_columns(ddl(text), queue="q", ignore_unknown=False)


def test_unknown_columns_are_left_out_on_request() -> None:
    assert sink_columns(ddl("value INT, body STRING"), queue="q", ignore_unknown=True) == {"body": 1}


def test_rows_need_a_queue() -> None:
    with pytest.raises(InvalidRequest, match="no queue to write to"):
        sink_columns(ddl("body STRING"), queue=None, ignore_unknown=False)


def test_columns_beside_a_bare_message() -> None:
    columns = sink_columns(
        ddl("message BINARY, ttl INT, priority INT, annotations MAP<STRING, STRING>"), queue="q", ignore_unknown=False
    )
    assert set(columns) == {"message", "ttl", "priority", "annotations"}

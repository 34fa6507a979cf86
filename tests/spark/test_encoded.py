"""A queue with messages from Spark (columns) and from AMQP clients (encoded): readers get the same kind of row."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Broker
from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Int, Symbol, Timestamp, ULong
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.flight import Client

from ..flight.helpers import plant
from .conftest import Rig

#: Every column with a field of the message.
COLUMNS = (
    *("body", "messageId", "correlationId", "subject", "to", "replyTo", "contentType", "groupId", "userId", "contentEncoding"),
    *("priority", "durable", "creationTime", "absoluteExpiryTime", "properties", "groupSequence"),
)
SCHEMA = (
    "sequenceNumber LONG, body BINARY, messageId STRING, correlationId STRING, subject STRING, to STRING, replyTo STRING,"
    " contentType STRING, groupId STRING, userId STRING, contentEncoding STRING, priority SMALLINT, durable BOOLEAN,"
    " creationTime TIMESTAMP, absoluteExpiryTime TIMESTAMP, properties MAP<STRING, STRING>, groupSequence LONG, message BINARY"
)
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MILLIS = int(NOON.timestamp() * 1000)


def encoded(number: int) -> bytes:
    return Message(
        properties=Properties(
            message_id=ULong(number),
            user_id=b"guest",
            to="orders",
            subject="ü",
            reply_to="answers",
            correlation_id="c",
            content_type=Symbol("text/plain"),
            content_encoding=Symbol("identity"),
            absolute_expiry_time=MILLIS + 1,
            creation_time=MILLIS,
            group_id="g",
            group_sequence=number,
        ),
        application_properties={"n": Int(number), "t": Timestamp(MILLIS), "none": None},
        data=[str(number).encode()],
    ).encode()


def expected(number: int) -> dict[str, Any]:
    """Return the row of `encoded(number)`, which has a priority but no durability."""
    return {
        "body": bytearray(str(number).encode()),
        "messageId": str(number),
        "correlationId": "c",
        "subject": "ü",
        "to": "orders",
        "replyTo": "answers",
        "contentType": "text/plain",
        "groupId": "g",
        "userId": "guest",
        "contentEncoding": "identity",
        "priority": 7,
        "durable": None,
        "groupSequence": number,
        "properties": {"n": str(number), "t": "2026-01-31T12:00:00.000Z", "none": None},
    }


@pytest.fixture
def mixed(rig: Rig) -> str:
    """Send rows 0 to 9 and 30 to 39 in columns, 10 to 29 encoded, and 40 to 49 alternately."""
    rig.declare("mixed")

    def send_encoded(first: int, count: int) -> None:
        messages = pa.array([encoded(number) for number in range(first, first + count)], pa.binary())
        batch = pa.record_batch({"message": messages, "priority": pa.array([7] * count, pa.int16())})
        rig.client.put({"op": "enqueue", "queue": "mixed"}, batch.schema, [batch])

    rig.send("mixed", 0, 10)
    send_encoded(10, 20)
    rig.send("mixed", 30, 10)
    for number in range(40, 50, 2):
        send_encoded(number, 1)
        rig.send("mixed", number + 1, 1)
    return "mixed"


def check(rows: list[Any]) -> None:
    assert [row.sequenceNumber for row in rows] == list(range(50))
    for number, row in enumerate(rows):
        fields = row.asDict(recursive=True)
        bare = decode_message(bytes(fields.pop("message")))
        assert bare.data == [str(number).encode()]
        if 10 <= number < 30 or (number >= 40 and number % 2 == 0):
            assert fields.pop("creationTime").astimezone(timezone.utc) == NOON
            assert fields.pop("absoluteExpiryTime").astimezone(timezone.utc).microsecond == 1000
            assert fields == {"sequenceNumber": number, **expected(number)}
        else:
            assert fields == {"sequenceNumber": number, **dict.fromkeys(COLUMNS), "body": bytearray(str(number).encode())}


def test_a_batch_read_gives_rows_of_both_kinds(rig: Rig, mixed: str) -> None:
    """R1: over Flight, the executor decodes messages in their stored form."""
    frame = rig.spark.read.format("amqp").schema(SCHEMA).options(url=rig.broker.url, queue=mixed, minPartitions="3").load()
    check(sorted(frame.collect()))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stream_takes_rows_of_both_kinds(rig: Rig, mixed: str, elsewhere: bool, tmp_path: Path) -> None:
    """On the broker's host, tasks read its files; elsewhere, over Flight. Only the broker can fill the column `delivery`."""
    schema = SCHEMA + (", delivery BINARY" if elsewhere else "")
    frame = rig.spark.readStream.format("amqp").schema(schema).options(url=rig.broker.url, queue=mixed).load()
    rig.drain(frame.drop("delivery"))
    check(sorted(rig.spark.read.format("delta").load(rig.path("table")).collect()))
    assert rig.counts(mixed) == (0, 0, 50)


def test_messages_that_cannot_be_decoded_are_set_aside_and_the_query_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """One of a hundred messages has invalid properties. Tasks that die and are repeated change nothing."""
    bare = [encoded(number) for number in range(101)]
    bare[37] = b"\0Ss\xc0\6\4\x40\x40\x40\x54\7\0Su\xa0\x0237"
    plant(tmp_path / "broker", "old", pa.record_batch({"message": pa.array(bare, pa.binary())}))
    with Broker(tmp_path / "broker") as broker, Client(broker.url) as client:
        rig = Rig(spark, broker, client, tmp_path)
        rig.drain(rig.stream("old", minPartitions="3").select("body", "subject"))
        bodies = [int(bytes(row.body)) for row in rig.spark.read.format("delta").load(rig.path("table")).collect()]
        assert sorted(bodies) == [number for number in range(101) if number != 37]
        stat = client.call("queue.stat", queue="old")
        assert (stat["available"], stat["acquired"], stat["archived"], stat["malformed"]) == (0, 0, 101, 1)
        archive = rig.spark.read.format("amqp").schema("sequenceNumber LONG, message BINARY, outcome STRING, error STRING")
        [row] = archive.options(url=broker.url, queue="old", states="archived", outcome="rejected").load().collect()
        assert (row.sequenceNumber, bytes(row.message)) == (37, bare[37])
        assert row.error.startswith("malformed: amqp:invalid-field: ")


def test_times_at_the_ends_of_python_s_calendar_are_read(rig: Rig) -> None:
    """S8 S1: by `collect` and Python UDFs, in a batch read and a stream. Times outside the calendar are null."""
    from pyspark.sql import functions as F

    rig.declare("q")
    milliseconds = [-(2**63), -62_167_219_200_000, -62_135_596_800_000, 253_402_214_400_000, 253_402_300_800_000, 2**63 - 1]
    with amqp_client.connect(rig.broker.amqp_url) as connection:
        sender = connection.sender("q")
        times = [Properties(creation_time=Timestamp(time)) for time in milliseconds]
        sender.send([Message(properties=properties, data=[b""]).encode() for properties in times])
        sender.flush()
    year = F.udf(lambda time: None if time is None else time.year, "int")
    frame = rig.look("q")
    created = [row.creationTime for row in frame.orderBy("sequenceNumber").collect()]
    assert [time is None for time in created] == [True, True, True, False, True, True]
    expected = [(number, 9999 if number == 3 else None) for number in range(6)]
    rows = frame.select("sequenceNumber", year("creationTime")).orderBy("sequenceNumber").collect()
    assert [tuple(row) for row in rows] == expected
    rig.drain(rig.stream("q").select("sequenceNumber", year("creationTime").alias("year")))
    rows = rig.spark.read.format("delta").load(rig.path("table")).orderBy("sequenceNumber").collect()
    assert [tuple(row) for row in rows] == expected

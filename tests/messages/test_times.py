"""M1: a time that Python's datetime cannot hold is null in every read; the message itself keeps it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from zoneinfo import available_timezones

import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Timestamp
from penstock.broker_core.messages import assembly
from penstock.broker_core.messages.assembly import FIRST_TIME, LAST_TIME
from penstock.broker_core.messages.columns import TIMESTAMP

COLUMNS = ["sequenceNumber", "creationTime", "absoluteExpiryTime", "message"]
#: Milliseconds since 1970, and whether a read returns them.
TIMES = {
    -(2**63): False,
    -62_167_219_200_000: False,  # 0000-01-01
    -62_135_596_800_000: False,  # 0001-01-01, which is the year 0 west of Greenwich
    FIRST_TIME // 1000 - 1: False,
    FIRST_TIME // 1000: True,
    -1: True,
    0: True,
    253_402_214_400_000: True,  # 9999-12-31
    LAST_TIME // 1000: True,
    LAST_TIME // 1000 + 1: False,
    253_402_300_800_000: False,  # 10000-01-01
    9_223_372_036_854_775: False,  # the last in microseconds
    9_223_372_036_854_776: False,
    2**63 - 1: False,
}


@pytest.fixture
def local_time() -> Iterator[None]:
    before = os.environ.get("TZ")
    yield
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("local_time")
def test_python_holds_the_first_and_the_last_time_in_every_zone() -> None:
    """As Spark converts them for `collect` and for Python UDFs."""
    for zone in available_timezones():
        os.environ["TZ"] = zone
        time.tzset()
        for end in (FIRST_TIME, LAST_TIME):
            local_datetime = datetime.fromtimestamp(end // 1_000_000)
            assert time.mktime(local_datetime.timetuple()) == end // 1_000_000, zone


def encoded() -> pa.RecordBatch:
    fields = [Properties(creation_time=Timestamp(millis), absolute_expiry_time=Timestamp(millis)) for millis in TIMES]
    return pa.record_batch({"message": pa.array([Message(properties=properties, data=[b""]).encode() for properties in fields])})


def columnar() -> pa.RecordBatch:
    """The times that a column of microseconds can have."""
    values = [millis * 1000 if abs(millis) < 2**63 // 1000 else None for millis in TIMES]
    times = pa.array(values, pa.int64()).view(TIMESTAMP)
    return pa.record_batch({"body": pa.array([b""] * len(TIMES)), "creationTime": times, "absoluteExpiryTime": times})


@pytest.mark.parametrize("payload", [encoded(), columnar()], ids=["encoded", "columnar"])
@pytest.mark.parametrize("way", ["assembled", "converted"])
def test_other_times_are_null_and_the_message_has_them(payload: pa.RecordBatch, way: str) -> None:
    if way == "assembled":
        batch = assembly.assemble(COLUMNS, payload, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={})
    else:
        stored = assembly.assemble(
            assembly.needed(COLUMNS), payload, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, stored=True, malformed={}
        )
        batch = assembly.converted(COLUMNS, stored, "q", {})
    for name in ("creationTime", "absoluteExpiryTime"):
        expected = [millis * 1000 if holds else None for millis, holds in TIMES.items()]
        assert batch.column(name).view(pa.int64()).to_pylist() == expected
        assert all(value is None or value.tzinfo is not None for value in batch.column(name).to_pylist())
    for octets, (millis, _) in zip(batch.column("message").to_pylist(), TIMES.items(), strict=True):
        properties = decode_message(octets).properties
        if "message" in payload.schema.names or abs(millis) < 2**63 // 1000:
            assert properties is not None
            assert properties.creation_time == millis


def test_times_that_all_are_in_range_are_not_copied() -> None:
    times = pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc), None], TIMESTAMP)
    payload = pa.record_batch({"body": pa.array([b"", b""]), "creationTime": times})
    array = assembly.assemble(
        ["creationTime"], payload, {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}, malformed={}
    ).column(0)
    assert array.buffers()[1].address == times.buffers()[1].address

"""Every column is written, stored and read on every path, in both forms of a message: a new column fails where it is missing.

A path without a column gives nulls. So no value here is null, and each row of a path is compared with the sent row. No column
may be null unless a table of this file contains the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.broker_core import amqp
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Symbol, Timestamp
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.messages.columns import (
    BARE_COLUMNS,
    COLUMNS,
    HEADER,
    MESSAGE_COLUMNS,
    PROPERTIES,
    SENT_COLUMNS,
    SYSTEM_COLUMNS,
    TIMESTAMP,
)
from penstock.broker_core.messages.encoding import headers
from penstock.broker_core.messages.encoding.fields import FIELDS
from penstock.broker_core.selectors import names
from penstock.connector.access import BrokerAccess
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.sink.writer import BatchWriter
from penstock.connector.task.partition import BrowsePartition, LeasePartition
from penstock.connector.task.reading import read_browsed, read_leased

from .helpers import INITIAL, LIMIT, Queue, elsewhere, files_mapped

ROWS = 40  # of each form: enough that a task on the broker's host maps them
NOON = datetime(2020, 1, 31, 12, tzinfo=timezone.utc)
MILLIS = int(NOON.timestamp() * 1000)
#: The value of each column of the sink.
SENT: dict[str, Any] = {
    "body": b"octets",
    "messageId": "id",
    "correlationId": "correlation",
    "subject": "ü",
    "to": "orders",
    "replyTo": "answers",
    "contentType": "text/plain",
    "groupId": "group",
    "userId": "guest",
    "contentEncoding": "identity",
    "priority": 7,
    "durable": True,
    "creationTime": NOON,
    "absoluteExpiryTime": NOON,
    "properties": [("key", "value")],
    "groupSequence": 5,
    "annotations": [("x-key", "value")],
    "ttl": 3_600_000_000,
    "deliveryTime": NOON,
}
#: Columns that a message of an AMQP client has no value in, and why.
ONLY_SENT = {"deliveryTime": "an AMQP client puts it into the annotations, as x-opt-delivery-time"}
#: Columns of a message's outcome: null while it waits; of its failed deliveries, which these messages have not; and of its lock,
#: null when it has ended.
ENDS = ("state", "outcome", "settledTime", "error", "holder", "failures", "lockedUntil")


def as_amqp() -> bytes:
    """A message whose every section and field has the value of its column in `SENT`."""
    return amqp.Message(
        header=Header(durable=SENT["durable"], priority=SENT["priority"], ttl=SENT["ttl"]),
        message_annotations={Symbol("x-key"): "value"},
        properties=Properties(
            message_id=SENT["messageId"],
            user_id=SENT["userId"].encode(),
            to=SENT["to"],
            subject=SENT["subject"],
            reply_to=SENT["replyTo"],
            correlation_id=SENT["correlationId"],
            content_type=Symbol(SENT["contentType"]),
            content_encoding=Symbol(SENT["contentEncoding"]),
            absolute_expiry_time=Timestamp(MILLIS),
            creation_time=Timestamp(MILLIS),
            group_id=SENT["groupId"],
            group_sequence=SENT["groupSequence"],
        ),
        application_properties={"key": "value"},
        data=[SENT["body"]],
        footer={Symbol("x-sum"): 1},
    ).encode()


def bare() -> bytes:
    whole = amqp.decode_message(as_amqp())
    return amqp.Message(
        properties=whole.properties, application_properties=whole.application_properties, data=whole.data
    ).encode()


def write(queue: Queue, columns: dict[str, Any]) -> None:
    """As a DataFrame's task and its driver do."""
    arrays = {name: pa.array([value] * ROWS, MESSAGE_COLUMNS[name]) for name, value in columns.items()}
    fields = StructType(list(source_schema(tuple(arrays))))
    writer = BatchWriter(Options({"url": queue.broker.url, "queue": queue.name}), fields, False)
    writer.commit([writer.write(iter([pa.record_batch(arrays)]))])


def columnar(queue: Queue) -> dict[str, Any]:
    write(queue, SENT)
    return {**SENT, "message": bare()}


def beside(queue: Queue) -> dict[str, Any]:
    """A bare message, with the columns that it does not hold inside."""
    write(queue, {"message": bare(), **{name: value for name, value in SENT.items() if name not in BARE_COLUMNS}})
    return {**SENT, "message": bare()}


def by_amqp(queue: Queue) -> dict[str, Any]:
    with amqp_client.connect(queue.broker.amqp_url) as connection:
        sender = connection.sender(queue.name)
        sender.send([as_amqp()] * ROWS)
        sender.flush()
    return {**SENT, "message": bare(), **dict.fromkeys(ONLY_SENT)}


WRITERS: list[Callable[[Queue], dict[str, Any]]] = [columnar, beside, by_amqp]
Rows = list[dict[str, Any]]


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def taken(queue: Queue) -> LeasePartition:
    """The only task of a stream's batch."""
    reader = queue.reader()
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    assert isinstance(part, LeasePartition)
    return part


def leased(queue: Queue, part: LeasePartition, columns: list[str]) -> tuple[Rows, bool]:
    """Read as a stream's task does; say also whether it read in the broker's files."""
    batches = read_leased(part, BrokerAccess(queue.broker.url), columns, True)
    first = next(batches)
    in_place = files_mapped(queue.broker)
    return rows_of([first, *batches]), in_place


def browsed(queue: Queue, columns: list[str], state: str) -> Rows:
    """Read as a task of a batch read does."""
    ticket = {"op": "browse", "queue": queue.name, "states": [state], "columns": columns}
    return rows_of(read_browsed(BrowsePartition(None, ticket), BrokerAccess(queue.broker.url)))


def made_by_the_broker(queue: Queue, part: LeasePartition, columns: list[str]) -> Rows:
    """Read as any Flight client does: the broker converts."""
    return rows_of(queue.client.get(**part.ticket("batch", columns, True)))


def check(rows: Rows, columns: list[str], expected: dict[str, Any], path: str) -> None:
    """`expected`: by column the value of every row; of the others any that is not null."""
    assert len(rows) == ROWS
    for number, row in enumerate(rows):
        assert list(row) == columns
        for name in columns:
            if name in expected:
                assert row[name] == expected[name], f"column {name!r}, {path}, row {number}"
            else:
                assert row[name] is not None, f"column {name!r} is null {path}: that path has forgotten it"


def test_every_column_of_the_sink_has_a_value_here() -> None:
    assert set(SENT) == set(SENT_COLUMNS) - {"message"}, "write a value for it into SENT, and into as_amqp()"


def test_every_field_of_header_and_properties_that_has_a_column_is_read_from_messages_and_by_selectors() -> None:
    """Check fields that are repeated in code that is not derived from the table."""
    fields = {name: column for name, column in COLUMNS.items() if column.section in (HEADER, PROPERTIES)}
    of_header = sorted((name for name in fields if fields[name].section == HEADER), key=list(MESSAGE_COLUMNS).index)
    assert headers.HeaderFields._fields == tuple(of_header), "encoding/headers.py reads and writes the header's fields"
    assert set(FIELDS) == set(fields) - set(of_header), "encoding/fields.py orders the properties"
    kinds = {"ubyte": "number", "uint": "number", "timestamp": "number", "boolean": "boolean"}
    expected = {name: kinds.get(column.wire or "", "string") for name, column in fields.items()}
    assert expected.items() <= names.TYPES.items(), "selectors/names.py has the type of a field in a selector"


@pytest.mark.parametrize("form", WRITERS)
def test_every_column_is_read_on_every_path(
    form: Callable[[Queue], dict[str, Any]], queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = {**form(queue), "queue": queue.name}
    everything = [*SENT_COLUMNS, *SYSTEM_COLUMNS]
    waiting = [name for name in everything if name not in (*ENDS, "delivery")]
    check(browsed(queue, waiting, "available"), waiting, expected, "of a batch read of waiting messages")
    part = taken(queue)
    rows, in_place = leased(queue, part, waiting)
    check(rows, waiting, expected, "of a task on the broker's host")
    assert in_place, "the task has read the broker's files"
    with monkeypatch.context() as patch:
        elsewhere(patch, tmp_path)
        rows, in_place = leased(queue, part, waiting)
    check(rows, waiting, expected, "of a task on another host")
    assert not in_place
    with_delivery = [*waiting, "delivery"]
    check(leased(queue, part, with_delivery)[0], with_delivery, expected, "of a task that settles its messages")
    check(made_by_the_broker(queue, part, with_delivery), with_delivery, expected, "of a Flight client")
    for number in range(ROWS):
        queue.client.call("lease.settleRow", lease=part.lease, sequence=number, outcome="rejected", error="why")
    ended = [name for name in everything if name != "delivery"]
    settlement = {"state": "archived", "outcome": "rejected", "error": "why", "holder": part.lease}
    settlement |= {"failures": None, "lockedUntil": None}
    check(browsed(queue, ended, "archived"), ended, {**expected, **settlement}, "of a replay of the archive")
    queue.broker.stop()
    queue.broker.start()
    check(browsed(queue, ended, "archived"), ended, {**expected, **settlement}, "of a replay of the archive after a restart")


def test_each_column_alone_is_what_it_is_among_all(queue: Queue) -> None:
    """Ask for the columns that one column needs, by name."""
    columnar(queue)
    expected = {**by_amqp(queue), "queue": queue.name}
    part = taken(queue)
    columns = [name for name in (*SENT_COLUMNS, *SYSTEM_COLUMNS) if name not in (*ENDS, *ONLY_SENT)]
    for name in columns:
        rows = leased(queue, part, [name])[0] + browsed(queue, [name], "acquired") if name != "delivery" else []
        for row in rows:
            assert row[name] == expected[name] if name in expected else row[name] is not None, f"column {name!r} alone"


#: Milliseconds since 1970 that an AMQP client may send, and Python's datetime does not have: the years 0 and 10000, and the ends.
BEYOND = [-(2**63), -62_167_219_200_000, 253_402_300_800_000, 2**63 - 1] * (ROWS // 4)


def times_by_amqp(queue: Queue) -> list[int]:
    times = [Properties(creation_time=Timestamp(time), absolute_expiry_time=Timestamp(time)) for time in BEYOND]
    with amqp_client.connect(queue.broker.amqp_url) as connection:
        sender = connection.sender(queue.name)
        sender.send([amqp.Message(properties=properties, data=[b""]).encode() for properties in times])
        sender.flush()
    return BEYOND


def times_in_columns(queue: Queue) -> list[int]:
    """Spark's own timestamps also have a wider range than Python's."""
    milliseconds = BEYOND[1:3] * (ROWS // 2)
    times = pa.array([time * 1000 for time in milliseconds], pa.int64()).view(TIMESTAMP)
    batch = pa.record_batch({"body": pa.array([b""] * ROWS), "creationTime": times, "absoluteExpiryTime": times})
    queue.client.put({"op": "enqueue", "queue": queue.name}, batch.schema, [batch])
    return milliseconds


@pytest.mark.parametrize("form", [times_by_amqp, times_in_columns])
def test_a_time_that_python_cannot_hold_is_null_on_every_path(
    form: Callable[[Queue], list[int]], queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The column `message` has it."""
    sent = form(queue)
    columns = ["sequenceNumber", "enqueuedTime", "creationTime", "absoluteExpiryTime", "message"]

    def check_times(rows: Rows) -> None:
        assert [(row["creationTime"], row["absoluteExpiryTime"]) for row in rows] == [(None, None)] * len(sent)
        properties = [amqp.decode_message(row["message"]).properties for row in rows]
        assert [fields.creation_time for fields in properties if fields is not None] == sent

    check_times(browsed(queue, columns, "available"))
    shown = queue.client.call("queue.messages", queue=queue.name)["messages"]
    assert [row.get("creationTime") for row in shown] == [None] * len(sent)
    part = taken(queue)
    check_times(leased(queue, part, columns)[0])
    with monkeypatch.context() as patch:
        elsewhere(patch, tmp_path)
        check_times(leased(queue, part, columns)[0])
    check_times(made_by_the_broker(queue, part, columns))
    for number in range(len(sent)):
        queue.client.call("lease.settleRow", lease=part.lease, sequence=number, outcome="accepted")
    check_times(browsed(queue, columns, "archived"))

"""Annotations that a consumer's *modified* outcome added are in the column `annotations` for every reader."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp.types import Symbol, UInt, ULong
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages import assembly
from penstock.broker_core.messages.columns import STRING_MAP

from .helpers import Reader, rows_of, send

ANNOTATED = amqp.Message(message_annotations={Symbol("x-a"): UInt(1), Symbol("x-b"): "b"}, data=[b"0"]).encode()
BARE = amqp.Message(data=[b"2"]).encode()
COLUMNS = ["sequenceNumber", "body", "annotations", "message"]
#: Rows 0 to 19 come from an AMQP client. The next come from Spark: encoded with a column of annotations, then in columns.
STORED: list[Any] = [[("x-a", "1"), ("x-b", "b")], [("x-a", "1")], [("x-a", "1")], None]
#: Of each twenty the third one was handed back twice.
LAID = {
    2: [("x-a", "9"), ("x-b", "b"), ("7", "why"), ("x-new", "true")],
    22: [("x-a", "9"), ("7", "why"), ("x-new", "true")],
    42: [("x-a", "9"), ("7", "why"), ("x-new", "true")],
    62: [("x-a", "9"), ("7", "why"), ("x-new", "true")],
}
ANNOTATIONS = [LAID.get(row, STORED[row // 20]) for row in range(80)]


@pytest.fixture
def laid(broker: Broker, client: Client, queue: str) -> str:
    beside = pa.array([[("x-a", "1")]] * 20, STRING_MAP)
    with amqp_client.connect(broker.amqp_url) as connection:
        sender = connection.sender(queue)
        sender.send([ANNOTATED] * 20)
        sender.flush()
    send(client, queue, pa.record_batch({"message": pa.array([BARE] * 20), "annotations": beside}))
    send(client, queue, pa.record_batch({"body": pa.array([b"4"] * 20), "annotations": beside}))
    send(client, queue, pa.record_batch({"body": pa.array([b"6"] * 20)}))
    for added in ({Symbol("x-a"): 8, ULong(7): "why"}, {Symbol("x-a"): 9, Symbol("x-new"): True}):
        hand_back(broker, queue, added)
    return queue


def hand_back(broker: Broker, queue: str, added: dict[Any, Any]) -> None:
    """All eighty are taken, and go back to their places."""
    got: list[Any] = []
    with amqp_client.connect(broker.amqp_url) as connection:
        receiver = connection.receiver(queue, limit=80)
        while len(got) < 80:
            got += receiver.receive(timeout_s=30)
        receiver.modify(got[2::20], failed=False, annotations=added)
        receiver.release(got)  # settled messages are left out


def annotations_of(rows: list[dict[str, Any]]) -> list[Any]:
    assert [row["sequenceNumber"] for row in rows] == list(range(80))
    assert [row["body"] for row in rows] == [b"%d" % (2 * (number // 20)) for number in range(80)]
    return [row["annotations"] for row in rows]


def test_flight_gives_them_as_texts_and_as_they_are_stored(client: Client, laid: str) -> None:
    """Live and taken, converted by the broker or by the reader, after an equal key of the sender's: the last one wins."""
    assert annotations_of(rows_of(client.get(op="browse", queue=laid, columns=COLUMNS))) == ANNOTATIONS
    reader = Reader(client, laid)
    batch = reader.advance()
    assert annotations_of(reader.read(batch, columns=COLUMNS)) == ANNOTATIONS
    stored = client.get(**reader.ticket(batch, columns=assembly.needed(COLUMNS), stored=True))
    assert annotations_of(rows_of(assembly.converted(COLUMNS, part, laid, {}) for part in stored)) == ANNOTATIONS


def test_a_task_on_the_brokers_host_gets_them_and_maps_files_where_nobody_asks_for_them(
    broker: Broker, client: Client, laid: str
) -> None:
    reading = pytest.importorskip("penstock.connector.task.reading", reason="the extra `spark` is not installed")
    access = pytest.importorskip("penstock.connector.access").BrokerAccess(broker.url)
    reader = Reader(client, laid)
    batch = reader.advance()
    list(client.get(**{**reader.ticket(batch, columns=["sequenceNumber", "body"]), "op": "map", "host": this_host()}))
    with pytest.raises(errors.NotMappable, match="annotations were added"):
        list(client.get(**{**reader.ticket(batch, columns=COLUMNS), "op": "map", "host": this_host()}))
    place = {"broker": client.call("hello")["broker"], "known": None, "queue": laid}
    named = {"lease": reader.lease, "run": reader.run, "epoch": reader.epoch, "batch": batch}
    part = pytest.importorskip("penstock.connector.task.partition").LeasePartition(**place, **named, first=0, last=79)
    assert annotations_of(rows_of(reading.read_leased(part, access, COLUMNS, True))) == ANNOTATIONS


def test_forms_of_encoded_rows_that_are_read_together_keep_their_annotations(client: Client, broker: Broker, queue: str) -> None:
    """Encoded annotations of an AMQP client, and texts from Spark: one batch, two columns of annotations."""
    with amqp_client.connect(broker.amqp_url) as connection:
        sender = connection.sender(queue)
        sender.send([ANNOTATED])
        sender.flush()
    beside = pa.array([[("x-c", "c")]], STRING_MAP)
    send(client, queue, pa.record_batch({"message": pa.array([BARE]), "annotations": beside}))
    (batch,) = client.get(op="browse", queue=queue, columns=["annotations"])
    assert batch.column(0).to_pylist() == [STORED[0], [("x-c", "c")]]

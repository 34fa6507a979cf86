"""S8 S9: what the archiver has recorded, read by Spark in its table and replayed as a stream, with the octets as they came."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Broker
from penstock.broker_core import amqp_client
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.types import Symbol, UInt
from penstock.broker_core.client.flight import Client
from penstock.jobs import replay

if TYPE_CHECKING:
    from conftest import Rig

COLUMNS = (
    "sequenceNumber bigint, body binary, message binary, properties map<string,string>, outcome string, settledTime timestamp"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", archive_after_s=0.1) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


def settled(rig: Rig, **options: str) -> list[Any]:
    reader = (
        rig.spark.read.format("amqp").schema(COLUMNS).options(url=rig.broker.url, queue="orders", states="archived", **options)
    )
    return sorted(reader.load().collect())


def recorded(rig: Rig) -> bool:
    return bool(rig.client.call("queue.stat", queue="orders")["unrecorded"] == 0)


def test_what_is_recorded_is_read_in_the_table_and_replayed_to_the_octet(rig: Rig) -> None:
    rig.declare("orders", "again")
    rig.send("orders", 0, 10)
    sent = Message(application_properties={"a": UInt(7), "b": Symbol("s")}, value=[1, "x"], has_value=True).encode()
    with amqp_client.connect(rig.broker.amqp_url) as connection:
        sender = connection.sender("orders")
        sender.send([sent] * 5)
        sender.flush()
    rig.drain(rig.stream("orders"))
    before = settled(rig)
    rig.until(lambda: recorded(rig))
    assert rig.look("orders", states="archived").rdd.getNumPartitions() == 1
    assert settled(rig) == before
    assert len(before) == 15
    assert rig.client.call("archive.plan", queue="orders", states=["archived"])["parts"] == []
    given = replay._parser().parse_args(
        [
            *("--url", rig.broker.url, "--queue", "orders", "--to-queue", "again", "--from-sequence", "8"),
            *("--pace", "1000", "--checkpoint", rig.path("checkpoint-of-replay")),
        ]
    )
    assert replay.stream(rig.spark, given) == 7
    assert replay.stream(rig.spark, given) == 0, "a second run goes on where the first one ended"
    frame = rig.spark.read.format("amqp").schema("sequenceNumber bigint, message binary")
    rows = sorted(frame.options(url=rig.broker.url, queue="again").load().collect())
    assert [bytes(row.message) for row in rows[2:]] == [sent] * 5
    table = os.path.join(rig.broker.data_dir, "archive", "orders")
    assert rig.spark.read.format("delta").load(table).count() == 15

"""S8 S9: recorded messages, read by Spark in the archive's table and replayed as a stream, byte for byte."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Broker
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Symbol, UInt, ULong
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.flight import Client
from penstock.jobs import archive, replay

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
    """A batch read before and after; a replay with a checkpoint, then a second run, and one with --follow."""
    rig.declare("orders", "again")
    rig.send("orders", 0, 10)
    sent = [
        Message(application_properties={"a": UInt(7), "b": Symbol("s")}, value=[1, "x"], has_value=True).encode(),
        Message(data=[b"x", b"y"]).encode(),
        Message(properties=Properties(message_id=ULong(1)), sequences=[[1, "two"]]).encode(),
    ]
    with amqp_client.connect(rig.broker.amqp_url) as connection:
        sender = connection.sender("orders")
        sender.send(sent)
        sender.flush()
    rig.drain(rig.stream("orders"))
    before = settled(rig)
    rig.until(lambda: recorded(rig), "all is recorded")
    assert rig.look("orders", states="archived").rdd.getNumPartitions() == 1
    assert settled(rig) == before
    assert len(before) == 13
    assert rig.client.call("archive.plan", queue="orders", states=["archived"])["parts"] == []
    arguments = [
        *("--url", rig.broker.url, "--queue", "orders", "--to-queue", "again", "--from-sequence", "8"),
        *("--since", "-1h"),
        *("--pace", "1000", "--checkpoint", rig.path("checkpoint-of-replay")),
    ]
    parsed = replay._parser().parse_args(arguments)
    assert replay.stream(rig.spark, parsed) == 5
    assert replay.stream(rig.spark, parsed) == 0, "a second run continues at the end of the first one"
    frame = rig.spark.read.format("amqp").schema("sequenceNumber bigint, message binary")
    rows = sorted(frame.options(url=rig.broker.url, queue="again").load().collect())
    assert [bytes(row.message) for row in rows[2:]] == sent
    table = os.path.join(rig.broker.data_dir, "archive", "orders")
    assert rig.spark.read.format("delta").load(table).count() == 13

    query = replay.start(rig.spark, replay._parser().parse_args([*arguments, "--follow"]))
    for first in (10, 12):
        rig.send("orders", first, 2)
        rig.client.call("queue.purge", queue="orders")
        rig.until(lambda last=first + 2: rig.counts("again")[0] == last - 5, "these messages are also replayed")
    query.stop()
    assert rig.bodies("again")[:2] + rig.bodies("again")[5:] == ["8", "9", "10", "11", "12", "13"]
    offsets = [file.read_text() for file in Path(rig.path("checkpoint-of-replay"), "offsets").glob("[0-9]*")]
    assert len({times for offset in offsets for times in re.findall(r'"times":\s*\[\d+,\s*null\]', offset)}) == 1


def test_the_table_is_copied_elsewhere_once_while_the_broker_goes_on(rig: Rig) -> None:
    """U5: `jobs/archive.py` on the table of the real archiver. Each run copies the new rows, once.

    The job dies before it commits a batch, and the broker before it records one.
    """
    rig.declare("orders")
    copied = ["--archive", os.path.join(rig.broker.data_dir, "archive"), "--queue", "orders", "--where", "outcome = 'purged'"]
    copied += ["--table", rig.path("copy"), "--checkpoint", rig.path("copying")]
    parsed = archive._parser().parse_args(copied)
    for first in (0, 10):
        rig.send("orders", first, 10)
        rig.client.call("queue.purge", queue="orders")
        if first:
            rig.broker.kill()
            rig.broker.start()
        rig.until(lambda: recorded(rig), "all is recorded")
        archive.start(rig.spark, parsed).awaitTermination()
        assert rig.table("copy") == list(range(first + 10))
        last = max(Path(rig.path("copying"), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()  # as if the driver had died before it
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        archive.start(rig.spark, parsed).awaitTermination()
        assert rig.table("copy") == list(range(first + 10))

"""Spark and the vendor's SDK on one queue: columns of locks, a lease next to receivers, our source for another Service Bus."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import default_schema, source_schema
from penstock.connector.stream.reader import StreamReader

from ..flight.helpers import Reader
from ..foreign.helpers import INITIAL, drained, next_batch, rows
from ..foreign.hidden import Hidden
from ..waiting import until
from .driving import Program
from .service_bus import SETTINGS, connection_string, port_of, unsettled
from .test_service_bus import send
from .test_service_bus_sessions import program

LOCK_S = 60
_numbers = itertools.count()


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture
def queue(flight: Client) -> str:
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=name, options={"groups": "held", "lockTimeout": LOCK_S * 1000})
    return name


def read(broker: Broker, queue: str, states: str) -> list[dict[str, Any]]:
    """The rows of `spark.read`, as its planner and tasks make them."""
    columns = ("sequenceNumber", "state", "groupId", "deliveryCount", "lockedUntil")
    reader = BatchReader(Options({"url": broker.url, "queue": queue, "states": states}), source_schema(columns))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_columns_show_locks_deferral_and_attempts(broker: Broker, sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "locked", "deferred", "abandoned", "waiting")
    locked, deferred, abandoned = sdk.receive(queue, 3)
    sdk.do("settle", token=deferred["token"], how="defer")
    sdk.do("settle", token=abandoned["token"], how="abandon")
    held, *others = read(broker, queue, "available, acquired, deferred")
    assert [(row["sequenceNumber"], row["state"], row["deliveryCount"], row["lockedUntil"]) for row in others] == [
        (1, "deferred", 1, None),
        (2, "available", 1, None),
        (3, "available", 0, None),
    ]
    assert (held["sequenceNumber"], held["state"], held["deliveryCount"]) == (0, "acquired", 0)
    assert abs(held["lockedUntil"].timestamp() - locked["locked_until_utc"]) < 1
    renewed = sdk.do("renew", token=locked["token"])["until"]
    (held,) = read(broker, queue, "acquired")
    assert abs(held["lockedUntil"].timestamp() - renewed) < 1
    sdk.do("settle", token=locked["token"])
    lease = Reader(flight, queue)
    lease.read(lease.advance())
    assert {row["lockedUntil"] for row in read(broker, queue, "acquired, archived")} == {None}, "a lease has no such end"


def test_columns_show_the_lock_of_a_session(broker: Broker, queue: str) -> None:
    with program() as sdk:
        sdk.do("open", connection=connection_string(broker))
        sdk.do("send", to=queue, messages=[{"session_id": session, "body": session} for session in ("red", "blue")])
        accepted = sdk.do("accept", name="a", from_=queue, session="blue")
        sdk.do("receive", name="a")
        waiting, held = read(broker, queue, "available, acquired")
    assert (waiting["groupId"], waiting["lockedUntil"]) == ("red", None)
    assert (held["groupId"], held["state"]) == ("blue", "acquired")
    assert time.time() < held["lockedUntil"].timestamp() < accepted["until"] + 1


def test_a_lease_and_receivers_share_a_queue(sdk: Program, flight: Client, queue: str) -> None:
    """Each message is accepted once, by the query or by the SDK, also messages that the SDK has abandoned."""
    bodies = [f"{number}" for number in range(90)]
    send(sdk, queue, *bodies)
    lease, by_lease, by_sdk = Reader(flight, queue), list[str](), list[str]()
    wait = 20.0  # at first also for the link
    while True:
        sdk.start("receive", from_=queue, count=7, wait=wait)
        wait = 0.5
        batch = lease.advance(messages=11)
        if batch != lease.finished:
            by_lease += [row["body"].decode() for row in lease.read(batch)]
            lease.settle(batch)
        messages = sdk.finish()["messages"]
        if not messages and unsettled(flight, queue) == {}:
            break
        for message in messages:
            is_bad = int(message["body"]) % 10 == 0 and message["delivery_count"] == 0
            sdk.do("settle", token=message["token"], how="abandon" if is_bad else "complete")
            by_sdk += [] if is_bad else [message["body"]]
    assert by_lease
    assert by_sdk
    assert sorted(by_lease + by_sdk, key=int) == bodies
    assert flight.call("queue.stat", queue=queue)["archived"] == len(bodies)


# ---- our source for a foreign Service Bus


@pytest.fixture
def hidden(broker: Broker) -> Iterator[str]:
    """The connection string of a relay that hides that the broker is a Penstock, which the source would use without a spool."""
    relay = Hidden(port_of(broker))
    yield connection_string(broker, port=urlsplit(relay.url).port)
    relay.close()


def source(hidden: str, queue: str, spool: Path, **options: str) -> StreamReader:
    settings = {"connectionString": hidden, "queue": queue, "spool": str(spool)}
    return StreamReader(Options({**settings, **options}), default_schema())


@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_the_foreign_source_reads_from_the_dialect(
    broker: Broker, hidden: str, sdk: Program, flight: Client, queue: str, tmp_path: Path, settle: str
) -> None:
    """`settle=committed` keeps the locks until Spark has committed the batch."""
    sent = [{"body": f"{number}", "message_id": f"id-{number}", "session_id": "red"} for number in range(20)]
    sdk.do("send", to=queue, messages=sent, batch=True)
    reader = source(hidden, queue, tmp_path / "spool", settle=settle, maxMessagesPerTrigger="20")
    end = next_batch(reader, INITIAL)
    got = rows(reader, INITIAL, end)
    assert [(row["body"], row["messageId"], row["groupId"], row["deliveryCount"]) for row in got] == [
        (f"{number}".encode(), f"id-{number}", "red", 0) for number in range(20)
    ]
    if settle == "committed":
        assert unsettled(flight, queue) == {"acquired": 20}
        held = read(broker, queue, "acquired")
        assert all(row["lockedUntil"].timestamp() > time.time() for row in held)
    reader.commit(end)
    until(lambda: unsettled(flight, queue) == {}, "the batch is accepted")
    reader.stop()


def came_again(messages: list[dict[str, Any]]) -> bool:
    return all(message["deliveryCount"] for message in messages)


def test_a_lock_that_ended_before_the_commit_gives_each_row_once(
    broker: Broker, hidden: str, sdk: Program, flight: Client, tmp_path: Path
) -> None:
    """The broker sends the messages of lost locks again; the spool has them already."""
    queue = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=queue, options={"lockTimeout": 1000})
    sent = [{"body": f"{number}", "message_id": f"id-{number}"} for number in range(10)]
    sdk.do("send", to=queue, messages=sent, batch=True)
    reader = source(hidden, queue, tmp_path / "spool", settle="committed")
    end = next_batch(reader, INITIAL)
    assert len(rows(reader, INITIAL, end)) == 10
    until(lambda: came_again(read(broker, queue, "available, acquired")), "the locks have ended")
    values, _ = drained(reader, end)
    assert values == []
    until(lambda: unsettled(flight, queue) == {}, "the repeated messages are accepted")
    reader.stop()

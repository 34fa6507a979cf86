"""A real file system without free bytes: actions that free space continue, actions that need space are refused."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock import Broker
from penstock.broker_core import amqp, errors
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.journal.reserve import NAME
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..filesystems import SmallDisk, mounted
from ..waiting import until
from .helpers import Clock, enqueue, numbered, retain

MIB = 1 << 20
SETTINGS = {
    "free_space_mark_bytes": "4 MiB",
    "free_space_low_bytes": "4 MiB",
    "segment_bytes": "1 MiB",
    "archive": "off",
    "retention_age_s": 1,
}
RESERVE = MIB  # a quarter of the mark
BATCH = pa.record_batch({"body": pa.array(numbered(100, 2000), pa.binary())})
PATIENCE_S = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    yield from mounted(tmp_path / "disk", "24m")


@pytest.fixture
def broker(disk: SmallDisk) -> Iterator[Broker]:
    running = Broker(disk.path / "data", **SETTINGS)
    try:
        yield running.start()
    finally:
        running.kill()


def put(client: Client, queue: str, op: str = "enqueue", **more: str) -> Any:
    return client.put({"op": op, "queue": queue, **more}, BATCH.schema, [BATCH])


def stat(client: Client, queue: str) -> dict[str, Any]:
    return client.call("queue.stat", queue=queue)


def alarms(client: Client) -> set[str]:
    return {alarm["name"] for alarm in client.call("broker.status")["alarms"]}


def drain(client: Client, queue: str, lease: str, **how: Any) -> int:
    """Take a batch as a query does: acquire, read, settle."""
    fields = {"queue": queue, "lease": lease, "run": "r"}
    taken = client.call("lease.advance", **fields, epoch=None, finished=0, fresh=True, messages=100)
    part = {"lease": lease, "run": "r", "epoch": taken["epoch"], "batch": 1, "first": 0, "last": 100}
    rows = sum(batch.num_rows for batch in client.get(op="batch", **part, columns=["body"]))
    assert client.call("lease.settle", **fields, epoch=taken["epoch"], finished=1, **how)["settled"] == 100
    return rows


def hold(client: Client, queue: str, lease: str) -> None:
    client.call("lease.advance", queue=queue, lease=lease, run="r", epoch=None, finished=0, fresh=True, messages=10)


def furnish(client: Client) -> None:
    client.call("queue.declare", queue="dead")
    for queue in ("drained", "purged", "deleted", "held", "moved", "amqp"):
        client.call("queue.declare", queue=queue, options={"deadLetterQueue": "dead", "maxAttempts": 1})
        put(client, queue)
    put(client, "purged", "stage", stage="ready")
    put(client, "purged", "stage", stage="dropped")
    hold(client, "held", "released")


def free_by_amqp(broker: Broker) -> None:
    """Each way in which a consumer ends a delivery, and a delivery that its link gives back."""
    with connect(broker.amqp_url) as connection:
        receiver = connection.receiver("amqp", credit=5)
        taken = receiver.receive(5, timeout_s=PATIENCE_S)
        receiver.accept(taken[:1])
        receiver.reject(taken[1:2])
        receiver.release(taken[2:3])


def free(client: Client, broker: Broker) -> None:
    """All that frees space, or needs no room to speak of: see docs/operate.md."""
    assert drain(client, "drained", "l") == 100
    assert client.call("stage.publish", stages=["ready"])["published"] == 100
    client.call("stage.discard", stages=["dropped"])
    assert client.call("queue.purge", queue="purged") == {"purged": 200}
    client.call("queue.delete", queue="deleted")
    client.call("lease.release", lease="released", how="return")
    client.call("lease.delete", lease="released")
    assert stat(client, "held")["available"] == 100
    client.call("queue.move", queue="moved", target="dead")
    free_by_amqp(broker)


def refuse(client: Client, broker: Broker) -> None:
    """All that needs room."""
    for request in ({"op": "enqueue"}, {"op": "stage", "stage": "more"}):
        with pytest.raises(errors.DiskFull, match="nothing was stored"):
            client.put({**request, "queue": "purged"}, BATCH.schema, [BATCH])
    with pytest.raises(errors.ResourceLimit):
        send(broker)


def send(broker: Broker) -> None:
    with connect(broker.amqp_url) as connection:
        sender = connection.sender("purged")
        sender.send([amqp.Message(data=[b"x" * 1000]).encode()])
        sender.flush()


@pytest.mark.parametrize("life", ["the same", "after a stop", "after a kill", "stopped while full", "killed while full"])
def test_at_0_bytes_free_what_frees_space_goes_on_and_senders_are_refused(disk: SmallDisk, broker: Broker, life: str) -> None:
    with Client(broker.url) as client:
        furnish(client)
    if life == "after a stop":
        broker.stop()
    elif life == "after a kill":
        broker.kill()
    disk.fill()
    if life == "stopped while full":
        broker.stop()
    elif life == "killed while full":
        broker.kill()
    disk.fill()
    assert disk.free == 0
    if not broker.running:
        broker.start()
    with Client(broker.url) as client:
        until(lambda: "disk-full" in alarms(client), "the alarm is raised")
        refuse(client, broker)
        free(client, broker)
        assert broker.running, broker.log()
        disk.give_back()
        until(lambda: "disk-full" not in alarms(client), "the alarm is over")
        put(client, "purged")  # without a restart
        before = {queue: stat(client, queue)["available"] for queue in ("drained", "purged", "held", "moved", "amqp", "dead")}
    assert before["purged"] == 100
    assert (disk.path / "data" / NAME).stat().st_blocks * 512 == RESERVE  # whole again
    broker.kill()
    broker.start()
    with Client(broker.url) as client:
        assert {queue: stat(client, queue)["available"] for queue in before} == before


def use_up_the_reserve(disk: SmallDisk) -> None:
    """Be a program that is quicker than the broker to take each piece of its reserve."""
    os.truncate(disk.path / "data" / NAME, 0)
    disk.fill()
    assert disk.free == 0


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_without_a_reserve_the_journal_waits_and_goes_on_when_there_is_space(disk: SmallDisk, broker: Broker) -> None:
    with Client(broker.url) as client, Client(broker.url) as second:
        furnish(client)
    broker.stop()
    use_up_the_reserve(disk)
    broker.start()
    with Client(broker.url) as client, Client(broker.url) as second:
        waiting, purged = in_background(lambda: second.call("queue.purge", queue="purged"))
        until(lambda: "the journal waits, the disk is full" in broker.log(), "the journal waits")
        until(lambda: "disk-full" in alarms(client), "the alarm is raised")
        assert not purged
        assert broker.running
        disk.give_back()
        waiting.join(PATIENCE_S)
        assert purged == [{"purged": 100}]
        until(lambda: "disk-full" not in alarms(client), "the alarm is over")
        put(client, "purged")
    assert broker.log().count("the journal waits") == 1
    broker.kill()
    broker.start()
    with Client(broker.url) as client:
        assert stat(client, "purged")["available"] == 100


def test_a_stop_while_the_journal_waits_ends_and_loses_nothing_that_was_confirmed(disk: SmallDisk, broker: Broker) -> None:
    with Client(broker.url) as client:
        furnish(client)
    broker.stop()
    use_up_the_reserve(disk)
    broker.start()
    with contextlib.closing(Client(broker.url)) as client:
        waiting, purged = in_background(lambda: client.call("queue.purge", queue="purged"))
        until(lambda: "the journal waits, the disk is full" in broker.log(), "the journal waits")
        with pytest.raises(errors.PeerError, match="exit code 1"):
            broker.stop(limit_s=PATIENCE_S)
        waiting.join(PATIENCE_S)
    assert isinstance(purged[0], errors.PenstockError)
    disk.give_back()
    broker.start()
    with Client(broker.url) as client:
        assert stat(client, "purged")["available"] in (0, 100)  # it was never confirmed
        assert stat(client, "drained")["available"] == 100


def test_a_start_that_needs_more_than_the_reserve_says_so(disk: SmallDisk, broker: Broker) -> None:
    with Client(broker.url) as client:
        furnish(client)
    broker.kill()
    for name in ("synced", NAME):  # the tail to copy is then longer than the free space
        (disk.path / "data" / name).unlink()
    disk.fill()
    with pytest.raises(errors.PenstockError, match=r"The disk is full, and the reserve does not suffice: free some space"):
        broker.start()
    disk.give_back()
    broker.start()
    with Client(broker.url) as client:
        assert stat(client, "drained")["available"] == 100


def test_a_disk_that_fills_between_the_check_and_the_write_loses_nothing(disk: SmallDisk, broker: Broker) -> None:
    """Senders are let in by a check; another program then takes the space before the journal writes."""
    confirmed: list[int] = []
    over = threading.Event()
    with Client(broker.url) as client:
        client.call("queue.declare", queue="q")

    def flood() -> None:
        with Client(broker.url) as sending:
            while not over.is_set():
                try:
                    confirmed.append(sending.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH])["next"])
                except errors.DiskFull:
                    over.wait(0.01)

    def reached(least: int) -> bool:
        return len(confirmed) > least

    sending, failed = in_background(flood)
    with Client(broker.url) as client:
        for least in (0, 3, 6, 9):
            until(partial(reached, least), "messages are confirmed")
            disk.fill()
            until(lambda: "disk-full" in alarms(client), "the alarm is raised")
            disk.give_back()
            client.call("queue.purge", queue="q")
        over.set()
        sending.join(PATIENCE_S)
        assert failed == [None]
        enqueued = stat(client, "q")["enqueued"]
    assert enqueued == max(confirmed)
    broker.kill()
    broker.start()
    with Client(broker.url) as client:
        assert stat(client, "q")["enqueued"] == enqueued


def test_retention_goes_on_with_0_bytes_free(disk: SmallDisk) -> None:
    """Nothing of the journal is below a snapshot yet: the snapshot that lets segments go is written from the reserve."""
    clock = Clock(time.time_ns() // 1000)  # segments have the times of the real disk
    service = BrokerService(Settings(data=disk.path / "data", **SETTINGS), clock=clock)  # type: ignore[arg-type]
    try:
        service.submit(c.DeclareQueue("q"))
        for _ in range(20):
            service.submit(enqueue("q", *numbered(100, 2000)))
        segments = len(service.journal.segments())
        assert segments > 2
        disk.fill()
        service.submit(c.Purge("q"))
        clock.advance(10)
        assert retain(service) > MIB
        assert len(service.journal.segments()) < segments
        assert disk.free > MIB
    finally:
        service.close()


def test_what_is_settled_on_a_full_disk_is_recorded_once_when_there_is_space(disk: SmallDisk) -> None:
    settings = {**SETTINGS, "archive": "archive", "archive_after_s": 0.1, "retention_age_s": None}
    running = Broker(disk.path / "data", **settings)
    try:
        with running.start(), Client(running.url) as client:
            client.call("queue.declare", queue="q")
            put(client, "q")
            disk.fill()
            assert client.call("queue.purge", queue="q") == {"purged": 100}
            until(lambda: "archive-failing" in alarms(client), "the alarm is raised")
            disk.give_back()
            until(lambda: client.call("archive.status")["unrecorded"] == 0, "all is recorded")
            until(lambda: "archive-failing" not in alarms(client), "the alarm is over")
            put(client, "q")
    finally:
        running.kill()
    table = DeltaTable(str(disk.path / "data" / "archive" / "q")).to_pyarrow_table(columns=["sequenceNumber"])
    assert sorted(table["sequenceNumber"].to_pylist()) == list(range(100))

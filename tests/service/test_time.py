"""Time and restarts: time never goes back, and leases count the uptime of the broker alone."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.broker_core import amqp
from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import DirectoryLocked, Fenced
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..journal.lying_disk import LyingDisk
from .helpers import (
    Clock,
    abandon,
    advance,
    enqueue,
    everything,
    killed,
    numbered,
    open_service,
    read,
    running,
    stage,
    stat,
    table,
)

DAY = 86_400.0
DELAYED = amqp.Message(message_annotations={"x-opt-delivery-delay": 5000}).encode()


@pytest.mark.parametrize("snapshot", [False, True])
def test_time_never_runs_backwards_across_a_restart(snapshot: bool) -> None:
    disk, clock = LyingDisk(), Clock()
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q"), enqueue("q", b"first"))
    clock.advance(100)
    service.submit(enqueue("q", b"second"))
    if snapshot:
        service.take_snapshot()
    with running(killed(service, disk), clock.restarted(-DAY)) as again:  # the wall clock was set back a day
        again.submit(enqueue("q", b"third"))
        again.submit(c.Purge("q"))
        rows = table(again, "q", "enqueuedTime", "settledTime")
        times = [row["enqueuedTime"] for row in rows]
        assert times == sorted(times)
        assert all(row["settledTime"] >= row["enqueuedTime"] for row in rows)


@pytest.mark.parametrize("restart", [False, True])
def test_times_to_live_and_delays_hold_where_the_clock_was_set_back(restart: bool) -> None:
    """Q9 Q18: they count from the arrival as the queue has it, which lies where the latest one did: nothing is born expired, and
    nothing is delivered before its time."""
    disk, clock = LyingDisk(), Clock()
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q"), enqueue("q", b"first"), c.Purge("q"))
    clock.wall -= 3600 * 1_000_000
    with running(killed(service, disk), clock.restarted()) if restart else contextlib.closing(service) as service:
        ttl = pa.record_batch({"ttl": pa.array([60_000, None], pa.int64()), "encodedAnnotations": pa.array([None, DELAYED])})
        service.submit(c.Enqueue("q", 2, 1, attributes=service.attributes("q", ttl)))
        service.submit(c.Tick())
        assert service.submit(c.Acquire("q", service.submit(c.Subscribe("q")), 2)).rows.sequences().tolist() == [1]
        assert stat(service, "q")["delayed"] == 1


def holding(disk: LyingDisk, clock: Clock) -> BrokerService:
    """A lease with an unread batch, a lease with a read batch and a timeout, and a stage."""
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(10)))
    service.submit(*advance("q", "unread", 0, messages=2))
    service.submit(*advance("q", "timed", 0, messages=3, timeout=600_000_000))
    service.submit(read("timed", 1, 1))
    service.submit(stage("s", "q", b"staged"))
    return service


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_broker_down_for_longer_than_every_timeout_gives_nothing_back(snapshot: bool) -> None:
    disk, clock = LyingDisk(), Clock()
    service = holding(disk, clock)
    if snapshot:
        service.take_snapshot()
    later = clock.restarted(30 * DAY)
    with running(killed(service, disk), later) as again:
        again.submit(c.Tick())
        assert stat(again, "q")["acquired"] == 5
        assert again.submit(c.Publish(["s"])) == (1, False), "the stage was kept"
        # From its start on the time counts: the drivers have all of it to come back.
        later.advance(59)
        again.submit(c.Tick())
        assert stat(again, "q")["acquired"] == 5
        again.submit(c.RenewLease("unread", 1))
        later.advance(59)
        again.submit(c.Tick())
        assert stat(again, "q")["acquired"] == 5
        # A client that returns in time continues.
        assert again.submit(c.PlanBatches("timed", 0, 1)) == (1, [[1, 2, 4, 3]])
        later.advance(2)
        again.submit(c.Tick())
        assert stat(again, "q")["acquired"] == 3, "the unread batch was given back a minute after its last renewal"
        later.advance(600)
        again.submit(c.Tick())
        assert stat(again, "q")["acquired"] == 0
        assert stat(again, "q")["available"] == 11


def test_a_broker_that_restarts_again_and_again_counts_each_life_anew() -> None:
    disk, clock = LyingDisk(), Clock()
    service = holding(disk, clock)
    for _ in range(5):
        disk = killed(service, disk)
        clock = clock.restarted(1)
        service = open_service(disk, clock)
        clock.advance(50)  # less than a minute in each life
        service.submit(c.Tick())
        assert stat(service, "q")["acquired"] == 5
    abandon(service)


def test_a_lease_outlives_the_broker_and_a_link_does_not() -> None:
    disk, clock = LyingDisk(), Clock()
    service = holding(disk, clock)
    link = service.submit(c.Subscribe("q"))
    assert service.submit(c.Acquire("q", link, 100)).rows.count == 5
    with running(killed(service, disk), clock.restarted()) as again:
        assert stat(again, "q")["acquired"] == 5
        assert stat(again, "q")["available"] == 5
        counts = [row["deliveryCount"] for row in table(again, "q", "deliveryCount")]
        assert counts == [0] * 10  # the link ended with the broker, which does not count as an attempt
        with pytest.raises(Fenced):
            again.submit(*advance("q", "timed", 0, epoch=7))
        assert again.submit(*advance("q", "timed", 1, epoch=1, messages=1))[:2] == (1, 2)


def test_one_broker_for_each_directory(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    first = BrokerService(settings)
    try:
        first.submit(c.DeclareQueue("q"), enqueue("q", b"x"))
        with pytest.raises(DirectoryLocked, match="in use by process"):
            BrokerService(settings)
        assert everything(first, "q") == {0: b"x"}
    finally:
        first.close()
    second = BrokerService(settings)
    assert everything(second, "q") == {0: b"x"}
    second.close()

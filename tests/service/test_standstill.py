"""The time of a standstill does not count: no lease is lost for a time in which the broker could receive nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.clock import STANDSTILL, RunningClock

from ..flight.helpers import Reader, send
from ..journal.lying_disk import LyingDisk
from ..waiting import until
from .helpers import Clock, abandon, advance, enqueue, numbered, open_service, read, stat

SECOND = 1_000_000
PATIENCE_S = 60.0


def test_a_gap_between_two_looks_does_not_count() -> None:
    raw = Clock()
    clock = RunningClock(raw)
    start = clock().up
    raw.advance(STANDSTILL / SECOND)
    assert clock() == (raw.wall, start + STANDSTILL, 0)
    raw.advance(70)
    assert clock() == (raw.wall, start + STANDSTILL, start + STANDSTILL)
    raw.advance(2)
    assert clock() == (raw.wall, start + STANDSTILL + 2 * SECOND, start + STANDSTILL)


@contextlib.contextmanager
def holding(clock: RunningClock):  # type: ignore[no-untyped-def]
    service = open_service(LyingDisk(), clock)
    try:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(10)))
        service.submit(*advance("q", "unread", 0, messages=2))
        service.submit(*advance("q", "timed", 0, messages=3, timeout=30 * SECOND))
        service.submit(read("timed", 1, 1))
        yield service
    finally:
        abandon(service)


def pass_time(service: BrokerService, raw: Clock, seconds: int) -> None:
    """As it passes for a broker that runs."""
    for _ in range(seconds):
        raw.advance(1)
        service.submit(c.Tick())


def test_a_standstill_gives_back_no_batch_and_begins_everybodys_time_anew() -> None:
    raw = Clock()
    with holding(RunningClock(raw)) as service:
        pass_time(service, raw, 29)
        raw.advance(3600)
        service.submit(c.Tick())
        assert stat(service, "q")["acquired"] == 5
        pass_time(service, raw, 29)  # a client that renews every ten seconds has renewed by now
        assert stat(service, "q")["acquired"] == 5
        pass_time(service, raw, 2)
        assert stat(service, "q")["acquired"] == 2, "after all of its time a silent reader's batch is given back"
        pass_time(service, raw, 30)
        assert stat(service, "q")["acquired"] == 0


def test_a_lock_does_not_end_while_the_broker_stands_still() -> None:
    raw = Clock()
    service = open_service(LyingDisk(), RunningClock(raw))
    try:
        service.submit(c.DeclareQueue("q", options={"lockTimeout": 10_000}), enqueue("q", b"x"))
        link = service.submit(c.Subscribe("q"))
        service.submit(c.Acquire("q", link, 1))
        raw.advance(70)
        service.submit(c.Tick())
        assert stat(service, "q")["acquired"] == 1
        pass_time(service, raw, 11)
        assert stat(service, "q")["available"] == 1
    finally:
        abandon(service)


@pytest.mark.parametrize("stopped_s", [STANDSTILL / SECOND + 3])
def test_a_broker_that_was_stopped_gives_back_no_batch_before_it_has_listened(tmp_path: Path, stopped_s: float) -> None:
    with Broker(tmp_path / "data") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(10))
        live, signal_ = Reader(client, "q", "live"), Reader(client, "q", "signal")
        for reader, timeout in ((live, stopped_s - 1), (signal_, 1.0)):
            reader.read(reader.advance(messages=1, leaseTimeout=timeout))
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(stopped_s)  # the standstill itself
        os.kill(broker.pid, signal.SIGCONT)

        def looked() -> dict[str, str]:
            """Return the leases once the broker has counted a second since then, and has looked at all of them."""
            stages = {row["lease"]: row["stage"] for row in client.call("lease.list")["leases"]}
            return {} if stages["signal"] == "read" else stages

        assert until(looked, "a lease has ended", limit_s=PATIENCE_S) == {"live": "read", "signal": "idle"}
        assert "stood still" in broker.log()


def test_an_amqp_peer_is_not_silent_while_the_broker_stands_still() -> None:
    raw = Clock()
    service = open_service(LyingDisk(), RunningClock(raw))
    try:
        before = service.uptime_s()
        raw.advance(600)
        assert service.uptime_s() == before
    finally:
        abandon(service)

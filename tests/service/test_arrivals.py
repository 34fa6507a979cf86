"""Waiting callers are woken by every cause of available messages, also by messages that came before the wait."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.broker_core.actions import lease_actions
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import advance, enqueue, numbered, running, stage

HOUR_S = 3600.0  # longer than any wait: a caller is woken, or the test fails


def _enqueue(service: BrokerService) -> None:
    service.submit(enqueue("q", b"x"))


def _publish(service: BrokerService) -> None:
    service.submit(c.Publish(["s"]))


def _release(service: BrokerService) -> None:
    service.submit(c.Release("q", 1, RowSet.single(0)))


def _end_link(service: BrokerService) -> None:
    service.submit(c.Unsubscribe("q", 1))


def _void(service: BrokerService) -> None:
    service.submit(c.FinishBatches("lease", 1))


def _operator(service: BrokerService) -> None:
    service.submit(c.SettleRow("lease", 2, "released"))


WAYS = [_enqueue, _publish, _release, _end_link, _void, _operator]


def prepare(service: BrokerService) -> None:
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(4)), stage("s", "q", b"staged"))
    service.submit(c.Subscribe("q"), c.Acquire("q", 1, 2))
    service.submit(*advance("q", "lease", 0))


@pytest.mark.parametrize("make_available", WAYS)
@pytest.mark.parametrize("when", ["before", "while"])
def test_an_arrival_is_heard_of(make_available: Callable[[BrokerService], None], when: str) -> None:
    with running(LyingDisk()) as service, ThreadPoolExecutor(1) as pool:
        prepare(service)
        seen = service.arrivals.count
        if when == "before":
            make_available(service)
        waiting = pool.submit(service.arrivals.wait, seen, HOUR_S)
        if when == "while":
            make_available(service)
        assert waiting.result(60)


def test_what_makes_nothing_available_wakes_nobody() -> None:
    with running(LyingDisk()) as service:
        prepare(service)
        seen = service.arrivals.count
        service.submit(c.DeclareQueue("other"), stage("t", "q", b"x"), c.Purge("q"), c.Tick(), c.Stat())
        assert service.arrivals.wait(seen, 0.0) is False


def test_a_long_poll_over_the_wire_ends_with_the_arrival_and_not_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_actions, "MAX_WAIT_MS", HOUR_S * 1000)
    with running(LyingDisk()) as service:
        plane = FlightPlane(service, "127.0.0.1", 0)
        with Client(plane.url) as client, ThreadPoolExecutor(1) as pool:
            client.call("queue.declare", queue="q")
            client.call("queue.declare", queue="other")
            epoch = None
            for finished in range(20):
                fields = {"queue": "q", "lease": "l", "run": "r", "epoch": epoch, "finished": finished, "fresh": finished == 0}
                asked = pool.submit(client.call, "lease.advance", **fields, waitMs=int(HOUR_S * 1000))
                service.submit(enqueue("other", b"for somebody else"))
                service.submit(enqueue("q", b"x"))
                answer = asked.result(60)
                assert answer["batch"] == finished + 1
                epoch = answer["epoch"]
                list(
                    client.get(
                        op="batch", lease="l", run="r", epoch=epoch, batch=finished + 1, first=0, last=99, columns=["body"]
                    )
                )
        plane.close()

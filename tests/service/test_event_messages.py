"""Event messages: off without the queue `$events`, which is a ring; one message for each event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.engine.model.names import EVENTS
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.service import watch
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from ..waiting import until
from .helpers import MIB, Clock, advance, everything, read, running, table

RING = {"maxMessages": 3, "overflow": "ring"}


@pytest.fixture(autouse=True)
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.02)


def looked(service: BrokerService) -> None:
    """Wait for a look that began after this call."""
    before = service.events._epochs
    until(lambda: service.events._epochs is not before, "the broker looks")
    between = service.events._epochs
    until(lambda: service.events._epochs is not between, "the broker looks again")


def events(service: BrokerService) -> list[dict[str, Any]]:
    return [json.loads(body) for body in everything(service, EVENTS).values()]


def expect(service: BrokerService, *kinds: str) -> list[dict[str, Any]]:
    until(lambda: [event["event"] for event in events(service)] == list(kinds), lambda: f"{kinds}, not {events(service)}")
    return events(service)


def dies(service: BrokerService, queue: str, count: int) -> None:
    service.submit(c.Enqueue(queue, count, 10))
    link = service.submit(c.Subscribe(queue))
    service.submit(c.Settle(queue, link, service.submit(c.Acquire(queue, link, count)).rows, Outcome.REJECTED))
    service.submit(c.Unsubscribe(queue, link))


@pytest.fixture
def declared() -> Callable[[BrokerService], None]:
    def declare(service: BrokerService) -> None:
        service.submit(c.DeclareQueue(EVENTS, options=RING), c.DeclareQueue("dead"))
        service.submit(c.DeclareQueue("q", options={"deadLetterQueue": "dead"}))
        looked(service)

    return declare


def test_nothing_is_gathered_without_the_queue() -> None:
    with running(LyingDisk()) as service:
        service.events.note("alarm", "text")
        service.submit(c.DeclareQueue("dead"), c.DeclareQueue("q", options={"deadLetterQueue": "dead"}))
        dies(service, "q", 2)
        assert not service.events._waiting
        service.submit(c.DeclareQueue(EVENTS, options=RING))
        looked(service)
        assert events(service) == [], "earlier events are not reported"


def test_the_queue_is_a_bounded_ring() -> None:
    with running(LyingDisk()) as service:
        for options in ({}, {"overflow": "ring"}, {"maxMessages": 5}):
            with pytest.raises(InvalidRequest, match="bounded ring: set maxMessages and overflow=ring"):
                service.submit(c.DeclareQueue(EVENTS, options=options))
        service.submit(c.DeclareQueue(EVENTS, options=RING))
        with pytest.raises(InvalidRequest, match="bounded ring"):
            service.submit(c.AlterQueue(EVENTS, {"overflow": None}))
        assert service.submit(c.AlterQueue(EVENTS, {"maxMessages": 7}))
        for number in range(20):
            service.events.note("test", str(number))
        queue = service.state.queues[EVENTS]
        until(lambda: (queue.next_sequence, queue.live) == (20, 7), "all events are published, and the oldest are dropped")


def test_dead_letters_and_alarms(declared: Callable[[BrokerService], None]) -> None:
    disk = LyingDisk()
    with running(disk, free_space_mark_bytes=MIB, free_space_low_bytes=20 * MIB) as service:
        declared(service)
        dies(service, "q", 2)
        (dead,) = expect(service, "dead-letter")
        assert (dead["queue"], dead["messages"], dead["time"][-1]) == ("q", 2, "Z")
        disk.room = 10 * MIB
        expect(service, "dead-letter", "alarm")
        disk.room = None
        over = expect(service, "dead-letter", "alarm", "alarm-over")[-1]
        assert (over["queue"], over["text"]) == (None, "disk-low is over: the disk has enough free space again")
        rows = table(service, EVENTS, "subject", "contentType")
        assert rows[0] == {"subject": "dead-letter", "contentType": "application/json"}


def test_a_full_queue_and_a_lease_that_is_taken_over(declared: Callable[[BrokerService], None]) -> None:
    with running(LyingDisk()) as service:
        declared(service)
        service.submit(c.DeclareQueue("full", options={"maxMessages": 1}), c.Enqueue("full", 1, 10))
        (full,) = expect(service, "alarm")
        assert full["queue"] == "full"
        assert full["text"].startswith("queue-full is raised: the queue has 1 of 1 messages")
        service.submit(c.Enqueue("q", 3, 10), *advance("q", "lease", 0), read("lease", 1, 1))
        looked(service)
        service.submit(c.EnterLease("q", "lease", "run", None, False, None))
        taken = expect(service, "alarm", "lease-taken-over")[-1]
        assert (taken["queue"], taken["lease"]) == ("q", "lease")


def test_a_full_disk_loses_events_and_nothing_else(declared: Callable[[BrokerService], None]) -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, free_space_mark_bytes=MIB, free_space_low_bytes=2 * MIB) as service:
        declared(service)
        clock.advance(1)
        disk.room = MIB // 2
        until(lambda: service.alarms.is_raised("disk-full"), "the alarm is raised")
        looked(service)
        assert events(service) == []
        clock.advance(1)
        disk.room = None
        expect(service, "alarm-over", "alarm-over")

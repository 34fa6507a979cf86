"""Q15 Q19: limits of a queue for a DataFrame: it is stored in whole or refused, and waits at a queue that blocks."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.errors import QueueFull
from penstock.broker_core.service.blocked_producers import WaitingProducer
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import enqueue, numbered, running, stage, stat


def whole(command: c.Enqueue) -> c.Enqueue:
    return c.Enqueue(command.queue, command.count, command.sizes, command.payload, whole=True)


def declare(service: BrokerService, **options: Any) -> None:
    service.submit(c.DeclareQueue("q", options=options), c.Subscribe("q"))


@pytest.mark.parametrize("overflow", ["block", "reject", "ring"])
def test_a_batch_larger_than_the_queue_is_refused_whole_when_it_is_staged(overflow: str) -> None:
    with running(LyingDisk()) as service:
        declare(service, maxMessages=5, overflow=overflow)
        for command in (whole(enqueue("q", *numbered(6))), stage("s", "q", *numbered(6))):
            with pytest.raises(QueueFull, match=r"queue 'q' has no room for 6 more.*limit of 5 messages.*Nothing was stored"):
                service.submit_patiently(command)
        assert (stat(service, "q")["available"], stat(service, "q")["delayed"]) == (0, 0)


@pytest.mark.parametrize("limits", [{}, {"maxMessages": 9}])
def test_a_key_beyond_the_limit_is_refused_at_once_though_the_queue_blocks(limits: dict[str, int]) -> None:
    """Q17: a sender does not wait for capacity that exists."""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("v", "lastvalue", {"key": "subject", "maxKeys": 1, **limits}))
        first, second = (Attributes(key=Coded([name], np.array([1]))) for name in ("a", "b"))
        service.submit_patiently(replace(whole(enqueue("v", b"1")), attributes=first))
        for command in (replace(whole(enqueue("v", b"2")), attributes=second), replace(stage("s", "v", b"2"), attributes=second)):
            with pytest.raises(QueueFull, match=r"limit of .*1 keys"):
                service.submit_patiently(command, timeout_s=3600)
        service.submit_patiently(replace(whole(enqueue("v", b"3")), attributes=first))


def test_stages_count_so_that_a_publish_never_blocks() -> None:
    with running(LyingDisk()) as service:
        declare(service, maxMessages=5, overflow="reject")
        service.submit(stage("s", "q", *numbered(3)), whole(enqueue("q", *numbered(2))))
        for command in (whole(enqueue("q", b"x")), stage("t", "q", b"x")):
            with pytest.raises(QueueFull, match=r"2 messages of \d+ bytes, 3 more staged"):
                service.submit(command)
        assert list(service.submit(enqueue("q", b"x")).refused) == [0]
        service.submit(c.Publish(["s"]))
        assert stat(service, "q")["available"] == 5


def test_who_sends_to_a_queue_that_blocks_waits_until_there_is_room_for_all_of_it() -> None:
    with running(LyingDisk()) as service:
        declare(service, maxMessages=5)
        service.submit(enqueue("q", *numbered(4)), c.Acquire("q", 1, 4))
        done = threading.Event()

        def send() -> None:
            service.submit_patiently(whole(enqueue("q", *numbered(3))))
            done.set()

        sender = threading.Thread(target=send)
        sender.start()
        service.submit(c.Settle("q", 1, RowSet.single(0)))
        assert not done.is_set()  # can only fail when a promise is broken: two places are not three
        service.submit(c.Settle("q", 1, RowSet.single(1)))
        sender.join(30)
        assert done.is_set()
        assert stat(service, "q")["available"] == 3


def test_who_has_waited_too_long_is_told_and_nothing_was_stored() -> None:
    with running(LyingDisk()) as service:
        declare(service, maxBytes=40)
        service.submit(enqueue("q", b"x" * 30))
        with pytest.raises(QueueFull, match="limit of 40 bytes"):
            service.submit_patiently(whole(enqueue("q", b"y" * 20)), timeout_s=0.01)
        assert service.capacity_of("q") == 1
        assert stat(service, "q")["available"] == 1


def test_credit_is_what_there_is_room_for() -> None:
    """C9"""
    with running(LyingDisk()) as service:
        declare(service, maxMessages=10, maxBytes=1000)
        assert service.capacity_of("q") == 1  # how large they are, the first one shows
        assert service.capacity_of("q", usual=50) == 10
        assert service.capacity_of("q", usual=300) == 4
        service.submit(enqueue("q", *[b"x" * 200] * 3))
        assert service.capacity_of("q") == 2
        service.submit(enqueue("q", *[b"x" * 200] * 3))  # outstanding credit: still stored
        assert service.capacity_of("q") == 0
        assert service.capacity_of("gone") == 0
        service.submit(c.DeclareQueue("open"))
        assert service.capacity_of("open") is None


def test_a_duplicate_is_found_when_it_is_sent_and_when_it_is_published_and_after_a_restart() -> None:
    """Q19"""
    disk = LyingDisk()

    def ids(*names: bytes) -> Attributes:
        return Attributes(ids=np.array(names, "S16"))

    with running(disk) as service:
        declare(service, duplicateWindow=100)
        first = enqueue("q", b"0", b"1")
        placed = service.submit(c.Enqueue("q", 2, first.sizes, first.payload, attributes=ids(b"a", b"b")))
        assert (placed.next, placed.duplicates) == (2, 0)
        staged = stage("s", "q", b"2", b"3", b"4")
        service.submit(c.StageMessages("s", "q", 3, staged.sizes, staged.payload, ids(b"b", b"c", b"d")))
        placed = service.submit(c.Enqueue("q", 2, first.sizes, first.payload, attributes=ids(b"c", b"c")))
        assert (placed.next, placed.duplicates) == (3, 1)
        service.submit(c.Publish(["s"]))
        assert stat(service, "q")["available"] == 4
    for snapshot in (False, True):
        with running(disk) as service:
            if snapshot:
                service.take_snapshot()
            placed = service.submit(c.Enqueue("q", 2, first.sizes, first.payload, attributes=ids(b"d", b"a")))
            assert (placed.next, placed.duplicates) == (4, 2)


def test_who_gives_up_waiting_for_capacity_is_forgotten() -> None:
    """Else each try at a queue that stays full for weeks would be looked at in every turn."""
    with running(LyingDisk()) as service:
        declare(service, maxMessages=1, overflow="block")
        service.submit(enqueue("q", b"x"))
        called: list[int] = []
        service.blocked.wait("q", WaitingProducer(lambda: called.append(1)))
        for _ in range(3):
            with pytest.raises(QueueFull):
                service.submit_patiently(whole(enqueue("q", b"y")), timeout_s=0.01)
        assert [len(waiters) for waiters in service.blocked._waiting.values()] == [1], "another one waits on"
        service.submit(c.Purge("q"))
        assert called == [1]
        assert service.blocked._waiting == {}

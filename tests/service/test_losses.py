"""Losses that no sender sees one by one, and their end with the broker."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.service.queue_counts import LOSSES

from ..journal.lying_disk import LyingDisk
from .helpers import Clock, enqueue, killed, numbered, open_service, running
from .test_queue_counts import row

RING = {"maxMessages": 2, "overflow": "ring"}


def test_losses_count_from_the_start_of_the_broker() -> None:
    disk, clock = LyingDisk(), Clock()
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q", options=RING))
    service.submit(enqueue("q", *numbered(5)))
    assert row(service, "q")["droppedRing"] == 3
    with running(killed(service, disk), clock.restarted()) as again:
        assert {row(again, "q")[column] for column in LOSSES} == {0}


def test_duplicates_of_a_published_write_are_dropped() -> None:
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q", options={"duplicateWindow": 10}))
        ids = Attributes(ids=np.array([b"1" * 16, b"2" * 16, b"1" * 16], "S16"))
        service.submit(c.StageMessages("s", "q", 3, 8, attributes=ids), c.Publish(["s"]))
        assert row(service, "q")["droppedDuplicate"] == 1


@pytest.mark.parametrize(
    ("options", "fills"),
    [
        ({"maxMessages": 4}, [0, 500, 1000]),
        ({"maxBytes": 64}, [0, 250, 500]),
        ({"maxMessages": 4, "maxBytes": 16}, [0, 1000, 1000]),
        (RING, [0, 0, 0]),
    ],
)
def test_the_fill_level_is_that_of_the_nearer_limit(options: dict[str, int], fills: list[int]) -> None:
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q", options={"overflow": "reject", **options}))
        for fill in fills:
            assert row(service, "q")["fill"] == fill
            service.submit(c.Enqueue("q", 2, 8))
        assert row(service, "q")["maxMessages"] == options.get("maxMessages", 0)


def test_messages_that_a_ring_cannot_replace_fill_it() -> None:
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q", options=RING), c.Enqueue("q", 2, 8))
        service.submit(c.Acquire("q", service.submit(c.Subscribe("q")), 1))
        assert row(service, "q")["fill"] == 500

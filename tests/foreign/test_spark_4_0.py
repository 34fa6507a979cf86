"""A stream from another broker on Spark 4.0 and 4.2: a driver dies at each step, and each message is written once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connector.stream.start_tracking import StartTracker

from ..spark_driver import SPARKS, STEPS, Checkpoint, Died, dying, run
from .helpers import Queue

COUNT = 60


def bodies(batch: Any) -> list[int]:
    return [int(body) for body in batch.column("body").to_pylist()]


def drive(queue: Queue, spark: str, checkpoint: Checkpoint, settle: str, **how: Any) -> None:
    reader = queue.reader(("body",), settle=settle, maxMessagesPerTrigger="10")
    try:
        run(spark, checkpoint, StartTracker(reader) if spark == "4.0" else reader, bodies, **how)
    finally:
        reader.stop()


@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(queue: Queue, spark: str, settle: str) -> None:
    queue.send(0, COUNT)
    checkpoint, deaths = Checkpoint(), 0
    for at in STEPS:
        batch = len(checkpoint.offsets)
        try:
            drive(queue, spark, checkpoint, settle, step=dying(at, batch))
        except Died:
            deaths += 1
        queue.released()
    drive(queue, spark, checkpoint, settle, idle=20)
    assert deaths >= 5
    assert sorted(checkpoint.rows) == list(range(COUNT))
    assert queue.available() == 0


def test_the_only_batch_of_a_run_waits_until_it_is_certain_whether_the_broker_has_messages(queue: Queue) -> None:
    queue.send(0, 5)
    checkpoint = Checkpoint()
    drive(queue, "4.0", checkpoint, "spooled", once=True)
    assert sorted(checkpoint.rows) == list(range(5))

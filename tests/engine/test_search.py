"""Q1: the fast path at a queue's front finds the same messages as the full search, if it returns a result."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.model.search import Filter, Search, Unexpired, Without, _at_the_front, _RunningSearch

from .harness import SECOND, START, Engine


def a_queue(source: Random) -> Engine:
    """Create messages in one or two blocks; some are taken, some returned, some expire."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Subscribe("q"))
    if source.random() < 0.3:
        engine.run(c.Enqueue("q", BLOCK_ROWS - source.randrange(4), 10))
        if source.random() < 0.7:
            engine.run(c.Acquire("q", 1, BLOCK_ROWS - source.randrange(8)))
    for _ in range(source.randrange(1, 6)):
        count = source.randrange(1, 5)
        sizes = 10 if source.random() < 0.7 else np.array([source.randrange(1, 99) for _ in range(count)])
        expiry = np.where(np.arange(count) % 2 == 0, engine.wall // 1000 + source.choice([0, 5000]), 0)
        attributes = Attributes(expiry=expiry) if source.random() < 0.2 else Attributes()
        engine.run(c.Enqueue("q", count, sizes, attributes=attributes))
        if source.random() < 0.6:
            rows = engine.run(c.Acquire("q", 1, source.randrange(1, 4))).rows
            if rows and source.random() < 0.4:
                engine.run(c.Release("q", 1, RowSet.single(rows.first)))  # may leave a gap after it
    return engine


@pytest.mark.parametrize("seed", range(10))
def test_the_front_and_a_hunt_agree(seed: int) -> None:
    source, seen = Random(seed), 0
    for _ in range(150):
        engine = a_queue(source)
        queue = engine.state.queues["q"]
        for _ in range(10):
            place = source.choice([0, 0, source.randrange(12), queue.next_sequence - source.randrange(4), BLOCK_ROWS])
            filters: list[Filter] = [Unexpired((START + source.choice([0, 9]) * SECOND) // 1000)]
            if source.random() < 0.2:
                filters.append(Without(RowSet.single(source.randrange(queue.next_sequence))))
            search = Search(
                source.choice([0, 1, 2, 5, BLOCK_ROWS * 2]),
                source.choice([None, 5, 25, 10_000_000]),
                until=3 if source.random() < 0.1 else None,
                filters=filters,
            )
            level = source.choice([0, None])
            front = _at_the_front(queue, max(0, place), search, level)
            if front is not None:
                seen += 1
                assert front == _RunningSearch(queue, search).through(level, max(0, place)).result()
    assert seen > 100

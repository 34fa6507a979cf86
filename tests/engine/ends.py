"""Helpers for tests of a queue with a dead-letter queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved
from .harness import Engine

DLQ = {"deadLetterQueue": "dead"}


def make(count: int = 3, dead: dict[str, Any] | None = None, attributes: Attributes | None = None, **options: Any) -> Engine:
    """Create queue `q` with `count` messages and these options, and its dead-letter queue `dead`."""
    engine = Engine()
    engine.run(c.DeclareQueue("dead", options=dead or {}), c.DeclareQueue("q", options={**DLQ, **options}))
    if count:
        engine.run(c.Enqueue("q", count, np.arange(count) + 10, attributes=attributes or Attributes()))
    return engine


def queue(engine: Engine, name: str = "q") -> Queue:
    return engine.state.queues[name]


def taken(engine: Engine, count: int = 9, name: str = "q") -> int:
    """Attach a link that acquires messages."""
    holder: int = engine.run(c.Subscribe(name))
    engine.run(c.Acquire(name, holder, count))
    return holder


def cell(engine: Engine, row: int, column: str, name: str = "q") -> int:
    return int(np.asarray(getattr(queue(engine, name).blocks[0], column).get(slice(row, row + 1))).reshape(-1)[0])


def fate(engine: Engine, row: int = 0, name: str = "q") -> str:
    state = State(queue(engine, name).blocks[0].state[row])
    return state.name.lower() if state != State.ARCHIVED else Outcome(cell(engine, row, "outcome", name)).name.lower()


def survives(engine: Engine) -> Engine:
    """Check that a recovery and a snapshot give the same state, and that no message is lost."""
    assert all(map(conserved, engine.state.queues.values()))
    persisted = engine.persisted()
    for restored in (engine.recovered(), engine.from_snapshot()):
        assert restored.persisted() == persisted
        assert restored.state.made == engine.state.made
        for name, expected in engine.state.queues.items():
            mine, derived = queue(restored, name), ("counts", "bytes", "available_bytes", "overlay_bytes", "stayed", "ended")
            assert {n: getattr(mine, n) for n in derived} == {n: getattr(expected, n) for n in derived}
            names = {name: expected.group_names.live(np.array([code])).tolist() for name, code in expected.group_names.names()}
            assert {name: mine.group_names.live(np.array([code])).tolist() for name, code in mine.group_names.names()} == names
    return engine

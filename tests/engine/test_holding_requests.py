"""Renewed locks of held messages, and cancelled messages that are delayed."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State

from .harness import START, Engine


def counts(engine: Engine) -> dict[str, int]:
    queue = engine.state.queues["q"]
    return {state.name: queue.counts[state] for state in State if queue.counts[state]}


def holding(options: dict[str, int], messages: int = 3) -> tuple[Engine, int]:
    """An engine with a link that holds all messages of a queue."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options=options), c.Enqueue("q", messages, 1))
    holder = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", holder, messages))
    return engine, holder


def test_a_renewed_lock_lasts_as_long_as_a_new_one() -> None:
    engine, holder = holding({"lockTimeout": 10_000})
    engine.pass_time(9)
    engine.run(c.RenewLock("q", holder, RowSet.range(1, 2)))
    engine.pass_time(2)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 2, "ACQUIRED": 1}
    engine.pass_time(8)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 3}


def test_a_lock_without_end_needs_no_renewal() -> None:
    engine, holder = holding({})
    engine.run(c.RenewLock("q", holder, RowSet.range(0, 3)))
    assert counts(engine) == {"ACQUIRED": 3}


def test_a_lock_that_is_renewed_without_a_time_limit_does_not_end() -> None:
    engine, holder = holding({"lockTimeout": 10_000})
    engine.run(c.AlterQueue("q", {"lockTimeout": 0}), c.RenewLock("q", holder, RowSet.range(0, 2)))
    engine.pass_time(99)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 1, "ACQUIRED": 2}, "only the lock of the third message has ended"
    engine.run(c.AlterQueue("q", {"lockTimeout": 5000}), c.RenewLock("q", holder, RowSet.single(0)))
    engine.pass_time(5)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 2, "ACQUIRED": 1}


def test_only_the_holder_renews_and_all_or_none() -> None:
    engine, holder = holding({"lockTimeout": 10_000})
    other = engine.run(c.Subscribe("q"))
    engine.run(c.Release("q", holder, RowSet.single(2), Cause.RELEASED))
    engine.pass_time(9)
    for who, rows in ((other, RowSet.single(0)), (holder, RowSet.range(0, 3)), (holder, RowSet.single(99))):
        with pytest.raises(errors.IllegalTransition):
            engine.run(c.RenewLock("q", who, rows))
    engine.pass_time(2)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 3}


def delayed() -> Engine:
    """An engine with the messages 0 and 2 delayed, and 1 available."""
    engine = Engine()
    due = np.array([START // 1000 + 9000, 0, START // 1000 + 9000])
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 1, attributes=Attributes(due=due)))
    return engine


def test_a_cancelled_message_never_comes() -> None:
    engine = delayed()
    engine.run(c.CancelDelayed("q", RowSet.single(2), "alice"))
    assert counts(engine) == {"DELAYED": 1, "AVAILABLE": 1, "ARCHIVED": 1}
    block = engine.recovered().state.queues["q"].blocks[0]
    assert int(np.broadcast_to(block.outcome.get(slice(0, 3)), 3)[2]) == Outcome.PURGED
    engine.pass_time(10)
    engine.run(c.Tick())
    assert counts(engine) == {"AVAILABLE": 2, "ARCHIVED": 1}


def test_a_message_that_waits_for_its_retry_is_not_cancelled() -> None:
    """Its sender cannot take back a scheduled message after a consumer has failed."""
    engine = delayed()
    engine.run(c.AlterQueue("q", {"retryDelay": 60_000}))
    engine.pass_time(10)
    engine.run(c.Tick())
    holder = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", holder, 3), c.Release("q", holder, RowSet.range(0, 3), Cause.MODIFIED))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(due=np.array([engine.wall // 1000 + 9000]))))
    for rows in (RowSet.single(2), RowSet.range(2, 4)):
        with pytest.raises(errors.IllegalTransition, match="wait for their retry"):
            engine.run(c.CancelDelayed("q", rows))
    engine.run(c.CancelDelayed("q", RowSet.single(3)))
    assert counts(engine) == {"DELAYED": 3, "ARCHIVED": 1}


@pytest.mark.parametrize("rows", [RowSet.range(0, 3), RowSet.single(1), RowSet.single(7), RowSet.single(1 << 40)])
def test_messages_are_cancelled_together_or_not_at_all(rows: RowSet) -> None:
    engine = delayed()
    with pytest.raises(errors.IllegalTransition):
        engine.run(c.CancelDelayed("q", rows))
    assert counts(engine) == {"DELAYED": 2, "AVAILABLE": 1}

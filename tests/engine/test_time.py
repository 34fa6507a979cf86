"""Q9 Q14 Q18: messages expire, wait for their time, and come back when a lock ends. The cost depends on due messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.engine.columns.timetable import LEAST, Timetable
from penstock.broker_core.engine.decide import time as decide_time

from .conservation import conserved
from .harness import START, Engine

NOW = START // 1000  # milliseconds


def times(*seconds: float | None) -> Any:
    """Return milliseconds since 1970 for seconds after the engine's start; 0 for None."""
    return np.array([0 if s is None else NOW + int(s * 1000) for s in seconds], np.int64)


def engine_with(**options: Any) -> Engine:
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options=options), c.Subscribe("q"), c.Subscribe("q"))
    return engine


def send(engine: Engine, **columns: Any) -> None:
    count = len(next(iter(columns.values())))
    engine.run(c.Enqueue("q", count, 1, attributes=Attributes(**columns)))


def took(engine: Engine, count: int = 99, holder: int = 1) -> list[int]:
    return list(engine.run(c.Acquire("q", holder, count)).rows.sequences().tolist())


def counts(engine: Engine) -> list[int]:
    """Return the numbers of delayed, available, acquired and archived messages."""
    queue = engine.state.queues["q"]
    assert conserved(queue)
    return queue.counts[:4]


def test_what_has_expired_is_never_delivered_even_before_a_tick() -> None:
    """Q9"""
    engine = engine_with()
    send(engine, expiry=times(5, None, 10, 5))
    assert engine.run(c.Browse("q", 0, 9))[0].sequences().tolist() == [0, 1, 2, 3]
    engine.pass_time(5)
    assert engine.run(c.Browse("q", 0, 9))[0].sequences().tolist() == [1, 2]
    assert took(engine, 1) == [1]
    engine.advance("l", epoch=None, finished=0)
    assert engine.state.leases["l"].batches[1].rows.sequences().tolist() == [2]
    assert counts(engine) == [0, 2, 2, 0]
    engine.run(c.Tick())
    assert counts(engine) == [0, 0, 2, 2]
    block = engine.state.queues["q"].blocks[0]
    assert block.outcome.get(np.array([0, 3])).tolist() == [Outcome.EXPIRED] * 2  # type: ignore[union-attr]


def test_what_is_held_by_somebody_does_not_expire_and_goes_when_it_comes_back() -> None:
    engine = engine_with()
    send(engine, expiry=times(5, 5))
    assert took(engine, 1) == [0]
    engine.pass_time(6)
    engine.run(c.Tick())
    assert counts(engine) == [0, 0, 1, 1]
    engine.run(c.Release("q", 1, RowSet.single(0)))
    assert took(engine) == []
    engine.run(c.Tick())  # expiry runs every two seconds
    assert counts(engine) == [0, 1, 0, 1]
    engine.pass_time(2)
    engine.run(c.Tick())
    assert counts(engine) == [0, 0, 0, 2]


def test_a_delayed_message_is_held_and_comes_to_its_arrival_place() -> None:
    """Q18"""
    engine = engine_with()
    send(engine, due=times(3, None, -1, 3, 60))
    assert counts(engine) == [3, 2, 0, 0]
    assert took(engine) == [1, 2]
    engine.pass_time(2.9)
    engine.run(c.Tick())
    assert took(engine) == []
    engine.pass_time(0.1)
    engine.run(c.Tick())
    assert took(engine) == [0, 3]  # the link's position was already behind them
    engine.pass_time(100)
    engine.run(c.Tick(), c.Tick())
    assert took(engine) == [4]


def test_a_delay_longer_than_the_time_to_live_ends_in_the_archive() -> None:
    engine = engine_with()
    send(engine, due=times(10, 10), expiry=times(5, 20))
    engine.pass_time(5)
    engine.run(c.Tick())
    assert counts(engine) == [1, 0, 0, 1]
    engine.pass_time(5)
    engine.run(c.Tick())
    assert counts(engine) == [0, 1, 0, 1]
    engine.pass_time(100)
    assert took(engine) == []  # due and expired between two ticks


def test_what_waits_for_its_time_is_purged_too() -> None:
    """Q18 Q20: delayed and available messages are purged in order, and a later tick finds none of them."""
    engine = engine_with()
    send(engine, due=times(3, None, 5, 3, None))
    assert took(engine, 1) == [1]
    assert [engine.run(c.Purge("q", 2, end=4)), engine.run(c.Purge("q", 2, end=4))] == [2, 1]
    assert counts(engine) == [0, 1, 1, 3]
    block = engine.state.queues["q"].blocks[0]
    assert np.asarray(block.outcome.get(np.array([0, 2, 3]))).tolist() == [Outcome.PURGED] * 3
    assert counts(engine.recovered()) == counts(engine.from_snapshot()) == [0, 1, 1, 3]
    engine.pass_time(9)
    engine.run(c.Tick())
    assert counts(engine) == [0, 1, 1, 3]


def test_a_lock_gives_back_what_its_holder_sits_on_and_only_that() -> None:
    """Q14"""
    engine = engine_with(lockTimeout=10_000)
    engine.run(c.Enqueue("q", 6, 1))
    assert took(engine, 3) == [0, 1, 2]
    engine.pass_time(6)
    assert took(engine, 1, holder=3) == [3]
    engine.run(c.Settle("q", 1, RowSet.single(0)), c.Release("q", 1, RowSet.single(1)))
    assert took(engine, 1) == [1]  # again, with a new lock
    engine.pass_time(4)
    engine.run(c.Tick())
    assert counts(engine) == [0, 3, 2, 1]
    assert took(engine, 1, holder=3) == [2]
    block = engine.state.queues["q"].blocks[0]
    assert block.attempts.get(slice(0, 6)).tolist() == [0, 0, 1, 0, 0, 0]  # type: ignore[union-attr]
    engine.pass_time(6)
    engine.run(c.Tick())
    assert counts(engine) == [0, 4, 1, 1]
    engine.pass_time(4)
    engine.run(c.Tick())
    assert counts(engine) == [0, 5, 0, 1]
    engine.run(c.Unsubscribe("q", 1), c.Unsubscribe("q", 3))


def test_an_altered_lock_is_for_what_is_taken_from_then_on() -> None:
    """Q14 Q21"""
    engine = engine_with()
    engine.run(c.Enqueue("q", 3, 1))
    assert took(engine, 1) == [0]
    engine.run(c.AlterQueue("q", {"lockTimeout": 10_000}))
    assert took(engine, 1) == [1]
    engine.run(c.AlterQueue("q", {"lockTimeout": None}))
    assert took(engine, 1) == [2]
    engine.pass_time(3600)
    engine.run(c.Tick())
    assert counts(engine) == [0, 1, 2, 0]
    assert took(engine, 1, holder=3) == [1]


@pytest.mark.parametrize("how", ["recovered", "from_snapshot"])
def test_times_outlive_the_broker_and_locks_end_with_it(how: str) -> None:
    engine = engine_with(lockTimeout=10_000)
    send(engine, due=times(3, None, None), expiry=times(None, 5, None))
    assert took(engine, 1, holder=3) == [1]
    later: Engine = getattr(engine, how)()
    later.up, later.wall = 77, engine.wall
    later.run(c.StartBroker(), c.Subscribe("q"))
    assert counts(later) == [1, 2, 0, 0]
    later.pass_time(4)
    later.run(c.Tick())
    assert counts(later) == [0, 3, 0, 0]
    later.pass_time(2)
    later.run(c.Tick())
    assert counts(later) == [0, 2, 0, 1]


def test_a_tick_looks_at_what_is_due_and_at_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with()
    send(engine, expiry=NOW + 1000 * (1 + np.arange(8 * BLOCK_ROWS, dtype=np.int64) // BLOCK_ROWS))
    clock, looked = engine.state.clocks.expiry, []
    monkeypatch.setattr(Timetable, "due", lambda self, now, due=Timetable.due: (looked.append(x) or x for x in due(self, now)))
    engine.run(c.Tick())
    assert looked == []
    assert len(clock._heap) == 8
    engine.pass_time(3)
    engine.run(c.Tick())
    assert sorted(set(looked)) == [("q", 0), ("q", 1), ("q", 2)]
    assert len(clock._heap) == 5
    assert counts(engine) == [0, 5 * BLOCK_ROWS, 0, 3 * BLOCK_ROWS]
    engine.pass_time(100)
    engine.run(c.Tick(), c.Tick())
    assert counts(engine) == [0, 0, 0, 8 * BLOCK_ROWS]
    assert not clock._heap


def test_a_timetable_tells_of_each_block_once_and_of_what_is_due_only() -> None:
    table = Timetable()
    for time in (5, 3, 9, 3, 1, 7):
        table.note(time, "q", time % 3)
    assert table.next == 1
    assert sorted(table.due(5)) == [("q", 0), ("q", 1), ("q", 2)]
    assert sorted(table.due(3)) == [("q", 0), ("q", 1)]
    assert table.passed(3) == {("q", 0), ("q", 1)}
    assert table.next == 5
    assert table.passed(99) == {("q", 0), ("q", 1), ("q", 2)}
    assert list(table.due(99)) == []


@pytest.mark.parametrize("column", ["expiry", "due"])
def test_what_is_due_earlier_and_earlier_takes_no_more_memory_and_is_seen_to_in_time(column: str) -> None:
    engine, now, count = Engine(), START // 1000, 2 * LEAST + 10
    engine.run(c.DeclareQueue("q"))
    for number in range(count):
        engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(**{column: np.array([now + 5000 * (count - number)])})))
    clock = getattr(engine.state.clocks, column)
    assert len(clock) <= LEAST
    passed, of = 0, State.AVAILABLE if column == "due" else State.ARCHIVED
    for seconds in (5, 500, 5000):
        engine.pass_time(seconds)
        engine.run(c.Tick())
        passed += seconds
        assert counts(engine)[of] == passed // 5


def test_queues_that_are_gone_take_no_memory_for_what_would_have_expired_in_them() -> None:
    engine = Engine()
    for number in range(2 * LEAST):
        ends = Attributes(expiry=np.array([START // 1000 + 86_400_000]))
        engine.run(c.DeclareQueue(f"q{number}"), c.Enqueue(f"q{number}", 1, 1, attributes=ends), c.DeleteQueue(f"q{number}"))
    assert len(engine.state.clocks.expiry) <= LEAST


def test_many_dead_letters_that_expire_at_once_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """D1 Q13: expired messages that wait for a later tick are not delivered."""
    monkeypatch.setattr(decide_time, "MAX_EXPIRED", 4)
    engine = Engine()
    engine.run(c.DeclareQueue("dead"))
    for name, expired in (("q", "deadLetter"), ("r", "deadLetter"), ("s", "archive")):
        options = {"expired": expired, "deadLetterQueue": "dead"}
        ends = Attributes(expiry=np.full(5, START // 1000 + 1000))
        engine.run(c.DeclareQueue(name, options=options), c.Enqueue(name, 5, 1, attributes=ends), c.Enqueue(name, 1, 1))
    engine.pass_time(2)
    for gone in (4, 8, 10, 10):
        engine.run(c.Tick())
        queues = engine.state.queues
        assert queues["dead"].live == gone
        assert queues["q"].live + queues["r"].live == 12 - gone
        assert queues["s"].live == 1
        engine = engine.from_snapshot() if gone == 4 else engine
        assert [row[0] for row in (engine.run(c.Browse(name, 0, 9)).rows.sequences().tolist() for name in "qrs")] == [5, 5, 5]
        engine.pass_time(2)


@pytest.mark.parametrize("how", ["goes on", "recovered", "from_snapshot"])
def test_what_has_expired_and_is_due_rings_no_bell_until_it_is_put_away(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q9 Q18: other messages of the block come in time."""
    monkeypatch.setattr(decide_time, "MAX_EXPIRED", 2)
    engine = engine_with(expired="deadLetter", deadLetterQueue="dead")
    engine.run(c.DeclareQueue("dead"))
    send(engine, due=times(*[1] * 9, 2.5, 3.5), expiry=times(*[1] * 9, None, 3))
    engine.pass_time(2)
    engine.run(c.Tick())
    if how != "goes on":
        wall = engine.wall
        engine = getattr(engine, how)()
        engine.wall = wall
        engine.run(c.StartBroker(), c.Tick())  # the tick expires messages immediately
    left = 9 if how == "goes on" else 7
    send(engine, expiry=times(60))
    holder = engine.run(c.Subscribe("q"))
    for come_back in (False, True):
        if come_back:
            engine.run(c.Release("q", holder, engine.run(c.Acquire("q", holder, 1)).rows))
        assert counts(engine)[:2] == [left, 1]
        assert engine.state.clocks.due.next == NOW + 2500
    engine.pass_time(0.5)
    engine.run(c.Tick())
    assert counts(engine)[:2] == [left - 1, 2]
    assert engine.state.clocks.due.next == NOW + 3500
    for put_away in (2, 4):
        engine.pass_time(2)
        engine.run(c.Tick())
        assert counts(engine)[:2] == [left - 1 - put_away, 2]
        assert engine.state.clocks.due.next > engine.wall // 1000

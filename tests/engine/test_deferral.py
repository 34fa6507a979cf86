"""Q24: a deferred message waits until a link asks for its sequence number. Purge, expiry, moves and other features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.obstacles import Obstacle
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.dispositions import DeliveryEnd

from .ends import cell, fate, make, survives, taken
from .harness import Engine

FIRST, PAIR = RowSet.single(0), RowSet.range(0, 2)


def deferring(rows: RowSet = FIRST, count: int = 3, **more: Any) -> Engine:
    """Create queue `q`, of which a link has deferred some messages and returned the others."""
    engine = make(count, **more)
    link = taken(engine)
    engine.run(c.Release("q", link, rows, Cause.DEFERRED), c.Unsubscribe("q", link, Cause.RELEASED))
    return survives(engine)


def asks(engine: Engine, rows: RowSet = FIRST, **more: Any) -> int:
    """Attach a link that acquires deferred messages."""
    link: int = engine.run(c.Subscribe("q", by_number=True))
    assert not engine.run(c.AcquireDeferred("q", link, rows, **more))
    return link


def of(engine: Engine, name: str = "q") -> dict[str, int]:
    (stat,) = engine.run(c.Stat(name))
    return {state.name.lower(): stat[state.name.lower()] for state in State if stat[state.name.lower()]}


def test_only_a_link_that_asks_gets_it() -> None:
    engine = deferring()
    consumer = engine.run(c.Subscribe("q"))
    assert engine.run(c.Acquire("q", consumer, 9)).rows == RowSet.range(1, 3)
    assert engine.run(c.Browse("q", 0, 9)).rows == RowSet()
    link = asks(engine)
    assert (fate(engine), cell(engine, 0, "holder"), cell(engine, 0, "attempts")) == ("acquired", link, 1)
    engine.run(c.Settle("q", link, FIRST))
    assert fate(survives(engine)) == "accepted"


@pytest.mark.parametrize(
    ("cause", "attempts"),
    [(Cause.RELEASED, 1), (Cause.MODIFIED, 2), (Cause.DEFERRED, 2), (Cause.LOCK_TIMED_OUT, 2), (Cause.LINK_LOST, 2)],
)
def test_each_return_makes_it_deferred_again(cause: Cause, attempts: int) -> None:
    engine = deferring(lockTimeout=1000, retryDelay=500)
    link = asks(engine)
    if cause is Cause.LOCK_TIMED_OUT:
        engine.pass_time(2)
        engine.run(c.Tick())
    else:
        engine.run(c.Unsubscribe("q", link) if cause is Cause.LINK_LOST else c.Release("q", link, FIRST, cause))
    assert (fate(survives(engine)), cell(engine, 0, "attempts")) == ("deferred", attempts)
    assert b"delayed" not in engine.log[-1][0]
    engine.pass_time(9)
    engine.run(c.Tick())
    assert fate(engine) == "deferred", "it waits for no retry"


def test_a_restart_keeps_it_and_returns_it() -> None:
    for held in (False, True):
        engine = deferring()
        if held:
            asks(engine)
        for restarted in (engine.recovered(), engine.from_snapshot()):
            restarted.run(c.StartBroker())
            assert (of(restarted), cell(restarted, 0, "attempts")) == ({"available": 2, "deferred": 1}, 1)
            assert fate(restarted) == "deferred"
            asks(restarted)


def test_all_are_acquired_or_none() -> None:
    engine = deferring(PAIR)
    link = engine.run(c.Subscribe("q", by_number=True))
    for number in (2, 3, 1 << 40, -5):
        assert engine.run(c.AcquireDeferred("q", link, RowSet.single(number).plus(PAIR))) == RowSet.single(number)
        assert of(engine) == {"available": 1, "deferred": 2}
    asks(engine)
    assert engine.run(c.AcquireDeferred("q", link, PAIR)) == FIRST, "another link has it"


def test_a_request_is_limited_in_bytes_but_one_message_always_fits() -> None:
    engine = deferring(PAIR)
    link = engine.run(c.Subscribe("q", by_number=True))
    with pytest.raises(errors.ResourceLimit, match=r"2 messages of 'q' have 21 bytes.*nothing was changed"):
        engine.run(c.AcquireDeferred("q", link, PAIR, 20))
    assert of(engine) == {"available": 1, "deferred": 2}
    asks(engine, max_bytes=1)


def test_a_paused_queue_gives_none() -> None:
    engine = deferring()
    engine.run(c.PauseQueue("q"))
    with pytest.raises(errors.InUse, match="paused"):
        asks(engine)


def test_the_last_attempt_makes_a_dead_letter() -> None:
    engine = deferring(maxAttempts=3)
    engine.run(c.Release("q", asks(engine), FIRST, Cause.DEFERRED))
    assert fate(engine) == "deferred"
    engine.run(c.Release("q", asks(engine), FIRST, Cause.MODIFIED))
    assert (fate(survives(engine)), of(engine, "dead")) == ("dead_lettered", {"available": 1})
    first = deferring(maxAttempts=1)
    assert fate(first) == "dead_lettered", "the deferral itself was the last attempt"


@pytest.mark.parametrize(("expired", "end"), [("archive", "expired"), ("deadLetter", "dead_lettered")])
def test_it_expires_when_it_is_asked_for(expired: str, end: str) -> None:
    ttl = Attributes(expiry=np.array([0, 0, 0]) + Engine().wall // 1000 + 5000)
    engine = deferring(PAIR, attributes=ttl, expired=expired)
    engine.pass_time(60)
    engine.run(c.Tick())
    assert [fate(engine, row) for row in range(3)] == ["deferred", "deferred", end]
    link = engine.run(c.Subscribe("q", by_number=True))
    assert engine.run(c.AcquireDeferred("q", link, FIRST)) == FIRST
    assert [fate(survives(engine), row) for row in range(2)] == [end, "deferred"]
    assert of(engine, "dead").get("available", 0) == (2 if expired == "deadLetter" else 0)


def test_operators_reach_it() -> None:
    for command, end in (
        (c.Purge("q"), "purged"),
        (c.DiscardMessages("q", 0, 0, "why"), "purged"),
        (c.Replace("q", 0, c.Enqueue("q", 1, 1)), "replaced"),
        (c.Move("q", "dead"), "moved"),
        (c.Copy("q", "dead"), "deferred"),
    ):
        engine = deferring()
        engine.run(command)
        assert fate(survives(engine)) == end
        if isinstance(command, (c.Move, c.Copy)):
            assert of(engine, "dead") == {"available": 3}, "it is asked for by a number that it no longer has"


def test_an_operator_ends_one_that_a_link_holds() -> None:
    engine = deferring()
    link = asks(engine)
    engine.run(c.DiscardMessages("q", 0, 0, "why"))
    assert fate(survives(engine)) == "purged"
    assert engine.run(c.Unsubscribe("q", link)) == RowSet()


def test_an_expired_one_is_moved_and_expires_there() -> None:
    """Other expired messages expire here."""
    ttl = Attributes(expiry=np.array([0, 0]) + Engine().wall // 1000 + 5000)
    engine = deferring(count=2, attributes=ttl)
    engine.pass_time(60)
    assert engine.run(c.Move("q", "dead")).messages == 1
    engine.run(c.Tick())
    assert (fate(engine), fate(engine, 1), fate(engine, name="dead")) == ("moved", "expired", "expired")


def test_a_scheduled_message_is_cancelled_and_a_deferred_one_is_not() -> None:
    engine = deferring()
    with pytest.raises(errors.IllegalTransition):
        engine.run(c.CancelDelayed("q", FIRST))


def test_a_deferred_dead_letter_is_redriven() -> None:
    engine = make(1)
    engine.run(c.Settle("q", taken(engine), FIRST, Outcome.REJECTED))
    engine.run(c.Release("dead", taken(engine, name="dead"), FIRST, Cause.DEFERRED))
    assert engine.run(c.Redrive("dead")).messages == 1
    assert (fate(survives(engine), name="dead"), fate(engine, 1)) == ("moved", "available")


def test_one_that_stayed_as_a_dead_letter_is_available_after_its_redrive() -> None:
    engine = deferring(maxAttempts=2, deadLetterQueue="missing")
    engine.run(c.Release("q", asks(engine), FIRST, Cause.MODIFIED))
    assert engine.run(c.Redrive("q")).messages == 1
    assert (fate(survives(engine)), cell(engine, 0, "deferred")) == ("available", 0)
    engine.run(c.Release("q", taken(engine, 1), FIRST))
    assert fate(engine) == "available"


def test_it_counts_towards_limits_and_a_ring_does_not_drop_it() -> None:
    engine = deferring(PAIR, maxMessages=3, overflow="reject")
    assert engine.run(c.Enqueue("q", 1, 1)).refused == (0,)
    engine = deferring(PAIR, maxMessages=3, overflow="ring")
    engine.run(c.Enqueue("q", 2, 1))
    assert [fate(engine, row) for row in range(5)] == ["deferred", "deferred", "dropped", "dropped", "available"]


def test_it_is_not_empty_and_deletes_with_its_queue() -> None:
    engine = deferring(count=1)
    with pytest.raises(errors.InUse, match="not empty"):
        engine.run(c.DeleteQueue("q", if_empty=True))
    assert engine.run(c.DeleteQueue("q")) == 1


def test_it_keeps_neither_its_group_nor_an_exclusive_queue_waiting() -> None:
    group = Attributes(group=Coded(["g"], np.array([1, 1, 1])))
    for options in ({"groups": "held", "attributes": group}, {"consumers": "single"}, {"consumers": "exclusive"}):
        engine = deferring(**options)
        consumer, link = taken(engine, 1), asks(engine)
        assert [fate(engine, row) for row in range(3)] == ["acquired", "acquired", "available"]
        assert (cell(engine, 0, "holder"), cell(engine, 1, "holder")) == (link, consumer)
        engine.run(c.Settle("q", link, FIRST))
        if "groups" in options:
            assert not engine.run(c.Acquire("q", engine.run(c.Subscribe("q")), 9)).rows, "the group is still the consumer's"
        assert engine.run(c.Acquire("q", consumer, 9)).rows == RowSet.single(2)
        engine.run(c.Settle("q", consumer, RowSet.range(1, 3)))
        survives(engine)


def test_a_restart_frees_the_groups_of_others() -> None:
    engine = deferring(groups="held", attributes=Attributes(group=Coded(["g"], np.array([1, 1, 1]))))
    asks(engine)
    for restarted in (engine.recovered(), engine.from_snapshot()):
        restarted.run(c.StartBroker())
        assert restarted.run(c.Acquire("q", restarted.run(c.Subscribe("q")), 9)).rows == RowSet.range(1, 3)


@pytest.mark.parametrize("end", ["time", "link"])
def test_a_link_that_has_locked_its_group_holds_it_as_long_as_the_group(end: str) -> None:
    group = Attributes(group=Coded(["g"], np.array([1, 1, 1])))
    engine = deferring(groups="held", lockTimeout=1000, attributes=group)
    link = engine.run(c.Subscribe("q", one_group=True))
    engine.run(c.LockGroup("q", link, "g"))
    assert not engine.run(c.AcquireDeferred("q", link, FIRST))
    engine.pass_time(0.8)
    engine.run(c.RenewGroupLock("q", link))
    engine.pass_time(0.8)
    engine.run(c.Tick())
    assert fate(engine) == "acquired", "it has no lock of its own"
    if end == "time":
        engine.pass_time(0.8)
        engine.run(c.Tick())
    else:
        engine.run(c.Unsubscribe("q", link))
    assert (fate(survives(engine)), cell(engine, 0, "attempts")) == ("deferred", 2)
    assert engine.run(c.Acquire("q", engine.run(c.Subscribe("q")), 9)).rows == RowSet.range(1, 3), "the group is free"


def test_a_newer_value_of_its_key_replaces_it() -> None:
    key = Attributes(key=Coded(["k"], np.array([1])))
    engine = Engine()
    engine.run(c.DeclareQueue("q", "lastvalue", {"key": "subject"}), c.Enqueue("q", 1, 1, attributes=key))
    engine.run(c.Release("q", taken(engine), FIRST, Cause.DEFERRED), c.Enqueue("q", 1, 1, attributes=key))
    assert [fate(engine, row) for row in range(2)] == ["replaced", "available"]
    link = taken(engine)
    engine.run(c.Enqueue("q", 1, 1, attributes=key), c.Release("q", link, RowSet.single(1), Cause.DEFERRED))
    assert [fate(survives(engine), row) for row in range(3)] == ["replaced", "replaced", "available"]


def test_it_is_not_refused_by_all() -> None:
    engine = make(1, refusedByAll="deadLetter")
    links = [engine.run(c.Subscribe("q")) for _ in range(3)]
    for link in links[:2]:
        engine.run(c.Acquire("q", link, 1), c.Release("q", link, FIRST, exclude=True))
    engine.run(c.Acquire("q", links[2], 1), c.Release("q", links[2], FIRST, Cause.DEFERRED))
    engine.run(c.Unsubscribe("q", links[2]))
    engine.run(c.Unsubscribe("q", asks(engine)))
    assert fate(engine) == "deferred"


def test_no_link_refuses_a_deferred_message() -> None:
    """A link that asks does not count as a consumer, and a message that is deferred now waits for no link."""
    engine = deferring(count=1, refusedByAll="deadLetter")
    link = asks(engine)
    engine.run(c.Release("q", link, FIRST, exclude=True))
    assert (fate(survives(engine)), engine.run(c.AcquireDeferred("q", link, FIRST))) == ("deferred", RowSet())
    for ends in (
        lambda link: c.Release("q", link, FIRST, Cause.DEFERRED, True),
        lambda link: c.Unsubscribe("q", link, Cause.DEFERRED),
    ):
        engine = make(1, refusedByAll="deadLetter")
        links = [engine.run(c.Subscribe("q")) for _ in range(3)]
        for link in links[:2]:
            engine.run(c.Acquire("q", link, 1), c.Release("q", link, FIRST, exclude=True))
        engine.run(c.Acquire("q", links[2], 1), ends(links[2]))
        assert fate(engine) == "deferred"


def test_a_link_that_asks_keeps_its_messages_after_a_rollback() -> None:
    for settled in (False, True):
        engine = deferring(count=1)
        link, number = asks(engine), engine.run(c.BeginTransaction(1))
        engine.run(c.Retire(number, "q", link, FIRST, DeliveryEnd(Outcome.ACCEPTED), settled=settled))
        engine.run(c.DischargeTransaction(number, fail=True))
        assert fate(survives(engine)) == ("deferred" if settled else "acquired"), "as a consumer does"


def test_a_link_that_asks_keeps_its_queue() -> None:
    engine = deferring(count=1, lifetime="unused")
    consumer, link = engine.run(c.Subscribe("q")), asks(engine)
    engine.run(c.Unsubscribe("q", consumer))
    assert not engine.run(c.EndNode("q"))
    engine.run(c.Unsubscribe("q", link))
    assert engine.run(c.EndNode("q"))


def test_a_deferral_holds_when_its_transaction_commits() -> None:
    for fail in (False, True):
        engine = make(1)
        link, number = taken(engine), engine.run(c.BeginTransaction(1))
        end = DeliveryEnd(cause=Cause.DEFERRED)
        engine.run(c.Retire(number, "q", link, FIRST, end), c.DischargeTransaction(number, fail=fail))
        assert fate(engine) == ("acquired" if fail else "deferred")


def test_a_link_that_asks_is_no_consumer() -> None:
    engine = deferring(consumers="exclusive")
    link = asks(engine)
    (stat,) = engine.run(c.Stat("q"))
    assert (stat["consumers"], stat["acquired"]) == (0, 1)
    consumer = engine.run(c.Subscribe("q", exclusive=True))
    assert engine.run(c.DescribeConsumers("q", 9)).total == 1
    assert engine.run(c.Acquire("q", consumer, 9)).rows == RowSet.range(1, 3)
    engine.run(c.Unsubscribe("q", link))
    assert engine.run(c.Explain("q", consumer)).hindrances == (c.Hindrance(Obstacle.DEFERRED),)

"""Q17 Q18: a delayed value replaces the waiting one when it is due, and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.limits import EXPIRY_PERIOD
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State

from .conservation import conserved
from .harness import Engine

DELAY_S = 100
Life = Callable[[Engine], Engine]
LIVES: dict[str, Life] = {
    "the same life": lambda engine: engine,
    "the journal": Engine.recovered,
    "a snapshot": Engine.from_snapshot,
}


def declared(**options: Any) -> Engine:
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("dead"), c.DeclareQueue("q", "lastvalue", {"key": "subject", **options}))
    return engine


def attributes(engine: Engine, delay_s: int = 0, ttl_s: int = 0, key: str = "k") -> Attributes:
    now = engine.wall // 1000
    due = np.array([now + 1000 * delay_s]) if delay_s else None
    expiry = np.array([now + 1000 * ttl_s]) if ttl_s else None
    return Attributes(due=due, expiry=expiry, key=Coded([key], np.array([1])))


def send(engine: Engine, queue: str = "q", **more: Any) -> int:
    """Send a value; return its sequence number."""
    return int(engine.run(c.Enqueue(queue, 1, 1, attributes=attributes(engine, **more))).next) - 1


def wait(engine: Engine, seconds: float) -> None:
    engine.pass_time(seconds)
    engine.run(c.Tick())


def states(engine: Engine, name: str = "q") -> list[str]:
    """Return the state of each message, or its outcome after its end."""
    queue = engine.state.queues[name]
    assert conserved(queue)
    block = queue.blocks[0]
    outcomes = np.broadcast_to(block.outcome.get(slice(0, block.filled)), block.filled).tolist()
    return [
        (Outcome(outcome) if state == State.ARCHIVED else State(state)).name.lower()
        for state, outcome in zip(block.state[: block.filled].tolist(), outcomes, strict=True)
    ]


@pytest.mark.parametrize("life", LIVES)
def test_the_older_value_waits_until_the_newer_one_is_due(life: str) -> None:
    engine = declared()
    send(engine)
    send(engine, delay_s=DELAY_S)
    assert states(engine) == ["available", "delayed"]
    again = LIVES[life](engine)
    again.up, again.wall = engine.up, engine.wall
    wait(again, DELAY_S)
    assert states(again) == ["replaced", "available"]
    assert again.recovered().persisted() == again.persisted()
    assert again.from_snapshot().persisted() == again.persisted()


@pytest.mark.parametrize("later", ["waits", "was taken"])
def test_a_value_that_arrived_later_is_newer_than_one_that_comes_due(later: str) -> None:
    """A delayed message keeps the place of its arrival, so no consumer gets an older value after a newer one."""
    engine = declared()
    holder = engine.run(c.Subscribe("q"))
    send(engine, delay_s=DELAY_S)
    send(engine)
    if later == "was taken":
        assert engine.run(c.Acquire("q", holder, 9)).rows.sequences().tolist() == [1]
        engine.run(c.Settle("q", holder, RowSet.single(1)))
    assert states(engine)[0] == "delayed", "it is not replaced before it is due"
    wait(engine, DELAY_S)
    assert states(engine) == ["replaced", "available" if later == "waits" else "accepted"]


def test_of_several_that_come_due_together_the_last_arrival_stays() -> None:
    engine = declared()
    for delay_s in (0, 30, 20, 25):
        send(engine, delay_s=delay_s)
    send(engine, delay_s=10, key="other")
    wait(engine, 40)
    assert states(engine) == ["replaced", "replaced", "replaced", "available", "available"]


@pytest.mark.parametrize("how", ["expires", "purge", "move", "discard"])
def test_a_delayed_value_that_ends_before_its_time_replaces_nothing(how: str) -> None:
    engine = declared(duplicateWindow=5)
    holder = engine.run(c.Subscribe("q"))
    send(engine)
    assert engine.run(c.Acquire("q", holder, 1)).rows.count == 1
    send(engine, delay_s=DELAY_S, ttl_s=10 if how == "expires" else 0)
    if how == "expires":
        wait(engine, 10 + EXPIRY_PERIOD / 1000)
    elif how == "purge":
        engine.run(c.Purge("q"))
    elif how == "move":
        engine.run(c.Move("q", "dead"))
    else:
        engine.run(c.DiscardMessages("q", 1, 1, "not wanted"))
    ended = {"expires": "expired", "purge": "purged", "move": "moved", "discard": "purged"}[how]
    engine.run(c.Release("q", holder, RowSet.single(0)))
    assert states(engine) == ["available", ended]


def test_a_held_value_that_returns_is_available_while_the_newer_one_is_delayed() -> None:
    engine = declared()
    holder = engine.run(c.Subscribe("q"))
    send(engine)
    engine.run(c.Acquire("q", holder, 1))
    send(engine, delay_s=DELAY_S)
    engine.run(c.Release("q", holder, RowSet.single(0)))
    assert states(engine) == ["available", "delayed"]
    engine.run(c.Acquire("q", holder, 1))
    wait(engine, DELAY_S)
    assert states(engine) == ["acquired", "available"]
    engine.run(c.Release("q", holder, RowSet.single(0)))
    assert states(engine) == ["replaced", "available"]


def test_a_value_that_waits_for_its_retry_is_replaced_by_what_becomes_available() -> None:
    engine = declared(retryDelay=1000 * DELAY_S)
    holder = engine.run(c.Subscribe("q"))
    send(engine)
    engine.run(c.Acquire("q", holder, 1), c.Release("q", holder, RowSet.single(0), Cause.MODIFIED))
    send(engine, delay_s=10)
    assert states(engine) == ["delayed", "delayed"], "it is the value until the delayed one is due"
    wait(engine, 10)
    assert states(engine) == ["replaced", "available"]
    wait(engine, DELAY_S)
    assert states(engine) == ["replaced", "available"]


def test_a_retry_that_comes_due_does_not_replace_itself() -> None:
    engine = declared(retryDelay=1000 * DELAY_S)
    holder = engine.run(c.Subscribe("q"))
    send(engine)
    engine.run(c.Acquire("q", holder, 1), c.Release("q", holder, RowSet.single(0), Cause.MODIFIED))
    wait(engine, DELAY_S)
    assert states(engine) == ["available"]


def test_a_redriven_dead_letter_does_not_pass_a_delayed_value_of_its_key() -> None:
    """A redriven message has its place at the tail: it would be the newer value, and the delayed one would be lost."""
    engine = declared(deadLetterQueue="dead")
    holder = engine.run(c.Subscribe("q"))
    send(engine)
    engine.run(c.Acquire("q", holder, 1), c.Settle("q", holder, RowSet.single(0), Outcome.REJECTED))
    send(engine, delay_s=DELAY_S)
    assert engine.run(c.Redrive("dead")).messages == 0
    wait(engine, DELAY_S)
    assert (states(engine), states(engine, "dead")) == (["dead_lettered", "available"], ["available"])


def test_a_delayed_value_that_expired_and_is_redriven_is_the_value() -> None:
    """The dead letter stayed in its own queue. It returns to its old place, behind the waiting value."""
    engine = declared(deadLetterQueue="gone", expired="deadLetter")
    send(engine)
    send(engine, delay_s=DELAY_S, ttl_s=10)
    wait(engine, 10 + EXPIRY_PERIOD / 1000)
    assert states(engine) == ["available", "dead_lettered"]
    assert engine.run(c.Redrive("q")).messages == 1
    assert states(engine) == ["replaced", "available"]


def test_a_transaction_and_a_write_bring_delayed_values() -> None:
    engine = declared()
    send(engine)
    number = engine.run(c.BeginTransaction(1))
    engine.run(c.Post(number, "q", 1, 1, attributes=attributes(engine, delay_s=DELAY_S)))
    assert states(engine) == ["available"]
    engine.run(c.DischargeTransaction(number, fail=False))
    assert states(engine) == ["available", "delayed"]
    engine.run(c.StageMessages("w", "q", 1, 1, attributes=attributes(engine, delay_s=DELAY_S)), c.Publish(["w"]))
    assert states(engine) == ["available", "delayed", "delayed"]
    wait(engine, DELAY_S)
    assert states(engine) == ["replaced", "replaced", "available"]


def test_a_moved_or_copied_value_keeps_its_delay() -> None:
    for command in (c.Move, c.Copy):
        engine = declared()
        engine.run(c.DeclareQueue("target", "lastvalue", {"key": "subject"}))
        send(engine, "target")
        send(engine, delay_s=DELAY_S)
        engine.run(command("q", "target"))
        assert states(engine, "target") == ["available", "delayed"]
        wait(engine, DELAY_S)
        assert states(engine, "target") == ["replaced", "available"]


def test_a_ring_drops_the_waiting_value_and_not_the_delayed_one() -> None:
    engine = declared(maxMessages=2, overflow="ring")
    send(engine)
    send(engine, delay_s=DELAY_S)
    send(engine, key="other")
    assert states(engine) == ["dropped", "delayed", "available"]
    wait(engine, DELAY_S)
    assert states(engine) == ["dropped", "available", "available"]


def test_a_delayed_value_counts_for_the_most_keys() -> None:
    engine = declared(maxKeys=1)
    send(engine, delay_s=DELAY_S)
    assert engine.run(c.Enqueue("q", 1, 1, attributes=attributes(engine, key="other"))).refused == (0,)


def test_a_queue_that_ends_when_it_is_empty_ends_with_a_value_that_comes_due_too_late() -> None:
    """E2: its only message is replaced by one that a consumer has already taken."""
    engine = declared(lifetime="unusedOrEmpty")
    holder = engine.run(c.Subscribe("q"))
    send(engine, delay_s=DELAY_S)
    send(engine)
    engine.run(c.Acquire("q", holder, 1), c.Settle("q", holder, RowSet.single(1)))
    engine.run(c.Unsubscribe("q", holder))
    assert states(engine) == ["delayed", "accepted"]
    engine.pass_time(DELAY_S)
    assert decide(engine.state, c.Tick(), c.Now(engine.wall, engine.up)).effects.may_end == ("q",)
    engine.run(c.Tick())
    assert states(engine) == ["replaced", "accepted"]
    engine.run(c.EndNode("q"))
    assert "q" not in engine.state.queues

"""Q4 Q5 Q22: exclusive and single active consumers, and messages that are delivered immediately or not at all."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import apply, decide
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.model.dispositions import ROLLED_BACK, DeliveryEnd
from penstock.broker_core.engine.model.reads import SparkBatch
from penstock.broker_core.engine.model.state import BrokerState

from .harness import START, Engine


def engine_with(consumers: str, messages: int = 0) -> Engine:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"consumers": consumers}), c.Enqueue("q", messages, 1))
    return engine


def taken(engine: Engine, holder: int, count: int = 1) -> list[int]:
    rows: RowSet = engine.run(c.Acquire("q", holder, count)).rows
    return [int(number) for number in rows.sequences()]


def woken_by(engine: Engine, command: c.Command[Any]) -> set[str]:
    """Run a command; return the queues whose waiting consumers it wakes."""
    wakes = decide(engine.state, command, c.Now(engine.wall, engine.up)).effects.wakes
    engine.run(command)
    return set(wakes)


def refused(engine: Engine, command: c.Command[Any], why: str) -> None:
    before, subscriptions = engine.persisted(), set(engine.state.queues["q"].consumers.subscriptions)
    with pytest.raises(errors.InUse, match=why):
        engine.run(command)
    assert engine.persisted() == before
    assert set(engine.state.queues["q"].consumers.subscriptions) == subscriptions


# --- exclusive


def test_beside_an_exclusive_consumer_nobody_may_and_it_may_not_beside_others() -> None:
    """Q5: an exclusive consumer excludes others, and is refused if another exists. When it ends, others may attach."""
    engine = engine_with("all", 5)
    first = engine.run(c.Subscribe("q"))
    refused(engine, c.Subscribe("q", exclusive=True), "1 links")
    engine.run(c.Unsubscribe("q", first))
    alone = engine.run(c.Subscribe("q", exclusive=True))
    for exclusive in (False, True):
        refused(engine, c.Subscribe("q", exclusive=exclusive), "exclusive consumer")
    refused(engine, c.AcquireBatch("q", "lease", "r", 0), "exclusive consumer")
    assert taken(engine, alone, 2) == [0, 1]
    assert engine.run(c.Browse("q", 0, 9))[0].count == 3
    engine.run(c.Unsubscribe("q", alone))
    assert taken(engine, engine.run(c.Subscribe("q")), 2) == [0, 1]


def test_a_queue_may_take_only_exclusive_consumers() -> None:
    """Q5: with `consumers` = exclusive each link of the queue is exclusive; leases take turns, a batch each."""
    engine = engine_with("exclusive", 5)
    link = engine.run(c.Subscribe("q"))
    refused(engine, c.Subscribe("q"), "exclusive consumer")
    refused(engine, c.AcquireBatch("q", "a", "r", 0, 2), "exclusive consumer")
    engine.run(c.Unsubscribe("q", link))
    assert engine.advance("a", epoch=None, finished=0, messages=2) == (1, 1)
    refused(engine, c.AcquireBatch("q", "b", "r", 0, 2), "another lease holds a batch")
    refused(engine, c.Subscribe("q"), "1 leases")
    assert engine.advance("a", epoch=1, finished=0) == (1, 1), "the lease gets its own batch again"
    engine.run(c.ReadBatch("a", "r", 1, 1, 0, 9), c.FinishBatches("a", 1))
    assert engine.advance("b", epoch=None, finished=0, messages=2) == (1, 1)


@pytest.mark.parametrize("consumers", ["all", "single"])
def test_whether_a_queue_takes_one_consumer_is_what_its_option_says_now(consumers: str) -> None:
    """Q5 Q21: an exclusive link stays exclusive; a link of an exclusive queue does not when the option changes."""
    engine = engine_with("exclusive", 5)
    first = engine.run(c.Subscribe("q"))
    engine.run(c.AlterQueue("q", {"consumers": consumers}))
    second = engine.run(c.Subscribe("q"))
    engine.run(c.AlterQueue("q", {"consumers": "exclusive"}), c.Unsubscribe("q", first))
    refused(engine, c.Subscribe("q"), "exclusive consumer")
    refused(engine, c.AcquireBatch("q", "a", "r", 0, 2), "exclusive consumer")
    engine.run(c.Unsubscribe("q", second), c.Subscribe("q", exclusive=True), c.AlterQueue("q", {"consumers": consumers}))
    refused(engine, c.Subscribe("q"), "exclusive consumer")


def test_a_lease_that_holds_a_batch_is_a_consumer_after_a_restart_too() -> None:
    """Q5 Q22: the messages of a lease survive, so the lease is still a consumer."""
    for consumers in ("exclusive", "single"):
        engine = engine_with(consumers, 5)
        engine.advance("a", epoch=None, finished=0, messages=2)
        for restarted in (engine.recovered(), engine.from_snapshot()):
            queue = restarted.state.queues["q"]
            assert len(queue.consumers.holders) == 1
            if consumers == "exclusive":
                refused(restarted, c.Subscribe("q"), "1 leases")
            else:
                assert taken(restarted, restarted.run(c.Subscribe("q"))) == []


# --- a single active one


def test_one_is_active_and_the_next_goes_on_when_it_ends() -> None:
    """Q22: by priority, then age. The messages of the active consumer come back first, and its successor is woken."""
    engine = engine_with("single", 6)
    first = engine.run(c.Subscribe("q"))
    plain, elder, younger = (engine.run(c.Subscribe("q", priority=p)) for p in (0, 5, 5))
    assert taken(engine, first, 2) == [0, 1]
    assert [taken(engine, consumer) for consumer in (plain, elder, younger)] == [[], [], []], "a higher priority also waits"
    assert woken_by(engine, c.Unsubscribe("q", younger)) == set(), "an inactive consumer ends without effect"
    assert woken_by(engine, c.Unsubscribe("q", first)) == {"q"}
    assert taken(engine, plain) == []
    assert taken(engine, elder, 9) == [0, 1, 2, 3, 4, 5]
    engine.run(c.Settle("q", elder, RowSet.range(0, 6)), c.Enqueue("q", 1, 1))
    assert woken_by(engine, c.Unsubscribe("q", elder)) == {"q"}, "also if it gave nothing back"
    assert taken(engine, plain) == [6]


def test_leases_and_links_of_a_single_queue_take_turns() -> None:
    """Q22: a lease acquires while no link exists, a link while no lease holds a batch. Waiting consumers are woken."""
    engine = engine_with("single", 9)
    assert engine.advance("a", epoch=None, finished=0, messages=2) == (1, 1)
    link = engine.run(c.Subscribe("q"))
    assert taken(engine, link) == []
    assert engine.advance("b", epoch=None, finished=0, messages=2) == (None, 0), "as from an empty queue"
    engine.run(c.ReadBatch("a", "r", 1, 1, 0, 9))
    assert woken_by(engine, c.FinishBatches("a", 1)) == {"q"}
    assert engine.advance("a", epoch=1, finished=1, messages=2) == (1, 1), "the link is active now"
    assert taken(engine, link) == [2]
    engine.run(c.Unsubscribe("q", link, Cause.RELEASED))
    assert engine.advance("a", epoch=1, finished=1, messages=2) == (1, 2)


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REJECTED])
def test_the_next_waits_for_the_open_transactions_of_the_one_that_has_ended(fail: bool, outcome: Outcome) -> None:
    """Q22 C11: their messages may come back before later ones. Their discharge wakes the next consumer."""
    engine = Engine()
    engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", options={"consumers": "single", "deadLetterQueue": "dead"}))
    engine.run(c.Enqueue("q", 3, 1))
    first, following = engine.run(c.Subscribe("q")), engine.run(c.Subscribe("q"))
    assert taken(engine, first, 2) == [0, 1]
    numbers = [engine.run(c.BeginTransaction(1)) for _ in range(2)]
    for row, number in enumerate(numbers):
        engine.run(c.Retire(number, "q", first, RowSet.single(row), DeliveryEnd(outcome), ROLLED_BACK, settled=False))
    engine.run(c.Unsubscribe("q", first))
    assert taken(engine, following) == []
    engine.run(c.DischargeTransaction(numbers[0], fail))
    assert taken(engine, following) == []
    assert "q" in woken_by(engine, c.DischargeTransaction(numbers[1], fail))
    assert taken(engine, following, 9) == ([0, 1, 2] if fail else [2])


def test_what_other_links_held_when_a_queue_became_single_keeps_nobody_waiting() -> None:
    """Q22: the next consumer waits only for transactions of the active one."""
    engine = engine_with("all", 4)
    first, following = engine.run(c.Subscribe("q")), engine.run(c.Subscribe("q"))
    assert (taken(engine, first), taken(engine, following)) == ([0], [1])
    engine.run(c.AlterQueue("q", {"consumers": "single"}))
    assert (taken(engine, first), taken(engine, following)) == ([2], [])
    engine.run(c.Unsubscribe("q", first))
    assert taken(engine, following, 9) == [0, 2, 3]


# --- leases


def test_a_query_that_begins_again_hears_whether_the_other_one_lives() -> None:
    """A recently renewed lease is in use; a silent one holds the batch of an earlier run."""
    engine = engine_with("all", 5)
    engine.advance("a", epoch=None, finished=0, messages=2)
    engine.run(c.ReadBatch("a", "r", 1, 1, 0, 9))
    again = {"run": "new", "epoch": None, "finished": 0}
    for seconds in (0.3, 24.7):
        engine.pass_time(seconds)
        with pytest.raises(
            errors.LeaseInUse, match=rf"another query uses lease 'a' now \(renewed {engine.up / 1_000_000:.1f} s ago\)"
        ):
            engine.advance("a", **again)
    engine.pass_time(1)
    with pytest.raises(
        errors.LeaseInUse, match="which an earlier run has read and not finished: continue with that run's checkpoint"
    ):
        engine.advance("a", **again)
    engine.run(c.RenewLease("a", 1))
    with pytest.raises(errors.LeaseInUse, match="another query uses lease 'a' now"):
        engine.advance("a", **again)


def test_a_living_query_keeps_its_lease_while_it_holds_no_batch() -> None:
    """A new checkpoint takes the lease after its planner was silent; the query's own checkpoint, immediately."""
    engine = engine_with("all", 5)
    engine.advance("a", epoch=None, finished=0, messages=2)
    engine.run(c.ReadBatch("a", "r", 1, 1, 0, 9, reader=SparkBatch("of-spark", 0)))
    again = {"run": "new", "epoch": None, "finished": 0}
    with pytest.raises(errors.LeaseInUse, match=r"another query uses lease 'a' now \(query of-spark, renewed"):
        engine.advance("a", **again)
    engine.run(c.FinishBatches("a", 1))
    engine.pass_time(24)
    with pytest.raises(
        errors.LeaseInUse, match=r"now \(renewed 24.0 s ago\).*wait 25 s, or end its lease with `penstock lease del"
    ):
        engine.advance("a", **again)
    assert engine.advance("a", epoch=None, finished=1, messages=2) == (2, 2)  # restarted with its checkpoint
    engine.run(c.FinishBatches("a", 2))  # unread: returned
    engine.pass_time(24)
    with pytest.raises(errors.LeaseInUse):
        engine.advance("a", **again)
    engine.pass_time(2)
    assert engine.advance("a", **again) == (3, 1)


def test_a_run_that_no_checkpoint_names_is_begun_again_by_all_but_those_who_waited() -> None:
    """A query that died before Spark wrote an offset gets its lease back immediately. A query that waited does not."""
    engine = engine_with("all", 5)
    engine.advance("a", epoch=None, finished=0, messages=2)
    enter = c.EnterLease("q", "a", "new", None, fresh=True)
    with pytest.raises(errors.LeaseInUse, match="another query uses lease 'a' now"):
        engine.run(replace(enter, waiting=True))
    assert engine.run(enter) == 2


def test_a_planned_batch_keeps_its_lease_from_other_queries_and_not_from_its_own() -> None:
    """Spark writes a batch's offset before it plans tasks. From then on a checkpoint names the lease, read or not."""
    again = {"run": "new", "epoch": None, "finished": 0}
    for life in (lambda engine: engine, Engine.recovered, Engine.from_snapshot):
        engine = engine_with("all", 5)
        engine.advance("a", epoch=None, finished=0, messages=2)
        engine.run(c.PlanBatches("a", 0, 1))  # planned ahead: no offset is written yet
        assert engine.advance("a", run="r2", epoch=None, finished=0, messages=2) == (2, 1)
        engine.plan("a", run="r2", epoch=2, after=0, batch=1, written=True)
        logged = len(engine.log)
        engine.plan("a", run="r2", epoch=2, after=0, batch=1, written=True)
        assert len(engine.log) == logged  # once for each run
        engine = life(engine)
        engine.run(c.StartBroker())
        with pytest.raises(errors.LeaseInUse, match="another query uses lease 'a' now"):
            engine.advance("a", **again)
        assert engine.advance("a", run="r2", epoch=None, finished=1, messages=2) == (3, 2)
        engine.pass_time(26)
        assert engine.advance("a", **again) == (4, 1)
        assert [lease["checkpointed"] for lease in engine.run(c.ListLeases())] == [False]  # no checkpoint names the new run yet


def test_a_link_that_ends_costs_the_same_however_many_others_there_are() -> None:
    """Thousands of links may end together, and the broker stays responsive."""

    def cost(links: int) -> float:
        state, now, costs = BrokerState(), c.Now(START, 0), []

        def run(command: c.Command[Any]) -> Any:
            decision = decide(state, command, now)
            for event, _ in decision.events:
                apply(state, event, 8)
            return decision.reply

        run(c.DeclareQueue("q"))
        holders = [run(c.Subscribe("q")) for _ in range(links)]
        for holder in holders[:50]:
            start = perf_counter()
            run(c.Unsubscribe("q", holder))
            costs.append(perf_counter() - start)
        return min(costs)

    assert cost(20_000) < 10 * cost(100)

"""C11 C8: local transactions of AMQP 1.0 (part 4), in the engine alone."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.limits import (
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTIONS,
    MAX_USER_TRANSACTIONS,
    TRANSACTION_AGE,
)
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.decide import transactions as decide_transactions
from penstock.broker_core.engine.model import transaction
from penstock.broker_core.engine.model.dispositions import DeliveryEnd
from penstock.broker_core.engine.model.transaction import stage_of

from .harness import SECOND, Engine

ACCEPTED, RELEASED = DeliveryEnd(Outcome.ACCEPTED), DeliveryEnd(cause=Cause.RELEASED)
REJECTED = DeliveryEnd(Outcome.REJECTED, error="com.example:bad")


def made(*queues: str, messages: int = 0) -> Engine:
    engine = Engine()
    for queue in queues or ("q",):
        engine.run(c.DeclareQueue(queue))
        if messages:
            engine.run(c.Enqueue(queue, messages, 10))
    return engine


def begun(engine: Engine, owner: int = 1, user: str = "ann") -> int:
    return int(engine.run(c.BeginTransaction(owner, user)))


def taken(engine: Engine, queue: str = "q", messages: int = 10) -> int:
    """Attach a link that acquires messages."""
    holder = engine.run(c.Subscribe(queue))
    engine.run(c.Acquire(queue, holder, messages))
    return int(holder)


def rows(*sequences: int) -> RowSet:
    return RowSet.of_sequences(np.array(sequences, np.int64))


def states(engine: Engine, queue: str = "q") -> str:
    """Return a letter for each message: available, acquired, or its outcome (A, R)."""
    block = engine.state.queues[queue].blocks.get(0)
    if block is None:
        return ""
    everything = slice(0, block.filled)
    outcomes = np.broadcast_to(block.outcome.get(everything), block.filled).tolist()
    live = {State.AVAILABLE: ".", State.ACQUIRED: "h", State.DELAYED: "d"}
    pairs = zip(block.state[everything].tolist(), outcomes, strict=True)
    return "".join(live.get(State(state)) or Outcome(outcome).name[0] for state, outcome in pairs)


def attempts(engine: Engine, queue: str = "q") -> list[int]:
    block = engine.state.queues[queue].blocks[0]
    return np.broadcast_to(block.attempts.get(slice(0, block.filled)), block.filled).tolist()


def test_a_commit_over_several_queues_is_one_event() -> None:
    """Sequence numbers are assigned at the commit, in the order of the transfers; three queues change together or not at all."""
    engine = made("in", "a", "b", messages=3)
    holder, number = taken(engine, "in"), begun(engine)
    for queue, count in (("a", 2), ("b", 1), ("a", 1)):
        engine.run(c.Post(number, queue, count, 100 * count))
    engine.run(c.Enqueue("a", 1, 7))  # sent outside, and stored before them
    engine.run(c.Retire(number, "in", holder, rows(0, 2), ACCEPTED))
    engine.run(c.Retire(number, "in", holder, rows(1), REJECTED))
    assert (states(engine, "in"), states(engine, "a"), states(engine, "b")) == ("hhh", "....", "...")
    before = len(engine.log)
    assert engine.run(c.DischargeTransaction(number)) is None
    assert len(engine.log) == before + 1
    assert (states(engine, "in"), states(engine, "a"), states(engine, "b")) == ("ARA", ".......", "....")
    sizes = engine.state.queues["a"].blocks[0].sizes.get(slice(0, 7))
    assert list(sizes) == [10, 10, 10, 7, 200, 200, 100]
    assert engine.recovered().persisted() == engine.persisted()
    # Without that event, a recovery has none of its changes.
    without = Engine(log=engine.log[:before]).recovered()
    without.run(c.StartBroker())
    assert (states(without, "in"), states(without, "a"), without.state.stages) == ("...", "....", {})


def test_what_nobody_else_did_is_an_event_of_its_own_kind() -> None:
    engine = made()
    number = begun(engine)
    engine.run(c.Post(number, "q", 1, 5))
    engine.run(c.DischargeTransaction(number))
    assert b'"k":"published"' in engine.log[-1][0]
    empty, before = begun(engine), len(engine.log)
    assert engine.run(c.DischargeTransaction(empty)) is None
    assert len(engine.log) == before


def test_a_rollback_discards_and_the_deliveries_stay_acquired_by_their_link() -> None:
    """4.4.2: the outcome is not applied, and the deliveries remain acquired with unchanged counts."""
    engine = made(messages=4)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Post(number, "q", 5, 10))
    engine.run(c.Retire(number, "q", holder, rows(0, 1), ACCEPTED))
    engine.run(c.Retire(number, "q", holder, rows(2), DeliveryEnd(cause=Cause.MODIFIED)))
    assert engine.run(c.DischargeTransaction(number, fail=True)) is None
    assert (states(engine), attempts(engine), engine.state.stages) == ("hhhh", [0] * 4, {})
    # The link settles them in a new transaction, or outside.
    again = begun(engine)
    engine.run(c.Retire(again, "q", holder, rows(0), ACCEPTED))
    engine.run(c.Release("q", holder, rows(1), Cause.MODIFIED))
    engine.run(c.DischargeTransaction(again))
    assert (states(engine), attempts(engine)) == ("A.hh", [0, 1, 0, 0])


@pytest.mark.parametrize(
    ("default", "after", "counted"),
    [
        (DeliveryEnd(cause=Cause.RELEASED), ".", 0),
        (DeliveryEnd(cause=Cause.MODIFIED), ".", 1),
        (DeliveryEnd(cause=Cause.ROLLBACK), ".", 1),
        (DeliveryEnd(Outcome.REJECTED), "R", 0),
    ],
)
def test_after_a_rollback_what_the_link_has_settled_gets_the_default(default: DeliveryEnd, after: str, counted: int) -> None:
    """4.4.4.2: the controller can no longer influence the delivery, so the resource applies the default outcome."""
    engine = made(messages=2)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED, default, settled=True))
    engine.run(c.Retire(number, "q", holder, rows(1), ACCEPTED, default))
    engine.run(c.DischargeTransaction(number, fail=True))
    assert (states(engine), attempts(engine)) == (after + "h", [counted, 0])
    assert engine.recovered().persisted() == engine.persisted()


@pytest.mark.parametrize("fail", [False, True])
def test_the_link_may_end_before_its_transaction(fail: bool) -> None:
    """The link's outcomes stay in the transaction; meanwhile no other link gets the messages."""
    engine = made(messages=3)
    holder, number = taken(engine), begun(engine)
    engine.run(
        c.Retire(
            number, "q", holder, rows(0), DeliveryEnd(cause=Cause.RELEASED, exclude=True), DeliveryEnd(cause=Cause.LINK_LOST)
        )
    )
    engine.run(c.Retire(number, "q", holder, rows(1), ACCEPTED, DeliveryEnd(cause=Cause.LINK_LOST)))
    assert engine.run(c.Unsubscribe("q", holder)).sequences().tolist() == [2]
    assert states(engine) == "hh."
    engine.run(c.DischargeTransaction(number, fail))
    assert (states(engine), attempts(engine)) == (("...", [1, 1, 1]) if fail else (".A.", [0, 0, 1]))


@pytest.mark.parametrize("groups", ["held", "sticky"])
@pytest.mark.parametrize("fail", [True, False])
def test_q16_what_an_ended_link_said_in_a_transaction_keeps_its_group_until_the_discharge(groups: str, fail: bool) -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"groups": groups}))
    engine.run(c.Enqueue("q", 3, 10, attributes=Attributes(group=Coded(["g"], np.ones(3, np.int64)))))
    holder, number = taken(engine, messages=1), begun(engine)
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED))
    engine.run(c.Unsubscribe("q", holder))
    second = engine.run(c.Subscribe("q"))
    assert not engine.run(c.Acquire("q", second, 10)).rows  # the first message may come back, and must precede the second
    engine.run(c.DischargeTransaction(number, fail=fail))
    assert engine.run(c.Acquire("q", second, 10)).rows == (rows(0, 1, 2) if fail else rows(1, 2))


def test_the_last_word_about_a_message_counts() -> None:
    engine = made(messages=5)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Retire(number, "q", holder, RowSet.range(0, 5), ACCEPTED))
    engine.run(c.Retire(number, "q", holder, rows(1, 3), RELEASED))
    engine.run(c.Retire(number, "q", holder, rows(3), REJECTED))
    engine.run(c.Settle("q", holder, rows(4), Outcome.REJECTED))  # outside: immediately, and no longer in the transaction
    assert states(engine) == "hhhhR"
    engine.run(c.DischargeTransaction(number))
    assert states(engine) == "A.ARR"


def test_words_that_were_replaced_are_forgotten() -> None:
    """A client that repeats its outcomes does not fill the memory."""
    engine = made(messages=1000)
    holder, number = taken(engine, messages=1000), begun(engine)
    for turn in range(50):
        disposition = DeliveryEnd(Outcome.REJECTED, error=f"for the {turn}th time")
        engine.run(c.Retire(number, "q", holder, RowSet.range(0, 1000), disposition))
    outcomes = engine.state.transactions.open[number].outcomes[holder]
    assert outcomes.count <= 2000 + transaction.COMPACT
    [(last, retired)] = list(outcomes)
    assert (last.disposition.error, retired.count) == ("for the 49th time", 1000)
    engine.run(c.Retire(number, "q", holder, RowSet.range(0, 500), ACCEPTED))
    engine.run(c.DischargeTransaction(number))
    assert states(engine) == "A" * 500 + "R" * 500


def test_what_is_not_held_cannot_be_retired() -> None:
    engine = made(messages=3)
    first, number = taken(engine, messages=1), begun(engine)
    second = taken(engine, messages=1)
    for holder, not_held in ((first, rows(1)), (second, rows(2)), (999, rows(0))):
        with pytest.raises(errors.IllegalTransition):
            engine.run(c.Retire(number, "q", holder, not_held, ACCEPTED))
    assert not engine.state.transactions.open[number].outcomes


def test_a_message_is_of_one_transaction() -> None:
    """4.4.2: the delivery must not be associated with another transaction that is not discharged."""
    engine = made(messages=2)
    holder, first, second = taken(engine), begun(engine), begun(engine)
    engine.run(c.Retire(first, "q", holder, rows(0), ACCEPTED))
    with pytest.raises(errors.TransactionRolledBack, match=f"transaction {first} has settled"):
        engine.run(c.Retire(second, "q", holder, rows(0, 1), RELEASED))
    engine.run(c.Retire(second, "q", holder, rows(1), RELEASED))
    engine.run(c.DischargeTransaction(first, fail=True))
    engine.run(c.Retire(second, "q", holder, rows(0), RELEASED))
    engine.run(c.DischargeTransaction(second))
    assert states(engine) == ".."


def test_a_commit_that_cannot_be_done_does_nothing() -> None:
    """A queue was deleted, or a message taken from its link: all is rolled back, and the reply contains the reason."""
    engine = made("q", "r", messages=2)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED))
    engine.run(c.Post(number, "r", 1, 1))
    engine.run(c.Post(number, "q", 1, 1))
    engine.run(c.DeleteQueue("r"))
    why = engine.run(c.DischargeTransaction(number))
    assert isinstance(why, errors.TransactionRolledBack)
    assert "'r'" in str(why)
    assert (states(engine), engine.state.stages, engine.state.staged_bytes) == ("hh", {}, 0)
    with pytest.raises(errors.UnknownTransaction):
        engine.run(c.DischargeTransaction(number))


def test_a_queue_that_was_declared_again_is_another() -> None:
    engine = made(messages=2)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED, settled=True))
    engine.run(c.DeleteQueue("q", force=True), c.DeclareQueue("q"), c.Enqueue("q", 2, 1))
    taken(engine)
    assert isinstance(engine.run(c.DischargeTransaction(number)), errors.TransactionRolledBack)
    assert states(engine) == "hh"


def test_a_lock_that_ends_fails_the_transaction_that_settles_its_message() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"lockTimeout": 5000}), c.Enqueue("q", 2, 1))
    holder, number = taken(engine), begun(engine)
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED))
    engine.pass_time(6)
    engine.run(c.Tick())
    assert states(engine) == ".."
    engine.run(c.Acquire("q", holder, 2))  # the same link has the message again, in another delivery
    why = engine.run(c.DischargeTransaction(number))
    assert isinstance(why, errors.TransactionRolledBack)
    assert "was taken from its link" in str(why)
    assert states(engine) == "hh"


def test_a_transaction_in_which_something_failed_can_only_be_rolled_back() -> None:
    engine = made(messages=1)
    number = begun(engine)
    engine.run(c.Post(number, "q", 1, 1))
    engine.run(c.FailTransaction(number, "a message could not be decoded"))
    for command in (c.Post(number, "q", 1, 1), c.Retire(number, "q", 1, rows(0), ACCEPTED)):
        with pytest.raises(errors.TransactionRolledBack, match="could not be decoded"):
            engine.run(command)
    assert "could not be decoded" in str(engine.run(c.DischargeTransaction(number)))
    assert (states(engine), engine.state.stages) == (".", {})


def test_work_that_takes_too_long_is_undone_and_its_controller_is_told() -> None:
    """The age counts from the first work: a transaction without work never times out."""
    engine = made(messages=2)
    holder, idle, number = taken(engine), begun(engine), begun(engine)
    engine.pass_time(2 * TRANSACTION_AGE / SECOND)
    engine.run(c.TimeOutTransactions())
    engine.run(c.Post(number, "q", 1, 1))
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED, settled=True))
    engine.pass_time(TRANSACTION_AGE / SECOND)
    engine.run(c.TimeOutTransactions())
    assert states(engine) == "hh"
    engine.pass_time(1)
    engine.run(c.TimeOutTransactions())
    assert (states(engine), attempts(engine), engine.state.stages) == (".h", [1, 0], {})
    with pytest.raises(errors.TransactionTimedOut):
        engine.run(c.Post(number, "q", 1, 1))
    assert isinstance(engine.run(c.DischargeTransaction(number)), errors.TransactionTimedOut)
    assert engine.run(c.DischargeTransaction(idle)) is None
    assert engine.recovered().persisted() == engine.persisted()


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_rolls_back(snapshot: bool) -> None:
    engine = made(messages=2)
    holder, number = taken(engine), begun(engine)
    engine.run(c.Post(number, "q", 3, 10), c.StageMessages("of the sink", "q", 1, 1))
    engine.run(c.Retire(number, "q", holder, rows(0), ACCEPTED, DeliveryEnd(cause=Cause.RELEASED), settled=True))
    engine.run(c.Unsubscribe("q", holder))
    restarted = engine.from_snapshot() if snapshot else engine.recovered()
    restarted.run(c.StartBroker())
    assert (states(restarted), attempts(restarted), list(restarted.state.stages)) == ("..", [0, 1], ["of the sink"])
    with pytest.raises(errors.UnknownTransaction):
        restarted.run(c.DischargeTransaction(number))


def test_nobody_publishes_or_discards_the_stage_of_a_transaction() -> None:
    engine = made()
    number = begun(engine)
    engine.run(c.Post(number, "q", 1, 1))
    name = stage_of(number)
    with pytest.raises(errors.NotFound):
        engine.run(c.Publish([name]))
    with pytest.raises(errors.InvalidRequest):
        engine.run(c.StageMessages(name, "q", 1, 1))
    assert engine.run(c.Discard([name])) == 0
    assert name in engine.state.stages


def test_limits_have_names_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_OWN_TRANSACTIONS", 2), ("MAX_TRANSACTIONS", 3), ("MAX_TRANSACTION_MESSAGES", 5)):
        monkeypatch.setattr(decide_transactions, name, value)
    engine = made(messages=4)
    holder, number = taken(engine), begun(engine)
    begun(engine)
    with pytest.raises(errors.ResourceLimit, match="one connection has at most 2"):
        begun(engine)
    begun(engine, owner=2)
    with pytest.raises(errors.ResourceLimit, match="3 transactions are open"):
        begun(engine, owner=3)
    engine.run(c.Post(number, "q", 3, 10))
    engine.run(c.Retire(number, "q", holder, rows(0, 1), ACCEPTED))
    commands: list[Any] = [c.Post(number, "q", 1, 10), c.Retire(number, "q", holder, rows(2), ACCEPTED)]
    for command in commands:
        with pytest.raises(errors.ResourceLimit, match="at most 5 messages, sent and settled"):
            engine.run(command)
    monkeypatch.setattr(decide_transactions, "MAX_TRANSACTION_MESSAGES", 50)
    with pytest.raises(errors.ResourceLimit, match="MiB"):
        engine.run(c.Post(number, "q", 1, MAX_TRANSACTION_BYTES))
    assert engine.run(c.DischargeTransaction(number)) is None
    assert states(engine) == "AAhh..."
    begun(engine)  # there is room for one again


def test_transactions_of_one_user_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts all connections of the user. Transactions without work do not age: a waiting client has one."""
    monkeypatch.setattr(decide_transactions, "MAX_USER_TRANSACTIONS", 2)
    engine = made()
    numbers = [begun(engine, owner) for owner in (1, 2)]
    with pytest.raises(errors.ResourceLimit, match="one user has at most 2 transactions open"):
        begun(engine, owner=3)
    begun(engine, owner=4, user="bob")
    engine.run(c.DischargeTransaction(numbers[0], fail=True))
    begun(engine, owner=3)
    with pytest.raises(errors.ResourceLimit, match="one user"):
        begun(engine, owner=3)


def test_one_user_may_take_half() -> None:
    assert 2 * MAX_USER_TRANSACTIONS == MAX_TRANSACTIONS


def test_an_outcome_costs_the_same_however_many_transactions_its_link_has() -> None:
    """A receiver may have an open transaction for each of its messages."""

    def cost(transactions: int) -> float:
        engine, costs = made(messages=transactions + 20), []
        link = taken(engine, messages=transactions + 20)
        for row in range(transactions):
            engine.run(c.Retire(begun(engine, row), "q", link, RowSet.single(row), ACCEPTED))
        last = begun(engine, transactions)
        for row in range(transactions, transactions + 20):
            start = perf_counter()
            engine.run(c.Retire(last, "q", link, RowSet.single(row), ACCEPTED))
            costs.append(perf_counter() - start)
        return min(costs)

    assert cost(300) < 10 * cost(3)

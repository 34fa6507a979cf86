"""D4: the name of the consumer that took a message, from its settlement on. A queue keeps a limited number of names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.dictionary import Names
from penstock.broker_core.engine.columns.limits import MAX_TAKER_PART, MAX_TAKERS
from penstock.broker_core.engine.columns.packing import unpack
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.decide import links
from penstock.broker_core.engine.model.batch_outcomes import RowsOutcome
from penstock.broker_core.engine.model.dispositions import DeliveryEnd
from penstock.broker_core.engine.model.reads import SparkBatch
from penstock.broker_core.engine.model.state import BrokerState

from .ends import DLQ, fate, queue, survives
from .harness import Engine

FIRST = RowSet.single(0)


def takers(engine: Engine, name: str = "q") -> list[str | None]:
    """Return the taker of each message of the first block."""
    block = queue(engine, name).blocks[0]
    names = [None, *queue(engine, name).takers.names]
    return [names[code] for code in np.broadcast_to(block.taker.get(slice(0, block.filled)), block.filled).tolist()]


def link(engine: Engine, user: str | None = "ann", count: int = 1, container: str | None = None) -> int:
    """Attach a link of this user that acquires messages."""
    holder: int = engine.run(c.Subscribe("q", user=user, container=container))
    engine.run(c.Acquire("q", holder, count))
    return holder


def leased(engine: Engine, name: str = "etl") -> tuple[int, int]:
    """Let a lease read a batch of one message."""
    epoch, batch = engine.advance(name, epoch=None, finished=0, messages=1)
    engine.read(name, epoch=epoch, batch=batch)
    return epoch, batch


def read_by(engine: Engine, lease: str, reader: SparkBatch | None, name: str | None) -> None:
    """Let a Spark query finish a batch of one message."""
    epoch, batch = engine.advance(lease, epoch=None, finished=0, messages=1)
    engine.run(c.ReadBatch(lease, "r", epoch, batch, 0, 2**60, True, reader, name), c.FinishBatches(lease, batch))


def rejected(engine: Engine) -> None:
    engine.run(c.Settle("q", link(engine), FIRST, Outcome.REJECTED))


def failed_at_last(engine: Engine) -> None:
    engine.run(c.Release("q", link(engine), FIRST, Cause.MODIFIED))


def left_with_a_default(engine: Engine) -> None:
    engine.run(c.Unsubscribe("q", link(engine), outcome=Outcome.ACCEPTED))


def lost_at_last(engine: Engine) -> None:
    engine.run(c.Unsubscribe("q", link(engine)))


def locked_too_long(engine: Engine) -> None:
    link(engine)
    engine.pass_time(11)
    engine.run(c.Tick())


def committed_after_its_link(engine: Engine) -> None:
    holder, transaction = link(engine), engine.run(c.BeginTransaction(1))
    engine.run(c.Retire(transaction, "q", holder, FIRST, DeliveryEnd(Outcome.ACCEPTED)))
    engine.run(c.Unsubscribe("q", holder), c.DischargeTransaction(transaction))


def finished(engine: Engine) -> None:
    _, batch = leased(engine)
    engine.run(c.FinishBatches("etl", batch))


def with_an_outcome(engine: Engine) -> None:
    epoch, batch = leased(engine)
    engine.run(c.StageOutcomes("w", "etl", batch, epoch, [RowsOutcome("rejected", "no", FIRST)]), c.Publish(["w"]))
    engine.run(c.FinishBatches("etl", batch))


def failed_at_last_in_a_lease(engine: Engine) -> None:
    epoch, batch = leased(engine)
    engine.run(c.StageOutcomes("w", "etl", batch, epoch, [RowsOutcome("modified", None, FIRST)]), c.Publish(["w"]))
    engine.run(c.FinishBatches("etl", batch))


def malformed(engine: Engine) -> None:
    epoch, batch = leased(engine)
    engine.run(c.SetAside("etl", batch, epoch, {"no AMQP": FIRST}), c.FinishBatches("etl", batch))


def by_an_operator(engine: Engine) -> None:
    leased(engine)
    engine.run(c.SettleRow("etl", 0, "rejected"))


def by_a_user(engine: Engine) -> None:
    leased(engine)
    engine.run(c.SettleRow("etl", 0, "rejected", user="root"))


def released_with_settle(engine: Engine) -> None:
    leased(engine)
    engine.run(c.ReleaseLease("etl", settle=True))


def discarded_from_a_link(engine: Engine, user: str | None = None) -> None:
    link(engine)
    engine.run(c.DiscardMessages("q", 0, 0, "no use", user))


def discarded_from_a_lease(engine: Engine, user: str | None = None) -> None:
    leased(engine)
    engine.run(c.DiscardMessages("q", 0, 0, "no use", user))


#: A command, the options of the queue, the end of its first message, and its taker.
WAYS: list[tuple[Callable[[Engine], object], dict[str, object], str, str | None]] = [
    (lambda engine: engine.run(c.Settle("q", link(engine), FIRST)), {}, "accepted", "ann"),
    (lambda engine: engine.run(c.Settle("q", link(engine, None), FIRST)), {}, "accepted", None),
    (rejected, {}, "rejected", "ann"),
    (rejected, DLQ, "dead_lettered", "ann"),
    (failed_at_last, {"maxAttempts": 1, **DLQ}, "dead_lettered", "ann"),
    (failed_at_last, {"maxAttempts": 1}, "dead_lettered", "ann"),
    (left_with_a_default, {}, "accepted", "ann"),
    (lost_at_last, {"maxAttempts": 1}, "dead_lettered", "ann"),
    (locked_too_long, {"maxAttempts": 1, "lockTimeout": 10_000}, "dead_lettered", "ann"),
    (committed_after_its_link, {}, "accepted", "ann"),
    (finished, {}, "accepted", "etl"),
    (with_an_outcome, {}, "rejected", "etl"),
    (with_an_outcome, DLQ, "dead_lettered", "etl"),
    (failed_at_last_in_a_lease, {"maxAttempts": 1}, "dead_lettered", "etl"),
    (malformed, {}, "rejected", "etl"),
    (malformed, DLQ, "dead_lettered", "etl"),
    (by_an_operator, {}, "rejected", "etl"),
    (by_a_user, {}, "rejected", "root"),
    (released_with_settle, {}, "accepted", "etl"),
    (discarded_from_a_link, {}, "purged", "ann"),
    (discarded_from_a_lease, {}, "purged", "etl"),
    (partial(discarded_from_a_link, user="root"), {}, "purged", "root"),
    (partial(discarded_from_a_lease, user="root"), {}, "purged", "root"),
    (lambda engine: engine.run(c.Purge("q", messages=1)), {}, "purged", None),
    (lambda engine: engine.run(c.Purge("q", messages=1, user="root")), {}, "purged", "root"),
    (lambda engine: engine.run(c.DiscardMessages("q", 0, 0, "no use", "root")), {}, "purged", "root"),
    (lambda engine: engine.run(c.Move("q", "dead", 1)), {}, "moved", None),
    (lambda engine: engine.run(c.Move("q", "dead", 1, user="root")), {}, "moved", "root"),
    (lambda engine: engine.run(c.Enqueue("q", 1, 1)), {"maxMessages": 2, "overflow": "ring"}, "dropped", None),
]


@pytest.mark.parametrize(("way", "options", "outcome", "taker"), WAYS)
def test_who_had_a_message_when_it_ended(
    way: Callable[[Engine], object], options: dict[str, object], outcome: str, taker: str | None
) -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", options=options), c.Enqueue("q", 2, 10))
    way(engine)
    assert (fate(engine), takers(engine)[:2]) == (outcome, [taker, None])
    assert not queue(engine, "dead").takers.names, "the dead letter has no taker yet"
    survives(engine)


def test_a_message_that_goes_on_forgets_who_had_it() -> None:
    """A redriven dead letter has no taker; a later settlement sets a new one."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"maxAttempts": 1}), c.Enqueue("q", 2, 10))
    failed_at_last(engine)
    engine.run(c.Redrive("q"))
    assert takers(engine) == [None, None]
    engine.run(c.Settle("q", link(engine, "bob"), FIRST), c.Purge("q"))
    assert takers(engine) == ["bob", None]
    survives(engine)


def test_what_nobody_with_a_name_takes_has_no_column_and_names_take_a_byte_each() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 600, 10))
    column = queue(engine).blocks[0].taker
    engine.run(c.Settle("q", link(engine, None, 300), RowSet.range(0, 300)))
    assert column.values is None
    engine.run(c.Settle("q", link(engine), RowSet.single(300)))
    assert column.values is not None
    assert column.values.dtype == np.uint8
    for number in range(301, 600):
        engine.run(c.Settle("q", link(engine, f"user {number}"), RowSet.single(number)))
    assert column.values.dtype == np.uint16
    assert takers(engine) == [None] * 300 + ["ann"] + [f"user {number}" for number in range(301, 600)]


@pytest.mark.parametrize(
    ("container", "user", "name"),
    [
        ("orders-worker", "alice", "orders-worker (alice)"),
        ("orders-worker", None, "orders-worker"),
        ("", "alice", "alice"),
        ("", None, None),
        ("one\ntwo\u202e", "alice", "one\\ntwo\\u202e (alice)"),
        ("c" * 1000, "u" * 255, f"{'c' * (MAX_TAKER_PART - 1)}… ({'u' * (MAX_TAKER_PART - 1)}…)"),
    ],
)
def test_a_link_is_named_by_container_and_user(container: str, user: str | None, name: str | None) -> None:
    """Both are readable and limited, because a client chooses them."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 1, 10))
    engine.run(c.Settle("q", link(engine, user, container=container), FIRST))
    assert takers(engine) == [name]
    survives(engine)


RANDOM_LEASE = f"q-{'0af9' * 8}"
BATCH = SparkBatch("6f0d", 3)


@pytest.mark.parametrize(
    ("lease", "reader", "query", "name"),
    [
        (RANDOM_LEASE, BATCH, "nightly", "nightly"),
        (RANDOM_LEASE, BATCH, None, "6f0d"),
        (RANDOM_LEASE, None, None, RANDOM_LEASE),
        (f"alice:{RANDOM_LEASE}", BATCH, "nightly", "nightly (alice)"),
        (f"alice:{RANDOM_LEASE}/q", BATCH, "nightly", "nightly (alice)"),
        ("etl", BATCH, "nightly", "nightly (etl)"),
        ("alice:etl", BATCH, None, "6f0d (alice:etl)"),
        ("etl", None, None, "etl"),
        ("etl", BATCH, "n" * 300, f"{'n' * (MAX_TAKER_PART - 1)}… (etl)"),
    ],
)
def test_a_lease_is_named_by_its_query(lease: str, reader: SparkBatch | None, query: str | None, name: str) -> None:
    """A random name of a lease is left out. The list of leases shows the query, also after a recovery."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 1, 10))
    read_by(engine, lease, reader, query)
    assert takers(engine) == [name]
    survives(engine)
    shown = None if reader is None else name.partition(" (")[0]
    for restored in (engine, engine.recovered(), engine.from_snapshot()):
        assert [row["query"] for row in restored.run(c.ListLeases())] == [shown]


def test_a_query_keeps_its_name_until_it_gets_another_one() -> None:
    """A job of the query may be unnamed; another query forgets the name."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 4, 10))
    names = []
    for number, (query, name) in enumerate([("a", "nightly"), ("a", None), ("a", "daily"), ("b", None)], 1):
        epoch, batch = engine.advance("etl", epoch=None, finished=number - 1, messages=1)
        engine.run(c.ReadBatch("etl", "r", epoch, batch, 0, 2**60, True, SparkBatch(query, number), name))
        names.append(engine.state.leases["etl"].reader)
    assert names == ["nightly", "nightly", "daily", "b"]


def test_many_containers_leave_codes_for_users_and_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the limit on, a link of a new container is named by its user; a known one keeps its name."""
    monkeypatch.setattr(links, "MAX_LINK_TAKERS", 2)
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 7, 10))
    for number, (container, user) in enumerate(
        [("one", "ann"), ("two", None), ("three", "ann"), ("four", None), ("one", "ann"), ("five", "bob")]
    ):
        engine.run(c.Settle("q", link(engine, user, container=container), RowSet.single(number)))
    leased(engine)
    engine.run(c.FinishBatches("etl", 1))
    assert takers(engine) == ["one (ann)", "two", "ann", None, "one (ann)", "bob", "etl"]
    survives(engine)


def test_who_redrives_a_dead_letter() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", options=DLQ), c.Enqueue("q", 1, 10))
    rejected(engine)
    engine.run(c.Redrive("dead", user="root"))
    assert (takers(engine, "dead"), takers(engine)) == (["root"], ["ann", None])
    survives(engine)


def test_who_holds_a_message_now() -> None:
    """Also a link that has ended and holds the message by its transaction."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 10))
    holder, transaction = link(engine, container="worker"), engine.run(c.BeginTransaction(1))
    engine.run(c.Retire(transaction, "q", holder, FIRST, DeliveryEnd(Outcome.ACCEPTED)), c.Unsubscribe("q", holder))
    leased(engine)
    names = [engine.state.holder_name(queue(engine), sequence) for sequence in range(4)]
    assert names == ["worker (ann)", "etl", None, None]


def test_further_names_than_the_limit_are_not_kept() -> None:
    """The first names are kept; rows of later takers have no name."""
    assert np.iinfo(np.uint16).max >= MAX_TAKERS
    names = Names(2, ["a"])
    assert [names.code(name) for name in ("a", "b", "c", None, "b", "")] == [1, 2, 0, 0, 2, 0]
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 10))
    queue(engine).takers = Names(2)
    for number, user in enumerate(("a", "b", "c")):
        engine.run(c.Settle("q", link(engine, user), RowSet.single(number)))
    assert takers(engine) == ["a", "b", None]


def test_a_block_that_left_memory_keeps_its_takers() -> None:
    """The packed columns contain stable codes, also in a queue that is deleted before its rows are recorded."""
    engine = Engine(BrokerState(records=True))
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", BLOCK_ROWS, 10))
    engine.run(c.Settle("q", link(engine, "ann", 10), RowSet.range(0, 10)))
    engine.run(c.Settle("q", link(engine, "bob", BLOCK_ROWS), RowSet.range(10, BLOCK_ROWS)))
    ((name, number),) = engine.state.blocks_to_pack(9)
    engine.run(c.PackBlock(name, number))
    (packed,) = engine.packed.values()
    codes = Block.restored(unpack(packed)).taker.get(slice(8, 12))
    assert np.asarray(codes).tolist() == [1, 1, 2, 2]
    engine.run(c.DeleteQueue("q"))
    for life in (engine.recovered(), engine.from_snapshot()):
        (left,) = life.state.departed.values()
        assert left.takers.names == ["ann", "bob"]

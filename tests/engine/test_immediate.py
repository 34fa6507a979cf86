"""Q4: an *immediate* message is stored and acquired by a link in one event, or it leaves no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved
from .harness import Engine
from .laws import picture


class Nothing:
    """A selector that matches nothing; rows from `known_rows` on are not evaluated."""

    def __init__(self, known_rows: int = 1 << 16) -> None:
        self.known_rows = known_rows

    def known(self, queue: Queue, block: int) -> Any:
        return np.zeros(min(self.known_rows, queue.blocks[block].filled), np.bool_)


def made(kind: str = "fifo", links: int = 2, **options: Any) -> tuple[Engine, list[int]]:
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", kind, options))
    return engine, [engine.run(c.Subscribe("q")) for _ in range(links)]


def send(
    engine: Engine, count: int, *offers: c.Offer, budgets: Any = (), **columns: Any
) -> tuple[list[Any], list[int], list[int]]:
    """Send messages; return the taken rows by link, the undelivered rows and the refused ones."""
    before = picture(engine)
    command = c.EnqueueImmediate("q", count, 1, attributes=Attributes(**columns), offers=offers, budgets=budgets)
    taken, undelivered, refused = engine.run(command)
    if not taken:
        assert picture(engine) == before, "messages that were not stored left a trace"
    assert conserved(engine.state.queues["q"])
    for again in (engine.recovered(), engine.from_snapshot()):
        assert again.persisted() == engine.persisted()
    return [(holder, rows.sequences().tolist()) for holder, rows in taken], list(undelivered), list(refused)


def named(*codes: int) -> Coded:
    return Coded(["a", "b", "c"], np.array(codes))


def ids(*values: bytes) -> Any:
    return np.array(values, "S16")


def test_links_take_as_many_as_their_credit_in_the_order_of_the_offers() -> None:
    engine, (first, second) = made()
    assert send(engine, 5, c.Offer(second, 2), c.Offer(first, 1), c.Offer(second, 1)) == (
        [(second, [0, 1, 3]), (first, [2])],
        [4],
        [],
    )
    assert engine.state.queues["q"].next_sequence == 4


def test_one_record_stores_and_acquires() -> None:
    """A crash leaves both or neither. After a restart the messages are available, as all messages that a link held."""
    engine, (first, _) = made()
    logged = len(engine.log)
    send(engine, 2, c.Offer(first, 2))
    assert len(engine.log) == logged + 1
    again = engine.recovered()
    again.run(c.StartBroker())
    assert again.state.queues["q"].counts[State.AVAILABLE] == 2


def test_limits_that_links_share_hold_for_them_together() -> None:
    engine, (first, second) = made()
    offers = c.Offer(first, 9, (0, 1)), c.Offer(second, 9, (0,))
    assert send(engine, 5, *offers, budgets=[3, 1]) == ([(first, [0]), (second, [1, 2])], [3, 4], [])


@pytest.mark.parametrize("why", ["paused", "not active", "gone", "excluded by a waiting message"])
def test_a_link_that_may_not_take_now_takes_nothing(why: str) -> None:
    engine, (first, second) = made(consumers="single" if why == "not active" else "all")
    offer = c.Offer(first, 5)
    if why == "paused":
        engine.run(c.PauseQueue("q"))
    elif why == "not active":
        offer = c.Offer(second, 5)
    elif why == "gone":
        engine.run(c.Unsubscribe("q", first))
    else:
        engine.run(c.Enqueue("q", 1, 1))
    assert send(engine, 1, offer) == ([], [0], [])


def test_what_waits_for_the_link_has_precedence_also_if_its_selector_is_not_evaluated() -> None:
    engine, (first, _) = made()
    engine.run(c.Enqueue("q", 2, 1))
    mine = np.array([True, False])
    assert send(engine, 2, c.Offer(first, 9, (), Nothing(1), mine)) == ([], [0, 1], [])
    assert send(engine, 2, c.Offer(first, 9, (), Nothing(), mine)) == ([(first, [2])], [1], [])
    assert send(engine, 1, c.Offer(first, 9, (), Nothing(2), mine[:1])) == ([(first, [3])], [], []), "row 2 is not AVAILABLE"


def test_what_is_not_due_or_has_expired_cannot_be_delivered() -> None:
    engine, (first, _) = made()
    now = engine.wall // 1000
    due, expiry = np.array([0, now, now + 1, 0]), np.array([0, now + 1, 0, now])
    assert send(engine, 4, c.Offer(first, 9), due=due, expiry=expiry) == ([(first, [0, 1])], [2, 3], [])


def test_higher_levels_are_taken_first() -> None:
    engine, (first, second) = made("priority", levels=3)
    priority = np.array([1, 10, 5, 10])
    assert send(engine, 4, c.Offer(first, 3), c.Offer(second, 0), priority=priority) == ([(first, [0, 2]), (first, [1])], [0], [])


def test_an_id_is_remembered_of_what_was_stored_alone() -> None:
    """Q19: a duplicate has the fate of the first message with its id, and is recognized if an earlier one was stored."""
    engine, (first, _) = made(duplicateWindow=9)
    mine = ids(b"x", b"x", b"y", b"")
    assert send(engine, 4, ids=mine) == ([], [0, 1, 2, 3], [])
    assert send(engine, 4, c.Offer(first, 2), ids=mine) == ([(first, [0, 1])], [3], [])
    assert send(engine, 4, ids=mine) == ([], [3], []), "x and y are duplicates"
    assert len(engine.state.queues["q"].remembered) == 2


@pytest.mark.parametrize("overflow", ["reject", "ring"])
def test_a_message_that_a_link_holds_makes_no_room(overflow: str) -> None:
    """Q15: three messages fit, and a link holds one of them."""
    engine, (first, second) = made(maxMessages=3, overflow=overflow)
    engine.run(c.Enqueue("q", 1, 1), c.Acquire("q", first, 1))
    assert send(engine, 4, c.Offer(second, 1)) == ([(second, [1])], [1, 2, 3], []), "undelivered messages need no room"
    assert send(engine, 3, c.Offer(second, 9)) == ([(second, [2])], [], [1, 2])
    queue = engine.state.queues["q"]
    assert queue.counts[State.ACQUIRED] == queue.live == 3


def test_a_ring_drops_what_waits_for_what_is_taken_and_for_nothing_else() -> None:
    engine, (first, _) = made(maxMessages=2, overflow="ring")
    engine.run(c.Enqueue("q", 2, 1))
    offer = c.Offer(first, 9, (), Nothing(), np.array([False, True]))
    assert send(engine, 2, offer) == ([(first, [2])], [0], [])
    assert engine.state.queues["q"].blocks[0].outcome.get(slice(0, 3)).tolist() == [Outcome.DROPPED, 0, 0]  # type: ignore[union-attr]


def test_two_values_of_a_key_are_held_and_the_older_gives_way_when_it_comes_back() -> None:
    engine, (first, second) = made("lastvalue", key="subject", maxKeys=1)
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(key=named(1))))
    assert send(engine, 1, key=named(1)) == ([], [0], []), "the waiting value remains"
    offers = [c.Offer(holder, 1, (), Nothing(), np.array([True, True, True])) for holder in (first, second)]
    assert send(engine, 3, *offers, key=named(2, 1, 1)) == ([(second, [1])], [2], [0]), "key b would exceed the limit"
    assert engine.state.queues["q"].blocks[0].state[:2].tolist() == [State.ARCHIVED, State.ACQUIRED]
    assert send(engine, 1, offers[0]._replace(matches=np.array([True])), key=named(1)) == ([(first, [2])], [], [])
    engine.run(c.Release("q", second, RowSet.single(1)))
    assert engine.state.queues["q"].blocks[0].outcome.get(1) == Outcome.REPLACED


def test_a_group_is_its_holders() -> None:
    engine, (first, second) = made(groups="held")
    assert send(engine, 4, c.Offer(first, 2), c.Offer(second, 9), group=named(1, 2, 1, 0)) == (
        [(first, [0, 1]), (second, [2])],
        [2],
        [],
    )
    assert send(engine, 2, c.Offer(second, 9), group=named(1, 3)) == ([(second, [3])], [0], [])
    assert sorted(name for name, _ in engine.state.queues["q"].group_names.names()) == ["a", "b", "c"]


@pytest.mark.parametrize("keeps", ["groups", "consumers"])
def test_nothing_passes_a_message_that_waits_for_its_retry(keeps: str) -> None:
    """Q23: later messages of its group wait, or of the whole queue at its level and below."""
    options = {"groups": "held"} if keeps == "groups" else {"consumers": "single"}
    engine, (first, _) = made("priority", levels=2, retryDelay=1000, **options)
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(priority=np.array([1]), group=named(1) if keeps == "groups" else None)))
    engine.run(c.Acquire("q", first, 1), c.Release("q", first, RowSet.single(0), Cause.MODIFIED))
    group = {"group": named(1, 2)} if keeps == "groups" else {}
    priority = np.array([1, 1] if keeps == "groups" else [1, 10])
    assert send(engine, 2, c.Offer(first, 9), priority=priority, **group) == ([(first, [1])], [0], [])


def test_a_retry_that_it_replaces_keeps_no_group_waiting() -> None:
    """Q16 Q17 Q23: consumers that wait behind that message are woken."""
    engine, (first, second) = made("lastvalue", key="subject", groups="held", retryDelay=1000)
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(key=named(1), group=named(1))))
    engine.run(c.Acquire("q", first, 1), c.Release("q", first, RowSet.single(0), Cause.MODIFIED))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(key=named(2), group=named(1))))
    assert not engine.run(c.Acquire("q", second, 1)).rows
    columns = Attributes(key=named(1), group=named(2))
    command = c.EnqueueImmediate("q", 1, 1, attributes=columns, offers=[c.Offer(first, 1)])
    assert decide(engine.state, command, c.Now(engine.wall, engine.up)).effects.wakes == ("q",)
    assert send(engine, 1, c.Offer(first, 1), key=named(1), group=named(2)) == ([(first, [2])], [], [])
    assert engine.run(c.Acquire("q", second, 1)).rows.sequences().tolist() == [1]


def test_a_lock_holds_for_it() -> None:
    engine, (first, _) = made(lockTimeout=1000)
    send(engine, 1, c.Offer(first, 1))
    engine.pass_time(1)
    engine.run(c.Tick())
    assert engine.state.queues["q"].counts[State.AVAILABLE] == 1


def test_it_waits_for_the_disk_where_the_queue_or_the_message_asks_for_that() -> None:
    for durability, durable, waits in (("all", False, True), ("header", True, True), ("header", False, False)):
        engine, (first, _) = made(durability=durability)
        command = c.EnqueueImmediate("q", 1, 1, durable=durable, attributes=NO_ATTRIBUTES, offers=[c.Offer(first, 1)])
        assert decide(engine.state, command, c.Now(engine.wall, engine.up)).waits is waits


def test_a_queue_that_is_gone_is_an_error() -> None:
    with pytest.raises(errors.NotFound):
        Engine().run(c.EnqueueImmediate("q", 1, 1))

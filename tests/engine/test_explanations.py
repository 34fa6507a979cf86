"""Explanations of the engine agree with what happens next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.limits import EXPLAINED_MESSAGES, SECOND, UNREAD_PAUSE_MOST
from penstock.broker_core.engine.columns.obstacles import Obstacle
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause
from penstock.broker_core.engine.decide.explanations import ranked
from penstock.broker_core.engine.decide.links import lacks_group
from penstock.broker_core.errors import InUse

from .harness import Engine
from .test_selecting_machine import Known


def explained(engine: Engine, holder: int, known: Known | None = None, **more: Any) -> c.Explained:
    answer: c.Explained = engine.run(c.Explain("q", holder, matching=known, **more))
    return answer


def obstacles(answer: c.Explained) -> set[Obstacle]:
    return {hindrance.obstacle for hindrance in answer.hindrances}


def upcoming(engine: Engine, holder: int, known: Known | None = None) -> int | None:
    """Return the message that the link acquires next, without acquiring it."""
    command = c.Acquire("q", holder, 1, matching=known)
    rows = decide(engine.state, command, c.Now(engine.wall, engine.up)).reply.rows
    return rows.first if rows else None


def agrees(engine: Engine, holder: int, known: Known | None) -> c.Explained:
    answer, expected = explained(engine, holder, known), upcoming(engine, holder, known)
    assert answer.next == expected, answer
    assert bool(answer.hindrances) == (expected is None), answer
    return answer


def groups(source: Random, count: int) -> Attributes:
    names = [source.choice("abc") for _ in range(count)]
    due = np.where([source.random() < 0.1 for _ in range(count)], source.randrange(1, 10**9), 0)
    coded = Coded(sorted(set(names)), np.array([sorted(set(names)).index(name) + 1 for name in names]))
    return Attributes(group=coded, due=due if due.any() else None, priority=np.array([source.randrange(11)] * count, np.uint8))


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_agrees_with_the_next_acquisition(seed: int) -> None:
    source, seen = Random(seed), set[Obstacle | None]()
    for _ in range(20):
        engine, links = Engine(), dict[int, Known | None]()
        kind, levels = ("fifo", {}) if source.random() < 0.6 else ("priority", {"levels": 3})
        options = {"groups": source.choice(["none", "sticky", "held"]), "consumers": source.choice(["all", "all", "single"])}
        engine.run(c.DeclareQueue("q", kind, {**options, **levels, "retryDelay": source.choice([0, 5000])}))
        for _ in range(60):
            step = source.random()
            if step < 0.15 and len(links) < 5:
                known = Known(source.choice([2, 3])) if source.random() < 0.3 else None
                one_group = known is None and options["groups"] != "none" and source.random() < 0.3
                selector = None if known is None else f"k = {known.divisor}"
                links[engine.run(c.Subscribe("q", source.randrange(3), selector=selector, one_group=one_group))] = known
            elif step < 0.45:
                count = source.randrange(1, 6)
                engine.run(c.Enqueue("q", count, 1, attributes=groups(source, count)))
            elif step < 0.5:
                engine.run(c.PauseQueue("q", source.random() < 0.3))
            elif step < 0.55:
                engine.pass_time(source.choice([1, 6]))
                engine.run(c.Tick())
            elif links:
                _act(source, engine, *source.choice(list(links.items())))
            for known in links.values():
                if known is not None and source.random() < 0.7:
                    known.rows[0] = engine.state.queues["q"].next_sequence
            for holder, known in links.items():
                seen |= obstacles(agrees(engine, holder, known)) or {None}
    expected = {None, Obstacle.PAUSED, Obstacle.EMPTY, Obstacle.INACTIVE, Obstacle.GROUP, Obstacle.SELECTOR}
    assert expected | {Obstacle.DEFERRED, Obstacle.NO_GROUP, Obstacle.OTHER_GROUP} <= seen


def _act(source: Random, engine: Engine, holder: int, known: Known | None) -> None:
    queue = engine.state.queues["q"]
    if lacks_group(queue, queue.consumers.subscriptions[holder]):
        with suppress(InUse):
            engine.run(c.LockGroup("q", holder, source.choice([None, "a", "b"])))
        return
    rows = engine.run(c.Acquire("q", holder, source.randrange(1, 5), matching=known)).rows
    if rows and source.random() < 0.7:
        some = RowSet.of_sequences(rows.sequences()[: source.randrange(1, 5)])
        causes = [(Cause.RELEASED, False), (Cause.MODIFIED, False), (Cause.RELEASED, True), (Cause.DEFERRED, False)]
        cause, exclude = source.choice(causes)
        engine.run(c.Settle("q", holder, some) if source.random() < 0.5 else c.Release("q", holder, some, cause, exclude))


# --- one reason at a time: it is named; without it, the message is delivered


def made(count: int = 1, attributes: Attributes | None = None, **options: Any) -> tuple[Engine, int]:
    engine = Engine()
    engine.run(c.DeclareQueue("q", "fifo", options))
    holder = engine.run(c.Subscribe("q"))
    if count:
        engine.run(c.Enqueue("q", count, 1, attributes=attributes or Attributes()))
    return engine, holder


Case = tuple[Engine, int, Known | None, Callable[[], Any]]


def paused() -> Case:
    engine, holder = made()
    engine.run(c.PauseQueue("q"))
    return engine, holder, None, lambda: engine.run(c.PauseQueue("q", paused=False))


def empty() -> Case:
    engine, holder = made(0)
    return engine, holder, None, lambda: engine.run(c.Enqueue("q", 1, 1))


def delayed() -> Case:
    engine, holder = made(attributes=Attributes(due=np.array([Engine().wall // 1000 + 5000])))
    return engine, holder, None, lambda: (engine.pass_time(5), engine.run(c.Tick()))


def inactive() -> Case:
    engine, first = made(consumers="single")
    return engine, engine.run(c.Subscribe("q")), None, lambda: engine.run(c.Unsubscribe("q", first))


def selector() -> Case:
    engine, _ = made(0)
    known, holder = Known(7), engine.run(c.Subscribe("q", selector="k = 7"))
    engine.run(c.Enqueue("q", 7, 1), c.Acquire("q", 1, 1))
    known.rows[0] = 7

    def arrive() -> None:
        engine.run(c.Enqueue("q", 1, 1))
        known.rows[0] = 8

    return engine, holder, known, arrive


def unevaluated() -> Case:
    engine, _ = made(3)
    known, holder = Known(2), engine.run(c.Subscribe("q", selector="k = 2"))
    return engine, holder, known, lambda: known.rows.update({0: 3})


def refused() -> Case:
    engine, holder = made()
    engine.run(c.Subscribe("q"))  # otherwise every link has refused it
    rows = engine.run(c.Acquire("q", holder, 1)).rows
    engine.run(c.Release("q", holder, rows, exclude=True))
    return engine, holder, None, lambda: engine.run(c.Enqueue("q", 1, 1))


def of_one_group(count: int) -> Attributes:
    return Attributes(group=Coded(["a"], np.ones(count, np.int64)))


def group() -> Case:
    engine, first = made(2, of_one_group(2), groups="held")
    rows = engine.run(c.Acquire("q", first, 1)).rows
    return engine, engine.run(c.Subscribe("q")), None, lambda: engine.run(c.Settle("q", first, rows))


def locked_group() -> Case:
    engine, first = made(1, of_one_group(1), groups="held")
    owner = engine.run(c.Subscribe("q", one_group=True))
    engine.run(c.LockGroup("q", owner))
    return engine, first, None, lambda: engine.run(c.Unsubscribe("q", owner))


def no_group() -> Case:
    engine, _ = made(1, of_one_group(1), groups="held")
    link = engine.run(c.Subscribe("q", one_group=True))
    return engine, link, None, lambda: engine.run(c.LockGroup("q", link))


def other_group() -> Case:
    engine, _ = made(2, of_one_group(2), groups="held")
    link = engine.run(c.Subscribe("q", one_group=True))
    engine.run(c.LockGroup("q", link, "b"))
    mine = Attributes(group=Coded(["b"], np.array([1])))
    return engine, link, None, lambda: engine.run(c.Enqueue("q", 1, 1, attributes=mine))


def retry_of_a_group() -> Case:
    engine, first = made(2, of_one_group(2), groups="held", retryDelay=5000)
    engine.run(c.Release("q", first, engine.run(c.Acquire("q", first, 1)).rows, Cause.MODIFIED))
    return engine, first, None, lambda: (engine.pass_time(5), engine.run(c.Tick()))


def retry_of_a_queue() -> Case:
    engine, first = made(2, consumers="single", retryDelay=5000)
    engine.run(c.Release("q", first, engine.run(c.Acquire("q", first, 1)).rows, Cause.MODIFIED))
    return engine, first, None, lambda: (engine.pass_time(5), engine.run(c.Tick()))


def expired() -> Case:
    """Until the broker's next tick ends it."""
    engine, holder = made(attributes=Attributes(expiry=np.array([Engine().wall // 1000 + 5000])))
    engine.pass_time(6)
    return engine, holder, None, lambda: engine.run(c.Enqueue("q", 1, 1))


CASES: dict[str, tuple[Callable[[], Case], Obstacle]] = {
    "paused": (paused, Obstacle.PAUSED),
    "empty": (empty, Obstacle.EMPTY),
    "delayed": (delayed, Obstacle.DELAYED),
    "inactive": (inactive, Obstacle.INACTIVE),
    "selector": (selector, Obstacle.SELECTOR),
    "unevaluated": (unevaluated, Obstacle.UNEVALUATED),
    "refused": (refused, Obstacle.REFUSED),
    "group": (group, Obstacle.GROUP),
    "locked group": (locked_group, Obstacle.GROUP),
    "no group": (no_group, Obstacle.NO_GROUP),
    "other group": (other_group, Obstacle.OTHER_GROUP),
    "retry of a group": (retry_of_a_group, Obstacle.RETRY),
    "retry of a queue": (retry_of_a_queue, Obstacle.RETRY),
    "expired": (expired, Obstacle.EXPIRED),
}


@pytest.mark.parametrize("name", CASES)
def test_without_its_only_reason_a_message_is_delivered(name: str) -> None:
    make, obstacle = CASES[name]
    engine, holder, known, remove = make()
    assert obstacles(agrees(engine, holder, known)) == {obstacle}
    remove()
    assert agrees(engine, holder, known).hindrances == ()


def test_details_name_the_other_consumer_the_group_and_the_time() -> None:
    engine, holder, _, _ = group()
    assert explained(engine, holder).hindrances == (c.Hindrance(Obstacle.GROUP, 1, 1, "a"),)
    engine, holder, _, _ = locked_group()
    assert explained(engine, holder).hindrances == (c.Hindrance(Obstacle.GROUP, 1, 3, "a", locked=True),)
    engine, holder, _, _ = inactive()
    assert explained(engine, holder).hindrances == (c.Hindrance(Obstacle.INACTIVE, holder=1),)
    soon = engine.wall // 1000 + 5000
    engine, holder, _, _ = retry_of_a_group()
    assert explained(engine, holder).hindrances == (c.Hindrance(Obstacle.RETRY, 1, group="a", until=soon),)
    engine, holder, _, _ = retry_of_a_queue()
    assert explained(engine, holder).hindrances == (c.Hindrance(Obstacle.RETRY, 1, until=soon),)


def test_a_mass_of_messages_is_looked_at_in_part_and_the_answer_says_so() -> None:
    engine, _ = made(0)
    known, holder = Known(1 << 40), engine.run(c.Subscribe("q", selector="k"))
    engine.run(c.Enqueue("q", 200_001, 1), c.Acquire("q", 1, 1))
    known.rows = dict.fromkeys(range(4), 1 << 16)
    engine.run(c.Acquire("q", holder, 1, matching=known))
    answer = explained(engine, holder, known)
    assert (answer.looked, answer.passed_all) == (EXPLAINED_MESSAGES, True)
    assert answer.hindrances == (c.Hindrance(Obstacle.SELECTOR, EXPLAINED_MESSAGES),)


def test_obstacles_of_the_link_and_of_precedence_are_added() -> None:
    engine, holder = made()
    assert obstacles(explained(engine, holder, obstacle=Obstacle.CREDIT)) == {Obstacle.CREDIT}
    other = engine.run(c.Subscribe("q"))
    ahead = explained(engine, holder, behind=(other,))
    assert ahead.hindrances == (c.Hindrance(Obstacle.PRIORITY, holder=other),)
    rows = decide(engine.state, c.Acquire("q", holder, 1, behind=(other,)), c.Now(engine.wall, engine.up)).reply.rows
    assert not rows


def test_of_links_for_the_same_message_the_highest_priority_comes_first() -> None:
    engine, low = made(1)
    high = engine.run(c.Subscribe("q", 5))
    consumers = engine.run(c.DescribeConsumers("q", 10)).consumers
    assert [consumer.holder for consumer in consumers] == [low, high]
    answers = ranked([(consumer, explained(engine, consumer.holder)) for consumer in consumers])
    assert answers[0].hindrances == (c.Hindrance(Obstacle.PRIORITY, holder=high),)
    assert (answers[0].next, answers[1].next) == (None, 0)
    without_credit = explained(engine, high, obstacle=Obstacle.CREDIT)
    answers = ranked([(consumers[0], explained(engine, low)), (consumers[1], without_credit)])
    assert answers[0].hindrances == ()


def test_a_lease() -> None:
    engine, link = made(1)
    engine.run(c.Unsubscribe("q", link))
    epoch, batch = engine.advance("l", epoch=None, finished=0)

    def answer() -> c.Explained:
        (state,) = engine.run(c.DescribeConsumers("q", 10)).consumers
        assert state.lease == "l"
        return explained(engine, state.holder, lease="l")

    engine.run(c.Enqueue("q", 1, 1))
    assert obstacles(answer()) == {Obstacle.BATCH}
    engine.read("l", epoch=epoch, batch=batch)
    engine.run(c.FinishBatches("l", batch))
    assert (answer().hindrances, answer().next) == ((), 1)
    engine.pass_time(3600)
    assert obstacles(answer()) == {Obstacle.SILENT}
    assert engine.advance("l", epoch=epoch, finished=batch)[1] == batch + 1


def test_a_lease_behind_an_exclusive_link() -> None:
    engine, link = made(2)
    engine.run(c.Unsubscribe("q", link))
    epoch, batch = engine.advance("l", epoch=None, finished=0, messages=1)
    engine.read("l", epoch=epoch, batch=batch)
    engine.run(c.FinishBatches("l", batch))
    link = engine.run(c.Subscribe("q", exclusive=True))
    answer = explained(engine, 0, lease="l")
    assert (obstacles(answer), answer.next) == ({Obstacle.EXCLUSIVE}, None)
    with pytest.raises(InUse):
        engine.advance("l", epoch=epoch, finished=batch)
    engine.run(c.Unsubscribe("q", link))
    assert explained(engine, 0, lease="l").next == 1
    assert engine.advance("l", epoch=epoch, finished=batch)[1] == batch + 1


def test_a_lease_that_has_left_batches_unread_waits() -> None:
    engine, link = made(100)
    engine.run(c.Unsubscribe("q", link))
    epoch, batch = engine.advance("l", epoch=None, finished=0, messages=1)
    while not obstacles(answer := explained(engine, 0, lease="l")) & {Obstacle.UNREAD}:
        taken, batch = batch, engine.advance("l", epoch=epoch, finished=batch, messages=1)[1]
        if batch == taken:
            answer = explained(engine, 0, lease="l")
            break
    assert (obstacles(answer), answer.next) == ({Obstacle.UNREAD}, None)
    engine.pass_time(UNREAD_PAUSE_MOST / SECOND)
    assert explained(engine, 0, lease="l").hindrances == ()
    assert engine.advance("l", epoch=epoch, finished=batch, messages=1)[1] == batch + 1


def test_a_free_message_behind_many_excluded_ones_is_not_seen_and_the_answer_says_how_many_were() -> None:
    engine, first = made(0, groups="held")
    engine.run(c.Enqueue("q", EXPLAINED_MESSAGES + 1, 1, attributes=of_one_group(EXPLAINED_MESSAGES + 1)))
    engine.run(c.Acquire("q", first, 1))
    engine.run(c.Enqueue("q", 1, 1))
    holder = engine.run(c.Subscribe("q"))
    answer = explained(engine, holder)
    assert (answer.next, answer.looked, answer.passed_all) == (None, EXPLAINED_MESSAGES, False)
    assert answer.hindrances == (c.Hindrance(Obstacle.GROUP, EXPLAINED_MESSAGES, first, "a"),)
    assert upcoming(engine, holder) == EXPLAINED_MESSAGES + 1


def test_a_queue_that_waits_is_described() -> None:
    engine, holder = made(3)
    engine.run(c.Acquire("q", holder, 1))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(due=np.array([engine.wall // 1000 + 9000]))))
    engine.advance("l", epoch=None, finished=0, messages=1)
    state = engine.run(c.DescribeConsumers("q", 1))
    assert state._replace(consumers=()) == c.QueueState(False, 1, 2, 1, 0, engine.wall // 1000 + 9000, (), 2)
    assert state.consumers == (c.ConsumerState(holder, held=1),)
    assert engine.up < 10 * SECOND

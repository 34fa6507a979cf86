"""Q1 Q3 Q4 Q5 Q7 Q9 Q13 Q15 to Q19 Q22 Q23 C11: each pair of a queue's features, in random histories, against `laws`.

A history uses only the two features of its pair, so that they often meet in the same messages. After every command the laws
hold, and a snapshot restores the same state; at the end of a history, so does the journal. `promises` checks the promises of
each feature.

docs/queues.md states the rules of interacting pairs (*Pairs of features*); a test compares the names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.dispositions import attempts_towards_limit

from .harness import Engine
from .laws import column, rows_in
from .test_everything import NAMES, History

ATTEMPTS, CAPACITY, RETRY_MS, STEPS = 2, 2, 1500, 60


@dataclass(frozen=True)
class Feature:
    """Options of the queue, attributes of messages and commands of `Pair` that belong to one feature."""

    options: dict[str, Any] = field(default_factory=dict)
    kind: str | None = None
    sends: tuple[str, ...] = ()  # fields of `Attributes`
    plays: tuple[str, ...] = ()


FEATURES: dict[str, Feature] = {
    "immediate": Feature(plays=("send_immediate",) * 8),
    "delay": Feature(sends=("due",)),
    "ttl": Feature({"messageTtl": 6000}, sends=("expiry",)),
    "priority": Feature({"levels": 3}, "priority", ("priority",)),
    "group": Feature({"groups": "held"}, sends=("group", "closes")),
    "last value": Feature({"key": "subject"}, "lastvalue", ("key",)),
    "ring": Feature({"maxMessages": CAPACITY, "overflow": "ring"}),
    "duplicate window": Feature({"duplicateWindow": 1000}, sends=("ids",)),
    "single": Feature({"consumers": "single"}),
    "exclusive": Feature({"consumers": "exclusive"}),
    "maxAttempts": Feature({"maxAttempts": ATTEMPTS, "deadLetterQueue": "dead"}, plays=("redrive",)),
    "retryDelay": Feature({"retryDelay": RETRY_MS}, plays=("give_back",) * 3),
    "transaction": Feature(plays=("post", "post", "retire", "retire", "discharge", "discharge")),
    "deferral": Feature(plays=("defer",) * 4 + ("ask",) * 6),
    "lease": Feature(plays=("a_lease_acquires", "a_lease_acquires", "a_lease_is_released")),
}
#: Features that exclude each other: two types, or two values of one option.
APART = ({"priority", "last value"}, {"single", "exclusive"})
PAIRS = [pair for pair in itertools.combinations(FEATURES, 2) if {*pair} not in APART]


class Pair(History):
    """A history of one pair, with the commands of any queue."""

    length = STEPS

    def __init__(self, pair: tuple[str, str]) -> None:
        self.pair = pair
        super().__init__(" and ".join(pair))

    def declare(self, kind: str, options: dict[str, Any]) -> None:
        mine = [FEATURES[name] for name in self.pair]
        its_options = {"maxAttempts": 0} | {name: value for feature in mine for name, value in feature.options.items()}
        super().declare(next((feature.kind for feature in mine if feature.kind), "fifo"), its_options)

    def commands(self) -> list[Callable[[], None]]:
        mine = [name for feature in self.pair for name in FEATURES[feature].plays]
        always = [self.send] * 6 + [self.acquire] * 8 + [self.settle, self.give_back] * 3 + [self.time_passes] * 4
        seldom = [self.a_link_comes, self.a_link_goes, self.restart, self.purge, self.move, self.fail]
        return [*always, *seldom, *(getattr(self, name) for name in mine)]

    def messages(self) -> tuple[int, Attributes]:
        """Return messages that use the features often."""
        count = self.random.randint(1, 3)

        def drawn(*values: Any) -> Any:
            return np.array([self.random.choice(values) for _ in range(count)])

        columns: dict[str, Callable[[], Any]] = {
            "due": lambda: drawn(0, self.now + 1000),
            "expiry": lambda: drawn(0, self.now + 3000, self.now + 9000),
            "priority": lambda: drawn(*range(11)),
            "group": lambda: Coded(NAMES, drawn(0, 1, 1, 2)),
            "closes": lambda: drawn(0, 0, 1),
            "key": lambda: Coded(NAMES, drawn(0, 1, 1, 2)),
            "ids": lambda: drawn(b"", *(b"%d" % number for number in range(1, 30))).astype("S16"),
        }
        wanted = [name for feature in self.pair for name in FEATURES[feature].sends]
        return count, Attributes(**{name: columns[name]() for name in wanted})

    def a_link_comes(self) -> None:
        """Subscribe a link without a selector or a priority."""
        if len(self.links) < 3:
            self.links[self.engine.run(c.Subscribe("q"))] = None

    def give_back(self) -> None:
        self.engine.run(c.Release("q", *self.some_held(), self.random.choice([Cause.RELEASED, Cause.MODIFIED])))

    def fail(self) -> None:
        """Fail some of the messages that a link holds."""
        link, rows = self.some_held()
        self.engine.run(c.Release("q", link, rows, Cause.MODIFIED))

    def purge(self) -> None:
        self.engine.run(c.Purge("q", self.random.randint(1, 2)))

    def promises(self) -> None:
        """Check the promises of the pair's features on the messages in the queue."""
        queue, block = self.queue, self.queue.blocks.get(0)
        if block is None:
            return
        states = block.state[: block.filled]
        live = rows_in(block, *(state for state in State if state is not State.ARCHIVED))
        held = np.array([row for row in rows_in(block, State.ACQUIRED).tolist() if not column(block, "deferred")[row]], np.int64)
        if "ring" in self.pair:
            assert len(live) <= CAPACITY
        if {"single", "exclusive"} & {*self.pair}:
            assert len({*column(block, "holder")[held].tolist()}) <= 1, "two consumers hold messages"
        if "group" in self.pair:
            groups, holders = column(block, "group")[held], column(block, "holder")[held]
            assert all(len({*holders[groups == group].tolist()}) == 1 for group in {*groups.tolist()} - {0})
        if "maxAttempts" in self.pair:
            failed = np.broadcast_to(attempts_towards_limit(queue, block, slice(0, block.filled)), block.filled)
            assert all(failed[states != State.ARCHIVED] < ATTEMPTS)
        if "last value" not in self.pair:
            assert Outcome.REPLACED not in column(block, "outcome")
        if "ring" not in self.pair:
            assert Outcome.DROPPED not in column(block, "outcome")


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_the_laws_hold_for_each_pair_of_features(pair: tuple[str, str]) -> None:
    Pair(pair).play()


@pytest.mark.parametrize("pair", APART, ids=lambda pair: " and ".join(sorted(pair)))
def test_features_that_no_queue_has_together_are_refused(pair: set[str]) -> None:
    left, right = (FEATURES[name] for name in sorted(pair))
    if left.kind is None:
        assert {*left.options} == {*right.options}, "two values of one option"
        return
    for kind, options in ((left.kind, right.options), (right.kind, left.options)):
        with pytest.raises(errors.InvalidRequest):
            Engine().run(c.DeclareQueue("q", kind, options))


# --- rules of pairs in docs/queues.md that the laws do not cover


def outcomes(engine: Engine) -> list[Outcome]:
    block = engine.state.queues["q"].blocks[0]
    return [Outcome(outcome) for outcome in column(block, "outcome").tolist()]


def test_a_ring_that_is_held_when_a_transaction_commits_drops_what_that_brings() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options=FEATURES["ring"].options), c.Enqueue("q", CAPACITY, 1))
    holder, number = engine.run(c.Subscribe("q")), engine.run(c.BeginTransaction(1))
    engine.run(c.Post(number, "q", 1, 1), c.Acquire("q", holder, CAPACITY))
    assert engine.run(c.DischargeTransaction(number)) is None
    assert outcomes(engine) == [Outcome.NONE] * CAPACITY + [Outcome.DROPPED]


def test_an_id_stays_remembered_when_its_message_was_dropped_replaced_or_expired() -> None:
    for how, outcome in (("ring", Outcome.DROPPED), ("last value", Outcome.REPLACED), ("ttl", Outcome.EXPIRED)):
        engine, feature = Engine(), FEATURES[how]
        engine.run(c.DeclareQueue("q", feature.kind or "fifo", {**feature.options, "duplicateWindow": 9}))
        key = Coded(["k"], np.array([1])) if feature.kind else None
        expiry = np.array([engine.wall // 1000 + 1000]) if how == "ttl" else None
        first = Attributes(key=key, expiry=expiry, ids=np.array([b"x"], "S16"))
        engine.run(c.Enqueue("q", 1, 1, attributes=first), *[c.Enqueue("q", 1, 1, attributes=Attributes(key=key))] * CAPACITY)
        engine.pass_time(3)
        engine.run(c.Tick())
        assert outcomes(engine)[0] is outcome
        assert engine.run(c.Enqueue("q", 1, 1, attributes=first)).duplicates == 1


def test_a_transaction_leaves_duplicates_out_and_its_delays_count_from_the_sending() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"duplicateWindow": 9}))
    number, mine = engine.run(c.BeginTransaction(1)), np.array([b"x", b"y"], "S16")
    due = np.array([0, engine.wall // 1000 + 2000])
    engine.run(c.Post(number, "q", 2, 1, attributes=Attributes(due=due, ids=mine)))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(ids=mine[:1])))
    engine.pass_time(2)
    assert engine.run(c.DischargeTransaction(number)) is None
    assert engine.state.queues["q"].blocks[0].state[:2].tolist() == [State.AVAILABLE, State.AVAILABLE]
    assert engine.state.queues["q"].next_sequence == 2


def test_a_higher_level_of_a_group_is_taken_first() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", "priority", {"groups": "held", "levels": 2}))
    group, priority = Coded(["g"], np.array([1, 1, 1])), np.array([1, 1, 10])
    engine.run(c.Enqueue("q", 3, 1, attributes=Attributes(priority=priority, group=group)))
    holder = engine.run(c.Subscribe("q"))
    assert [engine.run(c.Acquire("q", holder, 1)).rows.first for _ in range(3)] == [2, 0, 1]


def test_a_delayed_message_keeps_no_other_waiting() -> None:
    """Only a message that waits for its retry delays others."""
    for options in ({"groups": "held"}, {"consumers": "single"}, {"consumers": "exclusive"}):
        engine = Engine()
        engine.run(c.DeclareQueue("q", options=options))
        due, group = np.array([engine.wall // 1000 + 1000, 0]), Coded(["g"], np.array([1, 1]))
        engine.run(c.Enqueue("q", 2, 1, attributes=Attributes(due=due, group=group if "groups" in options else None)))
        assert engine.run(c.Acquire("q", engine.run(c.Subscribe("q")), 9)).rows.sequences().tolist() == [1]

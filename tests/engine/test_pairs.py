"""Q1 Q3 Q4 Q5 Q7 Q9 Q13 Q15 to Q19 Q22 Q23 C11: each pair of a queue's features, in random histories, against `laws`.

A history uses the two features of its pair and nothing else, so that they meet in the same messages again and again. After every
command the laws hold, and a start from a snapshot finds the same; at its end so does a start from the journal. What each feature
promises on its own is checked, too: `promises`.

docs/queues.md states the rule of each pair that interacts (*Pairs of features*); a test compares the names.
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
from .laws import column
from .test_everything import NAMES, History, rows_in

ATTEMPTS, CAPACITY, RETRY_MS, STEPS = 2, 2, 1500, 60


@dataclass(frozen=True)
class Feature:
    """What a queue is declared with, what of a message is used, and which commands of `Pair` are played."""

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
    "lease": Feature(plays=("a_lease_acquires", "a_lease_acquires", "a_lease_is_released")),
}
#: One queue cannot have both: a type each, or one option's values.
APART = ({"priority", "last value"}, {"single", "exclusive"})
PAIRS = [pair for pair in itertools.combinations(FEATURES, 2) if {*pair} not in APART]


class Pair(History):
    """A history of one pair; most of its commands are those of any queue."""

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
        """Some messages that use the features, so often that they meet."""
        count = self.random.randint(1, 3)

        def each(*values: Any) -> Any:
            return np.array([self.random.choice(values) for _ in range(count)])

        columns: dict[str, Callable[[], Any]] = {
            "due": lambda: each(0, self.now + 1000),
            "expiry": lambda: each(0, self.now + 3000, self.now + 9000),
            "priority": lambda: each(*range(11)),
            "group": lambda: Coded(NAMES, each(0, 1, 1, 2)),
            "closes": lambda: each(0, 0, 1),
            "key": lambda: Coded(NAMES, each(0, 1, 1, 2)),
            "ids": lambda: each(b"", *(b"%d" % number for number in range(1, 30))).astype("S16"),
        }
        wanted = [name for feature in self.pair for name in FEATURES[feature].sends]
        return count, Attributes(**{name: columns[name]() for name in wanted})

    def a_link_comes(self) -> None:
        """Without a selector, and without a priority."""
        if len(self.links) < 3:
            self.links[self.engine.run(c.Subscribe("q"))] = None

    def give_back(self) -> None:
        self.engine.run(c.Release("q", *self.some_held(), self.random.choice([Cause.RELEASED, Cause.MODIFIED])))

    def fail(self) -> None:
        """All that a link holds fails, as often as it may."""
        link, rows = self.some_held()
        self.engine.run(c.Release("q", link, rows, Cause.MODIFIED))

    def purge(self) -> None:
        self.engine.run(c.Purge("q", self.random.randint(1, 2)))

    def promises(self) -> None:
        """What the features of the pair promise of the messages in the queue."""
        queue, block = self.queue, self.queue.blocks.get(0)
        if block is None:
            return
        states = block.state[: block.filled]
        held, live = rows_in(block, State.ACQUIRED), rows_in(block, State.DELAYED, State.AVAILABLE, State.ACQUIRED)
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
    one, other = (FEATURES[name] for name in sorted(pair))
    if one.kind is None:
        assert {*one.options} == {*other.options}, "two values of one option"
        return
    for kind, options in ((one.kind, other.options), (other.kind, one.options)):
        with pytest.raises(errors.InvalidRequest):
            Engine().run(c.DeclareQueue("q", kind, options))

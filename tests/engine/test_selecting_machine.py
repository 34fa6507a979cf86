"""Q2 Q7 Q8: histories of links with selectors against a simple model. Selectors are evaluated up to some row.

A message matches selector k if its place is divisible by k. No link gets a message while an earlier one of its level, or one
of a higher level, is eligible. No message is withheld after its selector was evaluated for all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, State
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved
from .harness import Engine

COUNTS = st.one_of(st.integers(1, 6), st.sampled_from([1000, 40_000, 70_000]))
LEVELS = 3  # priorities 0 to 3, 4, 5 to 9


class Known:
    """The evaluated rows of one selector: a prefix of each block."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        self.rows: dict[int, int] = {}
        self.asked: list[int] = []

    def known(self, queue: Queue, block: int) -> Any:
        self.asked.append(block)
        return (np.arange(self.rows.get(block, 0)) + (block << BLOCK_BITS)) % self.divisor == 0


class SelectingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.state = np.zeros(0, np.uint8)
        self.level = np.zeros(0, np.int64)
        self.links: dict[int, Known] = {}
        self.levels = 1
        self.leased = 0

    @initialize(levels=st.sampled_from([1, 1, LEVELS]), count=COUNTS)
    def begin(self, levels: int, count: int) -> None:
        self.levels = levels
        self.engine.run(c.DeclareQueue("q", "fifo") if levels == 1 else c.DeclareQueue("q", "priority", {"levels": levels}))
        self.enqueue(count, 0)
        for divisor in (2, 3):
            self.subscribe(divisor)

    @rule(count=COUNTS, step=st.integers(0, 3))
    def enqueue(self, count: int, step: int) -> None:
        priorities = (np.arange(count) * step + step) % 10
        levels = np.zeros(count, np.int64) if self.levels == 1 else np.searchsorted([4, 5], priorities, side="right")
        self.engine.run(c.Enqueue("q", count, 1, attributes=Attributes(priority=(priorities + 1).astype(np.uint8))))
        self.state = np.append(self.state, np.full(count, State.AVAILABLE, np.uint8))
        self.level = np.append(self.level, levels)

    @precondition(lambda self: len(self.links) < 4)
    @rule(divisor=st.integers(1, 3))
    def subscribe(self, divisor: int) -> None:
        self.links[self.engine.run(c.Subscribe("q", selector=f"k = {divisor}"))] = Known(divisor)

    def expected(self, divisor: int) -> Any:
        """Return all messages for a link, the highest level first."""
        rows = np.flatnonzero((self.state == State.AVAILABLE) & (np.arange(len(self.state)) % divisor == 0))
        return rows[np.argsort(-self.level[rows], kind="stable")]

    @rule(data=st.data(), most=COUNTS)
    def acquire(self, data: st.DataObject, most: int) -> None:
        holder = data.draw(st.sampled_from(sorted(self.links)))
        known = self.links[holder]
        known.asked = []
        rows = self.engine.run(c.Acquire("q", holder, most, matching=known)).rows.sequences().tolist()
        expected = self.expected(known.divisor)
        top = expected[self.level[expected] == self.level[expected[0]]][:most] if len(expected) else expected
        assert rows == top[: len(rows)].tolist()
        if len(rows) < len(top):
            # It stopped in a block that is not evaluated up to the next message.
            missing = int(top[len(rows)])
            short = known.asked[-1]
            assert known.rows.get(short, 0) < min(BLOCK_ROWS, len(self.state) - (short << BLOCK_BITS))
            unseen = known.rows.get(missing >> BLOCK_BITS, 0) <= missing % BLOCK_ROWS or short < missing >> BLOCK_BITS
            # Or a message of a higher level may be among the rows that are not evaluated.
            assert unseen or self.level[missing] < self.levels - 1
        self.state[rows] = State.ACQUIRED

    @rule(data=st.data(), most=COUNTS)
    def acquire_to_the_end(self, data: st.DataObject, most: int) -> None:
        """Acquire as a plane does: evaluate missing rows, and acquire again."""
        holder = data.draw(st.sampled_from(sorted(self.links)))
        known = self.links[holder]
        rows: list[int] = []
        while not rows:
            known.asked = []
            rows = self.engine.run(c.Acquire("q", holder, most, matching=known)).rows.sequences().tolist()
            if not known.asked or self._looked(known, known.asked[-1]) or rows:
                break
        expected = self.expected(known.divisor)
        top = expected[self.level[expected] == self.level[expected[0]]][:most] if len(expected) else expected
        assert rows == top[: len(rows)].tolist()
        assert bool(rows) == bool(len(expected))  # no link waits while a message is eligible
        self.state[rows] = State.ACQUIRED

    def _looked(self, known: Known, block: int) -> bool:
        """Evaluate some thousand rows of a block. Return True if all rows were evaluated before."""
        filled = min(BLOCK_ROWS, len(self.state) - (block << BLOCK_BITS))
        before = known.rows.get(block, 0)
        known.rows[block] = min(filled, before + 30_000)
        return before == filled

    @rule(data=st.data(), block=st.integers(0, 3), rows=st.sampled_from([0, 1, 500, BLOCK_ROWS]))
    def somebody_looks(self, data: st.DataObject, block: int, rows: int) -> None:
        """Evaluate rows for another link, or forget them as a full cache does."""
        known = self.links[data.draw(st.sampled_from(sorted(self.links)))]
        known.rows[block] = max(0, min(rows, len(self.state) - (block << BLOCK_BITS)))

    @rule(
        data=st.data(),
        step=st.integers(1, 3),
        most=st.sampled_from([1, 3, 1000]),
        end=st.sampled_from([State.ARCHIVED, State.AVAILABLE, State.AVAILABLE, State.DEFERRED]),
    )
    def ends(self, data: st.DataObject, step: int, most: int, end: State) -> None:
        holder = data.draw(st.sampled_from(sorted(self.links)))
        held = self.engine.state.queues["q"].consumers.subscriptions[holder].held
        mine = [number for block in held for number in self._held(holder, block)]
        rows = sorted(mine)[::step][:most]
        if rows:
            of = RowSet.of_sequences(np.array(rows, np.int64))
            cause = Cause.DEFERRED if end is State.DEFERRED else Cause.RELEASED
            self.engine.run(c.Settle("q", holder, of) if end is State.ARCHIVED else c.Release("q", holder, of, cause))
            self.state[rows] = end

    def _held(self, holder: int, number: int) -> list[int]:
        block = self.engine.state.queues["q"].blocks[number]
        everything = slice(0, block.filled)
        mine = (block.state[everything] == State.ACQUIRED) & (np.asarray(block.holder.get(everything)) == holder)
        return (np.flatnonzero(mine) + block.base).tolist()

    @precondition(lambda self: len(self.links) > 2)
    @rule(data=st.data())
    def a_link_is_lost(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(sorted(self.links)))
        del self.links[holder]
        self.state[self.engine.run(c.Unsubscribe("q", holder)).sequences()] = State.AVAILABLE

    @rule(divisor=st.integers(1, 3), most=COUNTS)
    def a_lease_takes(self, divisor: int, most: int) -> None:
        """A lease takes from all levels together. All rows are evaluated first, as a plane does."""
        known = Known(divisor)
        known.rows = {n: min(BLOCK_ROWS, len(self.state) - (n << BLOCK_BITS)) for n in range((len(self.state) >> BLOCK_BITS) + 1)}
        self.leased += 1
        name, text = f"lease{self.leased}", f"k = {divisor}"
        epoch, batch, *_ = self.engine.run(
            c.EnterLease("q", name, "r", None, True, selector=text),
            c.FinishBatches(name, 0),
            c.AcquireBatch("q", name, "r", 0, most, selector=text, matching=known),
        )
        expected = self.expected(divisor)[:most]
        assert bool(batch) == bool(len(expected))
        if batch:
            assert self.engine.read(name, epoch=epoch, batch=batch) == sorted(expected.tolist())
            self.engine.run(c.ReleaseLease(name, settle=True), c.DeleteLease(name))
            self.state[expected] = State.ARCHIVED

    @rule(place=st.integers(0, 150_000), divisor=st.integers(1, 3), most=COUNTS)
    def browse(self, place: int, divisor: int, most: int) -> None:
        known = Known(divisor)
        known.rows = {n: min(BLOCK_ROWS, len(self.state) - (n << BLOCK_BITS)) for n in range((len(self.state) >> BLOCK_BITS) + 1)}
        rows, *_ = self.engine.run(c.Browse("q", place, most, matching=known))
        available = np.flatnonzero((self.state == State.AVAILABLE) & (np.arange(len(self.state)) % divisor == 0))
        assert rows.sequences().tolist() == available[available >= place][:most].tolist()

    @rule()
    def nothing_is_lost_or_invented(self) -> None:
        queue = self.engine.state.queues["q"]
        assert conserved(queue)
        for block in queue.blocks.values():
            assert np.array_equal(block.state[: block.filled], self.state[block.base : block.base + block.filled])
        restored = self.engine.recovered()
        assert restored.persisted() == self.engine.persisted()


TestSelectingMachine = SelectingMachine.TestCase
TestSelectingMachine.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_lower_level_waits_until_it_is_known_that_nothing_higher_matches() -> None:
    engine, known = Engine(), Known(1)
    engine.run(c.DeclareQueue("q", "priority", {"levels": 2}))
    link = engine.run(c.Subscribe("q", selector="k = 1"))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(priority=np.array([1], np.uint8))))
    known.rows[0] = 1
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(priority=np.array([10], np.uint8))))
    assert not engine.run(c.Acquire("q", link, 9, matching=known)).rows
    known.rows[0] = 2
    assert engine.run(c.Acquire("q", link, 9, matching=known)).rows.sequences().tolist() == [1]
    assert engine.run(c.Acquire("q", link, 9, matching=known)).rows.sequences().tolist() == [0]

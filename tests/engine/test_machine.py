"""Q1 Q2 Q3 Q6 Q10 Q12: whole histories against a plain model, with the conservation law after every command."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from broker_core import errors
from broker_core.engine import commands as c
from broker_core.engine.blocks import Block
from broker_core.engine.rowset import RowSet
from broker_core.engine.state import conserved
from broker_core.engine.states import RETURN_COUNTS_ATTEMPT, Cause, Outcome, State

from .harness import Engine

COUNTS = st.one_of(st.integers(1, 5), st.sampled_from([1000, 40_000, 70_000]))


class Model:
    """One queue as a list: what a person would write without a thought for speed."""

    def __init__(self) -> None:
        self.state = np.zeros(0, np.uint8)
        self.holder = np.zeros(0, np.int64)
        self.attempts = np.zeros(0, np.int64)
        self.outcome = np.zeros(0, np.int64)
        self.returned = np.zeros(0, np.int64)

    def enqueue(self, count: int) -> None:
        self.state = np.append(self.state, np.full(count, State.AVAILABLE, np.uint8))
        for name in ("holder", "attempts", "outcome", "returned"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(count, np.int64)))

    def next(self, count: int) -> Any:
        return np.flatnonzero(self.state == State.AVAILABLE)[:count]

    def move(self, rows: Any, state: State, holder: int = 0) -> None:
        if state == State.AVAILABLE:
            self.returned[rows] = 1
        self.state[rows] = state
        self.holder[rows] = holder


class QueueMachine(RuleBasedStateMachine):
    holders: Bundle[int] = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.model = Model()
        self.engine.run(c.DeclareQueue("q"))
        self.links: set[int] = set()
        self.stages = 0

    def held(self, holder: int) -> Any:
        return np.flatnonzero((self.model.state == State.ACQUIRED) & (self.model.holder == holder))

    @rule(count=COUNTS)
    def enqueue(self, count: int) -> None:
        after = self.engine.run(c.Enqueue("q", count, 10))
        self.model.enqueue(count)
        assert after == len(self.model.state)

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=3))
    def publish(self, counts: list[int]) -> None:
        names = []
        for count in counts:
            self.stages += 1
            names.append(f"s{self.stages}")
            self.engine.run(c.StageMessages(names[-1], "q", count, np.arange(count) % 50))
        assert self.engine.run(c.Publish(names)) == (sum(counts), False)
        self.model.enqueue(sum(counts))

    @rule(target=holders)
    def subscribe(self) -> int:
        holder: int = self.engine.run(c.Subscribe("q"))
        self.links.add(holder)
        return holder

    @rule(holder=holders, credit=COUNTS)
    def acquire(self, holder: int, credit: int) -> None:
        if holder not in self.links:
            with pytest.raises(errors.NotFound):
                self.engine.run(c.Acquire("q", holder, credit))
            return
        rows = self.engine.run(c.Acquire("q", holder, credit))
        expected = self.model.next(credit)
        assert rows.sequences().tolist() == expected.tolist()  # never a later place while an eligible earlier one stands behind
        self.model.move(expected, State.ACQUIRED, holder)

    @rule(holder=holders, data=st.data(), outcome=st.sampled_from([Outcome.ACCEPTED, Outcome.REJECTED]))
    def settle(self, holder: int, data: st.DataObject, outcome: Outcome) -> None:
        rows = self.some_of(self.held(holder), data)
        self.engine.run(c.Settle("q", holder, rows, outcome, "bad" if outcome is Outcome.REJECTED else None))
        self.model.move(rows.sequences(), State.ARCHIVED)
        self.model.outcome[rows.sequences()] = outcome

    @rule(holder=holders, data=st.data(), cause=st.sampled_from([Cause.RELEASED, Cause.MODIFIED]))
    def give_back(self, holder: int, data: st.DataObject, cause: Cause) -> None:
        rows = self.some_of(self.held(holder), data)
        self.engine.run(c.Release("q", holder, rows, cause))
        self.model.move(rows.sequences(), State.AVAILABLE)
        self.model.attempts[rows.sequences()] += RETURN_COUNTS_ATTEMPT[cause]

    @rule(holder=holders, other=holders)
    def a_former_holder_changes_nothing(self, holder: int, other: int) -> None:
        mine = self.held(holder)
        if holder == other or not len(mine):
            return
        before = self.engine.persisted()
        with pytest.raises(errors.IllegalTransition):
            self.engine.run(c.Settle("q", other, RowSet.single(int(mine[0]))))
        assert self.engine.persisted() == before

    @rule(holder=holders)
    def lose_link(self, holder: int) -> None:
        if holder not in self.links:
            return
        self.links.discard(holder)
        mine = self.held(holder)
        rows = self.engine.run(c.Unsubscribe("q", holder))
        assert rows.sequences().tolist() == mine.tolist()
        self.model.move(mine, State.AVAILABLE)
        self.model.attempts[mine] += RETURN_COUNTS_ATTEMPT[Cause.LINK_LOST]

    @rule()
    def purge(self) -> None:
        rows = self.model.next(1 << 40)
        assert self.engine.run(c.Purge("q")) == len(rows)
        self.model.move(rows, State.ARCHIVED)
        self.model.outcome[rows] = Outcome.PURGED

    @rule()
    def archive(self) -> None:
        for queue, number in list(self.engine.state.finished_blocks):
            self.engine.run(c.ArchiveBlock(queue, number))

    @rule(snapshot=st.booleans())
    def restart(self, snapshot: bool) -> None:
        """A crash: the log, or a snapshot, gives the same state; what links held comes back, counted."""
        before = self.engine.persisted()
        self.engine = self.engine.from_snapshot() if snapshot else self.engine.recovered()
        assert self.engine.persisted() == before
        self.engine.run(c.Recovered())
        lost = np.flatnonzero(self.model.state == State.ACQUIRED)
        self.model.move(lost, State.AVAILABLE)
        self.model.attempts[lost] += RETURN_COUNTS_ATTEMPT[Cause.BROKER_LOST]
        self.links.clear()

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        queue = self.engine.state.queues["q"]
        assert conserved(queue)
        assert queue.next_sequence == len(self.model.state)
        for block in queue.blocks.values():
            self.matches(block)

    def matches(self, block: Block) -> None:
        rows = slice(block.base, block.base + block.filled)
        model = self.model
        assert np.array_equal(block.state[: block.filled], model.state[rows])
        acquired = model.state[rows] == State.ACQUIRED
        everything = slice(0, block.filled)
        assert np.array_equal(
            np.broadcast_to(block.holder.get(everything), acquired.shape)[acquired], model.holder[rows][acquired]
        )
        assert np.all(block.attempts.get(everything) == model.attempts[rows])
        assert np.all(block.returned.get(everything) == model.returned[rows])  # who takes these is not the first acquirer
        archived = model.state[rows] == State.ARCHIVED
        assert np.array_equal(
            np.broadcast_to(block.outcome.get(everything), archived.shape)[archived], model.outcome[rows][archived]
        )

    def some_of(self, rows: Any, data: st.DataObject) -> RowSet:
        """A subset with holes, as dispositions leave them."""
        step = data.draw(st.integers(1, 3))
        chosen = rows[data.draw(st.integers(0, 2)) :: step]
        blocks = np.unique(chosen >> 16)
        return RowSet.of((int(b), chosen[chosen >> 16 == b] & 0xFFFF) for b in blocks)


class LeaseMachine(RuleBasedStateMachine):
    """Queries that plan, read, finish, die and come back: each message is finished by exactly one of them, once."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.engine.run(c.DeclareQueue("q"))
        self.sent = 0
        self.offset = {"a": 0, "b": 0}  # the batch that each query's checkpoint stands at
        self.planned: dict[str, int] = {}  # offset log written, not finished
        self.epoch: dict[str, int | None] = {"a": None, "b": None}
        self.table: dict[str, list[int]] = {"a": [], "b": []}
        self.dead: dict[str, bool] = {}  # a run that died having read the planned batch: had its sink committed?

    @rule(count=COUNTS)
    def enqueue(self, count: int) -> None:
        self.engine.run(c.Enqueue("q", count, 1))
        self.sent += count

    @rule(query=st.sampled_from("ab"), limit=st.sampled_from([1, 7, 50_000, None]))
    def trigger(self, query: str, limit: int | None) -> None:
        if query in self.planned:
            return
        epoch, batch = self.engine.advance(query, epoch=self.epoch[query], finished=self.offset[query], messages=limit)
        self.epoch[query] = epoch
        if batch > self.offset[query]:
            self.planned[query] = batch

    @precondition(lambda self: self.planned)
    @rule(data=st.data(), look=st.sampled_from([True, True, True, False]))
    def finish(self, data: st.DataObject, look: bool) -> None:
        """The sink commits the batch, whole; now and then Spark finishes one that nobody looked at."""
        query = data.draw(st.sampled_from(sorted(self.planned)))
        batch = self.planned.pop(query)
        epoch, parts = self.engine.plan(query, epoch=self.epoch[query], after=self.offset[query], batch=batch, min_partitions=2)
        self.epoch[query] = epoch
        committed = self.dead.pop(query, None)
        if committed is not True and (look or committed is not None):  # a sink skips a batch that it already has
            rows = self.engine.read(query, epoch=epoch, batch=batch) if parts else []
            assert rows == sorted(rows)
            assert sum(part[3] for part in parts) == len(rows)
            self.table[query] += rows
        self.offset[query] = batch

    @precondition(lambda self: set(self.planned) - set(self.dead))
    @rule(data=st.data(), committed=st.booleans())
    def read_and_die(self, data: st.DataObject, committed: bool) -> None:
        """The driver dies after its tasks have read, before or after the sink's commit."""
        query = data.draw(st.sampled_from(sorted(set(self.planned) - set(self.dead))))
        epoch, _ = self.engine.plan(query, epoch=self.epoch[query], after=self.offset[query], batch=self.planned[query])
        first = self.engine.read(query, epoch=epoch, batch=self.planned[query])
        assert first == self.engine.read(query, epoch=epoch, batch=self.planned[query])  # a repeatable read
        self.epoch[query] = None
        if first:
            self.dead[query] = committed
            self.table[query] += first if committed else []

    @rule(query=st.sampled_from("ab"))
    def driver_restarts(self, query: str) -> None:
        self.epoch[query] = None

    @rule(snapshot=st.booleans())
    def broker_restarts(self, snapshot: bool) -> None:
        before = self.engine.persisted()
        self.engine = self.engine.from_snapshot() if snapshot else self.engine.recovered()
        assert self.engine.persisted() == before
        self.engine.run(c.Recovered())

    @rule(seconds=st.sampled_from([1, 59, 3600]))
    def time_passes(self, seconds: int) -> None:
        self.engine.pass_time(seconds)
        self.engine.run(c.Tick())

    @invariant()
    def conservation(self) -> None:
        assert conserved(self.engine.state.queues["q"])

    @invariant()
    def no_message_twice(self) -> None:
        both = self.table["a"] + self.table["b"]
        assert len(set(both)) == len(both)

    def teardown(self) -> None:
        """Drain with both: the tables hold everything that was sent, once."""
        for query in ("a", "b"):
            for _ in range(1000):
                self.trigger(query, None)
                if query not in self.planned:
                    break
                batch = self.planned.pop(query)
                epoch, parts = self.engine.plan(query, epoch=self.epoch[query], after=self.offset[query], batch=batch)
                self.epoch[query] = epoch
                if not self.dead.pop(query, False):
                    self.table[query] += self.engine.read(query, epoch=epoch, batch=batch) if parts else []
                self.offset[query] = batch
        assert sorted(self.table["a"] + self.table["b"]) == list(range(self.sent))


_SETTINGS = settings(
    max_examples=30, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = _SETTINGS
TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = _SETTINGS

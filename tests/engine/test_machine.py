"""Q1 Q2 Q3 Q4 Q6 Q10 Q12: histories against a simple model, with the conservation law after every command."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.limits import MAX_ANNOTATIONS, MAX_EXCLUDED
from penstock.broker_core.engine.columns.packing import unpack
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import OUTCOME_CODES, RETURN_COUNTS_ATTEMPT, Cause, Outcome, State

from .conservation import conserved
from .harness import Engine

COUNTS = st.one_of(st.integers(1, 5), st.sampled_from([1000, 40_000, 70_000]))


SELDOM = st.sampled_from([False, False, False, True])


class Model:
    """One queue as a list, without regard to speed."""

    def __init__(self) -> None:
        self.state = np.zeros(0, np.uint8)
        self.holder = np.zeros(0, np.int64)
        self.attempts = np.zeros(0, np.int64)
        self.outcome = np.zeros(0, np.int64)
        self.returned = np.zeros(0, np.int64)
        self.deferred = np.zeros(0, np.int64)  # 1: it returns to DEFERRED
        self.overlays: dict[int, list[bytes]] = {}
        self.excluded: dict[int, set[int]] = {}  # by link

    def enqueue(self, count: int) -> None:
        self.state = np.append(self.state, np.full(count, State.AVAILABLE, np.uint8))
        for name in ("holder", "attempts", "outcome", "returned", "deferred"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(count, np.int64)))

    def next(self, count: int, place: int = 0, holder: int | None = None) -> Any:
        available = np.flatnonzero(self.state == State.AVAILABLE)
        not_for_it = self.excluded.get(holder, set()) if holder is not None else set()
        return available[(available >= place) & ~np.isin(available, np.array(sorted(not_for_it), np.int64))][:count]

    def refused_by_all(self, links: set[int]) -> int:
        common = set.intersection(*(self.excluded.get(link, set()) for link in links)) if links else set()
        return int((self.state[sorted(common)] == State.AVAILABLE).sum())

    def move(self, rows: Any, state: State, holder: int = 0) -> None:
        self.state[rows] = state
        self.holder[rows] = holder

    def give_back(self, rows: Any, cause: Cause) -> None:
        self.deferred[rows] |= cause is Cause.DEFERRED
        self.returned[rows] = 1
        self.attempts[rows] += RETURN_COUNTS_ATTEMPT[cause]
        self.move(rows, State.AVAILABLE)
        self.state[rows] = np.where(self.deferred[rows], State.DEFERRED, State.AVAILABLE)


class QueueMachine(RuleBasedStateMachine):
    """Most rules need messages or links to work on: a history of refusals would prove little."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.model = Model()
        self.engine.run(c.DeclareQueue("q"))
        self.links: set[int] = set()
        self.by_number: set[int] = set()  # a link that asks for deferred messages
        self.former: set[int] = set()
        self.stages = 0
        self.taken, self.taken_again = 0, 0  # deliveries since the start
        self.at_start = 0, np.zeros(OUTCOME_CODES, np.int64)  # messages at the start, and ended ones by outcome

    @initialize(count=COUNTS)
    def begin(self, count: int) -> None:
        self.enqueue(count)
        for _ in range(2):
            self.subscribe()

    def link(self, data: st.DataObject) -> int:
        return int(data.draw(st.sampled_from(sorted(self.links))))

    def holder(self, data: st.DataObject) -> int:
        """Draw a link that holds messages."""
        return int(data.draw(st.sampled_from(self.holders)))

    @property
    def holders(self) -> list[int]:
        return [link for link in sorted(self.links | self.by_number) if len(self.held(link))]

    def held(self, holder: int) -> Any:
        return np.flatnonzero((self.model.state == State.ACQUIRED) & (self.model.holder == holder))

    @rule(count=COUNTS)
    def enqueue(self, count: int) -> None:
        after = self.engine.run(c.Enqueue("q", count, 10))
        self.model.enqueue(count)
        assert after == c.EnqueueReply(len(self.model.state))

    @rule(counts=st.lists(COUNTS, min_size=1, max_size=3))
    def publish(self, counts: list[int]) -> None:
        names = []
        for count in counts:
            self.stages += 1
            names.append(f"s{self.stages}")
            self.engine.run(c.StageMessages(names[-1], "q", count, np.arange(count) % 50))
        assert self.engine.run(c.Publish(names)) == (sum(counts), False)
        self.model.enqueue(sum(counts))

    @precondition(lambda self: len(self.links) < 3)
    @rule()
    def subscribe(self) -> None:
        holder: int = self.engine.run(c.Subscribe("q"))
        assert holder not in self.links
        self.links.add(holder)
        self.former.discard(holder)

    @precondition(lambda self: self.former)
    @rule(credit=COUNTS)
    def a_former_link_gets_nothing(self, credit: int) -> None:
        for holder in self.former:
            for command in (c.Acquire("q", holder, credit), c.Unsubscribe("q", holder)):
                with pytest.raises(errors.NotFound):
                    self.engine.run(command)

    @precondition(lambda self: self.links)
    @rule(data=st.data(), credit=COUNTS)
    def acquire(self, data: st.DataObject, credit: int) -> None:
        self.takes(self.link(data), credit)

    @precondition(lambda self: self.links)
    @rule(data=st.data(), credits=st.lists(COUNTS, min_size=1, max_size=4))
    def work(self, data: st.DataObject, credits: list[int]) -> None:
        """Let links take and end messages in turn."""
        for credit in credits:
            holder = self.link(data)
            self.takes(holder, credit)
            if len(self.held(holder)):
                data.draw(st.sampled_from([self.gives_back, self.gives_back, self.settles]))(holder, data)
                self.nothing_is_lost_or_invented()

    def takes(self, holder: int, credit: int) -> None:
        rows = self.engine.run(c.Acquire("q", holder, credit)).rows
        expected = self.model.next(credit, 0, holder)
        assert rows.sequences().tolist() == expected.tolist()  # no later message while an earlier one is eligible
        self.taken += len(expected)
        self.taken_again += int(self.model.returned[expected].sum())
        self.model.move(expected, State.ACQUIRED, holder)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def end_some(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([self.gives_back, self.settles]))(self.holder(data), data)

    def settles(self, holder: int, data: st.DataObject) -> None:
        rows = self.some_of(self.held(holder), data)
        outcome = data.draw(st.sampled_from([Outcome.ACCEPTED, Outcome.REJECTED]))
        self.engine.run(c.Settle("q", holder, rows, outcome, "bad" if outcome is Outcome.REJECTED else None))
        self.model.move(rows.sequences(), State.ARCHIVED)
        self.model.outcome[rows.sequences()] = outcome

    def gives_back(self, holder: int, data: st.DataObject) -> None:
        """Q12: released, modified, undeliverable here, with annotations. An outcome above a limit changes nothing."""
        cause = data.draw(st.sampled_from([Cause.RELEASED, Cause.MODIFIED, Cause.MODIFIED_UNCOUNTED, Cause.DEFERRED]))
        exclude = cause is not Cause.DEFERRED and data.draw(st.booleans())
        annotations = data.draw(st.sampled_from([None, b"one", b"two", b"one", b"three", b"x" * (MAX_ANNOTATIONS + 1)]))
        rows = self.some_of(self.held(holder), data)
        command, sequences = c.Release("q", holder, rows, cause, exclude, annotations), rows.sequences()
        excluded = self.model.excluded.setdefault(holder, set())
        live = int((self.model.state[sorted(excluded)] != State.ARCHIVED).sum())
        refused = sequences[self.model.deferred[sequences] == 0]  # no link refuses a deferred message
        too_many = exclude and len(refused) and live + len(refused) > MAX_EXCLUDED
        if len(sequences) and (too_many or len(annotations or b"") > MAX_ANNOTATIONS):
            before = self.engine.persisted(), self.links_as_they_are()
            with pytest.raises(errors.ResourceLimit, match="nothing was changed"):
                self.engine.run(command)
            assert (self.engine.persisted(), self.links_as_they_are()) == before
            return
        self.engine.run(command)
        self.model.give_back(sequences, cause)
        if exclude:
            excluded.update(refused.tolist())
        for row in sequences.tolist() if annotations else []:
            known = [entry for entry in self.model.overlays.get(row, []) if entry != annotations]
            self.model.overlays[row] = [*known, annotations]

    @precondition(lambda self: (self.model.state == State.DEFERRED).any())
    @rule(data=st.data(), with_others=SELDOM)
    def ask(self, data: st.DataObject, with_others: bool) -> None:
        """A link gets deferred messages by their numbers. If one number is wrong, nothing changes."""
        if not self.by_number:
            self.by_number.add(self.engine.run(c.Subscribe("q", by_number=True)))
        (holder,) = self.by_number
        rows = self.some_of(np.flatnonzero(self.model.state == State.DEFERRED), data)
        if with_others:
            others = np.flatnonzero(self.model.state != State.DEFERRED)
            missing = RowSet.single(int(data.draw(st.sampled_from([*others[:1].tolist(), len(self.model.state), 1 << 40]))))
            before = self.engine.persisted()
            assert self.engine.run(c.AcquireDeferred("q", holder, rows.plus(missing))) == missing
            assert self.engine.persisted() == before
            return
        assert not self.engine.run(c.AcquireDeferred("q", holder, rows))
        self.taken += rows.count
        self.taken_again += rows.count
        self.model.move(rows.sequences(), State.ACQUIRED, holder)

    @precondition(lambda self: self.by_number)
    @rule()
    def lose_the_link_that_asks(self) -> None:
        holder = self.by_number.pop()
        mine = self.held(holder)
        assert self.engine.run(c.Unsubscribe("q", holder)).sequences().tolist() == mine.tolist()
        self.model.give_back(mine, Cause.LINK_LOST)

    @rule(place=st.integers(0, 150_000), count=COUNTS)
    def browse(self, place: int, count: int) -> None:
        """Q6: browsing changes nothing."""
        before = self.engine.persisted(), self.links_as_they_are()
        rows, following, _ = self.engine.run(c.Browse("q", place, count))
        expected = self.model.next(count, place)
        assert rows.sequences().tolist() == expected.tolist()
        assert following == (expected[-1] + 1 if len(expected) else place)
        assert (self.engine.persisted(), self.links_as_they_are()) == before

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def who_does_not_hold_it_changes_nothing(self, data: st.DataObject) -> None:
        holder = self.holder(data)
        row = RowSet.single(int(self.held(holder)[0]))
        before = self.engine.persisted()
        for non_holder in (self.links | self.former) - {holder}:
            for command in (c.Settle("q", non_holder, row), c.Release("q", non_holder, row, exclude=True, annotations=b"one")):
                with pytest.raises(errors.IllegalTransition):
                    self.engine.run(command)
        assert self.engine.persisted() == before

    @precondition(lambda self: len(self.links) > 1)
    @rule(data=st.data())
    def lose_link(self, data: st.DataObject) -> None:
        holder = self.link(data)
        self.links.discard(holder)
        self.former.add(holder)
        mine = self.held(holder)
        rows = self.engine.run(c.Unsubscribe("q", holder))
        assert rows.sequences().tolist() == mine.tolist()
        self.model.give_back(mine, Cause.LINK_LOST)

    @precondition(lambda self: len(self.links) > 1)
    @rule(data=st.data(), default=st.sampled_from([Outcome.ACCEPTED, Outcome.REJECTED, *Cause]))
    def end_link(self, data: st.DataObject, default: Outcome | Cause) -> None:
        """Q12: the source's default outcome applies to the link's remaining messages."""
        holder = self.link(data)
        self.links.discard(holder)
        self.former.add(holder)
        mine = self.held(holder)
        if isinstance(default, Outcome):
            self.engine.run(c.Unsubscribe("q", holder, outcome=default))
            self.model.move(mine, State.ARCHIVED)
            self.model.outcome[mine] = default
        else:
            self.engine.run(c.Unsubscribe("q", holder, default))
            self.model.give_back(mine, default)

    @rule(really=SELDOM)
    def purge(self, really: bool) -> None:
        if not really:
            return
        rows = np.flatnonzero(np.isin(self.model.state, (State.AVAILABLE, State.DEFERRED)))
        assert self.engine.run(c.Purge("q")) == len(rows)
        self.model.move(rows, State.ARCHIVED)
        self.model.outcome[rows] = Outcome.PURGED

    @precondition(lambda self: self.links)
    @rule(data=st.data(), count=st.integers(1, 5), credit=st.integers(0, 5))
    def enqueue_immediate(self, data: st.DataObject, count: int, credit: int) -> None:
        """Q4: a link without waiting messages takes as many as its credit allows; the others are not stored."""
        holder = self.link(data)
        ready = not len(self.model.next(1, 0, holder))
        first, taken = len(self.model.state), min(count, credit) if ready else 0
        delivered = self.engine.run(c.EnqueueImmediate("q", count, 10, offers=[c.Offer(holder, credit)]))
        rows = [number for _, some in delivered.taken for number in some.sequences().tolist()]
        assert rows == list(range(first, first + taken))
        assert list(delivered.undelivered) == list(range(taken, count))
        self.model.enqueue(taken)
        self.model.move(np.arange(first, first + taken), State.ACQUIRED, holder)
        self.taken += taken

    @precondition(lambda self: self.engine.state.finished.leaving)
    @rule()
    def archive(self) -> None:
        for name, number in list(self.engine.state.finished.leaving):
            self.engine.run(c.PackBlock(name, number))
            entry = self.engine.state.queues[name].packed[number]
            self.matches(Block.restored(unpack(self.engine.packed[entry.position])))

    @rule(snapshot=st.booleans())
    def a_restart_finds_the_same(self, snapshot: bool) -> None:
        """Compare a recovery at any point with the live engine."""
        restored = self.engine.from_snapshot() if snapshot else self.engine.recovered()
        assert restored.persisted() == self.engine.persisted()
        for block in restored.state.queues["q"].blocks.values():
            self.matches(block)

    @rule(snapshot=st.booleans(), really=SELDOM)
    def restart(self, snapshot: bool, really: bool) -> None:
        """Crash: the log or a snapshot gives the same state, and messages that links held come back, counted."""
        if not really:
            return
        before = self.engine.persisted()
        self.engine = self.engine.from_snapshot() if snapshot else self.engine.recovered()
        assert self.engine.persisted() == before
        self.engine.run(c.StartBroker())
        self.taken, self.taken_again, self.at_start = 0, 0, (len(self.model.state), self.ended())
        lost = np.flatnonzero(self.model.state == State.ACQUIRED)
        self.model.give_back(lost, Cause.BROKER_LOST)
        self.former |= self.links
        self.by_number.clear()
        self.links.clear()
        self.model.excluded.clear()  # a new link may belong to another consumer
        for _ in range(2):
            self.subscribe()

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        queue = self.engine.state.queues["q"]
        (stat,) = self.engine.run(c.Stat("q"))
        assert (stat["consumers"], stat["refused"]) == (len(self.links), self.model.refused_by_all(self.links))
        assert queue.overlay_bytes == sum(block.overlays.bytes for block in queue.blocks.values())
        assert conserved(queue)
        assert queue.next_sequence == len(self.model.state)
        for block in queue.blocks.values():
            self.matches(block)

    @invariant()
    def totals_count_from_the_start(self) -> None:
        """U3: the totals count each arrival, delivery and end since the broker started."""
        queue = self.engine.state.queues["q"]
        messages, before = self.at_start
        ended = self.ended() - before
        expected = [len(self.model.state) - messages, self.taken, self.taken_again, 0]
        assert queue.totals.row(queue.next_sequence, queue.ended) == [
            *expected,
            ended[Outcome.ACCEPTED],
            ended[Outcome.REJECTED],
            0,
            0,
            ended[Outcome.PURGED],
        ]

    def ended(self) -> Any:
        archived = self.model.state == State.ARCHIVED
        return np.bincount(self.model.outcome[archived], minlength=OUTCOME_CODES)

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
        assert np.all(block.deferred.get(everything) == model.deferred[rows])
        assert np.all(block.returned.get(everything) == model.returned[rows])  # whether the next consumer is the first acquirer
        assert block.overlays.among(everything) == {
            row - block.base: entries for row, entries in model.overlays.items() if rows.start <= row < rows.stop
        }
        archived = model.state[rows] == State.ARCHIVED
        assert np.array_equal(
            np.broadcast_to(block.outcome.get(everything), archived.shape)[archived], model.outcome[rows][archived]
        )

    def links_as_they_are(self) -> dict[int, Any]:
        links = self.engine.state.queues["q"].consumers.subscriptions
        return {holder: (link.positions, link.epochs, link.excluded.count, dict(link.held)) for holder, link in links.items()}

    def some_of(self, rows: Any, data: st.DataObject) -> RowSet:
        """Draw a subset with gaps, as dispositions leave them."""
        step = data.draw(st.integers(1, 3))
        most = data.draw(st.sampled_from([3, 100, 100, 1000, 11_000]))
        return RowSet.of_sequences(rows[data.draw(st.integers(0, 2)) :: step][:most])


class LeaseMachine(RuleBasedStateMachine):
    """Queries that plan, read, finish, die and restart: exactly one of them finishes each message, once."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.engine.run(c.DeclareQueue("q"))
        self.sent = 0
        self.offset = {"a": 0, "b": 0}  # the batch in each query's checkpoint
        self.planned: dict[str, int] = {}  # the batch in the offset log that is not finished
        self.epoch: dict[str, int | None] = {"a": None, "b": None}
        self.table: dict[str, list[int]] = {"a": [], "b": []}
        self.dead: dict[str, bool] = {}  # a run that died after it read the planned batch: whether its sink had committed

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
        """Commit the batch in the sink; sometimes Spark finishes a batch that no task has read."""
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
        """Let the driver die after its tasks have read, before or after the sink's commit."""
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
        self.engine.run(c.StartBroker())

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
        """Drain with both queries: the tables contain each sent message once."""
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
TestQueueMachine.settings = settings(_SETTINGS, max_examples=60, stateful_step_count=30)
TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = _SETTINGS

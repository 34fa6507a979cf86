"""D4: settled messages go to the archive's table, each settlement in exactly one recording."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.limits import NEVER
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.runs import NOWHERE
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.engine.model.recordings import NOT_WANTED, Recording
from penstock.broker_core.engine.model.retention import Keeping
from penstock.broker_core.engine.model.state import BrokerState

from .conservation import conserved, recordings_conserved
from .ends import queue, survives
from .harness import SECOND, START, Engine

ALL = 1 << 40


def settled(count: int, **options: object) -> Engine:
    """Create a queue with `count` accepted messages of 10 bytes."""
    engine = Engine(BrokerState(records=True))
    engine.run(c.DeclareQueue("q", options=options), c.Enqueue("q", count, 10))
    accept(engine, count)
    return engine


def accept(engine: Engine, count: int, outcome: Outcome = Outcome.ACCEPTED) -> RowSet:
    link = engine.run(c.Subscribe("q"))
    rows: RowSet = engine.run(c.Acquire("q", link, count)).rows
    engine.run(c.Settle("q", link, rows, outcome), c.Unsubscribe("q", link))
    return rows


def begin(engine: Engine, rows: int = ALL, size: int = ALL, queue_id: int = 1) -> Recording:
    recording = engine.run(c.BeginRecording(queue_id, rows, size))
    assert isinstance(recording, Recording)
    return recording


def sequences(recording: Recording) -> list[int]:
    return [int(row) for row in recording.rows.sequences()]


def test_a_pass_has_what_is_settled_and_the_next_what_is_settled_since() -> None:
    """D4: a recording's rows are fixed when it begins. A second begin returns the same; a second end changes nothing."""
    engine = settled(5)
    engine.run(c.Enqueue("q", 5, 10))
    first = begin(engine)
    assert (first.number, sequences(first), first.bytes, first.since) == (1, [0, 1, 2, 3, 4], 50, START)
    accept(engine, 2)
    assert begin(engine) == first
    assert engine.run(c.EndRecording(1, 2, 7)) is False
    assert engine.run(c.EndRecording(1, 1, 0)) is True
    assert engine.run(c.EndRecording(1, 1, 9)) is False
    assert queue(engine).recordings.version == 0
    second = begin(engine)
    assert (second.number, sequences(second)) == (2, [5, 6])
    engine.run(c.EndRecording(1, 2, 1))
    assert engine.run(c.BeginRecording(1, ALL, ALL)) is None
    assert queue(engine).blocks[0].recorded.get(slice(0, 10)).tolist() == [2] * 5 + [3] * 2 + [0] * 3  # type: ignore[union-attr]
    survives(engine)


def test_a_table_that_was_made_anew_has_its_own_versions() -> None:
    """A lower version belongs to a new table. A recording without rows ends with -1, which is not a version."""
    engine = settled(30)
    for version, known in ((500, 500), (1, 1), (-1, 1)):
        begin(engine, 10)
        engine.run(c.EndRecording(1, queue(engine).recordings.last, version))
        assert queue(engine).recordings.version == known


def test_a_pass_is_as_large_as_was_asked_for() -> None:
    """D4: rows in order, and at least one, of any size."""
    engine = settled(10)
    for rows, size, expected in ((3, ALL, [0, 1, 2]), (ALL, 25, [3, 4, 5]), (ALL, 1, [6]), (ALL, ALL, [7, 8, 9])):
        recording = begin(engine, rows, size)
        assert sequences(recording) == expected
        engine.run(c.EndRecording(1, recording.number, 0))


def test_a_backlog_says_how_much_and_since_when() -> None:
    """D4: rows of the current recording no longer wait, but are not recorded yet."""
    engine = settled(4)
    begin(engine, 3)
    engine.pass_time(10)
    engine.run(c.Enqueue("q", 1, 10))
    accept(engine, 1)
    (backlog,) = engine.run(c.ListBacklogs())
    assert (backlog.queue, backlog.rows, backlog.bytes, backlog.since) == ("q", 5, 50, START)
    assert (backlog.waiting_rows, backlog.waiting_bytes, backlog.waiting_since, backlog.current) == (2, 20, START, 1)
    engine.run(c.EndRecording(1, 1, 0))
    begin(engine)
    assert engine.run(c.ListBacklogs())[0].waiting_since == NEVER
    engine.pass_time(10)
    engine.run(c.Enqueue("q", 1, 10))
    accept(engine, 1)
    assert engine.run(c.ListBacklogs())[0].waiting_since == START + 20 * SECOND
    assert survives(engine).run(c.ListBacklogs())[0].rows == 3


def test_every_way_to_end_is_recorded() -> None:
    """D4: purged, expired, replaced, dropped and moved messages are also settled."""
    engine = Engine(BrokerState(records=True))
    engine.run(c.DeclareQueue("q", options={"maxMessages": 4, "overflow": "ring"}), c.DeclareQueue("other"))
    engine.run(
        c.Enqueue("q", 6, 1, attributes=Attributes(expiry=np.full(6, START // 1000 + 5))),
        c.Move("q", "other", 1),
        c.Purge("q", messages=1),
    )
    engine.pass_time(10)
    engine.run(c.Tick())
    assert queue(engine).live == 0
    assert sequences(begin(engine)) == list(range(6))


def test_what_is_settled_without_archive_is_never_recorded() -> None:
    """D4: the option counts at the time of the settlement. Its default is false for temporary queues."""
    engine = settled(2, archive=False)
    assert engine.run(c.BeginRecording(1, ALL, ALL)) is None
    engine.run(c.AlterQueue("q", {"archive": True}), c.Enqueue("q", 2, 1))
    accept(engine, 1)
    engine.run(c.AlterQueue("q", {"archive": "false"}))
    accept(engine, 1)
    assert sequences(begin(engine)) == [2]
    assert queue(engine).blocks[0].recorded.get(slice(0, 4)).tolist() == [NOT_WANTED] * 2 + [0, NOT_WANTED]  # type: ignore[union-attr]
    survives(engine)
    engine.run(c.DeclareQueue("temporary", options={"lifetime": "link"}))
    assert queue(engine, "temporary").rules.archive is False


def test_what_a_restart_settles_is_recorded_though_its_queue_ends_with_the_restart() -> None:
    """D4: a link held older values, which a newer one replaces when they come back; the queue lived with its link."""
    engine = Engine(BrokerState(records=True))
    options = {"lifetime": "link", "archive": True, "key": "subject"}
    engine.run(c.DeclareQueue("q", "lastvalue", options), c.OpenLink("q", makes=True))
    value, link = Attributes(key=Coded(["k"], np.array([1]))), engine.run(c.Subscribe("q"))
    for _ in range(2):
        engine.run(c.Enqueue("q", 1, 10, attributes=value), c.Acquire("q", link, 1))
    engine.run(c.Enqueue("q", 1, 10, attributes=value))
    later = engine.recovered()
    later.state.records = True
    may_end = decide(later.state, c.StartBroker(), c.Now(later.wall, later.up)).effects.may_end
    later.run(c.StartBroker(), *[c.EndNode(name) for name in may_end])  # as the broker does
    assert not later.state.queues
    assert [(backlog.departed, backlog.rows) for backlog in later.run(c.ListBacklogs())] == [(True, 2)]


def test_a_redriven_dead_letter_is_one_more_row_when_it_is_settled_again() -> None:
    """D4: it also leaves the current recording, because its settlement is undone."""
    engine = Engine(BrokerState(records=True))
    engine.run(c.DeclareQueue("q", options={"deadLetterQueue": "nowhere"}), c.Enqueue("q", 3, 10))
    accept(engine, 3, Outcome.REJECTED)
    engine.run(c.EndRecording(1, begin(engine, 1).number, 0))
    assert begin(engine, 1).rows == RowSet.single(1)
    engine.run(c.Redrive("q"))
    assert queue(engine).recordings.current == Recording(2, RowSet(), 0, START)
    assert survives(engine).run(c.ListBacklogs())[0].rows == 0
    accept(engine, 3)
    engine.run(c.EndRecording(1, 2, 1))
    assert sequences(begin(engine)) == [0, 1, 2]


def test_a_packed_block_keeps_what_is_not_recorded_and_waits_for_its_pass() -> None:
    """D4: a block stays in memory while a recording has rows of it; a packed block is recorded as a whole."""
    engine = settled(BLOCK_ROWS)
    begin(engine, 10)
    assert engine.state.blocks_to_pack(9) == []
    engine.run(c.PackBlock("q", 0))
    assert list(queue(engine).blocks) == [0]
    engine.run(c.EndRecording(1, 1, 0))
    assert engine.state.blocks_to_pack(9) == [("q", 0)]
    engine.run(c.PackBlock("q", 0))
    entry = queue(engine).packed[0]
    assert (entry.unrecorded, entry.unrecorded_bytes) == (RowSet.range(10, BLOCK_ROWS), 10 * (BLOCK_ROWS - 10))
    engine = survives(engine)
    assert begin(engine, 5).rows == RowSet.range(10, BLOCK_ROWS)
    engine.run(c.EndRecording(1, 2, 1))
    entry = queue(engine).packed[0]
    assert (entry.unrecorded.count, entry.unrecorded_bytes, entry.recorded) == (0, 0, 3)
    assert engine.run(c.ListBacklogs()) == []
    survives(engine)


@pytest.mark.parametrize("packed", [False, True])
def test_retention_leaves_what_is_not_recorded_while_there_is_an_archive(packed: bool) -> None:
    """D4: without an archive, retention drops the rows. Dropped rows are not recorded later."""
    engine = settled(BLOCK_ROWS)
    if packed:
        engine.run(c.PackBlock("q", 0))
    end = engine.log[-1][1] + 8
    assert engine.retain(end) == []
    off = engine.from_snapshot()
    assert off.retain(end) == [[0, end]]
    assert queue(off).recordings.rows == (0 if packed else BLOCK_ROWS)
    engine.run(c.EndRecording(1, begin(engine).number, 0))
    assert engine.retain(end) == [[0, end]]


def test_a_deleted_queue_stays_until_its_last_pass_has_ended() -> None:
    """D4: a new queue with its name has its own id, recordings and transaction of the table."""
    engine = settled(BLOCK_ROWS + 3)
    engine.run(c.PackBlock("q", 0), c.Enqueue("q", 1, 10), c.DeleteQueue("q"), c.DeclareQueue("q"), c.Enqueue("q", 1, 10))
    accept(engine, 1)
    backlogs = {backlog.queue_id: (backlog.rows, backlog.departed) for backlog in engine.run(c.ListBacklogs())}
    assert backlogs == {1: (BLOCK_ROWS + 3, True), 2: (1, False)}
    assert begin(engine).rows == RowSet.range(0, BLOCK_ROWS + 3)
    for life in (engine.recovered(), engine.from_snapshot()):
        assert life.persisted() == engine.persisted()
        assert life.state.departed.keys() == {1}
    assert engine.run(c.EndRecording(1, 1, 0)) is True
    assert not engine.state.departed
    assert engine.run(c.EndRecording(1, 1, 0)) is False
    assert begin(engine, queue_id=2).rows == RowSet.single(0)
    survives(engine)


def test_what_lived_in_a_deleted_queue_keeps_no_part_of_the_journal() -> None:
    """D4 D2: its settled messages wait for their recording, also if the archive was switched off."""
    engine = settled(3)
    settled_at = engine.log[1][1]
    engine.run(c.Enqueue("q", 2, 10))
    alive_at = engine.log[-1][1]
    engine.run(c.DeleteQueue("q"))
    keeping = Keeping(1 << 40, NOWHERE, unrecorded=True)
    assert engine.run(c.Drop([[settled_at, settled_at + 8], [alive_at, alive_at + 8]], keeping)) == [[alive_at, alive_at + 8]]
    off = engine.from_snapshot()
    assert off.retain(alive_at + 8) == [[0, alive_at + 8]]
    assert begin(engine).rows == RowSet.range(0, 3)


def test_a_deleted_queue_goes_at_once_without_anything_to_record_or_an_archive() -> None:
    """D4."""
    engine = settled(3)
    engine.run(c.EndRecording(1, begin(engine).number, 0), c.DeleteQueue("q"))
    assert not engine.state.departed
    off = Engine()
    off.run(c.DeclareQueue("q"), c.Enqueue("q", 1, 1))
    accept(off, 1)
    off.run(c.DeleteQueue("q"))
    assert not off.state.departed
    assert not off.state.by_id


class History:
    """Messages of one queue arrive, are settled, redriven, packed and recorded; the queue is deleted and declared again."""

    def __init__(self, seed: int) -> None:
        print(f"seed {seed}")
        self.random = random.Random(seed)
        self.engine = Engine(BrokerState(records=True))
        self.settled: Counter[tuple[int, int]] = Counter()  # settlements in force, by queue id and sequence number
        self.table: Counter[tuple[int, int]] = Counter()
        self.declare()

    def declare(self) -> None:
        self.engine.run(c.DeclareQueue("q", options={"deadLetterQueue": "nowhere"}))

    @property
    def id(self) -> int:
        return self.engine.state.queues["q"].id

    def send(self) -> None:
        count = self.random.choice([1, 2, 5, 500, 40_000])
        self.engine.run(c.Enqueue("q", count, self.random.choice([10, 20])))

    def settle(self) -> None:
        rows = accept(
            self.engine, self.random.choice([1, 3, 100, 60_000]), self.random.choice([*4 * [Outcome.ACCEPTED], Outcome.REJECTED])
        )
        self.settled.update((self.id, row) for row in rows.sequences().tolist())

    def redrive(self) -> None:
        live = self.stayed()
        self.engine.run(c.Redrive("q"))
        for row in live - self.stayed():
            if self.table[self.id, row] < self.settled[self.id, row]:
                self.settled[self.id, row] -= 1  # undone before it was recorded

    def stayed(self) -> set[int]:
        blocks = self.engine.state.queues["q"].blocks.values()
        return {
            block.base + row
            for block in blocks
            for row in np.flatnonzero(block.stayed.get(slice(0, block.filled))).tolist()
            if block.state[row] == State.ARCHIVED
        }

    def begin(self) -> None:
        ids = [backlog.queue_id for backlog in self.engine.run(c.ListBacklogs())]
        if ids:
            self.engine.run(c.BeginRecording(self.random.choice(ids), self.random.choice([1, 7, 70_000, ALL]), ALL))

    def end(self) -> None:
        for number, source in list(self.engine.state.by_id.items()):
            current = source.recordings.current
            if current is not None and self.random.choice([True, False]):
                self.table.update((number, row) for row in current.rows.sequences().tolist())
                assert self.engine.run(c.EndRecording(number, current.number, 0))

    def pack(self) -> None:
        for name, number in self.engine.state.blocks_to_pack(9):
            self.engine.run(c.PackBlock(name, number))

    def delete(self) -> None:
        if self.random.choice([True, False, False]):
            self.engine.run(c.DeleteQueue("q"))
            self.declare()

    def restart(self) -> None:
        before = self.engine.persisted()
        restarted = self.engine.from_snapshot() if self.random.choice([True, False]) else self.engine.recovered()
        assert restarted.persisted() == before
        restarted.state.records = True
        self.engine = restarted
        self.engine.run(c.StartBroker())

    def play(self) -> None:
        steps = [
            *4 * [self.send, self.settle, self.begin, self.end],
            self.redrive,
            self.pack,
            self.pack,
            self.delete,
            self.restart,
        ]
        for step in self.random.choices(steps, k=50):
            step()
            print(step.__name__)
            assert all(map(conserved, self.engine.state.queues.values()))
            assert all(map(recordings_conserved, self.engine.state.departed.values()))
            recorded = sum(source.recordings.rows for source in self.engine.state.by_id.values())
            assert sum(self.settled.values()) == sum(self.table.values()) + recorded
        while self.engine.run(c.ListBacklogs()):
            self.begin()
            self.end()
        assert +self.table == +self.settled
        assert not self.engine.state.departed


@pytest.mark.parametrize("seed", range(12))
def test_each_settlement_is_in_exactly_one_pass_whatever_comes_in_between(seed: int) -> None:
    """D4."""
    History(seed).play()

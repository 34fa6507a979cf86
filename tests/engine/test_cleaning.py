"""D2: payloads are copied forward and parts of the log are dropped; no needed message loses its payload."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.intervals import Intervals
from penstock.broker_core.engine.columns.packing import pack, unpack
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.runs import NOWHERE, Run
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.retention import Keeping, needed, with_payloads
from penstock.broker_core.engine.model.state import BrokerState

from .ends import queue, survives
from .harness import Engine

EVERYTHING = Keeping(NOWHERE, NOWHERE)  # no settled message is kept


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))), st.integers(0, 60), st.integers(0, 60))
def test_intervals_say_what_they_have(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    have = {position for begin, end in pairs for position in range(begin, end)}
    intervals = Intervals(pairs)
    assert Intervals(intervals.pairs()) == intervals
    assert intervals.contains(np.arange(70)).tolist() == [position in have for position in range(70)]
    edges = intervals.pairs()
    assert all(first[1] < second[0] for first, second in itertools.pairwise(edges))
    low, high = min(low, high), max(low, high)
    assert intervals.meets(low, high) == (not have.isdisjoint(range(low, high + 1)))
    assert intervals.covers(low, high) == any(begin <= low and high < end for begin, end in edges)
    assert intervals.overlapping(low, high).tolist() == [
        index for index, (begin, end) in enumerate(edges) if begin <= high and low < end
    ]


def test_intervals_that_touch_are_told_apart_where_that_matters() -> None:
    intervals = Intervals.apart([(0, 8), (8, 16), (24, 32)])
    assert intervals.index(np.array([0, 7, 8, 15, 16, 23, 24, 31, 32])).tolist() == [0, 0, 1, 1, -1, -1, 2, 2, -1]
    assert intervals.overlapping(7, 8).tolist() == [0, 1]
    assert intervals.overlapping(8, 8).tolist() == [1]


def places(block: Block) -> list[tuple[int, int, int]]:
    """Return for each row: position, row of the payload, time of arrival."""
    locations = block.locations(slice(0, block.filled))
    positions, times = (np.repeat(column, locations.rows).tolist() for column in (locations.position, locations.time))
    return list(zip(positions, locations.payload_rows().tolist(), times, strict=True))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=150, deadline=None)
def test_a_run_table_is_rewritten_row_by_row(seed: int) -> None:
    """Compare runs with a list, after any number of relocations, and in the restored block."""
    random, block, expected = Random(seed), Block(0), []
    for number in range(random.randint(1, 12)):
        runs = [Run(random.randint(1, 5), 8 * random.randint(0, 90), random.randint(0, 9)) for _ in range(random.randint(1, 3))]
        block.fill(sum(run.rows for run in runs), 1, runs, 1000 + number // 3)
        expected += [(run.position, run.skip + row, 1000 + number // 3) for run in runs for row in range(run.rows)]
    for turn in range(random.randint(1, 4)):
        rows = sorted(random.sample(range(block.filled), random.randint(1, block.filled)))
        taken = random.choice([list(range(len(rows))), random.sample(range(200), len(rows))])
        position = 8 * (1000 + turn)
        block.relocate(np.array(rows), position, np.array(taken))
        for row, where in zip(rows, taken, strict=True):
            expected[row] = position, where, expected[row][2]
        assert places(block) == expected
        assert (block.runs.low, block.runs.high) == (min(p for p, _, _ in expected), max(p for p, _, _ in expected))
    if random.random() < 0.5:
        block.fill(3, 1, [Run(3, 80_000, 0)], 2000)
        expected += [(80_000, row, 2000) for row in range(3)]
    assert places(Block.restored(block.persisted())) == places(block) == expected


def test_rows_that_are_neighbours_again_are_one_run() -> None:
    block = Block(0)
    for number in range(1000):
        block.fill(1, 1, [Run(1, 8 * number, 0)], 5)
    block.relocate(np.arange(1000), 80_000, np.arange(1000))
    assert len(block.runs.row) == 1


def relocate(engine: Engine, rows: RowSet, name: str = "q", wrong: int = 0) -> int:
    """Relocate rows as the cleaner does. `wrong` is an error in their positions."""
    its = engine.state.queues[name]
    locations = [its.blocks[number].locations(part) for number, part in rows.items()]
    positions = np.concatenate([np.repeat(location.position, location.rows) for location in locations])
    payload_rows = np.concatenate([location.payload_rows() for location in locations])
    return engine.run(c.Relocate([c.RelocatedRows(its.id, rows, positions + wrong, payload_rows)], b"")) or 0


def drop(engine: Engine, *intervals: list[int], keeping: Keeping = EVERYTHING) -> Any:
    return engine.run(c.Drop(list(intervals), keeping))


def test_what_is_copied_lies_in_the_copy_and_its_old_place_may_go() -> None:
    """D2: over several blocks in one record, also after a restart from the log or from a snapshot."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 10, 1), c.Enqueue("q", BLOCK_ROWS, 1), c.Enqueue("q", 5, 1))
    first, second, third = (8 * number for number in (2, 3, 4))
    rows = RowSet.of_sequences(np.array([3, 9, 20, BLOCK_ROWS + 2, BLOCK_ROWS + 12]))
    assert drop(engine, [first, second]) == []
    assert relocate(engine, rows) == 5
    copy = engine.log[-1][1]
    blocks = queue(engine).blocks
    assert [places(blocks[0])[row][:2] for row in (3, 9, 20)] == [(copy, 0), (copy, 1), (copy, 2)]
    assert [places(blocks[1])[row][:2] for row in (2, 12)] == [(copy, 3), (copy, 4)]
    assert [places(blocks[0])[row][0] for row in (2, 10, 21)] == [first, second, second]
    link = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", link, 10))
    engine.run(c.Settle("q", link, RowSet.range(0, 3)), c.Settle("q", link, RowSet.range(4, 9)))
    engine.run(c.Release("q", link, RowSet.range(3, 4)))
    assert drop(engine, [first, second], [second, third]) == [[first, second]]
    assert drop(engine, [first, second]) == []  # a repetition drops nothing
    assert queue(engine).live == BLOCK_ROWS + 15 - 8
    assert places(blocks[0])[3][0] == copy
    survives(engine)


def test_a_copy_of_what_lies_elsewhere_by_now_changes_nothing() -> None:
    """D2: it was copied before, its queue was replaced by one of the same name, or its block has left memory."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 10, 1))
    its, rows = queue(engine).id, RowSet.range(2, 6)
    locations = queue(engine).blocks[0].locations(slice(2, 6))
    late = c.Relocate([c.RelocatedRows(its, rows, locations.positions(), locations.payload_rows())], b"")
    assert relocate(engine, rows, wrong=8) == 0
    assert engine.run(late) == 4
    log = len(engine.log)
    assert engine.run(late) is None
    assert len(engine.log) == log
    assert relocate(engine, RowSet.range(4, 8)) == 4
    engine.run(c.DeleteQueue("q"), c.DeclareQueue("q"), c.Enqueue("q", BLOCK_ROWS, 1))
    assert engine.run(late) is None
    link = engine.run(c.Subscribe("q"))
    engine.run(c.Settle("q", link, engine.run(c.Acquire("q", link, BLOCK_ROWS)).rows))
    locations = queue(engine).blocks[0].locations(slice(2, 6))
    packed = c.Relocate([c.RelocatedRows(queue(engine).id, rows, locations.positions(), locations.payload_rows())], b"")
    engine.run(c.PackBlock("q", 0))
    assert engine.run(packed) is None
    survives(engine)


def test_of_a_copy_only_those_are_taken_that_lie_where_they_were() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 10, 1))
    late = queue(engine).blocks[0].locations(slice(0, 10))
    relocate(engine, RowSet.range(3, 5))
    before = places(queue(engine).blocks[0])
    rows = RowSet.range(0, 10)
    assert engine.run(c.Relocate([c.RelocatedRows(1, rows, late.positions(), late.payload_rows())], b"")) == 8
    after = places(queue(engine).blocks[0])
    copy = engine.log[-1][1]
    assert [after[row][:2] for row in range(10)] == [before[row][:2] if row in (3, 4) else (copy, row) for row in range(10)]
    survives(engine)


def test_one_copy_serves_every_queue_that_holds_it() -> None:
    """D2: in one event, without the messages of a queue that were relocated meanwhile."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.DeclareQueue("p"), c.Enqueue("p", 2, 1), c.Enqueue("q", 5, 1))
    old = engine.log[-1][1]
    engine.run(c.Copy("q", "p"))
    mine = c.RelocatedRows(queue(engine).id, RowSet.range(1, 4), np.full(3, old), np.array([1, 2, 3]))
    theirs = c.RelocatedRows(
        queue(engine, "p").id, RowSet.range(3, 7), np.full(4, old), np.array([1, 2, 3, 4]), np.array([0, 1, 2, 9])
    )
    log = len(engine.log)
    assert engine.run(c.Relocate([mine, theirs], b"")) == 7
    assert len(engine.log) == log + 1
    copy = engine.log[-1][1]
    assert [where[:2] for where in places(queue(engine).blocks[0])] == [(old, 0), *((copy, row) for row in range(3)), (old, 4)]
    assert [where[:2] for where in places(queue(engine, "p").blocks[0])][2:] == [
        (old, 0),
        *((copy, row) for row in (0, 1, 2, 9)),
    ]
    assert engine.run(c.Relocate([mine, theirs], b"")) is None
    assert (
        engine.run(c.Relocate([mine, c.RelocatedRows(queue(engine).id, RowSet.single(0), np.array([old]), np.array([0]))], b""))
        == 1
    )
    survives(engine)


def test_a_block_out_of_memory_gets_new_columns_and_its_old_place_may_go() -> None:
    """D2 D4: an unrecorded block is needed: at any place where it may be, or at the places that the cleaner has read."""
    engine = Engine(BrokerState(records=True))
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", BLOCK_ROWS - 1, 1), c.DeclareQueue("p"), c.Enqueue("q", 1, 1))
    first, last = (8 * number for number in (2, 4))
    link = engine.run(c.Subscribe("q"))
    engine.run(c.Settle("q", link, engine.run(c.Acquire("q", link, BLOCK_ROWS)).rows), c.PackBlock("q", 0))
    packed, keeping = engine.log[-1][1], Keeping(0, NOWHERE, True)
    asked = [[first, first + 8], [first + 8, last], [last, last + 8], [packed, packed + 8]]
    assert drop(engine, *asked, keeping=keeping) == []
    wants = {packed: np.array([first, last, packed])}
    assert engine.run(c.Drop(asked, keeping, wants)) == [[first + 8, last]]
    assert engine.run(c.Relocate([], b"", [0, queue(engine).id, 99])) == 0, "existing queues count, deleted ones are ignored"
    copy = engine.log[-1][1]
    block = Block.restored(unpack(engine.packed[packed]))
    block.relocate(np.arange(BLOCK_ROWS - 1), copy, np.arange(BLOCK_ROWS - 1))
    repack = c.Repack(queue(engine).id, 0, packed, last, copy, pack(block.persisted()))
    assert engine.run(repack) is True
    assert engine.run(repack) is False
    entry = queue(engine).packed[0]
    assert (entry.position, entry.unrecorded.count) == (engine.log[-1][1], BLOCK_ROWS)
    wants = {entry.position: np.array([last, copy, entry.position])}
    assert engine.run(c.Drop(asked, keeping, wants)) == [[first, first + 8], [packed, packed + 8]]
    assert 0 in queue(engine).packed
    survives(engine)
    begun = engine.run(c.BeginRecording(queue(engine).id, 1 << 20, 1 << 40))
    engine.run(c.EndRecording(queue(engine).id, begun.number, 0))
    assert engine.run(c.Drop([[entry.position, entry.position + 8]], keeping)) == [[entry.position, entry.position + 8]]
    assert not queue(engine).packed
    survives(engine)
    assert engine.run(c.Relocate([], b"", [99])) is None


def test_staged_messages_are_copied_whole_wherever_they_wait() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.StageMessages("a", "q", 3, 1), c.StageMessages("b", "q", 2, 1))
    old = engine.state.stages["a"].parts[0].position
    assert drop(engine, [old, old + 8]) == []
    assert engine.run(c.RelocateStaged(old, b"")) == 1
    copy = engine.log[-1][1]
    assert engine.run(c.RelocateStaged(old, b"")) == 0
    assert drop(engine, [old, old + 8]) == [[old, old + 8]]
    survives(engine)
    engine.run(c.Publish(["a", "b"]))
    assert [where[:2] for where in places(queue(engine).blocks[0])[:3]] == [(copy, row) for row in range(3)]
    survives(engine)


def test_dead_letters_that_stayed_are_needed_as_far_back_as_retention_says() -> None:
    """Q13 D2."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"deadLetterQueue": "nowhere"}), c.Enqueue("q", 4, 1))
    link = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", link, 4), c.Settle("q", link, RowSet.range(0, 2), Outcome.REJECTED))
    engine.run(c.Settle("q", link, RowSet.range(2, 4)))
    block = queue(engine).blocks[0]
    assert needed(block, Keeping(0, NOWHERE)).tolist() == [True, True, False, False]
    assert needed(block, Keeping()).all()
    assert not needed(block, EVERYTHING).any()
    assert drop(engine, [0, 800], keeping=Keeping(0, NOWHERE)) == []
    assert drop(engine, [0, 800]) == [[0, 800]]
    assert len(np.asarray(with_payloads(block, slice(0, 4), engine.state.dropped))) == 0
    assert engine.run(c.Redrive("q")).messages == 0
    survives(engine)


class Model:
    """The payloads by position, as a journal has them, and the payload of each message by queue and sequence number."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.engine = Engine()
        self.engine.run(c.StartBroker(), c.DeclareQueue("q"), c.DeclareQueue("p"), c.DeclareQueue("dead"))
        self.payloads: dict[int, list[int]] = {}  # position → the payloads of its rows
        self.is_: dict[tuple[str, int], int] = {}
        self.next = 0

    def run(self, command: Any) -> Any:
        return self.engine.run(command)

    def new(self, count: int) -> list[int]:
        self.next += count
        return list(range(self.next - count, self.next))

    def send(self) -> None:
        name, count = self.random.choice("qp"), self.random.randint(1, 6)
        first, values = self.engine.state.queues[name].next_sequence, self.new(count)
        self.run(c.Enqueue(name, count, 1))
        self.payloads[self.engine.log[-1][1]] = values
        self.is_.update({(name, first + i): value for i, value in enumerate(values)})

    def publish(self) -> None:
        parts = []
        for name in self.random.choices("qp", k=self.random.randint(1, 3)):
            values = self.new(self.random.randint(1, 4))
            self.run(c.StageMessages("s", name, len(values), 1))
            self.payloads[self.engine.log[-1][1]] = values
            parts.append((name, values))
        if self.random.random() < 0.5:
            self.clean()
        for name, values in parts:
            first = self.engine.state.queues[name].next_sequence + sum(len(v) for n, v in parts if n == name and v < values)
            self.is_.update({(name, first + i): value for i, value in enumerate(values)})
        self.run(c.Publish(["s"]))

    def settle(self) -> None:
        name = self.random.choice(["q", "p", "dead"])
        link = self.run(c.Subscribe(name))
        rows = self.run(c.Acquire(name, link, self.random.randint(1, 9))).rows
        some = RowSet.of_sequences(np.array([s for s in rows.sequences().tolist() if self.random.random() < 0.8], np.int64))
        self.run(c.Settle(name, link, some))
        self.run(c.Unsubscribe(name, link))

    def move(self) -> None:
        source, target = self.random.sample(["q", "p", "dead"], 2)
        waiting = [
            block.base + int(row)
            for _, block in sorted(self.engine.state.queues[source].blocks.items())
            for row in block.waiting()
        ]
        first = self.engine.state.queues[target].next_sequence
        command = self.random.choice([c.Move, c.Copy])
        count = self.run(command(source, target, self.random.randint(1, 5))).messages
        self.is_.update({(target, first + i): self.is_[source, sequence] for i, sequence in enumerate(waiting[:count])})

    def clean(self) -> None:
        """Clean some part of the log as the cleaner does, sometimes incompletely."""
        log = [position for _, position in self.engine.log]
        begin, end = sorted(self.random.choices([*log, log[-1] + 8], k=2))
        going = Intervals([(begin, end)])
        if not going:
            return
        to_copy = []  # (block's queue, block, row, position of its payload, and its row there)
        for its in self.engine.state.queues.values():
            for number, block in its.blocks.items():
                rows = np.flatnonzero(needed(block, EVERYTHING))
                rows = rows[going.contains(block.positions(rows))]
                if self.random.random() < 0.1:
                    rows = rows[:-1]  # one row is left out
                where = places(block)
                to_copy += [(its.id, number, row, *where[row][:2]) for row in rows.tolist()]
        copy: dict[tuple[int, int], int] = {}  # payload → row of the copy
        for *_, position, payload_row in to_copy:
            copy.setdefault((position, payload_row), len(copy))
        messages = []
        for number, some in itertools.groupby(to_copy, key=lambda entry: entry[0]):
            _, blocks, rows, positions, payload_rows = (np.array(column) for column in zip(*some, strict=True))
            taken = np.array([copy[payload] for payload in zip(positions.tolist(), payload_rows.tolist(), strict=True)])
            sequences = RowSet.of_sequences(blocks * BLOCK_ROWS + rows)
            messages.append(c.RelocatedRows(number, sequences, positions, payload_rows, taken))
        if messages:
            assert self.run(c.Relocate(messages, b"")) == len(to_copy)
            self.payloads[self.engine.log[-1][1]] = [self.payloads[position][payload_row] for position, payload_row in copy]
            for number, block_number, row, *payload in to_copy:
                now = places(self.engine.state.by_id[number].blocks[block_number])[row]
                assert now[:2] == (self.engine.log[-1][1], copy[payload[0], payload[1]])
        for stage in self.engine.state.stages.values():
            for part in stage.parts:
                if going.contains(np.array([part.position]))[0]:
                    values = self.payloads[part.position]
                    assert self.run(c.RelocateStaged(part.position, b"")) >= 1
                    self.payloads[self.engine.log[-1][1]] = values
        if drop(self.engine, [begin, end]):
            self.payloads = {position: v for position, v in self.payloads.items() if not begin <= position < end}

    def restart(self) -> None:
        self.engine = self.random.choice([Engine.recovered, Engine.from_snapshot])(self.engine)
        self.run(c.StartBroker())

    def check(self) -> None:
        for name, its in self.engine.state.queues.items():
            for block in its.blocks.values():
                where = places(block) if block.filled else []
                for row in np.flatnonzero(needed(block, EVERYTHING)).tolist():
                    position, payload_row, _ = where[row]
                    assert self.payloads[position][payload_row] == self.is_[name, block.base + row]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_cleaned_every_message_has_its_payload(seed: int) -> None:
    """D2 C1: sends, publishes, settlements, moves, copies and restarts between relocations and drops; then a full replay."""
    model = Model(seed)
    commands = [*4 * [model.send, model.settle], *2 * [model.publish, model.move], *4 * [model.clean], model.restart]
    for command in model.random.choices(commands, k=60):
        command()
        model.check()
    for its in model.engine.state.queues.values():
        assert isinstance(its, Queue)
    survives(model.engine)

"""Q7: a priority queue: strict between levels, in order within a level, a higher arrival next."""

from __future__ import annotations

import pickle

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.runs import Run
from penstock.broker_core.engine.columns.states import Cause, Verb
from penstock.broker_core.engine.model.options import level_of_priority
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.search import Search, find

from .conservation import conserved
from .harness import Engine

NOT_SAID = -1


def engine_with(*priorities: int, levels: int = 10) -> Engine:
    engine = Engine()
    engine.run(c.DeclareQueue("q", "priority", {"levels": levels}), c.Subscribe("q"), c.Subscribe("q"))
    if priorities:
        send(engine, *priorities)
    return engine


def send(engine: Engine, *priorities: int) -> None:
    engine.run(c.Enqueue("q", len(priorities), 1, attributes=Attributes(priority=np.array(priorities, np.int64) + 1)))


def took(engine: Engine, holder: int, *, one_by_one: bool = True) -> list[int]:
    sequences: list[int] = []
    while rows := engine.run(c.Acquire("q", holder, 1 if one_by_one else 99)).rows.sequences().tolist():
        sequences += rows
    return sequences


@pytest.mark.parametrize(
    ("levels", "lowest", "highest"),
    [(1, 9, 0), (2, 4, 5), (3, 3, 5), (4, 3, 6), (5, 2, 6), (6, 2, 7), (7, 1, 7), (8, 1, 8), (9, 0, 8), (10, 0, 9)],
)
def test_priorities_fall_into_levels_as_amqp_0_10_says(levels: int, lowest: int, highest: int) -> None:
    """With N levels, 0 to 5 - ceil(N/2) are the lowest, 4 + floor(N/2) and above the highest, the others have a level each."""
    by_priority = level_of_priority(levels)[1:].tolist()
    assert by_priority == sorted(by_priority)
    assert [p for p in range(10) if by_priority[p] == 0] == list(range(lowest + 1))
    if levels > 1:
        assert [p for p in range(10) if by_priority[p] == levels - 1] == list(range(highest, 10))
    assert len(set(by_priority)) == levels
    assert level_of_priority(levels)[0] == by_priority[4]  # a message without a priority has the default


@pytest.mark.parametrize("one_by_one", [True, False])
def test_higher_levels_first_and_by_place_within_one(one_by_one: bool) -> None:
    engine = engine_with(0, 9, 4, NOT_SAID, 9, 5, 0)
    assert took(engine, 1, one_by_one=one_by_one) == [1, 4, 5, 2, 3, 0, 6]
    assert took(engine, 3) == []


def test_a_higher_arrival_is_next_wherever_a_subscription_stands() -> None:
    engine = engine_with(1, 1, 1)
    assert engine.run(c.Acquire("q", 1, 2)).rows.sequences().tolist() == [0, 1]
    send(engine, 0, 8)
    assert took(engine, 1) == [4, 2, 3]


def test_a_return_goes_to_its_place_among_its_level() -> None:
    engine = engine_with(5, 5, 7, 5)
    assert took(engine, 1) == [2, 0, 1, 3]
    engine.run(c.Release("q", 1, RowSet.of_sequences(np.array([0, 3])), Cause.RELEASED), c.Release("q", 1, RowSet.single(2)))
    assert took(engine, 3) == [2, 0, 3]


def test_a_lease_takes_of_all_levels_and_a_browser_sees_them_by_place() -> None:
    engine = engine_with(*[0, 9, 4] * 10)
    assert engine.run(c.Browse("q", 0, 4)) == c.Browsed(RowSet.range(0, 4), 4)
    engine.advance("l", epoch=None, finished=0, messages=12)
    held = engine.state.leases["l"].batches[1].rows.sequences().tolist()
    assert held == sorted([*range(1, 30, 3), 2, 5])  # ten of the highest level, two of the next


def test_levels_hold_across_blocks_a_snapshot_and_a_recovery() -> None:
    engine = engine_with()
    priorities = np.arange(3 * BLOCK_ROWS) % 3 * 4
    engine.run(c.Enqueue("q", len(priorities), 1, attributes=Attributes(priority=priorities + 1)))
    for later in (engine, engine.recovered(), engine.from_snapshot()):
        later.run(c.Subscribe("q"))
        holder = later.state.next_link - 2
        rows = later.run(c.Acquire("q", holder, 3 * BLOCK_ROWS)).rows
        assert rows.sequences().tolist() == np.flatnonzero(priorities == 8).tolist()
        assert conserved(later.state.queues["q"])
        assert [waiting.total for waiting in later.state.queues["q"].waiting] == [
            BLOCK_ROWS, 0, 0, 0, BLOCK_ROWS, 0, 0, 0, 0, 0
        ]  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    levels=st.sampled_from([2, 10]),
    taken=st.floats(0, 1),
    limit=st.sampled_from([1, 3, 1500, 200_000]),
    ends=st.tuples(st.integers(0, 2 * BLOCK_ROWS + 50), st.one_of(st.none(), st.integers(0, 2 * BLOCK_ROWS + 50))),
    known=st.one_of(st.none(), st.integers(0, BLOCK_ROWS)),
    alike=st.sampled_from([0, 1, 10]),
)
def test_what_is_found_of_a_level_is_what_a_look_at_every_place_finds(
    seed: int, levels: int, taken: float, limit: int, ends: tuple[int, int | None], known: int | None, alike: int
) -> None:
    """The queue has two full blocks, one of them possibly with one level, and a partial one. Some messages are taken, and the
    selector is evaluated up to some place of each block."""
    chance, count = np.random.default_rng(seed), 2 * BLOCK_ROWS + 50
    queue = Queue("q", "priority", {"levels": levels})
    priority = chance.integers(0, 11, count)
    priority[BLOCK_ROWS : 2 * BLOCK_ROWS] = alike or priority[BLOCK_ROWS : 2 * BLOCK_ROWS]
    queue.append(1, [Run(count, 8, 0)], 1, Attributes(priority=priority))
    level = level_of_priority(levels)[priority]
    available = chance.random(count) >= taken
    for block in queue.blocks.values():
        gone = np.flatnonzero(~available[block.base : block.base + block.filled])
        queue.move(block, gone, Verb.ACQUIRE)
    matching = None if known is None else _Known(chance.random(count) < 0.5, known)
    place, until = ends
    for wanted in (0, levels - 1):
        free = np.flatnonzero(available & (level == wanted))
        free = free[(free >= place) & (free < (count if until is None else until))]
        if matching is not None:
            unknown = np.flatnonzero((np.arange(count) & (BLOCK_ROWS - 1)) >= matching.rows)
            blocks = set(queue.blocks_with_available(wanted, place >> 16))
            beyond = [at for at in unknown.tolist() if at >= place and at >> 16 in blocks]
            free = free[matching.matches[free] & (free < (beyond[0] if beyond else count))]
        result = find(queue, place, Search(limit, None, until, (), matching), wanted)
        assert result.rows.sequences().tolist() == free[:limit].tolist()


class _Known:
    def __init__(self, matches: npt.NDArray[np.bool_], rows: int) -> None:
        self.matches, self.rows = matches, rows

    def known(self, queue: Queue, block: int) -> npt.NDArray[np.bool_]:
        return self.matches[block * BLOCK_ROWS :][: min(self.rows, queue.blocks[block].filled)]


def test_a_batch_of_a_level_is_remembered_in_its_short_form_once_it_has_ended() -> None:
    engine = engine_with(*[place % 10 for place in range(20_000)])
    engine.advance("l", epoch=None, finished=0, messages=2_000)
    held = engine.state.leases["l"].batches[1].rows
    engine.read("l", epoch=1, batch=1)
    engine.advance("l", epoch=1, finished=1, messages=2_000)
    ended = engine.state.leases["l"].batches[1].rows
    assert ended == held
    assert held.count == 2_000
    assert len(pickle.dumps(ended)) < 20_000 / 8 + 500, "a bit for each place"

"""Row sets, columns, runs and the return log, compared with lists and sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.packing import pack, unpack
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet, as_array
from penstock.broker_core.engine.columns.runs import Run
from penstock.broker_core.engine.columns.series import RowColumn, Series
from penstock.broker_core.engine.columns.states import Verb
from penstock.broker_core.engine.columns.waiting import RETURN_LOG_ENTRIES, ReturnLog
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.search import Search, find

EDGE = BLOCK_ROWS
SEQUENCES = st.sets(
    st.one_of(st.integers(0, 50), st.integers(EDGE - 5, EDGE + 5), st.integers(3 * EDGE, 3 * EDGE + 400)), max_size=120
)
FAST = settings(max_examples=150, deadline=None, derandomize=True)


def rows_of(sequences: set[int]) -> RowSet:
    result = RowSet()
    array = np.array(sorted(sequences), np.int64)
    for block in np.unique(array >> 16):
        result = result.plus(RowSet.of([(int(block), array[array >> 16 == block] & 0xFFFF)]))
    return result


@FAST
@given(SEQUENCES, SEQUENCES, st.integers(0, 4 * EDGE), st.integers(0, 4 * EDGE))
def test_a_row_set_is_a_set(a: set[int], b: set[int], low: int, high: int) -> None:
    x, y = rows_of(a), rows_of(b)
    assert x.sequences().tolist() == sorted(a)
    assert x.count == len(a)
    assert x.plus(y).sequences().tolist() == sorted(a | b)
    assert x.minus(y).sequences().tolist() == sorted(a - b)
    assert x.between(low, high).sequences().tolist() == sorted(s for s in a if low <= s <= high)
    assert all(s in x for s in a)
    assert not any(s in x for s in b - a)
    if a:
        assert (x.first, x.last) == (min(a), max(a))


@FAST
@given(st.integers(0, 2**32), st.floats(0.001, 1), st.integers(0, 2 * EDGE), st.integers(0, 2 * EDGE))
def test_a_large_row_set_is_the_same_set_in_its_short_form(seed: int, share: float, low: int, high: int) -> None:
    numbers = np.flatnonzero(np.random.default_rng(seed).random(2 * EDGE) < share)
    listed = RowSet.of_sequences(numbers)
    read = RowSet.from_json(json.loads(listed.to_text()))
    for rows in (listed, listed.packed(), read):
        assert np.array_equal(rows.sequences(), numbers)
        assert (rows.count, rows.to_json()) == (len(numbers), listed.to_json())
        assert np.array_equal(rows.between(low, high).sequences(), numbers[(numbers >= low) & (numbers <= high)])
        assert rows.split(7) == listed.split(7)
        if len(numbers):
            assert (rows.first, rows.last) == (numbers[0], numbers[-1])


@FAST
@given(SEQUENCES)
def test_a_row_set_of_sequences_holds_just_these(a: set[int]) -> None:
    rows = RowSet.of_sequences(np.array(sorted(a), np.int64))
    assert rows.sequences().tolist() == sorted(a)
    assert rows.to_json() == rows_of(a).to_json()


@FAST
@given(SEQUENCES)
def test_a_row_set_survives_the_journal(a: set[int]) -> None:
    assert RowSet.from_json(json.loads(json.dumps(rows_of(a).to_json()))) == rows_of(a)
    assert json.loads(rows_of(a).to_text()) == rows_of(a).to_json()


@FAST
@given(SEQUENCES, st.integers(1, 9))
def test_a_split_covers_every_message_once_in_order_and_evenly(a: set[int], parts: int) -> None:
    x = rows_of(a)
    locations = x.split(parts)
    assert [s for first, last, _ in locations for s in x.between(first, last).sequences().tolist()] == sorted(a)
    assert [x.between(first, last).count for first, last, _ in locations] == [count for _, _, count in locations]
    if a:
        assert len(locations) == min(parts, len(a))
        assert max(p[2] for p in locations) - min(p[2] for p in locations) <= 1


def test_holes_become_a_bitmap_and_whole_blocks_one_range() -> None:
    every_second = RowSet.of([(0, np.arange(0, BLOCK_ROWS, 2))])
    assert isinstance(every_second.to_json()["0"], str)
    assert len(json.dumps(every_second.to_json())) < BLOCK_ROWS / 5
    assert RowSet.range(0, 3 * BLOCK_ROWS).to_json() == {str(b): [0, BLOCK_ROWS] for b in range(3)}


@FAST
@given(st.lists(st.integers(-(2**40), 2**40), max_size=60))
def test_a_series_gives_back_what_was_appended(values: list[int]) -> None:
    series = Series()
    for value in values:
        series.append(value)
    assert series.array().tolist() == values
    base, deltas = series.persisted()
    assert Series(base, deltas).array().tolist() == values


def test_a_million_single_runs_cost_few_bytes_each() -> None:
    block = Block(0)
    for i in range(BLOCK_ROWS):
        block.fill(1, 100, [Run(1, 4096 + 500 * i // 8 * 8, 0)], 1_700_000_000_000_000 + 40 * i)
    held = block.state.nbytes + sum(getattr(block.runs, n)._values.nbytes for n in ("row", "position", "skip", "time"))
    assert held / BLOCK_ROWS <= 16


@FAST
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 70_000)), max_size=20))
def test_a_column_is_zero_until_set_and_widens(changes: list[tuple[int, int]]) -> None:
    column, plain = RowColumn(), [0] * 100
    assert column.get(slice(0, 100)) == 0
    for row, value in changes:
        column.set(slice(row, row + 1), value, 100)
        plain[row] = value
    assert np.broadcast_to(column.get(slice(0, 100)), 100).tolist() == plain


def test_attempts_count_beyond_one_byte() -> None:
    column = RowColumn()
    for _ in range(300):
        column.increment(slice(2, 4), 8)
    assert column.get(slice(0, 8)).tolist() == [0, 0, 300, 300, 0, 0, 0, 0]  # type: ignore[union-attr]


@FAST
@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 40))
def test_the_return_log_knows_the_lowest_place_since_an_epoch(places: list[int], since: int) -> None:
    log = ReturnLog()
    for place in places:
        log.add(place)
    assert log.lowest_since(since) == min(places[since:], default=None)


def test_the_return_log_is_bounded_and_errs_only_backwards() -> None:
    log = ReturnLog()
    for place in range(3 * RETURN_LOG_ENTRIES):
        log.add(place)
    assert len(log._sequences) <= RETURN_LOG_ENTRIES
    for epoch in range(0, 3 * RETURN_LOG_ENTRIES, 97):
        assert log.lowest_since(epoch) <= epoch  # type: ignore[operator]  # the place of the return after `epoch` is `epoch`


@FAST
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=12),
    st.sets(st.integers(0, 400), max_size=60),
)
def test_pieces_lead_every_row_to_its_payload(batches: list[tuple[int, int, int]], wanted: set[int]) -> None:
    """Rows refer to few records repeatedly, as copies do; no extent has more rows than its record."""
    queue = Queue("q", "fifo", {})
    truth = []
    for count, skip, record in batches:
        queue.append(1, [Run(count, 800 * record, skip)], 1000)
        truth += [(800 * record, skip + k, 1000) for k in range(count)]
    block = queue.blocks[0]
    rows = np.array(sorted(w for w in wanted if w < block.filled), np.int64)
    for chosen in (rows, slice(0, block.filled), slice(block.filled // 3, block.filled // 2)):
        locations = block.locations(chosen)
        expected = [truth[n] for n in as_array(chosen).tolist()]
        scattered, places = locations.payload_rows().tolist() if expected else [], []
        for extent in locations.extents():
            assert extent.indexes.start == len(places)
            count = extent.indexes.stop - extent.indexes.start
            numbers = list(scattered[extent.indexes] if extent.first is None else range(extent.first, extent.first + count))
            assert numbers == sorted(set(numbers))
            places += [(extent.position, row, extent.time) for row in numbers]
        assert places == expected
        moved = [(run.position, run.skip + k) for run in locations.runs() for k in range(run.rows)]
        assert moved == [(position, row) for position, row, _ in expected]


def test_a_batch_that_crosses_blocks_keeps_its_payload_rows() -> None:
    queue = Queue("q", "fifo", {})
    queue.append(1, [Run(BLOCK_ROWS - 10, 8, 0)], 1)
    queue.append(1, [Run(BLOCK_ROWS + 30, 16, 0)], 2)
    first, second, third = (queue.blocks[i].locations(slice(0, queue.blocks[i].filled)) for i in range(3))
    assert (first.payload_row[-1], first.rows[-1]) == (0, 10)
    assert (second.payload_row[0], second.rows[0], second.position[0]) == (10, BLOCK_ROWS, 16)
    assert (third.payload_row[0], third.rows[0]) == (BLOCK_ROWS + 10, 20)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(25, [0, 1]), (30, [0, 1, 2]), (9, [0]), (0, [0]), (10_000, list(range(6)))],
)
def test_bytes_are_exact_and_one_larger_message_travels_alone(limit: int, expected: list[int]) -> None:
    queue = Queue("q", "fifo", {})
    queue.append(10, [Run(3, 8, 0)], 1)
    queue.append(np.array([1000, 1, 2]), [Run(3, 16, 0)], 2)
    assert find(queue, 0, Search(99, limit)).rows.sequences().tolist() == expected


def test_a_larger_message_travels_alone_also_where_the_next_block_has_holes() -> None:
    queue = Queue("q", "fifo", {})
    queue.append(1, [Run(BLOCK_ROWS - 1, 8, 0)], 1)
    queue.move(queue.blocks[0], slice(0, BLOCK_ROWS - 1), Verb.PURGE)
    queue.append(350, [Run(1, 16, 0)], 2)  # the last row of its block, and the only remaining one
    queue.append(100, [Run(10, 24, 0)], 3)
    queue.move(queue.blocks[1], np.array([1, 3, 5]), Verb.PURGE)
    assert find(queue, 0, Search(99, 300)).rows.sequences().tolist() == [BLOCK_ROWS - 1]


def test_a_message_larger_than_the_limit_waits_for_its_own_turn() -> None:
    queue = Queue("q", "fifo", {})
    queue.append(np.array([5, 1000, 5]), [Run(3, 16, 0)], 2)
    assert find(queue, 0, Search(99, 100)).rows.sequences().tolist() == [0]
    assert find(queue, 1, Search(99, 100)).rows.sequences().tolist() == [1]


@FAST
@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.one_of(st.integers(0, 2**50), st.lists(st.integers(0, 255), max_size=9)), max_size=4
    )
)
def test_packed_columns_come_back(values: dict[str, object]) -> None:
    packed = {k: np.array(v, np.uint8) if isinstance(v, list) else v for k, v in values.items()}
    result = unpack(pack(packed))
    assert {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in result.items()} == values

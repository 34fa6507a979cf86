"""The window of message ids: when it forgets an id, the cost of that, and the same window after a restart."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.model.duplicates import ID_BYTES, DuplicateWindow

from .harness import Engine

WINDOW = 100_000


@given(
    steps=st.lists(
        st.tuples(st.lists(st.integers(1, 9), max_size=5, unique=True), st.integers(0, 3), st.booleans()), max_size=30
    ),
    most=st.integers(1, 5),
)
def test_the_oldest_are_forgotten_also_of_ids_that_came_again_and_after_a_restart(
    steps: list[tuple[list[int], int, bool]], most: int
) -> None:
    window, expected, now = DuplicateWindow(), dict[int, int](), 9
    for numbers, later, restarts in steps:
        now += later
        came = np.array([b"%d" % number for number in numbers], f"S{ID_BYTES}")
        fresh = window.fresh(came, now - 2)
        assert fresh.tolist() == [expected.get(number, -9) < now - 2 for number in numbers]
        window.remember(came[fresh], now, most)
        for number, is_fresh in zip(numbers, fresh, strict=True):
            if is_fresh:
                expected.pop(number, None)
                expected[number] = now
        for number in list(expected)[: max(0, len(expected) - most)]:
            del expected[number]
        persisted = window.persisted()
        assert persisted["ids"].tolist() == [b"%d" % number for number in expected]
        assert persisted["times"].tolist() == list(expected.values())
        if restarts:
            window = DuplicateWindow(**persisted)


def test_to_forget_an_id_costs_the_same_however_many_were_forgotten() -> None:
    window, ids = DuplicateWindow(), _ids(3 * WINDOW)

    def cost() -> float:
        return min(_time(window, _ids(1)) for _ in range(50))

    window.remember(ids[:WINDOW], 1, WINDOW)
    at_first = cost()
    window.remember(ids[WINDOW:], 2, WINDOW)
    assert cost() < 10 * at_first
    assert len(window) == WINDOW


def test_a_clock_that_begins_in_1970_makes_no_message_a_duplicate() -> None:
    engine = Engine()
    engine.wall = 5_000_000
    engine.run(c.DeclareQueue("q", options={"duplicateWindow": 9, "duplicateTime": 3_600_000}))
    ids = np.array([b"one", b"", b"one"], f"S{ID_BYTES}")
    placed = engine.run(c.Enqueue("q", 3, 7, attributes=Attributes(ids=ids)))
    assert (placed.next, placed.duplicates) == (2, 1)


def _ids(count: int) -> np.ndarray:
    return np.frombuffer(np.random.default_rng().bytes(count * ID_BYTES), f"S{ID_BYTES}")


def _time(window: DuplicateWindow, ids: np.ndarray) -> float:
    start = perf_counter()
    window.remember(ids, 3, WINDOW)
    return perf_counter() - start

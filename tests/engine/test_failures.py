"""The last failed deliveries of a row, which it keeps when it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.failures import _FEW_ERRORS, KEPT, Failures
from penstock.broker_core.engine.columns.limits import MAX_FAILURE_TEXT
from penstock.broker_core.engine.columns.packing import pack, unpack
from penstock.broker_core.engine.columns.series import Rows
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.model.dispositions import DeliveryEnd

from .ends import make, queue, survives
from .harness import Engine

ROWS = 12
Known = list[tuple[int, int, int, str]]  # cause, time, taker, error


def known(failures: Failures, rows: Rows) -> dict[int, Known]:
    """Return the deliveries of each row that has some, the earliest first."""
    failed = failures.of(rows)
    if failed is None:
        return {}
    texts = ("", *failed.errors)
    numbers = np.arange(ROWS)[rows]
    deliveries = [list(zip(*(column.tolist() for column in columns), strict=True)) for columns in reversed(failed.deliveries)]
    return {
        int(numbers[index]): [(*values[:3], texts[values[3]]) for each in deliveries for values in [each[at]] if values[0]]
        for at, index in enumerate(failed.indexes.tolist())
    }


@given(st.data())
def test_each_row_has_its_last_deliveries(data: st.DataObject) -> None:
    failures = Failures()
    expected: dict[int, Known] = {}
    for time in range(1, data.draw(st.integers(1, 15)) + 1):
        if data.draw(st.booleans()):
            rows: Rows = slice(*sorted(data.draw(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)))))
        else:
            rows = np.array(sorted(data.draw(st.sets(st.integers(0, ROWS - 1)))), np.int64)
        numbers = np.arange(ROWS)[rows].tolist()
        if data.draw(st.integers(0, 5)) == 0:
            failures.clear(rows, ROWS)
            expected |= {row: [] for row in numbers}
            continue
        values = (data.draw(st.integers(1, 255)), time * data.draw(st.sampled_from([1, 1000])), data.draw(st.integers(0, 300)))
        error = data.draw(st.sampled_from(["", "a", "b"]))
        failures.note(rows, *values, error or None, ROWS)
        expected |= {row: [*expected.get(row, []), (*values, error)][-KEPT:] for row in numbers}
        if data.draw(st.booleans()):
            failures = Failures.restored(unpack(pack(failures.persisted(ROWS))))
        wanted = {row: deliveries for row, deliveries in expected.items() if deliveries}
        assert known(failures, slice(0, ROWS)) == wanted
        some = np.array([0, 3, ROWS - 1])
        assert known(failures, some) == {row: wanted[row] for row in some.tolist() if row in wanted}


def test_texts_that_no_row_has_any_more_are_forgotten() -> None:
    failures = Failures()
    failures.note(slice(0, 1), 1, 1, 0, "first", ROWS)
    for number in range(10 * _FEW_ERRORS):
        failures.note(slice(1, 2), 1, 1, 0, f"error {number}", ROWS)
    assert len(failures._errors) <= 2 * (KEPT + 2) + _FEW_ERRORS
    texts = [[text for *_, text in deliveries] for deliveries in known(failures, slice(0, ROWS)).values()]
    assert texts == [["first"], [f"error {number}" for number in range(10 * _FEW_ERRORS - KEPT, 10 * _FEW_ERRORS)]]


def of_queue(engine: Engine) -> dict[int, list[tuple[Any, ...]]]:
    """Return cause, name of the consumer and error of the deliveries of each row."""
    names = ["", *queue(engine).takers.names]
    deliveries = known(queue(engine).blocks[0].failures, slice(0, 3))
    return {row: [(Cause(cause - 1), names[taker], error) for cause, _, taker, error in some] for row, some in deliveries.items()}


def fail(engine: Engine, user: str, end: DeliveryEnd) -> None:
    holder = engine.run(c.Subscribe("q", user=user))
    rows = engine.run(c.Acquire("q", holder, 1)).rows
    if end.outcome is None:
        assert end.cause is not None
        engine.run(c.Release("q", holder, rows, end.cause), c.Unsubscribe("q", holder))
    else:
        engine.run(c.Settle("q", holder, rows, end.outcome, end.error), c.Unsubscribe("q", holder))


REJECTED = DeliveryEnd(Outcome.REJECTED, error="x" * 2 * MAX_FAILURE_TEXT)


@pytest.mark.parametrize("end", [DeliveryEnd(Outcome.ACCEPTED), DeliveryEnd(Outcome.REJECTED, error="no")])
def test_a_row_that_ends_keeps_them(end: DeliveryEnd) -> None:
    engine = make(rejected="return", maxAttempts=3)
    fail(engine, "ann", REJECTED)
    fail(engine, "bob", DeliveryEnd(cause=Cause.MODIFIED))
    survives(engine)
    fail(engine, "eve", end)
    expected = [(Cause.REJECTED, "ann", "x" * MAX_FAILURE_TEXT), (Cause.MODIFIED, "bob", "")]
    if end.outcome is Outcome.REJECTED:  # its last attempt
        expected.append((Cause.REJECTED, "eve", "no"))
    assert of_queue(survives(engine)) == {0: expected}


@pytest.mark.parametrize("cause", [Cause.RELEASED, Cause.MODIFIED_UNCOUNTED, Cause.PREFETCHED])
def test_a_delivery_that_does_not_count_is_not_noted(cause: Cause) -> None:
    engine = make()
    fail(engine, "ann", DeliveryEnd(cause=cause))
    assert of_queue(engine) == {}


def test_a_block_without_failures_has_no_columns_for_them() -> None:
    engine = make()
    fail(engine, "ann", DeliveryEnd(Outcome.ACCEPTED))
    assert not [name for name in queue(engine).blocks[0].persisted() if "failure" in name]

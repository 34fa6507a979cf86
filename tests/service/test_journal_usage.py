"""The bytes that the journal needs: a payload in several queues counts once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.service.journal_usage import PayloadRuns

ROW_BYTES = 100
RUNS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9), st.integers(1, 4)), min_size=1), max_size=4)


@given(RUNS)
def test_each_row_of_a_record_counts_once(queues: list[list[tuple[int, int, int]]]) -> None:
    """The runs are in any order, and repeat any parts of each other."""
    usage, expected = PayloadRuns(), dict.fromkeys(range(4), 0)
    rows = {(record, row) for runs in queues for record, first, count in runs for row in range(first, first + count)}
    for record, _ in rows:
        expected[record] += ROW_BYTES
    for runs in queues:
        records, firsts, counts = map(np.array, zip(*runs, strict=True))
        usage.add(records, firsts, counts, counts * ROW_BYTES)
    positions, octets = usage.distinct()
    found = np.bincount(positions, octets, 4).astype(int).tolist()
    assert found == list(expected.values())

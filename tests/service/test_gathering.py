"""Scattered rows of several records: one copy of them equals the concatenation by Arrow."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core.reading.gathering import gathered


def records(source: Random, width: int) -> list[pa.RecordBatch]:
    """A few, some of them cut out of larger ones."""
    parts = []
    for _ in range(source.randrange(1, 5)):
        rows = source.randrange(2, 30)
        body = pa.array([source.randbytes(width) for _ in range(rows)], pa.binary())
        subject = pa.array([f"{source.randrange(10**6):06}" for _ in range(rows)])
        first = source.randrange(rows - 1)
        parts.append(pa.record_batch({"body": body, "subject": subject}).slice(first, source.randrange(1, rows - first + 1)))
    return parts


def some_rows(source: Random, record: pa.RecordBatch) -> np.ndarray:
    return np.array(sorted(source.sample(range(record.num_rows), source.randrange(1, record.num_rows + 1))))


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_one_size_come_out_as_arrow_takes_them(seed: int) -> None:
    source = Random(seed)
    parts = [(record, some_rows(source, record)) for record in records(source, source.choice([1, 7, 100]))]
    groups = gathered(parts)
    assert groups is not None
    groups.validate(full=True)
    assert groups.equals(pa.concat_batches([record.take(pa.array(rows)) for record, rows in parts]))


def test_all_else_goes_the_plain_way() -> None:
    alike, rows = pa.record_batch({"body": pa.array([b"aa", b"bb"])}), np.array([0, 1])
    assert gathered([(alike, rows)]) is not None
    for different in (
        pa.record_batch({"body": pa.array([b"aa", b"b"])}),  # another size within
        pa.record_batch({"body": pa.array([b"aaa", b"b"])}),  # the same octets in all
        pa.record_batch({"body": pa.array([b"aaa", b"bbb"])}),  # another size
        pa.record_batch({"body": pa.array([b"aa", None])}),
        pa.record_batch({"body": pa.array([b"aa", b"bb"]), "priority": pa.array([1, 2], pa.int16())}),
        pa.record_batch({"subject": pa.array([b"aa", b"bb"])}),
        pa.record_batch({"body": pa.array(["aa", "bb"])}),
    ):
        assert gathered([(alike, rows), (different, rows)]) is None
    for alone in (
        {"priority": pa.array([1, 2], pa.int16())},
        {"body": pa.array([b"", b""])},
        {"body": pa.array([None, None], pa.binary())},
    ):
        assert gathered([(pa.record_batch(alone), rows)]) is None

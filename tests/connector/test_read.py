"""Tasks with small and large batches, and with files on its own host."""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.messages import assembly
from penstock.broker_core.messages.columns import InvalidRequest, arrow_schema, stored_form
from penstock.connector.sink.routing import by_queue, routed
from penstock.connector.task import batching
from penstock.connector.task import mapping as mapped
from penstock.connector.task.batching import MOST_BYTES, coalesce, halved
from penstock.connector.task.declared import DeclaredRows
from penstock.connector.task.mapping import Location, assembled, map_files, may_be_mapped


def numbered(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


@given(st.lists(st.sampled_from([0, 1, 100, 5_000, 70_000]), max_size=30))
def test_coalescing_keeps_rows_and_order_and_leaves_nothing_small(counts: list[int]) -> None:
    starts = [sum(counts[:i]) for i in range(len(counts))]
    given_batches = [numbered(first, rows) for first, rows in zip(starts, counts, strict=True)]
    batches = list(coalesce(given_batches))
    assert sum(batch.num_rows for batch in batches) == sum(counts)
    assert pa.Table.from_batches(batches, numbered(0, 0).schema)["n"].to_pylist() == list(range(sum(counts)))
    # Only a batch just before a large one, or the last one, may be small.
    for batch, following in pairwise(batches):
        assert batch.num_rows >= batching.BATCH_ROWS or following.num_rows >= batching.BATCH_ROWS


def test_a_large_batch_is_not_copied() -> None:
    large = numbered(0, batching.BATCH_ROWS)
    small, same = coalesce([numbered(0, 1), large])
    assert small.num_rows == 1
    assert same.column(0).buffers()[1].address == large.column(0).buffers()[1].address


def test_nullability_is_what_was_declared() -> None:
    batch = assembly.assemble(
        ["queue", "body"],
        pa.record_batch({"body": pa.array([b"x"])}),
        {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0},
        malformed={},
    )
    (declared,) = DeclaredRows(("queue", "body"), (True, True)).rows([batch])
    assert [field.nullable for field in declared.schema] == [True, True]
    assert declared.to_pylist() == batch.to_pylist()
    (same,) = DeclaredRows(("queue", "body"), (False, True)).rows([batch])
    assert same is batch


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=60))
def test_rows_are_routed_in_their_order(queues: list[str]) -> None:
    routed = {queue: rows.column("n").to_pylist() for queue, rows in by_queue(pa.array(queues), numbered(0, len(queues)))}
    assert routed == {name: [i for i, queue in enumerate(queues) if queue == name] for name in set(queues)}


def test_a_row_without_a_queue_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'queue' is null in row 1"):
        list(routed([(pa.array(["a", None]), numbered(0, 2))]))


def test_what_is_too_large_for_one_block_is_halved() -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * (MOST_BYTES // 2)] * 3 + [b"y" * (MOST_BYTES * 2)])})
    parts = list(halved(batch))
    assert pa.Table.from_batches(parts)["body"].to_pylist() == batch.column(0).to_pylist()
    assert all(part.nbytes <= MOST_BYTES or part.num_rows == 1 for part in parts)


@pytest.fixture(autouse=True)
def _reached() -> None:
    mapped._unreachable.clear()


def stored(folder: Path, bodies: list[bytes]) -> Location:
    """The whole of a record that a file holds."""
    mask, stored = stored_form(pa.record_batch({"body": pa.array(bodies)}))
    buffer = stored.serialize()
    file = folder / f"{len(list(folder.iterdir()))}.seg"
    file.write_bytes(b"headless" + buffer.to_pybytes())
    status = file.stat()
    return Location(str(file), 8, buffer.size, mask, 0, len(bodies), 0, 0, 0, None, status.st_dev, status.st_ino)


def part_of(
    location: Location, row: int, rows: int, sequence: int, time: int, count: int, taken: bytes | None = None
) -> Location:
    return location._replace(row=row, rows=rows, sequence=sequence, time=time, deliveryCount=count, taken=taken)


def _none(malformed: Mapping[int, str]) -> None:
    raise AssertionError(malformed)


def test_pieces_are_assembled_from_their_files(tmp_path: Path) -> None:
    first, second = stored(tmp_path, [b"a", b"b", b"c"]), stored(tmp_path, [b"d" * 10] * 5000)
    locations = [part_of(first, 1, 2, 10, 77, 0), part_of(first, 0, 1, 20, 78, 3), part_of(second, 0, 5000, 100, 79, 1)]
    files = map_files(locations, None, "b1")
    assert files is not None
    small, large = assembled(locations, files, ["sequenceNumber", "enqueuedTime", "body", "deliveryCount"], "q", _none)
    assert small.column("sequenceNumber").to_pylist() == [10, 11, 20]
    assert small.column("enqueuedTime").cast(pa.int64()).to_pylist() == [77, 77, 78]
    assert small.column("body").to_pylist() == [b"b", b"c", b"a"]
    assert small.column("deliveryCount").to_pylist() == [0, 0, 3]
    assert (large.num_rows, large.column("sequenceNumber")[4999].as_py()) == (5000, 5099)
    assert small.schema.equals(arrow_schema(["sequenceNumber", "enqueuedTime", "body", "deliveryCount"]))


def test_rows_that_are_no_neighbours_are_taken_out_of_their_record(tmp_path: Path) -> None:
    first, second = stored(tmp_path, [b"a", b"b", b"c", b"d"]), stored(tmp_path, [b"%d" % i for i in range(9000)])
    rows = array("i", range(1, 9000, 2))
    locations = [part_of(first, 1, 2, 10, 77, 0, array("i", [1, 3]).tobytes()), part_of(first, 0, 1, 20, 78, 3)]
    locations.append(part_of(second, 1, len(rows), 100, 79, 1, rows.tobytes()))
    files = map_files(locations, None, "b1")
    assert files is not None
    small, large = assembled(locations, files, ["sequenceNumber", "body"], "q", _none)
    assert small.to_pydict() == {"sequenceNumber": [10, 12, 20], "body": [b"b", b"d", b"a"]}
    assert large.column("body").to_pylist() == [b"%d" % i for i in rows]
    assert large.column("sequenceNumber").to_pylist() == [99 + i for i in rows]
    assert [location.end for location in locations] == [13, 21, 9099]


def test_a_file_that_is_gone_short_or_another_one_sends_the_task_to_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = stored(tmp_path, [b"a"])
    copy = tmp_path / "copy"
    shutil.copy(here.file, copy)
    assert map_files([here], None, "b1") is not None
    assert map_files([here, here._replace(file=str(tmp_path / "gone"))], None, "b1") is None
    assert may_be_mapped("b1"), "retention has taken it: the next is there"
    for number, wrong in enumerate(
        (
            here._replace(length=here.length + 1),
            here._replace(file=str(copy)),
            here._replace(device=here.device + 1),
            here._replace(inode=here.inode + 1),
            here._replace(file=str(tmp_path / "nowhere" / "file")),
        )
    ):
        assert map_files([here, wrong], None, f"w{number}") is None
        assert not may_be_mapped(f"w{number}")
    assert may_be_mapped("b1")
    assert len(caplog.records) == 5
    os.replace(copy, here.file)  # the mapped file stays the same; a new open gives another file
    assert map_files([here], None, "b1") is None

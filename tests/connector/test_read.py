"""What a task does with small and large batches, and with files on its own host."""

from __future__ import annotations

from array import array
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import assembly, message
from connector import read
from connector.access import Access
from connector.batch import split
from connector.read import MOST_BYTES, Part, Piece, as_declared, coalesce, halved, is_local
from connector.sink import by_queue


def numbered(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


@given(st.lists(st.sampled_from([0, 1, 100, 5_000, 70_000]), max_size=30))
def test_coalescing_keeps_rows_and_order_and_leaves_nothing_small(counts: list[int]) -> None:
    starts = [sum(counts[:i]) for i in range(len(counts))]
    given_batches = [numbered(first, rows) for first, rows in zip(starts, counts, strict=True)]
    found = list(coalesce(given_batches))
    assert sum(batch.num_rows for batch in found) == sum(counts)
    assert pa.Table.from_batches(found, numbered(0, 0).schema)["n"].to_pylist() == list(range(sum(counts)))
    # Only what comes just before a large one, or at the end, may be small.
    for batch, following in pairwise(found):
        assert batch.num_rows >= read.BATCH_ROWS or following.num_rows >= read.BATCH_ROWS


def test_a_large_batch_is_not_copied() -> None:
    large = numbered(0, read.BATCH_ROWS)
    small, same = coalesce([numbered(0, 1), large])
    assert small.num_rows == 1
    assert same.column(0).buffers()[1].address == large.column(0).buffers()[1].address


@given(st.integers(0, 50), st.integers(-1, 3000), st.integers(1, 500), st.integers(1, 40))
def test_ranges_cover_everything_once(first: int, last: int, most: int, least: int) -> None:
    ranges = split(first, last, most, least)
    assert [n for begin, end in ranges for n in range(begin, end + 1)] == list(range(first, last + 1))
    assert all(end - begin + 1 <= most for begin, end in ranges)
    assert len(ranges) >= min(least, max(last - first + 1, 0))


def test_nullability_is_what_was_declared() -> None:
    batch = assembly.assemble(["queue", "body"], pa.record_batch({"body": pa.array([b"x"])}), queue="q", sequence=0, time=0)
    (found,) = as_declared([batch], [True, True])
    assert [field.nullable for field in found.schema] == [True, True]
    assert found.to_pylist() == batch.to_pylist()
    (same,) = as_declared([batch], [False, True])
    assert same is batch


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=60))
def test_rows_are_routed_in_their_order(queues: list[str]) -> None:
    found = {queue: rows.column("n").to_pylist() for queue, rows in by_queue(pa.array(queues), numbered(0, len(queues)))}
    assert found == {name: [i for i, queue in enumerate(queues) if queue == name] for name in set(queues)}


def test_a_row_without_a_queue_is_refused() -> None:
    with pytest.raises(message.InvalidRequest, match="'queue' is null in row 1"):
        list(by_queue(pa.array(["a", None]), numbered(0, 2)))


def test_what_is_too_large_for_one_block_is_halved() -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * (MOST_BYTES // 2)] * 3 + [b"y" * (MOST_BYTES * 2)])})
    parts = list(halved(batch))
    assert pa.Table.from_batches(parts)["body"].to_pylist() == batch.column(0).to_pylist()
    assert all(part.nbytes <= MOST_BYTES or part.num_rows == 1 for part in parts)


def part_of(folder: Path, broker: str = "b1") -> Part:
    names = {
        "access": Access("grpc://127.0.0.1:1"),
        "queue": "q",
        "lease": "l",
        "run": "r",
        "epoch": 1,
        "batch": 1,
        "first": 0,
        "last": 9,
    }
    return Part(data_dir=str(folder), broker=broker, **names)  # type: ignore[arg-type]


def test_a_data_directory_is_ours_only_with_the_broker_s_id(tmp_path: Path) -> None:
    assert not is_local(part_of(tmp_path))
    (tmp_path / "id").write_text("b1\n")
    assert is_local(part_of(tmp_path))
    assert not is_local(part_of(tmp_path, "b2"))
    (tmp_path / "id").write_bytes(b"\xff\xfe")
    assert not is_local(part_of(tmp_path))


def stored(folder: Path, bodies: list[bytes]) -> tuple[str, int, int, int]:
    mask, buffer = message.pack(pa.record_batch({"body": pa.array(bodies)}))
    file = folder / f"{len(list(folder.iterdir()))}.seg"
    file.write_bytes(b"headless" + buffer.to_pybytes())
    return str(file), 8, buffer.size, mask


def test_pieces_are_assembled_from_their_files(tmp_path: Path) -> None:
    one, two = stored(tmp_path, [b"a", b"b", b"c"]), stored(tmp_path, [b"d" * 10] * 5000)
    pieces = [Piece(*one, 1, 2, 10, 77, 0), Piece(*one, 0, 1, 20, 78, 3), Piece(*two, 0, 5000, 100, 79, 1)]
    files = read._mapped(pieces)
    assert files is not None
    small, large = read._assembled(pieces, files, ["sequenceNumber", "enqueuedTime", "body", "deliveryCount"], "q")
    assert small.column("sequenceNumber").to_pylist() == [10, 11, 20]
    assert small.column("enqueuedTime").cast(pa.int64()).to_pylist() == [77, 77, 78]
    assert small.column("body").to_pylist() == [b"b", b"c", b"a"]
    assert small.column("deliveryCount").to_pylist() == [0, 0, 3]
    assert (large.num_rows, large.column("sequenceNumber")[4999].as_py()) == (5000, 5099)
    assert small.schema.equals(message.arrow_schema(["sequenceNumber", "enqueuedTime", "body", "deliveryCount"]))


def test_rows_that_are_no_neighbours_are_taken_out_of_their_record(tmp_path: Path) -> None:
    one, two = stored(tmp_path, [b"a", b"b", b"c", b"d"]), stored(tmp_path, [b"%d" % i for i in range(9000)])
    rows = array("i", range(1, 9000, 2))
    pieces = [Piece(*one, 1, 2, 10, 77, 0, array("i", [1, 3]).tobytes()), Piece(*one, 0, 1, 20, 78, 3)]
    pieces.append(Piece(*two, 1, len(rows), 100, 79, 1, rows.tobytes()))
    files = read._mapped(pieces)
    assert files is not None
    small, large = read._assembled(pieces, files, ["sequenceNumber", "body"], "q")
    assert small.to_pydict() == {"sequenceNumber": [10, 12, 20], "body": [b"b", b"d", b"a"]}
    assert large.column("body").to_pylist() == [b"%d" % i for i in rows]
    assert large.column("sequenceNumber").to_pylist() == [99 + i for i in rows]
    assert [piece.end for piece in pieces] == [13, 21, 9099]


def test_a_file_that_is_gone_or_too_short_sends_the_task_to_the_broker(tmp_path: Path) -> None:
    here = Piece(*stored(tmp_path, [b"a"]), 0, 1, 0, 0, 0)
    assert read._mapped([here]) is not None
    assert read._mapped([here, here._replace(file=str(tmp_path / "gone"))]) is None
    assert read._mapped([here._replace(length=here.length + 1)]) is None
    empty = tmp_path / "empty"
    empty.touch()
    assert read._mapped([here._replace(file=str(empty))]) is None

"""D4: files that are put together: every row once, in order, and however well they are compressed in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write import merging
from penstock.broker_core.archive.write.merging import COLUMNS, MergeInput, merged
from penstock.broker_core.archive.write.table_files import FolderTableStore

Keys = list[tuple[int, int, int]]


def rows_of(keys: Sequence[tuple[int, int, int]], body: int = 0) -> pa.Table:
    """Rows of the table with these values of `COLUMNS`, whose bodies have so many octets."""
    count = len(keys)
    columns = {"body": [b"x" * body] * count, **{name: [key[index] for key in keys] for index, name in enumerate(COLUMNS)}}
    defaults = {"queue": "q", "enqueuedTime": 0, "lineage": "l"}
    values = {field.name: columns.get(field.name, [defaults.get(field.name)] * count) for field in table.FILE_SCHEMA}
    return pa.table({field.name: pa.array(values[field.name], field.type) for field in table.FILE_SCHEMA}, table.FILE_SCHEMA)


def written(folder: Path, *parts: Sequence[tuple[int, int, int]], body: int = 0, group: int = 1 << 20) -> list[MergeInput]:
    for number, keys in enumerate(parts):
        pq.write_table(rows_of(keys, body), folder / f"{number}.parquet", compression="zstd", row_group_size=group)
    return [MergeInput(FolderTableStore(folder), f"{number}.parquet") for number in range(len(parts))]


def keys_of(tables: Iterable[pa.Table]) -> Keys:
    columns = [[value for part in parts for value in part] for parts in zip(*map(_lists, tables), strict=True)]
    return list(zip(*columns, strict=True))


def _lists(rows: pa.Table) -> list[list[int]]:
    assert rows.schema == table.FILE_SCHEMA
    return [rows.column(name).to_pylist() for name in COLUMNS]


@pytest.mark.parametrize("seed", range(12))
def test_all_rows_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """D4: files in sequence or interleaved, of several queues, with rows that were recorded twice, or in an order of another
    program."""
    random = Random(seed)
    monkeypatch.setattr(merging, "READ_ROWS", random.choice([1, 7, 50, 1 << 16]))
    monkeypatch.setattr(merging, "LEAST_ROWS", random.choice([1, 3, 64]))
    spread = random.choice([5, 100, 100_000])
    parts: list[Keys] = []
    for number in range(random.randint(1, 9)):
        first = number * random.choice([0, 10, 1000])
        keys = [(random.randint(1, 2), first + random.randrange(spread), number) for _ in range(random.randint(0, 120))]
        parts.append(keys if random.random() < 0.1 else sorted(keys))
    tables = merged(written(tmp_path, *parts, group=random.choice([4, 1000])))
    assert keys_of(tables) == sorted(key for part in parts for key in part)


@pytest.mark.parametrize("between", [10_000, 1], ids=["one after another", "among each other"])
def test_files_that_are_far_larger_in_memory(tmp_path: Path, between: int) -> None:
    """D4: 20 files of a few KB each, and 40 MB of bodies in them."""
    parts = [[(1, file * between + row * 20, 1) for row in range(1000)] for file in range(20)]
    sources = written(tmp_path, *parts, body=2000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for part in merged(sources):
        most, count = max(most, pa.total_allocated_bytes() - before), count + part.num_rows
    assert count == 20_000
    assert most < 20_000_000

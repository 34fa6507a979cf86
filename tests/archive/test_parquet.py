"""Files of the archive's tables. Their content does not depend on the path of the rows into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.broker_core.archive.read import scan
from penstock.broker_core.archive.read.bounds import Bounds
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write import parquet
from penstock.broker_core.archive.write.table_files import FolderTableStore
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.reading import batches, records

from ..flight.helpers import batch_of, numbered
from .rig import Rig
from .test_tables import as_read, encoded

DAY = 20_000  # since 1970


def rows(count: int, first: int = 0, day: int = DAY, **columns: Any) -> pa.Table:
    """Rows of the table, with nulls where there may be some; a single value in `columns` stands in all rows."""
    values = {
        "queue": "q",
        "sequenceNumber": np.arange(first, first + count),
        "enqueuedTime": day * 86_400_000_000,
        "queueId": 1,
        "pass": 1,
        "lineage": "l",
        "day": day,
        **columns,
    }
    arrays = []
    for field in table.SCHEMA:
        value = values.get(field.name)
        if value is None or isinstance(value, (int, str)):
            value = [value] * count
        arrays.append(pa.array(value, pa.int32()).cast(field.type) if field.name == "day" else pa.array(value).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=table.SCHEMA)


def written(path: Path, *tables: pa.Table, file_bytes: int = 1 << 30) -> list[pq.ParquetFile]:
    files = parquet.write(FolderTableStore(path), "f", tables, file_bytes)
    parquet_files = [pq.ParquetFile(path / file.path) for file in files]
    assert [file.rows for file in files] == [opened.metadata.num_rows for opened in parquet_files]
    assert [json.loads(file.statistics)["numRecords"] for file in files] == [file.rows for file in files]
    return parquet_files


VALUES = {
    "one value": [{"holder": "ann", "outcome": "accepted", "deliveryCount": 0}],
    "none": [{}],
    "runs": [{"holder": ["ann"] * 50 + ["bob"] * 50, "deliveryCount": [0] * 60 + [3] * 40}],
    "all mixed": [{"holder": [None, "bob", "ann", "bob"] * 25, "outcome": ["accepted", "rejected"] * 50}],
    "each table another": [{"holder": "ann"}, {"holder": [None, "bob"] * 50}, {}, {"holder": "ann", "queue": "p", "pass": 2}],
}


@pytest.mark.parametrize("columns", VALUES.values(), ids=VALUES)
def test_a_file_is_as_one_that_arrow_alone_writes(tmp_path: Path, columns: list[dict[str, Any]]) -> None:
    """Types, rows, encodings and statistics, of however many tables its rows come."""
    tables = [rows(100, 100 * number, **column) for number, column in enumerate(columns)]
    (ours,) = written(tmp_path, *tables)
    plain = pa.concat_tables(tables).select(table.FILE_SCHEMA.names)
    pq.write_table(
        plain,
        tmp_path / "plain",
        **table.file_options(plain),
    )
    theirs = pq.ParquetFile(tmp_path / "plain")
    assert ours.schema_arrow.equals(table.FILE_SCHEMA)
    assert ours.schema.equals(theirs.schema)
    assert ours.read().equals(plain)
    (mine,), (their_group,) = ([source.metadata.row_group(n) for n in range(source.num_row_groups)] for source in (ours, theirs))
    for index in range(mine.num_columns):
        actual, wanted = mine.column(index), their_group.column(index)
        assert actual.encodings == wanted.encodings
        assert actual.is_stats_set == wanted.is_stats_set
        assert not actual.is_stats_set or actual.statistics.to_dict() == wanted.statistics.to_dict()


def test_a_read_learns_from_a_file_which_columns_have_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it leaves them out; maps and bodies are always read, since their statistics would not tell."""
    asked: set[str] = set()
    real = scan._read
    monkeypatch.setattr(scan, "_read", lambda file, group, names: asked.update(names) or real(file, group, names))
    (file,) = written(tmp_path, rows(10, body=[b"b"] * 10, subject="s"))
    wanted = ["body", "message", "properties", "subject", "messageId"]
    (batch,) = scan.batches(file, scan.FileShare("f"), wanted, Bounds(1, (("l", 1),)))
    assert batch.num_rows == 10
    assert asked == {"body", "properties", "sequenceNumber", "subject"}


def test_row_groups_are_full_and_of_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in tables of any sizes; a row group has fewer where it would have too many bytes."""
    monkeypatch.setattr(table, "ROW_GROUP_ROWS", 100)
    tables = [rows(130), rows(50, 130), rows(250, 180), rows(20, 430), rows(30, 450, DAY + 1), rows(5, 480, DAY + 1)]
    first, second = written(tmp_path, *tables)
    assert [first.metadata.row_group(n).num_rows for n in range(first.num_row_groups)] == [100, 100, 100, 100, 50]
    assert [second.metadata.row_group(n).num_rows for n in range(second.num_row_groups)] == [35]
    assert first.read(["sequenceNumber"])["sequenceNumber"].to_pylist() == list(range(450))
    monkeypatch.setattr(table, "ROW_GROUP_BYTES", 2 * (45_000 + parquet.TABLE_COST))
    files = written(tmp_path / "small", *(rows(10, 10 * n, body=[bytes(4000)] * 10) for n in range(6)))
    assert [files[0].metadata.row_group(n).num_rows for n in range(files[0].num_row_groups)] == [20, 20, 20]


def test_records_of_all_sizes_and_their_scattered_rows_are_in_the_table(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of either form, with different settlements: the table has the same values as the broker."""
    monkeypatch.setattr(records, "SMALL_ROWS", 50)
    monkeypatch.setattr(batches, "SMALL_ROWS", 50)
    subjects = batch_of(numbered(70)).append_column("subject", pa.array(["s"] * 70))
    for batch in (numbered(60), numbered(3), numbered(2, 20), numbered(80), encoded(*range(4)), encoded(*range(60)), subjects):
        rig.send("q", batch)
    link = rig.service.submit(c.Subscribe("q"))
    taken = rig.service.submit(c.Acquire("q", link, 200)).rows
    scattered = RowSet.of([(0, np.arange(0, 200, 3))])
    rig.service.submit(c.Settle("q", link, scattered, Outcome.REJECTED, "no"))
    rig.record()
    rig.service.submit(c.Settle("q", link, taken.minus(scattered), Outcome.ACCEPTED), c.Unsubscribe("q", link), c.Purge("q"))
    rig.record()
    mine = as_read(rig.service)
    assert mine.num_rows == 279
    assert rig.table().select(table.READABLE).cast(mine.schema).to_pylist() == mine.to_pylist()

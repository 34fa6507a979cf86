"""A message is found in the archive by its id: of the row groups that cannot have it, nothing is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.broker_core.archive.read import files, ids
from penstock.broker_core.archive.read.bounds import Bounds
from penstock.broker_core.archive.read.files import File, Table
from penstock.broker_core.archive.read.scan import Deletions
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write.rows import table_rows

from .tables import BROKER, DAY_US, LINEAGE, archived, write

ROWS, GROUP_ROWS = 2_000, 100
COLUMNS = ("sequenceNumber", "messageId", "correlationId", "pass")
BEGIN = 18_000 * DAY_US


def shuffled(sequence: int) -> str:
    """Ids without an order, so that the lowest and highest id of a row group exclude nothing."""
    return f"id-{sequence * 7_919 % 100_003:06}"


def messages(sequences: range, number: int = 1) -> pa.Table:
    ids_of_messages = [shuffled(sequence) for sequence in sequences]
    orders = [f"order-{sequence // 2 * 104_729 % 1_000_003}" if sequence % 5 else None for sequence in sequences]
    payload = {"messageId": ids_of_messages, "correlationId": orders, "body": [b"body"] * len(sequences)}
    batch = archived(payload, list(sequences), [BEGIN] * len(sequences))
    rows: pa.Table = pa.Table.from_batches([table_rows(batch, {"queueId": 7, "pass": number, "lineage": LINEAGE})])
    return rows.select(table.FILE_SCHEMA.names)


@pytest.fixture(params=["filters", "no filters"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Table, list[File]]:
    options: dict[str, Any] = {}
    if request.param == "filters":
        properties = {"ndv": GROUP_ROWS, "fpp": 0.01}
        options = {"bloom_filter_options": dict.fromkeys(table.FILTERED, properties)}
    pq.write_table(messages(range(ROWS)), tmp_path / "a.parquet", row_group_size=GROUP_ROWS, **options)
    return Table(str(tmp_path), BROKER, 7, ((LINEAGE, 3),), 0), [File("a.parquet", ROWS, 0, ROWS - 1)]


def sequences_of(recorded: tuple[Table, list[File]], *texts: str, bounds: Bounds | None = None) -> list[int]:
    table_of_queue, listed = recorded
    bounds = bounds or table_of_queue.bounds
    rows = (rows for _, rows in ids.batches(table_of_queue, listed, texts, COLUMNS, bounds) if rows is not None)
    return [number for batch in rows for number in batch.column("sequenceNumber").to_pylist()]


def test_a_message_is_found_by_its_message_id_or_its_correlation_id(recorded: tuple[Table, list[File]]) -> None:
    correlated = "order-" + str(621 * 104_729 % 1_000_003)
    assert sequences_of(recorded, shuffled(1_234)) == [1_234]
    assert sequences_of(recorded, correlated) == [1_242, 1_243]
    assert sequences_of(recorded, shuffled(3), correlated, "unknown") == [3, 1_242, 1_243]
    assert sequences_of(recorded, "unknown") == []


def test_only_rows_within_the_bounds_are_found(recorded: tuple[Table, list[File]]) -> None:
    wanted = shuffled(1_234)
    bounds = recorded[0].bounds
    assert sequences_of(recorded, wanted, bounds=bounds._replace(first=1_234, last=1_234)) == [1_234]
    assert sequences_of(recorded, wanted, bounds=bounds._replace(first=1_235)) == []
    assert sequences_of(recorded, wanted, bounds=bounds._replace(after=1)) == []
    assert sequences_of(recorded, wanted, bounds=bounds._replace(queue_id=8)) == []


def test_only_row_groups_that_may_have_the_id_are_read(recorded: tuple[Table, list[File]]) -> None:
    (file,) = ids.opened(*recorded, [shuffled(1_234)])
    assert 12 in file.groups
    if filter_of(file) is not None:
        assert len(file.groups) <= 3, "a filter of each id column excludes nearly all other groups"
    else:
        assert len(file.groups) > 10, "without filters only the statistics exclude groups"


def filter_of(file: ids.OpenFile) -> int | None:
    """Return the place of the filter of the message ids in the first row group."""
    metadata = file.parquet.metadata
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    offset: int | None = metadata.row_group(0).column(paths.index("messageId")).bloom_filter_offset
    return offset


def test_a_deleted_row_is_not_found(recorded: tuple[Table, list[File]]) -> None:
    table_of_queue, (file,) = recorded
    remaining = pa.array([row != 1_242 for row in range(1_300)])
    listed = [file._replace(deletions=Deletions.of(1, remaining))]
    assert sequences_of((table_of_queue, listed), "order-" + str(621 * 104_729 % 1_000_003)) == [1_243]
    assert sequences_of((table_of_queue, listed), shuffled(1_900)) == [1_900], "the vector covers the first 1,300 rows"


def test_filters_of_another_writer_are_read(tmp_path: Path) -> None:
    """delta-rs writes filters by another implementation, as a compaction by another program would."""
    folder = tmp_path / "orders"
    rows = archived(
        {"messageId": [shuffled(n) for n in range(ROWS)], "correlationId": [None] * ROWS}, list(range(ROWS)), [BEGIN] * ROWS
    )
    recorded = write(folder, 1, rows)
    enabled = deltalake.BloomFilterProperties(set_bloom_filter_enabled=True, fpp=0.01, ndv=GROUP_ROWS)
    properties = deltalake.WriterProperties(
        max_row_group_size=GROUP_ROWS,
        column_properties={"messageId": deltalake.ColumnProperties(bloom_filter_properties=enabled)},
    )
    deltalake.DeltaTable(str(folder)).optimize.z_order(["sequenceNumber"], writer_properties=properties)
    listed = files.version(recorded, recorded.bounds).files
    assert sequences_of((recorded, listed), shuffled(1_234)) == [1_234]
    (file,) = ids.opened(recorded, listed, [shuffled(1_234)])
    assert filter_of(file) is not None
    assert len(file.groups) <= 3


@pytest.mark.parametrize(
    ("octets", "header"),
    [
        ("1580081c1c00001c1c00001c1c000000ffff", (16, 512)),
        ("1580081c1c00001c1c00001c2c000000", None),  # compressed
        ("1580081c1c00001c1c", None),  # cut
        ("158007", None),
        ("00", None),
        ("", None),
    ],
)
def test_the_header_of_a_filter(octets: str, header: tuple[int, int] | None) -> None:
    assert ids.filter_header(bytes.fromhex(octets)) == header

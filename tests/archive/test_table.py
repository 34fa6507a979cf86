"""D4 S8: a row of the archive's table is the message as the journal had it, and is read as a row of the queue was."""

from __future__ import annotations

import io
import string
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write.rows import table_rows
from penstock.broker_core.messages import assembly
from penstock.broker_core.messages import columns as message

NOON = datetime(2020, 1, 31, 12, tzinfo=timezone.utc)
READ = [name for name in (*message.SENT_COLUMNS, *message.SYSTEM_COLUMNS) if name != "delivery"]
COLUMNAR = {
    "body": [b"a", None, b""],
    "subject": ["x", None, "ü"],
    "priority": [4, None, 9],
    "properties": [[("k", "v"), ("n", None)], None, []],
    "annotations": [None, [("x-a", "1")], None],
}
ENCODED = {
    "message": [b"\0Su\xa0\1x", b"\0Ss\xc0\4\1\xa1\1i\0Sw\xa1\1y", b"\0Sv\x45"],
    "encodedAnnotations": [b"\0Sr\xc1\7\2\xa3\3x-a\x41", None, None],
    "footer": [None, b"\0Sx\xc1\7\2\xa3\3x-s\x41", None],
}
TIMES = [int(NOON.timestamp()) * 1_000_000 + 86_400_000_000 * days + 1 for days in (0, 0, 1)]


def stored(payload: dict[str, list[Any]], columns: tuple[str, ...] | list[str]) -> pa.RecordBatch:
    """Three archived messages, as the broker gives them with `stored: true`."""
    batch = pa.record_batch({name: pa.array(values, message.MESSAGE_COLUMNS[name]) for name, values in payload.items()})
    return assembly.assemble(
        columns,
        batch,
        {
            "queue": "orders",
            "sequenceNumber": pa.array([3, 5, 6]),
            "enqueuedTime": pa.array(TIMES),
            "deliveryCount": pa.array([0, 1, 2], pa.int32()),
            "state": "archived",
            "outcome": "rejected",
            "settledTime": pa.array([time + 7 for time in TIMES]),
            "error": pa.array(["why", None, "no"]),
        },
        stored=True,
        malformed={},
    )


def in_the_table(payload: dict[str, list[Any]]) -> pa.RecordBatch:
    return table_rows(stored(payload, table.STORED), {"queueId": 7, "pass": 2, "lineage": "l1"})


def through_a_file(rows: pa.RecordBatch, columns: list[str]) -> pa.RecordBatch:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]).drop_columns([table.DAY]), file)
    (batch,) = pq.read_table(file, columns=columns).to_batches()
    return batch


@pytest.mark.parametrize("payload", [COLUMNAR, ENCODED])
@pytest.mark.parametrize("columns", [READ, ["body"], ["message"], ["state", "annotations"], ["queue"], list(table.STORED[:3])])
def test_a_read_of_the_table_gives_what_a_read_of_the_queue_gives(payload: dict[str, list[Any]], columns: list[str]) -> None:
    rows = through_a_file(in_the_table(payload), table.needed(columns))
    from_table = table.rows_of_read(columns, rows, "orders")
    from_queue = stored(payload, assembly.needed(columns))
    assert from_table.schema == from_queue.schema
    tables = [assembly.converted(columns, batch, "orders", {}) for batch in (from_table, from_queue)]
    assert tables[0].schema == message.arrow_schema(columns)
    assert tables[0].to_pylist() == tables[1].to_pylist()


def test_a_row_says_whose_it_is_and_on_which_day_it_came() -> None:
    rows = in_the_table(COLUMNAR)
    assert rows.schema == table.SCHEMA
    assert set(rows.column("queueId").to_pylist()) == {7}
    assert set(rows.column("pass").to_pylist()) == {2}
    assert set(rows.column("lineage").to_pylist()) == {"l1"}
    assert rows.column(table.DAY).to_pylist() == [date(2020, 1, 31), date(2020, 1, 31), date(2020, 2, 1)]
    assert rows.column("footer").null_count == 3
    assert in_the_table(ENCODED).column("footer").null_count == 2


def test_every_column_of_a_read_is_in_the_table_or_follows_from_it() -> None:
    """Another column of a read belongs into the table as well, or its value for archived messages into `rows_of_read`."""
    assert {*table.STORED, "state", "delivery", "lockedUntil"} == set(message.COLUMNS)
    assert {*table.STORED, table.ENVELOPE, *table.OWN} == set(table.COMMENTS)
    assert table.FILE_SCHEMA.names == [name for name in table.SCHEMA.names if name != table.DAY]


OTHER_TYPES = {
    pa.string(): [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    pa.binary(): [pa.large_binary(), pa.binary_view()],
    message.STRING_MAP: [pa.map_(pa.large_string(), pa.large_string()), pa.map_(pa.string_view(), pa.string_view())],
    message.TIMESTAMP: [pa.timestamp("ns", tz="UTC")],
}


@pytest.mark.parametrize("type_index", range(3))
def test_whoever_compacts_the_table_may_choose_other_types_of_arrow(type_index: int) -> None:
    rows = in_the_table(COLUMNAR)
    arrays = []
    for field, array in zip(rows.schema, rows.columns, strict=True):
        choices = OTHER_TYPES.get(field.type, [field.type])
        wanted = choices[min(type_index, len(choices) - 1)]
        if pa.types.is_dictionary(wanted):
            array = array.dictionary_encode()
        elif pa.types.is_map(wanted):
            entries = pa.StructArray.from_arrays(
                [array.keys.cast(wanted.key_type), array.items.cast(wanted.item_type)],
                fields=[wanted.key_field, wanted.item_field],
            )
            array = pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, 0, [entries])
        arrays.append(array if pa.types.is_dictionary(array.type) or array.type == wanted else array.cast(wanted))
    rewritten = pa.RecordBatch.from_arrays(arrays, names=rows.schema.names).slice(1)
    converted = table.rows_of_read(READ, rewritten, "orders")
    assert converted.to_pylist() == table.rows_of_read(READ, rows, "orders").slice(1).to_pylist()


def test_a_file_of_before_lacks_a_column() -> None:
    rows = table.rows_of_read(["error"], in_the_table(COLUMNAR).select(["sequenceNumber"]), "orders")
    assert rows.column("error").null_count == 3


PLAIN = string.ascii_letters + string.digits + "_.-"


@pytest.mark.parametrize(
    ("queue", "folder"),
    [
        ("orders", "orders"),
        ("Orders-2.new_x", "Orders-2.new_x"),
        ("orders:eu", "orders-x3Aeu"),
        ("a b/ü%=", "a-x20b-x2F-xC3-xBC-x25-x3D"),
        (".", "-x2E"),
        ("..", "-x2E-x2E"),
        ("a..", "a.-x2E"),
        ("_delta_log", "-x5Fdelta_log"),
        ("my-xml-xA-", "my-xml-xA-"),
        ("a-x3A", "a-x2Dx3A"),
        ("a-xx3A", "a-x2Dxx3A"),
        ("x" * 200, "x" * 200),
    ],
)
def test_the_folder_of_a_queue(queue: str, folder: str) -> None:
    assert table.folder_name(queue) == folder


NAMES = st.text(min_size=1, max_size=255) | st.text("-xA3:._", min_size=1, max_size=12)


@given(NAMES, NAMES)
def test_folders_are_short_and_plain_and_different(queue: str, different: str) -> None:
    name = table.folder_name(queue)
    assert len(name) <= table.FOLDER_BYTES
    assert set(name) <= set(PLAIN)
    assert name[0] not in "._"
    assert name[-1] != "."
    assert (name == table.folder_name(different)) == (queue == different)


@given(NAMES)
def test_a_folder_leads_back_to_its_queue_unless_the_name_is_too_long(queue: str) -> None:
    folder = table.folder_name(queue)
    assert table.queue_in(folder) == (None if "-xx" in folder else queue)


@pytest.mark.parametrize("folder", ["-xFF", "a b", "_delta_log", "ü", "-x41", "a-xx0123"])
def test_a_folder_that_is_not_named_after_a_queue(folder: str) -> None:
    assert table.queue_in(folder) is None


def test_long_names_that_begin_alike_have_folders_of_their_own() -> None:
    names = {table.folder_name(name) for name in ("ü" * 255, "ü" * 254 + "u", "x" * 201, "x" * 202)}
    assert len(names) == 4
    assert max(map(len, names)) <= table.FOLDER_BYTES

"""D4: the table contains the last holder of a message. A table without a later version's column gets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import CommitProperties, Transaction

from penstock.broker_core.archive.table import layout
from penstock.broker_core.archive.table.layout import SCHEMA
from penstock.broker_core.archive.write.queue_table import OWNER, QUEUE, application
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.engine.columns.states import Outcome
from penstock.connector.task import archive

from ..connector.recording import Site
from ..flight.helpers import numbered
from .rig import Died, Rig, numbers, sequences

ADDED = frozenset({"holder"})  # as if the next version added it
BEFORE = pa.schema([field for field in SCHEMA if field.name not in ADDED])


def holders(rig: Rig) -> list[str | None]:
    return [None if holder is None else str(holder) for holder in rig.table()["holder"].to_pylist()]


def lease(rig: Rig, name: str, messages: int) -> None:
    """Take a batch by a lease, as Spark does, and finish it."""
    submit = rig.service.submit
    submit(c.EnterLease("q", name, "r", None, True))
    taken = submit(c.AcquireBatch("q", name, "r", 0, messages=messages))
    submit(c.ReadBatch(name, "r", taken.epoch, taken.batch, 0, 1 << 60), c.FinishBatches(name, taken.batch, True))


def test_the_table_says_who_took_each_message(rig: Rig) -> None:
    """D4: leases and users by name; null for a message without a holder, or a holder without a name. Also after a restart."""
    rig.send("q", numbered(10))
    rig.settle("q", 2, user="ann")
    lease(rig, "etl", 3)
    rig.settle("q", 1, Outcome.REJECTED, "no", user="bob")
    rig.reopen()
    rig.settle("q", 2)
    rig.settle("q", 1, user="ann")
    rig.service.submit(c.Purge("q"))
    rig.record()
    assert holders(rig) == ["ann"] * 2 + ["etl"] * 3 + ["bob", None, None, "ann", None]


def test_a_packed_block_still_says_who_took_its_messages(rig: Rig) -> None:
    """D4: messages that are recorded after their block has left memory. The file has the names once, and numbers."""
    rig.send("q", *[numbered(8192, 16, start) for start in range(0, BLOCK_ROWS, 8192)])
    for count, user in ((10, "ann"), (20, None), (BLOCK_ROWS, "bob")):
        rig.settle("q", count, user=user)
    rig.service.pack_blocks()
    assert not rig.service.state.queues["q"].blocks
    rig.reopen()
    rig.record()
    assert holders(rig) == ["ann"] * 10 + [None] * 20 + ["bob"] * (BLOCK_ROWS - 30)
    for path in (rig.data / "archive" / "q").glob("day=*/*.parquet"):
        with pq.ParquetFile(path) as file:
            column = file.metadata.row_group(0).column(file.schema_arrow.get_field_index("holder"))
        assert "RLE_DICTIONARY" in column.encodings
        assert column.total_compressed_size < BLOCK_ROWS / 100


def as_before(rig: Rig) -> None:
    """Make the table as a version without the column made it: its schema, files, owner and transactions."""
    path, before_rows, current = rig.data / "archive" / "q", rig.table().select(BEFORE.names), rig.service.state.queues["q"]
    name = application(rig.service.broker_id, rig.service.broker_id, current.id)
    shutil.rmtree(path)
    deltalake.DeltaTable.create(
        path,
        BEFORE,
        partition_by=["day"],
        configuration={OWNER: rig.service.broker_id, QUEUE: "q"},
        raise_if_key_not_exists=False,
    )
    for number in range(1, current.recordings.finished + 1):
        rows = before_rows.filter(pa.compute.equal(before_rows["pass"], number))
        transaction = CommitProperties(app_transactions=[Transaction(name, number)])
        deltalake.write_deltalake(path, rows, mode="append", commit_properties=transaction)


@pytest.fixture
def upgraded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A broker of a version that adds the column `holder`, and a table of three files that a version without it has written."""
    monkeypatch.setattr(layout, "ADDED", ADDED)
    for _ in range(3):
        rig.send("q", numbered(5))
        rig.settle("q", 5, user="ann")
        rig.record()
    as_before(rig)
    assert "holder" not in deltalake.DeltaTable(rig.data / "archive" / "q").to_pyarrow_table().schema.names
    return rig


def test_a_table_of_before_gets_the_column_and_goes_on(upgraded: Rig) -> None:
    """D4: its rows have null; nothing else of it changes, and nothing is recorded twice."""
    path = upgraded.data / "archive" / "q"
    before = deltalake.DeltaTable(path)
    upgraded.send("q", numbered(5))
    upgraded.settle("q", 5, user="bob")
    upgraded.record()
    assert upgraded.recorder.troubles() == {}
    assert sequences(upgraded.table()) == numbers(range(20))
    assert holders(upgraded) == [None] * 15 + ["bob"] * 5
    after = deltalake.DeltaTable(path)
    assert (after.metadata().configuration, after.metadata().id) == (before.metadata().configuration, before.metadata().id)
    assert after.version() == before.version() + 2, "one commit for the column, one for the pass"
    upgraded.send("q", numbered(5))
    upgraded.settle("q", 5, user="bob")
    upgraded.record()
    assert deltalake.DeltaTable(path).version() == after.version() + 1


@pytest.mark.parametrize("step", ["commit", "answer"])
def test_a_process_that_dies_at_the_commit_that_adds_the_column(upgraded: Rig, step: str) -> None:
    died: list[str] = []

    def stop(name: str) -> None:
        if name == step and not died:
            died.append(name)
            raise Died

    upgraded.step = stop
    upgraded.send("q", numbered(5))
    upgraded.settle("q", 5, user="bob")
    upgraded.record(1)
    assert died
    upgraded.reopen()
    upgraded.record()
    assert sequences(upgraded.table()) == numbers(range(20))
    assert holders(upgraded) == [None] * 15 + ["bob"] * 5


def test_files_of_before_are_put_together_with_those_of_now(upgraded: Rig) -> None:
    """D4: also where nothing is recorded any more, so that the compaction is the first to add the column."""
    upgraded.options["archive_compact_files"] = 2
    upgraded.reopen()
    path = upgraded.data / "archive" / "q"
    upgraded.up += 100_000
    upgraded.record()
    assert deltalake.DeltaTable(path).get_add_actions().num_rows == 1
    assert holders(upgraded) == [None] * 15
    upgraded.send("q", numbered(5))
    upgraded.settle("q", 5, user="bob")
    upgraded.record()
    upgraded.up += 100_000
    upgraded.record()
    assert deltalake.DeltaTable(path).get_add_actions().num_rows == 1
    assert sequences(upgraded.table()) == numbers(range(20))
    assert holders(upgraded) == [None] * 15 + ["bob"] * 5


def test_a_column_of_that_name_that_somebody_else_has_added_is_refused(upgraded: Rig) -> None:
    path = upgraded.data / "archive" / "q"
    deltalake.DeltaTable(path).alter.add_columns([deltalake.Field("holder", deltalake.schema.PrimitiveType("long"))])
    upgraded.send("q", numbered(1))
    upgraded.settle("q", 1)
    upgraded.record()
    assert "the column 'holder' of the table" in upgraded.recorder.troubles()["q"]


def test_a_read_of_rows_of_before_and_of_now(tmp_path: Path) -> None:
    """S8: null if the file lacks the column. A read without that column is unchanged."""
    archive._unreachable.clear()
    site = Site(tmp_path)
    try:
        site.client.call("queue.declare", queue="q")
        site.send("q", body=numbered(10))
        site.settle("q", 5)
        site.record("q")
        url = site.url("q")
        old = deltalake.DeltaTable(url).to_pyarrow_table().select(BEFORE.names)
        shutil.rmtree(url)
        configuration = {OWNER: site.service.broker_id}
        deltalake.DeltaTable.create(url, BEFORE, partition_by=["day"], configuration=configuration, raise_if_key_not_exists=False)
        deltalake.write_deltalake(url, old, mode="append")
        wanted = ("sequenceNumber", "holder")
        assert [row["holder"] for row in site.read("q", wanted)] == [None] * 5
        site.settle("q", 5)
        assert [row["holder"] for row in site.read("q", wanted)] == [None] * 5 + ["l-q"] * 5
        archive._unreachable.add(url)
        assert [row["holder"] for row in site.read("q", wanted)] == [None] * 5 + ["l-q"] * 5
        assert [row["body"] for row in site.read("q")] == numbered(10)
    finally:
        site.close()
        archive._unreachable.clear()

"""D4: other programs commit to a table of the archive. Its features are honoured or refused, and no row comes back or doubles."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.broker_core.archive.read import files
from penstock.broker_core.archive.read.files import Table
from penstock.broker_core.archive.write import queue_table
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import store_of
from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import ArchiveUnsupported

from ..flight.helpers import numbered
from . import writers
from .rig import Died, Rig, numbers

READER_AND_WRITER = ("catalogManaged", "fancyNew", "typeWidening", "variantType")
WRITER = (
    *("allowColumnDefaults", "checkpointProtection", "clustering", "domainMetadata", "fancyNew", "icebergCompatV2"),
    *("identityColumns", "inCommitTimestamp", "materializePartitionColumns", "rowTracking", "vacuumProtocolCheck"),
)
#: Properties and columns that a commit of ours would have to follow, and the remedies in the error.
RULES: dict[str, tuple[dict[str, str], dict[str, Any] | None, str]] = {
    "constraint": ({"delta.constraints.small": "sequenceNumber < 5"}, None, "DROP CONSTRAINT small"),
    "mapping": ({"delta.columnMapping.mode": "name"}, None, "'delta.columnMapping.mode' = 'none'"),
    "transactions": ({"delta.setTransactionRetentionDuration": "interval 1 day"}, None, "UNSET TBLPROPERTIES"),
    "invariant": ({}, {"metadata": {"delta.invariants": '{"expression":{"expression":"more > 1"}}'}}, "DROP COLUMN more"),
    "generated": ({}, {"metadata": {"delta.generationExpression": "upper(subject)"}}, "DROP COLUMN more"),
    "identity": ({}, {"type": "long", "metadata": {"delta.identity.start": 1, "delta.identity.step": 1}}, "DROP COLUMN more"),
    "default": ({}, {"metadata": {"CURRENT_DEFAULT": "'x'"}}, "DROP COLUMN more"),
    "required": ({}, {"nullable": False}, "'more' that must have a value"),
}
HARMLESS: dict[str, list[dict[str, Any]]] = {
    "features": [writers.protocol(features=("deletionVectors", "v2Checkpoint", "timestampNtz", "columnMapping"))],
    "writer": [writers.protocol(1, features=("checkConstraints", "changeDataFeed", "generatedColumns"))],
    "versions": [writers.protocol(1, 4)],
    "mapped": [writers.protocol(2, 5)],
}


@pytest.fixture
def folder(rig: Rig) -> Path:
    """A table of three passes of ten rows each, and ten messages that are settled and not recorded."""
    for _ in range(3):
        more(rig, recorded=True)
    more(rig)
    return rig.data / "archive" / "q"


def more(rig: Rig, *, recorded: bool = False) -> None:
    rig.send("q", numbered(10))
    rig.settle("q", 10)
    if recorded:
        rig.record()


def mine(rig: Rig) -> QueueTable:
    return QueueTable(store_of(str(rig.data / "archive" / "q")), rig.service.broker_id, "q")


def rows(folder: Path | str) -> list[int]:
    """Sequence numbers of the rows, by delta-rs's own reader, which applies deletion vectors."""
    content = pa.table(
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder)).execute('SELECT "sequenceNumber" n FROM t')
    )
    return sorted(content["n"].to_pylist())


def error(rig: Rig) -> str:
    return str(rig.recorder.of_queue("q")["error"])


def listed(rig: Rig) -> list[files.File]:
    table = rig.service.table("q") if rig.service.archive else None
    lineage = ((rig.service.broker_id, 1 << 40),)
    known = table or Table(str(rig.data / "archive" / "q"), rig.service.broker_id, 1, lineage, 0)
    return files.version(known, known.bounds).files


def test_compaction_retention_and_vacuum_honour_deletion_vectors(rig: Rig, folder: Path) -> None:
    """D4: three rows became fifteen. A file with a vector stays as it is, with its vector, until its day goes."""
    first, second, _ = (add["path"] for add in writers.active(folder))
    writers.delete(folder, {first: [0, 1, 2, 3], second: [9]})
    left = [number for number in range(30) if number not in (0, 1, 2, 3, 19)]
    assert rows(folder) == left
    rig.record()
    more(rig, recorded=True)
    assert mine(rig).compact(1 << 30) == 2
    assert mine(rig).compact(1 << 30) == 0
    assert rows(folder) == [*left, *range(30, 50)]
    vector = folder / "deletion_vector_1.bin"
    vector.write_bytes(b"of a file that delta-rs cannot see")
    assert mine(rig).vacuum(0.0) > 0
    assert vector.exists(), "delta-rs would treat it like a file of an interrupted attempt"
    assert rows(folder) == [*left, *range(30, 50)]
    assert mine(rig).expire(86400.0, datetime.now(timezone.utc) + timedelta(days=3)) > 0
    assert rows(folder) == []
    assert sum("deletionVector" in action for action in writers.actions(folder, "remove")) == 2


def test_rows_that_others_have_deleted_by_copying_do_not_come_back(rig: Rig, folder: Path) -> None:
    """D4: also when files are put together after it, and when a process dies after the commit of the rows."""
    deltalake.DeltaTable(folder).delete('"sequenceNumber" IN (3, 17)')
    left = [number for number in range(30) if number not in (3, 17)]
    assert rows(folder) == left
    rig.record()
    assert mine(rig).compact(1 << 30) > 0
    assert rows(folder) == [*left, *range(30, 40)]
    assert mine(rig).vacuum(0.0) > 0
    assert rows(folder) == [*left, *range(30, 40)]


@pytest.mark.parametrize("how", ["copy", "vector"])
def test_rows_deleted_between_the_commit_and_its_answer_are_recorded_for_all_that(rig: Rig, folder: Path, how: str) -> None:
    """D4: the process dies after its commit, others delete, and the pass is asked for again."""

    def die(name: str) -> None:
        if name == "answer":
            rig.step = lambda name: None
            raise Died

    rig.step = die
    rig.record(1)
    if how == "copy":
        deltalake.DeltaTable(folder).delete('"sequenceNumber" IN (33, 35)')
    else:
        writers.delete(folder, {writers.active(folder)[-1]["path"]: [3, 5]})
    rig.record()
    assert (rig.unrecorded(), error(rig)) == (0, "None")
    assert rows(folder) == [number for number in range(40) if number not in (33, 35)]


@pytest.mark.parametrize("change", ["optimize", "z-order", "update", "restore", "checkpoint", "vacuum"])
def test_rows_are_there_once_whatever_others_do_between(rig: Rig, folder: Path, change: str) -> None:
    """D4."""
    expected = list(range(40))
    table = deltalake.DeltaTable(folder)
    if change == "optimize":
        table.optimize.compact()
    elif change == "z-order":
        table.optimize.z_order(["settledTime"])
    elif change == "update":
        table.update(updates={"error": "'looked at'"}, predicate='"sequenceNumber" < 5')
    elif change == "restore":
        table.restore(table.version() - 1)
        expected = [*range(20), *range(30, 40)]
    elif change == "checkpoint":
        table.create_checkpoint()
    else:
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    rig.record()
    assert rig.unrecorded() == 0
    mine(rig).compact(1 << 30)
    assert rows(folder) == expected


@pytest.mark.parametrize("name", HARMLESS)
def test_features_that_are_not_used_are_no_reason_to_stop(rig: Rig, folder: Path, name: str) -> None:
    """D4: reads, recordings, compaction and vacuum continue."""
    writers.commit(folder, *HARMLESS[name])
    rig.record()
    assert rig.unrecorded() == 0, error(rig)
    assert mine(rig).compact(1 << 30) > 0
    mine(rig).vacuum(0.0)
    assert rows(folder) == list(range(40))
    assert sum(file.rows for file in listed(rig)) == 40


def refused(rig: Rig, folder: Path, *parts: str) -> None:
    """Check that the queue waits with an error that names the table and the remedy; and that no other queue waits."""
    before = writers.newest(folder)
    rig.service.submit(c.DeclareQueue("other"))
    rig.send("other", numbered(2))
    rig.settle("other", 2)
    rig.record(20)
    assert rig.table("other").num_rows == 2
    assert (writers.newest(folder), rig.unrecorded()) == (before, 10), "nothing was committed, and nothing is lost"
    for part in (str(folder), *parts):
        assert part in error(rig)
    assert "is refused" in rig.recorder.troubles()["q"]


def repaired(rig: Rig, folder: Path) -> None:
    """Take the last commit back, as the owner does by the remedy, and check that the queue continues."""
    (folder / "_delta_log" / f"{writers.newest(folder):020d}.json").unlink()
    rig.record()
    assert rig.recorder.of_queue("q")["error"] is None
    assert rows(folder) == list(range(40))


@pytest.mark.parametrize("name", READER_AND_WRITER)
def test_a_reader_feature_that_is_not_supported_is_refused(rig: Rig, folder: Path, name: str) -> None:
    """D4: by passes and by reads."""
    writers.commit(folder, writers.protocol(features=(name,)))
    with pytest.raises(ArchiveUnsupported, match="Penstock does not support"):
        listed(rig)
    refused(rig, folder, "move the table away", "" if name == "catalogManaged" else name)
    repaired(rig, folder)


@pytest.mark.parametrize("name", WRITER)
def test_a_writer_feature_that_is_not_supported_is_refused(rig: Rig, folder: Path, name: str) -> None:
    """D4: the error has the command that takes it back. Reads continue."""
    writers.commit(folder, writers.protocol(3 if name == "vacuumProtocolCheck" else 1, features=(name,)))
    assert sum(file.rows for file in listed(rig)) == 30
    is_lasting = name in ("allowColumnDefaults", "identityColumns")  # Delta has no command for these
    refused(rig, folder, name, "support: move the table away" if is_lasting else f"DROP FEATURE {name}")
    repaired(rig, folder)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_a_commit_would_break_is_refused(rig: Rig, folder: Path, name: str) -> None:
    """D4: delta-rs checks no rule of rows that it has not seen."""
    properties, field, remedy = RULES[name]
    writers.commit(folder, writers.metadata(folder, properties, field))
    refused(rig, folder, remedy)
    repaired(rig, folder)


def test_a_protocol_of_the_future_is_refused(rig: Rig, folder: Path) -> None:
    """D4."""
    writers.commit(folder, writers.protocol(1, 8))
    refused(rig, folder, "writer version 8")
    repaired(rig, folder)


def test_what_is_turned_on_before_the_commit_is_noticed(rig: Rig, folder: Path) -> None:
    """D4: between the look at the table and the commit of the pass."""

    def constrain(step: str) -> None:
        if step == "commit":
            rig.step = lambda name: None
            writers.commit(folder, writers.metadata(folder, {"delta.constraints.small": "sequenceNumber < 5"}))

    rig.step = constrain
    rig.record()
    assert "Metadata changed" in error(rig)
    rig.record()
    assert "DROP CONSTRAINT small" in error(rig)
    assert rows(folder) == list(range(30))
    repaired(rig, folder)


def test_rows_deleted_while_files_are_put_together_stay_deleted(rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: the compaction is given up, and comes again later."""
    put_together = queue_table.compaction.put_together

    def delete_first(*arguments: Any) -> Any:
        writers.delete(folder, {writers.active(folder)[0]["path"]: [5]})
        return put_together(*arguments)

    table = mine(rig)
    with monkeypatch.context() as patch:
        patch.setattr(queue_table.compaction, "put_together", delete_first)
        assert table.compact(1 << 30) == 0
    left = [number for number in range(30) if number != 5]
    assert rows(folder) == left
    assert mine(rig).compact(1 << 30) == 1
    assert rows(folder) == left


def test_an_append_only_table_keeps_its_old_days(rig: Rig, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D4: recordings and compaction continue; retention reports a remedy."""
    writers.commit(folder, writers.metadata(folder, {"delta.appendOnly": "true"}))
    rig.record()
    assert mine(rig).expire(86400.0, datetime.now(timezone.utc) + timedelta(days=3)) == 0
    assert "UNSET TBLPROPERTIES ('delta.appendOnly')" in caplog.text
    assert mine(rig).compact(1 << 30) == 3
    assert rows(folder) == list(range(40))


@pytest.mark.parametrize("setting", ["true", "false"])
def test_old_commits_stay_where_others_want_them(rig: Rig, folder: Path, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: `delta.enableExpiredLogCleanup`."""
    monkeypatch.setattr(queue_table, "CHECKPOINT_COMMITS", 1)
    properties = {"delta.enableExpiredLogCleanup": setting, "delta.logRetentionDuration": "interval 0 seconds"}
    writers.commit(folder, writers.metadata(folder, properties))
    before = len(list((folder / "_delta_log").glob("*.json")))
    rig.record()
    more(rig, recorded=True)
    after = len(list((folder / "_delta_log").glob("*.json")))
    assert after == before + 2 if setting == "false" else after < before + 2


def test_a_table_that_was_dropped_is_made_anew(rig: Rig, folder: Path) -> None:
    """D4: its rows are gone, as its owner wanted. A table that another program has put there is refused, and named."""
    shutil.rmtree(folder)
    rig.record()
    assert rows(folder) == list(range(30, 40))
    more(rig)
    shutil.rmtree(folder)
    deltalake.write_deltalake(folder, pa.table({"a": [1]}))
    rig.record(20)
    assert "belongs to another program" in error(rig)
    shutil.rmtree(folder)
    rig.record()
    assert rows(folder) == list(range(40, 50))


def test_times_beyond_2262_that_spark_has_rewritten_are_read_right(make_rig: Callable[..., Rig]) -> None:
    """D4: Spark's OPTIMIZE and DELETE write times of 96 bits by default, for which pyarrow would choose nanoseconds."""
    rig = make_rig("int96")
    rig.service.submit(c.DeclareQueue("q"))
    never = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    for _ in range(2):
        rig.send("q", pa.record_batch({"body": [b"a"], "absoluteExpiryTime": pa.array([never], pa.timestamp("us", "UTC"))}))
        rig.settle("q", 1)
        rig.record()
    folder = rig.data / "archive" / "q"
    for path in folder.glob("day=*/*.parquet"):
        content = pq.ParquetFile(path).read()
        pq.write_table(content, path, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(path).schema_arrow.field("absoluteExpiryTime").type == pa.timestamp("ns")
    entries = (folder / "_delta_log").glob("*.json")
    for entry in entries:
        text = entry.read_text()
        for add in writers.active(folder):
            text = text.replace(f'"size":{add["size"]}', f'"size":{(folder / add["path"]).stat().st_size}')
        entry.write_text(text)
    assert mine(rig).compact(1 << 30) == 1
    (path,) = (folder / add["path"] for add in writers.active(folder))
    assert pq.ParquetFile(path).read()["absoluteExpiryTime"].to_pylist() == [never] * 2
    assert Counter(rows(folder)) == Counter(numbers(range(2)))

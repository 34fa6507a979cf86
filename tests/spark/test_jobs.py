"""U5: promises of the jobs. Each runs as `main` under spark-submit, in the session of these tests."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from penstock.broker_core.archive.table import layout as archive_table
from penstock.broker_core.archive.write.rows import table_rows
from penstock.broker_core.messages import assembly
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS
from penstock.jobs import archive, ingest, redrive
from penstock.jobs.session import session

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

if TYPE_CHECKING:
    from conftest import Rig


@pytest.fixture(autouse=True)
def _submitted(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job under spark-submit takes the existing session, with its settings."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")


# --- Redrive ---------------------------------------------------------------------------------------------------------------


def reject(rig: Rig, queue: str, *errors: str) -> None:
    """Send a message for each error, and reject it with that error."""
    rig.send(queue, 0, len(errors))
    asked = {"queue": queue, "lease": queue, "run": "r", "epoch": None, "finished": 0, "fresh": True}
    rig.client.call("lease.advance", messages=len(errors), **asked)
    for sequence, error in enumerate(errors):
        rig.client.call("lease.settleRow", lease=queue, sequence=sequence, outcome="rejected", error=error)


def redriven(rig: Rig, capsys: pytest.CaptureFixture[str], queue: str, *arguments: str) -> str:
    assert redrive.main(["--url", rig.broker.url, "--queue", queue, *arguments]) == 0
    return capsys.readouterr().out


def test_chosen_dead_letters_go_back_and_a_repetition_sends_nothing(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """U5: by reason, origin, number and any condition. Ordinary messages stay, and so do dead letters that cannot go back."""
    for name in ("orders", "payments"):
        rig.client.call("queue.declare", queue=name, options={"deadLetterQueue": "dead"})
    rig.declare("dead")
    reject(rig, "orders", "no such customer", "no stock", "no such customer")
    reject(rig, "payments", "no such customer", "no money")
    rig.send("dead", 9, 1)  # an ordinary message

    report = redriven(rig, capsys, "dead", "--reason", "rejected", "--dry-run")
    assert "5 dead letters: 3 rejected of orders, 2 rejected of payments" in report
    assert rig.counts("dead") == (6, 0, 0)

    chosen = ["--origin", "orders", "--where", "deathError LIKE '%customer' AND cast(body as string) = '2'"]
    assert "1 messages" in redriven(rig, capsys, "dead", *chosen)
    assert "0 dead letters" in redriven(rig, capsys, "dead", *chosen)
    assert rig.bodies("orders") == ["2"]
    assert "1 messages" in redriven(rig, capsys, "dead", "--sequence", "3-9", "--limit", "1")
    assert rig.bodies("payments") == ["0"]

    rig.client.call("queue.delete", queue="payments")
    report = redriven(rig, capsys, "dead", "--since", "-1h")
    assert re.search(r"chosen since 2\d\d\d-\d\d-\d\dT[0-9:.]*Z: 3 dead letters", report)
    assert "2 messages" in report
    assert "1 stay: their queue was deleted, is full, or has a newer value" in report
    assert sorted(rig.bodies("orders")) == ["0", "1", "2"]
    assert rig.bodies("dead") == ["1", "9"]


def test_dead_letters_that_no_queue_could_take_go_back_to_their_places(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """U5 Q13: but not dead letters of the queue that went elsewhere. The error for a wrong condition is one sentence."""
    rig.client.call("queue.declare", queue="orders", options={"deadLetterQueue": "later"})
    reject(rig, "orders", "a", "b", "c")
    assert "2 messages" in redriven(rig, capsys, "orders", "--where", "deathSequence <> 1")
    assert rig.bodies("orders") == ["0", "2"]
    assert redrive.main(["--url", rig.broker.url, "--queue", "orders", "--where", "colour = 'red'"]) == 1
    assert "colour" in capsys.readouterr().err
    assert redrive.main(["--url", rig.broker.url, "--queue", "gone"]) == 1
    assert "there is no queue 'gone'" in capsys.readouterr().err


# --- Ingest ----------------------------------------------------------------------------------------------------------------


def test_parquet_files_have_each_message_once_after_a_crash(rig: Rig) -> None:
    """U5: the sink has written a batch without Spark's commit, and a killed task has left a file."""
    table, checkpoint = rig.path("files"), rig.path("checkpoint")
    where = ["--url", rig.broker.url, "--queue", "orders", "--table", table, "--checkpoint", checkpoint]
    arguments = [*where, "--format", "parquet", "--available-now", "--option", "maxMessagesPerTrigger=10"]
    rig.declare("orders")
    rig.send("orders", 0, 25)
    ingested(rig, arguments)
    assert numbers(rig, table) == list(range(25))

    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the driver had died before it
    Path(checkpoint, "commits", f".{last.name}.crc").unlink(missing_ok=True)
    some = next(Path(table).glob("*.parquet"))
    some.with_name("part-of-a-task-that-was-killed.parquet").write_bytes(some.read_bytes())
    rig.send("orders", 25, 5)
    ingested(rig, arguments)
    assert numbers(rig, table) == list(range(30))
    assert rig.counts("orders") == (0, 0, 30)


def ingested(rig: Rig, arguments: list[str]) -> None:
    ingest.start(rig.spark, ingest._parser().parse_args(arguments)).awaitTermination()


def numbers(rig: Rig, table: str) -> list[int]:
    rows = rig.spark.read.parquet(table).selectExpr("cast(cast(body as string) as int) n").collect()
    return sorted(row.n for row in rows)


def test_an_expiry_in_9999_is_read_right_by_other_libraries(rig: Rig, table: Archive) -> None:
    """U5: in the tables of `ingest` and `archive`. With Spark's default it would be a year before 2262."""
    never = datetime(9999, 12, 31, tzinfo=timezone.utc)
    payload = {"body": [b"0"], "absoluteExpiryTime": [never]}
    batch = pa.record_batch({name: pa.array(values, MESSAGE_COLUMNS[name]) for name, values in payload.items()})
    rig.declare("orders")
    rig.client.put({"op": "enqueue", "queue": "orders"}, batch.schema, [batch])
    ingest_to = ["--table", rig.path("ingested"), "--checkpoint", rig.path("ingesting"), "--available-now"]
    arguments = ingest._parser().parse_args(["--url", rig.broker.url, "--queue", "orders", *ingest_to])
    ingest.start(session("ingest"), arguments).awaitTermination()
    table.record(1, 0, payload)
    where = ["--archive", str(table.folder), "--queue", "orders"]
    assert archive.main([*where, "--table", rig.path("copied"), "--checkpoint", rig.path("copying")]) == 0
    for folder in (rig.path("ingested"), rig.path("copied")):
        assert deltalake.DeltaTable(folder).to_pyarrow_table()["absoluteExpiryTime"].to_pylist() == [never]
        assert polars.read_delta(folder)["absoluteExpiryTime"].to_list() == [never]
        times = f"SELECT epoch_us(absoluteExpiryTime) FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = false)"
        assert duckdb.connect().execute(times).fetchall() == [(int(never.timestamp()) * 1_000_000,)]


# --- Archive ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


class Archive:
    """A queue's archive as the broker writes it: a recording is one commit of rows, partitioned by their days.

    Before `upgrade` it lacks the column `holder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / archive_table.folder_name("orders")
        self._passes = 0
        self._lacks = {"holder"}

    def upgrade(self) -> None:
        """Add the missing columns, as the broker does before its next recording."""
        fields = deltalake.Schema.from_arrow(archive_table.SCHEMA).fields
        self._table().alter.add_columns([field for field in fields if field.name in self._lacks])
        self._lacks.clear()

    def record(self, day: int, first: int, payload: dict[str, list[Any]]) -> None:
        """Record messages that arrived on a day of January 2026."""
        batch = pa.record_batch({name: pa.array(values, MESSAGE_COLUMNS[name]) for name, values in payload.items()})
        time = int(datetime(2026, 1, day, 12, tzinfo=timezone.utc).timestamp()) * 1_000_000
        ended = {"state": "archived", "outcome": "accepted", "settledTime": time + 7, "deliveryCount": 0, "holder": "etl"}
        stored = assembly.assemble(
            archive_table.STORED,
            batch,
            {"queue": "orders", "sequenceNumber": first, "enqueuedTime": time, **ended},
            stored=True,
            malformed={},
        )
        self._passes += 1
        rows = table_rows(stored, {"queueId": 0, "pass": self._passes, "lineage": "l"})
        written = pa.Table.from_batches([rows]).drop_columns(sorted(self._lacks))
        deltalake.write_deltalake(self._path, written, mode="append", partition_by=[archive_table.DAY])

    def compact(self) -> None:
        assert self._table().optimize.compact()["numFilesRemoved"] > 1

    def expire(self, until: str) -> None:
        assert self._table().delete(f"day < '{until}'")["num_removed_files"] >= 1

    def vacuum(self) -> None:
        assert self._table().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def _table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._path)


def test_the_archive_goes_on_into_another_table_once(rig: Rig, table: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    """U5 S9: incremental and exactly once over a crash, compaction and retention, with chosen columns or all.

    A late run is refused. Between two runs, the archive gets a further column.
    """
    where = ["--archive", str(table.folder), "--queue", "orders"]
    copied = [*where, "--table", rig.path("copy"), "--checkpoint", rig.path("copying")]
    chosen = ["--columns", "sequenceNumber", "cast(body as string) AS text", "outcome", "hour(enqueuedTime) AS hour"]
    read = [*where, "--table", rig.path("read"), "--checkpoint", rig.path("reading"), *chosen]
    read += ["--partition-by", "hour", "outcome"]

    assert archive.main(copied) == 1
    assert "there is no archive of 'orders'" in capsys.readouterr().err
    table.record(1, 0, {"body": [b"zero", b"one"], "subject": ["a", "b"]})
    table.record(1, 2, {"message": [b"\0Su\xa0\3two", b"\0Su\xa0\5three"]})
    for arguments in (copied, read):
        assert archive.main(arguments) == 0
    assert "done: 4 messages" in capsys.readouterr().out

    Path(rig.path("reading"), "commits", "0").unlink()  # as if the driver had died before it
    Path(rig.path("reading"), "commits", ".0.crc").unlink(missing_ok=True)
    table.upgrade()
    table.record(2, 4, {"body": [b"four"]})
    table.compact()
    table.expire("2026-01-02")
    table.record(3, 5, {"body": [b"five"]})
    for arguments in (copied, read):
        assert archive.main(arguments) == 0

    rows = rig.spark.read.format("delta").load(rig.path("read")).orderBy("sequenceNumber").collect()
    assert [(row.sequenceNumber, row.text) for row in rows] == list(enumerate(["zero", "one", "two", "three", "four", "five"]))
    assert {(row.outcome, row.hour) for row in rows} == {("accepted", 13)}  # in the session's zone
    assert list(Path(rig.path("read"), "hour=13", "outcome=accepted").glob("*.parquet"))
    rows = rig.spark.read.format("delta").load(rig.path("copy")).orderBy("sequenceNumber").collect()
    assert [bytes(row.body) for row in rows] == [b"zero", b"one", b"two", b"three", b"four", b"five"]
    assert [row["pass"] for row in rows] == [1, 1, 2, 2, 3, 4]
    assert [row.holder for row in rows] == [None] * 4 + ["etl"] * 2
    assert [row.envelope is not None for row in rows] == [False, False, True, True, False, False]

    table.record(3, 6, {"body": [b"six"]})
    table.compact()
    table.vacuum()
    capsys.readouterr()
    assert archive.main(copied) == 1
    assert "archive_vacuum_after_s" in capsys.readouterr().err

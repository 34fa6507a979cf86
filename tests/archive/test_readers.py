"""D4: readers of Delta tables read the archive without a broker."""

from __future__ import annotations

import deltalake
import pytest

from penstock.broker_core.archive.table.layout import table_url
from penstock.broker_core.archive.write import queue_table
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.states import Outcome

from ..flight.helpers import numbered
from .rig import Rig, numbers, sequences

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")


@pytest.fixture
def folder(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of two passes, some messages accepted and some rejected, whose log has a checkpoint."""
    monkeypatch.setattr(queue_table, "CHECKPOINT_COMMITS", 2)
    for outcome, error in ((Outcome.ACCEPTED, None), (Outcome.REJECTED, "not wanted")):
        rig.send("q", numbered(10))
        rig.settle("q", 10, outcome, error)
        rig.record()
    return str(rig.data / "archive" / "q")


def test_polars_reads_the_table(folder: str) -> None:
    """D4."""
    rows = polars.scan_delta(folder).filter(polars.col("outcome") == "rejected").collect()
    assert rows["error"].to_list() == ["not wanted"] * 10
    assert sorted(rows["sequenceNumber"].to_list()) == list(range(10, 20))
    assert sorted(rows["body"].to_list()) == numbered(10)


def test_duckdb_reads_the_table(folder: str) -> None:
    """D4: by its extension `delta` where that is installed, else as Arrow."""
    connection = duckdb.connect()
    try:
        connection.execute("LOAD delta")
        source = f"delta_scan('{folder}')"
    except duckdb.Error:
        connection.register("archive", deltalake.DeltaTable(folder).to_pyarrow_dataset())
        source = "archive"
    query = f"SELECT outcome, count(*), min(sequenceNumber), max(settledTime - enqueuedTime) < INTERVAL 1 HOUR FROM {source}"
    assert connection.execute(f"{query} GROUP BY ALL ORDER BY outcome").fetchall() == [
        ("accepted", 10, 0, True),
        ("rejected", 10, 10, True),
    ]


#: Names of queues with characters that have a meaning in paths, URLs, globs, partitions and object stores.
NAMES = (
    *("orders:eu", "a=b", "day=2026-01-01", "100%", "%2F", "a b", "a+b&c#d?", "~home", "$HOME", "{a,b}", "[ab]", "a!b", "x\\y"),
    *(".hidden", "_hidden", "_delta_log", "..", "a.", "a.parquet", "a-x3Ab", "ünï 𝄞", "'\"`", "<|>^;@,", "ü" * 255),
    *("Orders", "orders"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An archive with a table for each of `NAMES`, whose only message has the name as its body."""
    rig = Rig(tmp_path_factory.mktemp("names") / "data")
    for name in NAMES:
        rig.service.submit(c.DeclareQueue(name))
        rig.send(name, [name.encode()])
        rig.settle(name, 1)
    rig.record()
    rig.close()
    return str(rig.data / "archive")


@pytest.mark.parametrize("name", NAMES)
def test_all_libraries_read_the_table_of_a_queue_of_any_name(archive: str, name: str) -> None:
    """D4: as a Delta table, and as Parquet files below its folder."""
    url, body = table_url(archive, name), name.encode()
    assert deltalake.DeltaTable(url).to_pyarrow_table()["body"].to_pylist() == [body]
    assert polars.scan_delta(url).select("body", "queue").collect().rows() == [(body, name)]
    assert polars.scan_parquet(f"{url}/*/*.parquet", hive_partitioning=True).select("body").collect().rows() == [(body,)]
    read = f"SELECT body FROM read_parquet('{url}/*/*.parquet', hive_partitioning = true)"
    assert duckdb.connect().execute(read).fetchall() == [(body,)]
    assert duckdb.from_arrow(deltalake.DeltaTable(url).to_pyarrow_dataset()).select("body").fetchall() == [(body,)]


def files_of(rig: Rig) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in rig.data.iterdir() if path.is_file()}


def put_back(rig: Rig, before: dict[str, bytes]) -> None:
    rig.close()
    for path in rig.data.iterdir():
        if path.is_file():
            path.unlink()
    for name, octets in before.items():
        (rig.data / name).write_bytes(octets)
    rig.open()


def test_a_pass_that_the_table_has_with_other_rows_is_refused(rig: Rig) -> None:
    """D4: the directory was put back by hand, and later settlements are not in the table. Once it is moved away, a new one has
    them."""
    rig.send("q", numbered(10))
    rig.settle("q", 5)
    rig.service.journal.sync(rig.service.journal.end)
    before = files_of(rig)
    rig.record()
    put_back(rig, before)
    rig.settle("q", 3)
    rig.record()
    error = str(rig.recorder.of_queue("q")["error"])
    assert "recording 1 of this queue already, and not with the message of sequence number 5" in error
    assert rig.unrecorded() == 8
    (rig.data / "archive" / "q").rename(rig.data / "archive" / "old")
    rig.record()
    assert (rig.unrecorded(), sequences(rig.table())) == (0, numbers(range(8)))


def test_a_restored_broker_writes_a_lineage_of_its_own(rig: Rig) -> None:
    """D4 D7: passes of the line that was left are not taken for its own; without a lineage it is refused."""
    rig.send("q", numbered(10))
    rig.settle("q", 5)
    before = files_of(rig)
    rig.record()
    rig.settle("q", 5)
    rig.record()
    put_back(rig, before)
    rig.record()
    assert "put back by hand from an older copy" in str(rig.recorder.of_queue("q")["error"])
    assert rig.unrecorded() == 5
    (rig.data / "lineage").write_text('{"version": 1, "name": "another", "parent": null, "history": {}}')
    rig.reopen()
    rig.record()
    assert rig.unrecorded() == 0
    rows = rig.table()
    assert set(rows["lineage"].to_pylist()) == {rig.service.broker_id, "another"}

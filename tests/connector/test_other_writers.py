"""S8 S9: rows of the archive's table that other programs have deleted do not come back in any kind of read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from penstock.broker_core.archive.read import scan
from penstock.broker_core.errors import ArchiveUnsupported, DataLoss, InvalidRequest
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.replay import ReplayReader
from penstock.connector.task import archive
from penstock.connector.task.partition import RecordedPartition

from ..archive import writers
from .recording import Site, recording

DELETED = (3, 4, 15)
LEFT = [number for number in range(20) if number not in DELETED]
WAYS = ("task", "broker", "listed by the broker", "no deltalake")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Twenty messages in a table by two passes; three of them are deleted by deletion vectors."""
    with recording(tmp_path) as running:
        running.send("q", body=[b"%d" % number for number in range(30)])
        running.settle("q", 20)
        running.record("q", 10)
        running.record("q")
        first, second = (add["path"] for add in writers.active(running.url("q")))
        writers.delete(running.url("q"), {first: [3, 4], second: [5]})
        yield running


def by(way: str, site: Site, patch: pytest.MonkeyPatch) -> None:
    """Let planner and tasks reach the table on their own, or not."""
    if way == "listed by the broker":
        archive._unreachable.add(site.url("q"))
    if way == "broker":
        patch.setattr(scan, "opened", _only_in_the_broker(scan.opened))
    if way == "no deltalake":

        def without(*arguments: Any) -> None:
            raise ImportError("No module named 'deltalake'")

        patch.setattr(archive, "version", without)


def _only_in_the_broker(opened: Any) -> Any:
    """A task asks first, and does not reach the file; after that the broker opens it."""
    asked: set[str] = set()

    def open_(url: str, path: str) -> Any:
        if path not in asked:
            asked.add(path)
            raise archive.ArchiveUnreachable("not from here")
        return opened(url, path)

    return open_


@pytest.mark.parametrize("way", WAYS)
def test_deleted_rows_are_left_out(site: Site, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    by(way, site, monkeypatch)
    assert site.numbers("q") == LEFT
    archive._unreachable.clear()


@pytest.mark.parametrize("way", WAYS)
def test_deleted_rows_are_left_out_of_shares_and_between_bounds(site: Site, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The vector counts the rows of a file, of which a task has a part."""
    table = deltalake.DeltaTable(site.url("q"))
    assert table.version() == 3
    monkeypatch.setattr(scan, "BATCH_ROWS", 3)
    by(way, site, monkeypatch)
    options = {"maxMessagesPerPartition": "4", "startingSequence": "2", "endingSequence": "16"}
    assert site.numbers("q", **options) == [number for number in LEFT if 2 <= number <= 16]


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_leaves_deleted_rows_out(site: Site, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    by(way, site, monkeypatch)
    for pace in ("0", "1000000"):
        options = {"url": site.plane.url, "queue": "q", "endingSequence": "19", "pace": pace}
        reader = ReplayReader(Options(options), source_schema(("sequenceNumber",)))
        numbers, start = [], reader.initialOffset()
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            numbers += [n for part in reader.partitions(start, end) for rows in reader.read(part) for n in rows[0].to_pylist()]
            start = end
        assert sorted(numbers) == LEFT
        reader.stop()


def test_the_broker_leaves_them_out_for_who_asks_it_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `penstock queue peek --states archived` does, and a task that reads a settled batch again."""
    ticket = {"op": "browse", "queue": "q", "states": ["archived"], "columns": ["sequenceNumber"]}
    assert [row["sequenceNumber"] for rows in site.client.get(**ticket) for row in rows.to_pylist()] == LEFT
    with site.service._lock:
        del site.service.state.queues["q"].blocks[0]
    batch, epoch = site.finished["q"]
    again = {"op": "batch", "lease": "l-q", "run": "r", "epoch": epoch, "batch": batch, "first": 0, "last": 19}
    again["columns"] = ["sequenceNumber"]
    with pytest.raises(DataLoss, match="neither in the journal nor in the archive"):
        list(site.client.get(**again))
    rows = [row for batch in site.client.get(**again, failOnDataLoss=False) for row in batch.to_pylist()]
    assert sorted(row["sequenceNumber"] for row in rows) == LEFT


def _first_sequence(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"])["minValues"]["sequenceNumber"])


def test_rows_deleted_between_plan_and_read_are_those_of_the_plan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query reads the version of its plan, also if the broker reads for it."""
    for way in ("task", "broker", "listed by the broker"):
        with monkeypatch.context() as patch:
            by(way, site, patch)
            reader = site.reader("q")
            parts = reader.partitions()
            _, second = sorted(writers.active(site.url("q")), key=_first_sequence)
            writers.delete(site.url("q"), {second["path"]: [5, 6]})
            numbers = [n for part in parts for rows in reader.read(part) for n in rows.column("sequenceNumber").to_pylist()]
            assert sorted(numbers) == LEFT
            archive._unreachable.clear()
            writers.delete(site.url("q"), {second["path"]: [5]})


def test_a_ticket_with_a_version_that_lacks_the_file_is_refused(site: Site) -> None:
    """Else it would be read without its deletions."""
    (part,) = (part for part in site.reader("q").partitions() if isinstance(part, RecordedPartition))
    ticket = {"op": "archive", "queue": "q", "path": part.shares[0].path, "version": 0, **part.bounds.to_fields()}
    with pytest.raises(InvalidRequest, match="version 0 of the table has no file"):
        list(site.client.get(**ticket, columns=["sequenceNumber"]))


@pytest.mark.parametrize("way", ["task", "listed by the broker"])
@pytest.mark.parametrize("name", ["fancyNew", "typeWidening", "catalogManaged"])
def test_a_feature_that_is_not_supported_fails_the_read(site: Site, monkeypatch: pytest.MonkeyPatch, name: str, way: str) -> None:
    by(way, site, monkeypatch)
    options = Options({"url": site.plane.url, "queue": "q"})
    writers.commit(site.url("q"), writers.protocol(features=("deletionVectors", name)))
    with pytest.raises(ArchiveUnsupported, match=r"archive/q .*Penstock does not support"):
        site.numbers("q")
    reader = ReplayReader(options, source_schema(("sequenceNumber",)))
    with pytest.raises(ArchiveUnsupported, match="Penstock does not support"):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()


def test_mapped_columns_fail_the_read(site: Site) -> None:
    writers.commit(site.url("q"), writers.metadata(site.url("q"), {"delta.columnMapping.mode": "name"}), writers.protocol(2, 5))
    with pytest.raises(ArchiveUnsupported, match=r"'delta.columnMapping.mode' = 'none'"):
        site.numbers("q")

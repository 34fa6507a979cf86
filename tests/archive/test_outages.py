"""D4: a table that cannot be written, or is not ours, delays no other. Nothing is lost, and the broker reports the reason."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.broker_core import local_files
from penstock.broker_core.archive.recorder.estimate import DAY_S, Growth, bytes_below
from penstock.broker_core.archive.table.layout import SCHEMA
from penstock.broker_core.archive.write import queue_table, table_files
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import FolderTableStore
from penstock.broker_core.engine import commands as c
from penstock.broker_core.journal.segments import HEADER_BYTES
from penstock.broker_core.service.clock import system_clock
from penstock.broker_core.settings.keys import Settings

from ..flight.helpers import numbered
from ..waiting import until
from .rig import Died, Rig, numbers, sequences, table


def settled(rig: Rig, count: int, queue: str = "q") -> None:
    rig.send(queue, numbered(count))
    rig.settle(queue, count)


def error_of(rig: Rig, queue: str = "q") -> str:
    text = rig.recorder.of_queue(queue)["error"]
    return "" if text is None else str(text)


def test_a_folder_that_is_not_there_for_a_while_is_waited_for(rig: Rig) -> None:
    """D4: everything is caught up, in one pass that had begun and one after it. Alarms: service/test_alarms."""
    (rig.data / "archive").write_text("a file in its place")
    settled(rig, 10)
    for _ in range(3):
        rig.record()
        rig.up += 100
    settled(rig, 10)
    assert "archive" in error_of(rig)
    assert rig.recorder.status()["queues"][0]["error"] == error_of(rig)
    assert "cannot be written now" in rig.recorder.troubles()["q"]
    assert "10 settled messages" in str(rig.recorder.behind())
    assert (rig.recorder.status()["unrecorded"], rig.recorder.status()["behind"]) == (20, True)
    (rig.data / "archive").unlink()
    rig.record()
    assert rig.table()["pass"].to_pylist() == [1] * 10 + [2] * 10
    assert error_of(rig) == ""
    assert (rig.recorder.troubles(), rig.recorder.behind()) == ({}, None)


def test_an_archive_whose_process_hangs_falls_behind(rig: Rig) -> None:
    """D4: a status request meanwhile contains it, although the recorder's thread waits for the reply."""
    reports: list[tuple[str | None, bool]] = []
    wall = rig.recorder._host.now

    def hang(step: str) -> None:
        if step == "write":
            for hours in (0, 1):
                rig.recorder._host.now = lambda hours=hours: wall() + hours * 3_600_000_000  # type: ignore[misc, method-assign]
                reports.append((rig.recorder.behind(), rig.recorder.status()["behind"]))

    rig.step = hang
    settled(rig, 10)
    until(lambda: rig.recorder.turn() and bool(reports), "the pass is due, and has hung")
    rig.recorder._host.now = wall  # type: ignore[method-assign]
    assert reports[0] == (None, False)
    assert "10 settled messages" in str(reports[1][0])
    assert reports[1][1]
    rig.record()
    assert rig.recorder.behind() is None


def test_a_clock_that_was_set_back_keeps_nothing_from_its_table(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: the broker's clock stands still then, perhaps for years. The wait of a message continues, and counts, also after a
    restart."""
    rig = make_rig(archive_after_s=60.0)
    rig.service.submit(c.DeclareQueue("q"))
    settled(rig, 10)
    monkeypatch.setattr(rig.service._clock, "_clock", lambda: system_clock()._replace(wall=0))
    for _ in range(3):
        settled(rig, 10)
        for waited in (0, 30, 30):
            assert rig.unrecorded()
            rig.up += waited
            rig.recorder.turn()
        assert not rig.unrecorded()
    assert rig.recorder.recordings == 3


def test_the_next_attempt_waits_longer_each_time(rig: Rig) -> None:
    """D4: a minute at most."""
    (rig.data / "archive").write_text("a file in its place")
    settled(rig, 1)
    waits = []
    for _ in range(9):
        rig.record(1)
        (trouble,) = rig.recorder._troubles.values()
        waits.append(trouble.wait_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_queue_whose_table_cannot_be_written_holds_up_no_other(rig: Rig) -> None:
    """D4."""
    rig.service.submit(c.DeclareQueue("r"))
    (rig.data / "archive").mkdir()
    (rig.data / "archive" / "q").write_text("a file in its place")
    settled(rig, 3)
    settled(rig, 3, "r")
    for _ in range(4):
        rig.record()
    assert sequences(rig.table("r")) == [0, 1, 2]
    assert error_of(rig)
    assert not error_of(rig, "r")


def test_a_table_of_another_broker_is_refused(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    """D4: two brokers with one folder: the first has the table, the other reports its owner."""
    shared = str(tmp_path / "shared")
    first_rig, second = make_rig("one", archive=shared), make_rig("other", archive=shared)
    for rig in (first_rig, second):
        rig.service.submit(c.DeclareQueue("q"))
        settled(rig, 5)
        rig.record()
    assert first_rig.service.broker_id in error_of(second)
    assert "give each broker a folder of its own" in error_of(second)
    assert second.unrecorded() == 5
    second.service.submit(c.DeclareQueue("mine"))
    settled(second, 2, "mine")
    second.record()
    rows = deltalake.DeltaTable(f"{shared}/q").to_pyarrow_table()
    assert set(rows["lineage"].to_pylist()) == {first_rig.service.broker_id}
    assert deltalake.DeltaTable(f"{shared}/mine").to_pyarrow_table().num_rows == 2


def test_a_table_that_no_broker_has_made_is_refused(rig: Rig) -> None:
    """D4: until an operator has moved it away."""
    path = rig.data / "archive" / "q"
    deltalake.write_deltalake(path, pa.table({"a": [1]}))
    settled(rig, 2)
    rig.record()
    assert "belongs to another program" in error_of(rig)
    shutil.rmtree(path)
    rig.record()
    assert sequences(rig.table()) == [0, 1]


def foreign(rig: Rig, **commit: Any) -> None:
    """Add a row as another program does, between two recordings."""
    row = rig.table().slice(0, 1)
    changed = row.set_column(row.schema.get_field_index("sequenceNumber"), "sequenceNumber", pa.array([1 << 40]))
    deltalake.write_deltalake(rig.data / "archive" / "q", changed.cast(SCHEMA), mode="append", **commit)


def test_commits_of_others_between_ours_are_no_harm(rig: Rig) -> None:
    """D4: also when they come while a pass is written."""
    settled(rig, 5)
    rig.record()
    foreign(rig)
    settled(rig, 5)
    rig.step = lambda name: foreign(rig) if name == "commit" else None
    rig.record()
    assert [number for number in sequences(rig.table()) if number < 1 << 40] == numbers(range(10))
    assert len(sequences(rig.table())) == 12
    assert rig.unrecorded() == 0


def test_columns_that_somebody_has_added_are_no_harm_and_others_are(rig: Rig) -> None:
    """D4: nothing is added to a table that another program has changed, until it is restored."""
    settled(rig, 2)
    rig.record()
    path = rig.data / "archive" / "q"
    deltalake.DeltaTable(path).alter.add_columns([deltalake.Field("note", deltalake.schema.PrimitiveType("string"))])
    settled(rig, 2)
    rig.record()
    assert sequences(rig.table()) == numbers(range(4))
    table = deltalake.DeltaTable(path)
    narrower = pa.schema([field for field in SCHEMA if field.name != "outcome"])
    configuration = dict(table.metadata().configuration)
    deltalake.DeltaTable.create(path, narrower, "overwrite", ["day"], configuration=configuration, raise_if_key_not_exists=False)
    settled(rig, 2)
    rig.record()
    assert "has no column 'outcome' any more: another program has changed it" in error_of(rig)
    assert rig.unrecorded() == 2
    deltalake.DeltaTable(path).restore(table.version())
    rig.record()
    assert sequences(rig.table()) == numbers(range(6))


def test_a_full_disk_is_waited_for_and_nothing_half_written_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4."""
    create = FolderTableStore.create

    class Full:
        def __init__(self, file: Any) -> None:
            self._file = file
            self.closed = False

        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    monkeypatch.setattr(FolderTableStore, "create", lambda self, path: Full(create(self, path)))
    settled(rig, 5)
    rig.record()
    assert "No space left on device" in error_of(rig)
    assert not list((rig.data / "archive").rglob("*.parquet"))
    monkeypatch.setattr(FolderTableStore, "create", create)
    rig.record()
    assert sequences(rig.table()) == numbers(range(5))


def test_a_power_cut_at_any_time_leaves_the_table_that_the_journal_relies_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """D4: it takes every file that was not synced, or whose folder was not, and no removed file returns. Recordings, checkpoints
    of the log, compaction and vacuum run one after another; one commit's process dies before it could sync."""
    synced: set[Path] = set()
    sync, sync_log = local_files.sync, FolderTableStore.sync_log

    def noted(path: Path) -> None:
        sync(path)
        synced.add(path)

    def check(number: int) -> None:
        root, after = rig.data / "archive", tmp_path / "after"
        shutil.rmtree(after, ignore_errors=True)
        for path in root.rglob("*"):
            if path in synced and path.is_file() and synced.issuperset(up for up in path.parents if rig.data in up.parents):
                target = after / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        assert rig.unrecorded() == 0
        assert sequences(table(after)) == numbers(range(10 * number))

    for module in (local_files, table_files):
        monkeypatch.setattr(module, "sync", noted)
    monkeypatch.setattr(queue_table, "CHECKPOINT_COMMITS", 6)
    rig.options |= {"archive_compact_files": 4, "archive_vacuum_after_s": 0.0}
    rig.reopen()
    for number in range(1, 12):
        settled(rig, 10)
        if number == 3:  # dies when the commit is there, and nothing of it is synced
            monkeypatch.setattr(FolderTableStore, "sync_log", died)
            rig.record()
            assert rig.unrecorded() == 10
            monkeypatch.setattr(FolderTableStore, "sync_log", sync_log)
        rig.record(1)
        check(number)
        rig.up += 100_000  # time for compaction and vacuum
        rig.record()
        check(number)
    assert (rig.data / "archive" / "q" / "_delta_log" / "_last_checkpoint").exists()
    assert len(list((rig.data / "archive" / "q").glob("day=*/*.parquet"))) < 5


@pytest.mark.parametrize("when", ["a pass is not answered", "passes have ended"])
def test_a_power_cut_that_takes_what_the_journal_had_not_synced(make_rig: Callable[..., Rig], when: str) -> None:
    """D4: with `fsync` never or interval. The table may know more than the journal, and is not taken for having other rows."""
    rig, after = make_rig(), make_rig("after")
    rig.service.submit(c.DeclareQueue("q"))
    after.close()
    settled(rig, 10)
    rig.service.journal.sync(rig.service.journal.end)
    if when == "passes have ended":
        for _ in range(2):
            rig.record()
            settled(rig, 10)
        rig.step = lambda name: cut_off(rig, after.data) if name == "open" else None
    else:
        rig.step = lambda name: cut_off(rig, after.data) if name == "answer" else None
    rig.record()
    after.open()
    before = after.service.state.queues["q"].next_sequence
    settled(after, 5)
    after.record()
    assert sequences(after.table()) == numbers(range(before + 5))
    assert (after.unrecorded(), after.recorder.troubles()) == (0, {})


def test_a_power_cut_after_retention_took_out_what_was_just_recorded(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: with `fsync` never or interval. The end of the pass is on the disk before: else the table seems to have other rows."""
    rig, after = make_rig(archive_retention_age_s=1.0), make_rig("after")
    after.close()
    expire, later = QueueTable.expire, timedelta(days=3)  # since when the messages have been there

    def then_cut_off(table: QueueTable, age_s: float, now: datetime) -> int:
        gone = expire(table, age_s, now + later)
        cut_off(rig, after.data)
        return gone

    monkeypatch.setattr(QueueTable, "expire", then_cut_off)
    rig.service.submit(c.DeclareQueue("q"))
    settled(rig, 10)
    rig.up += 100_000
    rig.record()
    assert rig.table().num_rows == 0
    after.open()
    settled(after, 5)
    after.record()
    assert (after.unrecorded(), after.recorder.troubles()) == (0, {})
    assert sequences(after.table()) == numbers(range(10, 15))


def cut_off(rig: Rig, after: Path) -> None:
    """Copy the directory without the unsynced part of its journal."""
    shutil.rmtree(after)
    shutil.copytree(rig.data, after)
    synced = rig.service.journal.synced
    for segment in rig.service.journal.segments():
        if segment.end > synced:
            with open(after / Path(segment.path).name, "r+b") as file:
                file.truncate(HEADER_BYTES + max(0, synced - segment.base))


def died(*arguments: object) -> None:
    raise Died


def test_a_disk_that_ends_before_messages_are_old_enough_is_said(tmp_path: Path) -> None:
    """D4: by the rate at which the archive grows; not before ten minutes are known."""
    up, free = [0.0], [100 << 30]
    settings = Settings(data=tmp_path, archive_retention_age_s=30 * DAY_S)
    growth = Growth(str(tmp_path), settings, lambda: up[0], lambda path: free[0])
    growth.added_bytes += 1 << 30
    up[0] = 300.0
    growth.look()
    assert growth.full_in_s is None
    up[0] = DAY_S
    growth.look()
    assert growth.full_in_s is None, "100 days are more than 30"
    up[0] += 61
    free[0] = 10 << 30
    growth.look()
    assert growth.full_in_s == pytest.approx(9.75 * DAY_S, rel=0.01)
    assert "is full in about 9.8 days" in str(growth.warning())
    free[0], up[0] = 100 << 30, up[0] + 61
    growth.look()
    assert growth.warning() is None


@pytest.mark.parametrize("vacuum_after_days", [1, 20])
@pytest.mark.parametrize("compacts", [False, True])
def test_a_disk_that_has_room_for_all_that_the_archive_keeps_is_large_enough(
    tmp_path: Path, compacts: bool, vacuum_after_days: int
) -> None:
    """D4: of 1 GiB an hour for 30 days: an alarm that never ends would say nothing. One on which it does not fit is not, from the
    beginning on, though it has room for 30 days."""
    up, size = [0.0], [0]
    sizes = [size << 30 for size in gigabytes(compacts, vacuum_after_days)]
    settings = Settings(data=tmp_path, archive_retention_age_s=30 * DAY_S)
    for more, warns in ((-6, True), (6, False)):
        disk = max(sizes) + (more << 30) + settings.free_space_mark_bytes
        up[0] = 0.0
        growth = Growth(str(tmp_path), settings, lambda: up[0], lambda path, disk=disk: disk - size[0], lambda path: size[0])
        growth.change(replace(settings, archive_vacuum_after_s=vacuum_after_days * DAY_S))
        for size[0] in sizes:
            up[0] += 3600.0
            growth.added_bytes += 1 << 30
            growth.replaced_bytes += compacts << 30
            growth.look()
            assert (growth.warning() is not None) == warns


def gigabytes(compacts: bool, vacuum_after_days: int) -> Iterator[int]:
    """Size of such an archive, hour by hour: whole days go, and vacuum comes each evening."""
    by_day: dict[int, int] = {}
    left: list[int] = []  # since when the table has no more each of the files of an hour
    for hour in range(90 * 24):
        by_day[hour // 24] = by_day.get(hour // 24, 0) + 1
        left += [hour] * compacts
        for day in [day for day in by_day if (day + 31) * 24 <= hour]:
            left += [hour] * by_day.pop(day)
        if hour % 24 == 23:
            left = [since for since in left if since > hour - 24 * vacuum_after_days]
        yield sum(by_day.values()) + len(left)


def test_the_size_of_an_archive_is_that_of_its_files(tmp_path: Path) -> None:
    """D4: in all folders; a file that disappears meanwhile counts as 0."""
    for number, folder in enumerate(("q/day=2026-01-01", "q/_delta_log", "r/day=2026-01-02")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_bytes(b"x" * (100 << number))
    (tmp_path / "r" / "gone").symlink_to(tmp_path / "nowhere")
    assert bytes_below(tmp_path) == 700
    assert bytes_below(tmp_path / "nowhere") == 0


@pytest.mark.parametrize("torn", [b"", b"\0" * 200, b'{"add": {"path": "day='], ids=["empty", "zeros", "half"])
@pytest.mark.parametrize("passes", [0, 3])
def test_a_power_cut_that_tears_the_commit_under_way(rig: Rig, torn: bytes, passes: int) -> None:
    """D4: also the table's first commit. No reader has used it, so it is made again, and former rows still exist."""
    for _ in range(passes):
        settled(rig, 10)
        rig.record()

    def die(name: str) -> None:
        if name == ("answer" if passes else "write"):
            raise Died

    settled(rig, 10)
    rig.step = die
    rig.record()
    assert rig.unrecorded() == 10
    log = rig.data / "archive" / "q" / "_delta_log"
    sorted(log.glob("*.json"))[-1].write_bytes(torn)
    rig.step = lambda name: None
    rig.reopen()
    rig.record()
    assert sequences(rig.table()) == numbers(range(10 * passes + 10))
    assert rig.unrecorded() == 0


def test_a_power_cut_that_tears_a_checkpoint(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: the commits before it are still there."""
    monkeypatch.setattr(queue_table, "CHECKPOINT_COMMITS", 3)
    for _ in range(3):
        settled(rig, 10)
        rig.record()
    (checkpoint,) = (rig.data / "archive" / "q" / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    settled(rig, 10)
    rig.record()
    assert sequences(rig.table()) == numbers(range(40))


def test_a_commit_that_the_broker_relies_on_is_not_set_aside(rig: Rig) -> None:
    """D4: an operator must act if it is damaged."""
    for _ in range(2):
        settled(rig, 10)
        rig.record()
    damaged = sorted((rig.data / "archive" / "q" / "_delta_log").glob("*.json"))[-1]
    octets = damaged.read_bytes()
    damaged.write_bytes(octets[:40])
    settled(rig, 10)
    rig.record()
    assert "cannot be opened" in error_of(rig)
    damaged.write_bytes(octets)
    rig.record()
    assert sequences(rig.table()) == numbers(range(30))

"""D4: compaction, retention and vacuum: killed at any step, next to foreign writers, on a full disk, during reads."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import pytest

from penstock.broker_core import errors
from penstock.broker_core.archive.recorder import worker
from penstock.broker_core.archive.write import compaction, parquet, queue_table
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import FolderTableStore, store_of
from penstock.broker_core.children.frames import ChildFrame
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.replay import ReplayReader

from ..connector.recording import Site, recording
from ..flight.helpers import numbered
from .rig import Died, Rig, numbers, sequences

FULL = OSError(errno.ENOSPC, "No space left on device")


def settle(rig: Rig, count: int) -> None:
    rig.send("q", numbered(count))
    rig.settle("q", count)


def opened(rig: Rig) -> QueueTable:
    return QueueTable(store_of(str(rig.data / "archive" / "q")), rig.service.broker_id, "q")


def after(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        then()
        return result

    return run


def die() -> None:
    raise Died


@pytest.fixture
def several(rig: Rig) -> Rig:
    """Five small files, of a pass each, with fifty rows in all."""
    for _ in range(5):
        settle(rig, 10)
        rig.record()
    return rig


#: Steps of compaction, retention and vacuum.
STEPS_OF_KEEPING = [
    (parquet, "write"),
    (compaction, "put_together"),
    (deltalake.DeltaTable, "create_write_transaction"),
    (FolderTableStore, "sync_log"),
    (QueueTable, "_commit"),
    (deltalake.DeltaTable, "vacuum"),
    (deltalake.DeltaTable, "delete"),
]


def die_after(rig: Rig, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Kill the archiver's process after this step of its housekeeping."""
    rig.reopen()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, after(getattr(owner, name), die))
        rig.up += 100_000
        rig.recorder.turn()  # lists tables
        if name == "delete":
            monkeypatch.setattr(QueueTable, "expire", _later(QueueTable.expire))
        assert rig.recorder.turn() is False


@pytest.mark.parametrize(("owner", "name"), STEPS_OF_KEEPING, ids=lambda value: value if isinstance(value, str) else "")
def test_a_process_that_dies_while_it_keeps_a_table_small(
    several: Rig, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """D4: after any step of compaction, retention or vacuum, each row is there once, and the next process finishes the work."""
    several.options |= {"archive_compact_files": 2, "archive_vacuum_after_s": 0.0, "archive_retention_age_s": 1.0}
    die_after(several, monkeypatch, owner, name)
    if name != "delete":
        assert sequences(several.table()) == numbers(range(50))
    several.reopen()
    several.up += 100_000
    several.record()
    assert sequences(several.table()) == numbers(range(0 if name == "delete" else 50))
    assert len(list((several.data / "archive" / "q").glob("day=*/*.parquet"))) == (0 if name == "delete" else 1)


def _later(expire: Callable[..., int]) -> Callable[..., int]:
    """As it is in three days."""
    return lambda table, age_s, now: expire(table, age_s, now + timedelta(days=3))


def test_a_file_is_kept_for_longer_than_delta_s_log_remembers_by_default(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: `archive_vacuum_after_s` of 20 days: a reader of a version of 8 days ago still finds its files."""
    for _ in range(2):
        settle(rig, 10)
        rig.record()
    before, days = foreign(rig), timedelta(days=1)
    for path in (rig.data / "archive" / "q").rglob("*.parquet"):
        os.utime(path, (time.time() - 30 * 86400, time.time() - 30 * 86400))
    assert opened(rig).vacuum(20 * 86400.0) == 0

    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - 8 * days

    with monkeypatch.context() as patch:
        patch.setattr(queue_table, "datetime", Then)
        patch.setattr(queue_table, "CHECKPOINT_COMMITS", 1)
        assert opened(rig).compact(1 << 20) == 1
    assert opened(rig).vacuum(20 * 86400.0) == 0
    assert sequences(before.to_pyarrow_table().sort_by("sequenceNumber")) == numbers(range(20))
    assert opened(rig).vacuum(7 * 86400.0) == 2


def test_the_files_of_a_day_become_one_when_it_has_ended(several: Rig) -> None:
    """D4: two days after it began, in one commit that readers see as the same rows."""
    now, files = datetime.now(timezone.utc), foreign(several).get_add_actions().num_rows
    assert opened(several).compact_ended_days(now) == 0
    assert opened(several).compact_ended_days(now + timedelta(days=2)) == files - 1
    assert opened(several).compact_ended_days(now + timedelta(days=2)) == 0
    assert sequences(several.table()) == numbers(range(50))


@pytest.mark.parametrize(
    ("setting", "then"),
    [
        (None, "interval 480 hours"),
        ("interval 3 hours", "interval 480 hours"),
        ("interval 20 days", "interval 20 days"),
        ("interval 5 weeks", "interval 5 weeks"),
        ("interval 1 day", "interval 480 hours"),
    ],
)
def test_what_somebody_has_set_for_longer_is_left_as_it_is(several: Rig, setting: str | None, then: str) -> None:
    """D4: the time for which the table's log remembers removed files."""
    name = "delta.deletedFileRetentionDuration"
    if setting is not None:
        foreign(several).alter.set_table_properties({name: setting})
    for _ in range(2):
        opened(several).vacuum(20 * 86400.0)
    assert foreign(several).metadata().configuration[name] == then


def foreign(rig: Rig) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(rig.data / "archive" / "q")


@pytest.mark.parametrize("change", ["compaction", "delete"])
def test_somebody_else_rewrites_the_files_that_we_put_together(
    several: Rig, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """D4: between our read and our commit: no row twice, and no deleted row returns."""

    def rewrite() -> None:
        if change == "compaction":
            foreign(several).optimize.compact()
        else:
            foreign(several).delete("sequenceNumber < 20")

    monkeypatch.setattr(compaction, "put_together", after(compaction.put_together, rewrite))
    assert opened(several).compact(1 << 20) == 0
    left = numbers(range(20 if change == "delete" else 0, 50))
    assert sequences(several.table()) == left
    monkeypatch.undo()
    opened(several).compact(1 << 20)
    assert sequences(several.table()) == left


def test_somebody_else_rewrites_files_between_two_groups(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: after our first commit: the files of the second group are others now."""
    for _ in range(8):
        settle(rig, 10)
        rig.record()
    most = max(path.stat().st_size for path in (rig.data / "archive" / "q").rglob("*.parquet"))
    rewrites = iter([lambda: foreign(rig).optimize.compact()])
    after_commit = QueueTable._after_commit

    def then(table: QueueTable, before: int) -> None:
        next(rewrites, lambda: None)()
        after_commit(table, before)

    mine = opened(rig)
    assert len(compaction.small(mine._members(), 4 * most + 4)) == 2
    monkeypatch.setattr(QueueTable, "_after_commit", then)
    mine.compact(4 * most + 4)
    assert sequences(rig.table()) == numbers(range(80))


def test_a_vacuum_takes_files_that_are_not_part_of_the_table_yet(rig: Rig) -> None:
    """D4: another program's, that keeps nothing: the pass is written again."""
    settle(rig, 5)
    rig.record()
    settle(rig, 5)
    taken: list[str] = []

    def vacuum(name: str) -> None:
        if name == "commit" and not taken:
            taken.extend(foreign(rig).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True))

    rig.step = vacuum
    rig.record()
    assert taken
    assert "another program has removed the file" in str(rig.recorder.of_queue("q")["error"])
    rig.record()
    assert sequences(rig.table()) == numbers(range(10))
    assert rig.unrecorded() == 0


def test_a_file_that_somebody_has_removed_holds_up_nothing_else(several: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """D4: the error is reported; recordings and vacuum continue."""
    gone = sorted((several.data / "archive" / "q").glob("day=*/pass-1-3-*.parquet"))[0]
    gone.unlink()
    orphan = gone.with_name("pass-1-99-dead.parquet")
    orphan.write_bytes(b"left behind")
    several.options |= {"archive_compact_files": 2, "archive_vacuum_after_s": 0.0}
    several.reopen()
    several.up += 100_000
    settle(several, 10)
    several.record()
    assert several.unrecorded() == 0
    assert not orphan.exists()
    assert "could not be put together" in caplog.text
    assert gone.name in caplog.text


@pytest.mark.parametrize(
    ("owner", "name"),
    [(deltalake.DeltaTable, "create_write_transaction"), (FolderTableStore, "sync_log"), (FolderTableStore, "sync")],
)
def test_a_disk_that_is_full_where_a_pass_is_committed(
    several: Rig, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """D4: for its file, its commit, or their syncs: reported, retried, and each row exists once."""

    def full(*arguments: Any, **named: Any) -> None:
        raise FULL

    settle(several, 10)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        several.record()
        assert "No space left on device" in str(several.recorder.of_queue("q")["error"])
        assert several.unrecorded() == 10
    several.record()
    assert sequences(several.table()) == numbers(range(60))
    assert several.unrecorded() == 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with recording(tmp_path) as running:
        yield running


def test_retention_while_a_replay_reads(site: Site) -> None:
    """D4, S9: it keeps its version until vacuum runs, and then reports the missing files."""
    site.send("q", body=[b"x"] * 10)
    site.settle("q", 10)
    site.record("q")
    options = Options({"url": site.plane.url, "queue": "q", "mode": "replay", "maxMessagesPerTrigger": "4"})
    replay = ReplayReader(options, source_schema(("sequenceNumber",)))

    def read(start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        parts = replay.partitions(start, end)
        return sorted(n for part in parts for batch in replay.read(part) for n in batch.column("sequenceNumber").to_pylist())

    limit = replay.getDefaultReadLimit()
    offset = replay.initialOffset()
    first = replay.latestOffset(offset, limit)
    assert read(offset, first) == [0, 1, 2, 3]
    mine = QueueTable(store_of(site.url("q")), site.service.broker_id, None)
    assert mine.expire(86400.0, datetime.now(timezone.utc) + timedelta(days=3)) == 1
    second = replay.latestOffset(first, limit)
    assert read(first, second) == [4, 5, 6, 7]
    mine.vacuum(0.0)
    with pytest.raises(errors.DataLoss, match="is gone: retention"):
        read(second, replay.latestOffset(second, limit))


def test_a_process_that_looks_after_very_many_tables_remembers_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: the state of an object store's table takes 100 KB."""
    monkeypatch.setattr(worker, "STORES", 3)
    recorder = worker.RecorderWorker({"broker": "b", "data": str(tmp_path)})
    asked = {"op": "keep", "retentionS": None, "vacuumS": None, "fileBytes": 1 << 20, "compactFiles": 2}
    for queue in [*"abcde", *"abcde"]:
        answer = recorder.answer(ChildFrame({**asked, "queue": queue, "url": str(tmp_path / queue)}, []))
        assert answer == {"compacted": 0, "ended": 0, "replaced": 0, "expired": 0, "vacuumed": 0}
    assert len(recorder._stores) == 3
    recorder._journal.close()

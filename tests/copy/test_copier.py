"""D7: the copy holds the log, a restore from it alone has all that was confirmed and copied, and only one broker writes it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.copy import restoring
from penstock.broker_core.copy.chain import CopyFenced
from penstock.broker_core.errors import InvalidRequest, ResourceLimit, StorageError
from penstock.broker_core.journal import LocalDisk, manifest
from penstock.broker_core.stores.objects import StoreError

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from ..waiting import until
from .helpers import Copied, copied, drop_before, restored

Content = tuple[bytes, bytes]


def contents(first: int, count: int, size: int = 1000) -> list[Content]:
    return [(b"meta %d" % number, Random(number).randbytes(size)) for number in range(first, first + count)]


def test_a_restore_has_all_that_was_copied(tmp_path: Path) -> None:
    store, sent = FaultyStore(), contents(0, 50)
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        for entry in sent:
            running.append(entry)
        running.until_copied()
        contents_read, report = restored(store, tmp_path / "data")
    assert contents_read == sent
    assert (report.broker, report.lag, report.kind) == ("broker-1", 0, "copy")
    assert report.position == running.journal.stored


def test_sync_confirms_nothing_that_the_copy_does_not_have(tmp_path: Path) -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store, "sync") as running:
        running.append(*contents(0, 3))
        assert restored(store, tmp_path / "first")[0] == contents(0, 3)
        store.fail = lambda call, name: StoreError("503 Slow Down")
        end = running.append(*contents(3, 1), wait_s=None)
        with pytest.raises(TimeoutError):
            running.journal.wait(end, 0.3)
        assert running.journal.stored >= end > running.journal.durable
        status = running.copier.status()
        assert (status["state"], status["lagBytes"] > 0, "503" in status["error"]) == ("waiting", True, True)
        store.fail = lambda call, name: None
        running.journal.wait(end, 40)
        assert restored(store, tmp_path / "second")[0] == contents(0, 4)


@pytest.mark.parametrize(("mode", "here"), [("async", True), ("sync", False)])
def test_nobody_takes_what_he_has_written_himself_for_durable(mode: str, here: bool) -> None:
    """With sync the loop of AMQP, which writes a small group itself, would take it for a failure that it is not durable then."""
    with copied(LyingDisk(), FaultyStore(), mode) as running:
        running.append(*contents(0, 1))
        running.until_copied()
        for number in range(50):
            end = running.journal.append(b"meta %d" % number, hurry=False).end
            if running.journal.write_here(lambda: None):
                assert here
                assert running.journal.durable >= end
                break
            running.journal.wait(end)
        else:
            assert not here


def test_sync_says_why_producers_wait() -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store, "sync", buffer_bytes=10_000) as running:
        running.append(*contents(0, 1))
        store.fail = lambda call, name: StoreError("the bucket does not exist")
        running.append(*contents(1, 9), wait_s=None)
        until(lambda: running.copier.status()["state"] == "waiting", "the copy waits for its store")
        with pytest.raises(ResourceLimit, match=r"copy = sync.*the bucket does not exist"):
            running.journal.reserve(5000, 0.1)


@pytest.mark.parametrize("most", [8, 9])
def test_a_store_that_is_away_for_weeks_takes_no_memory_and_the_lag_is_known(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier_module, "SAMPLES_MAX", most)
    store = FaultyStore()
    with copied(LyingDisk(), store) as running:
        running.append(*contents(0, 1))
        running.until_copied()
        store.fail = lambda call, name: StoreError("connection refused")
        now = [1000.0]
        running.copier._clock = lambda: now[0]
        for number in range(100):
            now[0] += 60
            end = running.append(*contents(1 + number, 1))
            until(lambda end=end: running.copier._samples[-1][0] >= end, "the copier has received it")  # type: ignore[misc]
            assert len(running.copier._samples) <= most
        assert running.copier.lag()[0] == 99 * 60
        store.fail = lambda call, name: None
        running.until_copied()
        assert not running.copier._samples


def test_async_goes_on_while_the_store_is_away_and_says_its_lag(tmp_path: Path) -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store) as running:
        running.append(*contents(0, 3))
        running.until_copied()
        store.fail = lambda call, name: StoreError("connection refused")
        running.append(*contents(3, 3))
        until(lambda: running.copier.status()["state"] == "waiting", "the copy waits for its store")
        assert running.copier.status()["error"] == "connection refused"
        until(lambda: running.copier.status()["failingSeconds"] > 0, "the copier reports the duration")
        lag_s, lag = running.copier.lag()
        assert lag_s > 0
        assert lag > 3000
        assert restored(FaultyStore(store.objects), tmp_path / "old")[0] == contents(0, 3)
        store.fail = lambda call, name: None
        running.until_copied()
        assert running.copier.lag() == (0.0, 0)
        assert restored(store, tmp_path / "new")[0] == contents(0, 6)


def test_answers_that_were_lost_do_no_harm(tmp_path: Path) -> None:
    store, random = FaultyStore(), Random(1)
    store.fail = lambda call, name: StoreError("500") if random.random() < 0.2 else None
    store.lose = lambda call, name: StoreError("cut") if random.random() < 0.2 else None
    with copied(LyingDisk(), store, "sync", segment_bytes=8000) as running:
        for entry in contents(0, 15):
            running.append(entry, wait_s=60)
        assert running.failures == []
        assert restored(FaultyStore(store.objects), tmp_path / "data")[0] == contents(0, 15)


def test_the_former_broker_is_refused_at_its_next_put_and_stops(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    old = Copied(LyingDisk(), FaultyStore(objects), "sync")
    old.append(*contents(0, 3))
    contents_read, report = restored(FaultyStore(objects), tmp_path / "data", writer="new-1")
    assert contents_read == contents(0, 3)
    assert report.taken_over
    end = old.append(*contents(3, 1), wait_s=None)
    with pytest.raises(StorageError, match="was taken over"):
        old.journal.wait(end, 30)  # not confirmed
    (failure,) = old.failures
    assert "stops" in str(failure)
    old.close()
    with copied(LocalDisk(tmp_path / "data"), FaultyStore(objects), "sync") as new:
        new.append(*contents(10, 2))
        assert restored(FaultyStore(objects), tmp_path / "again")[0] == [*contents(0, 3), *contents(10, 2)]


def test_an_idle_broker_notices_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(copier_module, "LOOK_S", 0.05)
    objects: dict[str, bytes] = {}
    with copied(LyingDisk(), FaultyStore(objects)) as old:
        old.append(*contents(0, 3))
        old.until_copied()
        restored(FaultyStore(objects), tmp_path / "data", writer="new-2")
        until(lambda: old.failures, "the former broker is fenced")


def test_a_start_from_a_copy_fences_the_former(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    with copied(LyingDisk(), FaultyStore(objects)) as old:
        old.append(*contents(0, 3))
        old.until_copied()
        restored(FaultyStore(objects), tmp_path / "data")  # a test restore: the old one continues
        with copied(LocalDisk(tmp_path / "data"), FaultyStore(objects)) as new:
            old.append(*contents(3, 1))
            until(lambda: old.failures, "the former broker is fenced")
            assert new.failures == []


def test_a_directory_that_was_restored_before_the_copy_went_on_is_refused(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    with copied(LyingDisk(), FaultyStore(objects)) as old:
        old.append(*contents(0, 3))
        old.until_copied()
        restored(FaultyStore(objects), tmp_path / "data")
        old.append(*contents(3, 1))
        old.until_copied()
        with pytest.raises(CopyFenced, match="--take-over"):
            Copied(LocalDisk(tmp_path / "data"), FaultyStore(objects))
        old.append(*contents(4, 1))
        old.until_copied()
        assert old.failures == []


def test_the_former_is_refused_at_its_start(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    disk = LyingDisk()
    with copied(disk, FaultyStore(objects)) as old:
        old.append(*contents(0, 3))
        old.until_copied()
    restored(FaultyStore(objects), tmp_path / "data", writer="new-3")
    with pytest.raises(CopyFenced, match="belongs to another data directory now"):
        Copied(disk.kill(), FaultyStore(objects))


def test_the_copy_of_another_broker_is_refused() -> None:
    objects: dict[str, bytes] = {}
    with copied(LyingDisk(), FaultyStore(objects)) as first:
        first.until_copied()
    disk = LyingDisk()
    file = disk.create("id")
    file.append([b"broker-2"])
    manifest.write(disk, "broker-2", [], 0, ())
    with pytest.raises(CopyFenced, match="of another broker"):
        Copied(disk, FaultyStore(objects))


def test_a_directory_older_than_its_copy_is_refused(tmp_path: Path) -> None:
    objects: dict[str, bytes] = {}
    disk = LyingDisk()
    with copied(disk, FaultyStore(objects)) as running:
        running.append(*contents(0, 3))
        running.until_copied()
        older = disk.copy()
        running.append(*contents(3, 3))
        running.until_copied()
    with pytest.raises(CopyFenced, match="older state"):
        Copied(older, FaultyStore(objects))


def test_an_emptied_bucket_gets_a_new_copy(tmp_path: Path) -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        running.append(*contents(0, 30))
        running.until_copied()
        store.fail = lambda call, name: StoreError("NoSuchBucket")
        store.objects.clear()
        running.append(*contents(30, 3))
        until(lambda: running.copier.status()["state"] == "waiting", "the copy waits for its store")
        store.fail = lambda call, name: None
        running.until_copied()
        assert restored(store, tmp_path / "data")[0] == contents(0, 33)


def test_what_the_journal_drops_leaves_the_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(copier_module, "DELETE_AFTER_S", 0.0)
    monkeypatch.setattr(copier_module, "TEND_S", 0.01)
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        sent: list[Content] = []
        for round_ in range(6):
            more = contents(100 * round_, 30)
            running.append(*more)
            sent += more
            position = running.journal.end
            running.journal.write_snapshot(position, repr(sent).encode(), [])
            drop_before(running.journal, position)
            running.until_snapshot_copied(position)
            sizes = sum(map(len, store.objects.values()))
        running.append(*contents(1000, 1))
        running.until_copied()
        until(lambda: not running.copier._condemned, "condemned objects are deleted")
        assert sum(map(len, store.objects.values())) < sizes + 300_000
        assert restored(store, tmp_path / "data")[0] == [*sent, *contents(1000, 1)]


def test_a_store_that_deletes_nothing_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Everything else continues, so there is no alarm; but the copy would grow without end."""
    for name, value in (("DELETE_AFTER_S", 0.0), ("TEND_S", 0.001), ("UNTENDED_S", 0.05)):
        monkeypatch.setattr(copier_module, name, value)
    store = FaultyStore()
    store.fail = lambda call, name: StoreError("deletions are denied") if call == "delete" else None
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        for first in (0, 30):
            running.append(*contents(first, 30))
            running.journal.write_snapshot(running.journal.end, b"[]", [])
            drop_before(running.journal, running.journal.end)
            running.append(*contents(first, 1))
            running.until_copied()
        until(lambda: "grows, because tending it fails" in caplog.text, "the log reports it")
        tries = store.calls["delete"]
        until(lambda: store.calls["delete"] > tries + 10, "it is tried again and again")
        running.append(*contents(60, 1))
        running.until_copied()
        assert caplog.text.count("tending it fails: deletions are denied") == 1
        store.fail = lambda call, name: None
        until(lambda: not running.copier._condemned, "condemned objects are deleted")


def test_holes_of_the_log_are_holes_of_the_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """D2, D7: segments that the cleaner drops from the middle of the log."""
    monkeypatch.setattr(copier_module, "TEND_S", 0.01)
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        for entry in contents(0, 60):
            running.append(entry)
        position = running.journal.end
        running.journal.write_snapshot(position, b"[]", [])
        running.append(*contents(60, 5))
        # The copy counts from this snapshot on before the segments are dropped: nothing else is put then, and yet they go.
        running.until_snapshot_copied(position)
        segments = running.journal.segments()
        assert len(running.journal.drop([segments[1], segments[2], segments[4]])) == 3
        dropped = {segment.base for segment in (segments[1], segments[2], segments[4])}
        until(
            lambda: not dropped & {int(name[:20]) for name in restoring._load(store).contents.segments()},
            "the copy also drops the segments",
        )
        running.until_copied()
        bases = {segment.base for segment in running.journal.segments()}
        assert restored(store, tmp_path / "data")[0] == contents(60, 5)
    disk = LocalDisk(tmp_path / "data")
    assert bases <= {int(name[:20]) for name in disk.names() if name.endswith(".seg")}
    listed = manifest.read(disk)
    assert listed is not None
    assert listed.holes is not None
    assert {hole.begin for hole in listed.holes} == {segments[1].base, segments[4].base}
    disk.close()


def test_small_chunks_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(copier_module, "DELETE_AFTER_S", 0.0)
    monkeypatch.setattr(copier_module, "TEND_S", 0.01)
    store = FaultyStore()
    with copied(LyingDisk(), store, "sync") as running:
        for entry in contents(0, 200, 10):
            running.append(entry)
        until(lambda: len(store.objects) < 100, "chunks are merged")
        assert restored(store, tmp_path / "data")[0] == contents(0, 200, 10)


def test_what_is_dropped_before_it_was_copied_begins_the_copy_anew(tmp_path: Path) -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=8000) as running:
        running.append(*contents(0, 3))
        running.until_copied()
        store.fail = lambda call, name: StoreError("away")
        sent = contents(0, 3)
        for first in range(3, 60, 3):
            running.append(*contents(first, 3))
            sent += contents(first, 3)
        position = running.journal.end
        running.journal.write_snapshot(position, repr(sent).encode(), [])
        assert len(drop_before(running.journal, position)) > 2
        store.fail = lambda call, name: None
        running.until_copied()
        assert running.failures == []
        assert restored(store, tmp_path / "data")[0] == sent


def test_there_is_nothing_to_restore_before_the_first_copy_is_complete(tmp_path: Path) -> None:
    store = FaultyStore()
    with pytest.raises(InvalidRequest, match="holds no copy"):
        restored(store, tmp_path / "data")

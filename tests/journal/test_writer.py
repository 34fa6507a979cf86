"""The writer: many appends to one sync; the three modes; and that the first failure is the last."""

from __future__ import annotations

import threading
import time

import pytest

from broker_core.errors import StorageError
from broker_core.journal import writer

from .helpers import append, content, open_journal, read_all, running
from .lying_disk import LyingDisk


def test_many_waiters_share_few_syncs():
    disk = LyingDisk()
    disk.fail = lambda call, name: time.sleep(0.002) if call == "sync" else None  # long enough for others to come
    with running(disk) as journal:
        lock = threading.Lock()

        def client(number: int) -> None:
            for _ in range(10):
                with lock:
                    end = journal.append(b"%d" % number).end
                journal.wait(end, 10)
                assert journal.durable >= end

        threads = [threading.Thread(target=client, args=(number,)) for number in range(20)]
        before = disk.calls["sync"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(content(journal)) == 200
        assert 10 <= disk.calls["sync"] - before < 100


def test_what_nobody_waits_for_shares_a_sync(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "LINGER_S", 1000.0)
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"", b""))
        before = disk.calls["sync"]
        for waits in (journal.wait, lambda end: (journal.hurry(end), journal.wait(end, 10))):
            for _ in range(3):
                end = journal.append(b"nobody waits", hurry=False).end
            waits(end)
        for _ in range(3):
            journal.append(b"nobody waits", hurry=False)
        journal.wait(journal.append(b"somebody may").end, 10)
        position = journal.append(b"read", [b"payload"], hurry=False).position
        assert journal.payload(position).to_pybytes() == b"payload"
        journal.append(b"nobody waits", hurry=False)
        journal.write_snapshot(journal.end, b"", [])
        assert disk.calls["sync"] - before == 5 + 1  # one is the snapshot's file
        journal.append(b"at the close", hurry=False)
    with running(disk) as journal:
        assert [meta for meta, _ in content(journal)][-2:] == [b"nobody waits", b"at the close"]


def test_what_nobody_waits_for_is_soon_durable_all_the_same():
    with running(LyingDisk()) as journal:
        append(journal, (b"", b""))
        for _ in range(3):
            reached = threading.Event()
            end = journal.append(b"nobody waits", hurry=False).end
            journal.add_listener(lambda durable, end=end, reached=reached: durable >= end and reached.set())
            assert journal.durable >= end or reached.wait(10) or journal.durable >= end


def test_what_was_appended_before_the_start_is_one_write_and_one_sync():
    disk = LyingDisk()
    journal = open_journal(disk)
    for number in range(1000):
        journal.append(b"%d" % number, [b"x" * 100])
    calls = dict(disk.calls)
    journal.start()
    journal.wait(journal.end, 10)
    assert disk.calls["append"] - calls["append"] == 2  # the segment's header, and all else
    assert disk.calls["sync"] - calls["sync"] == 2
    journal.close()


def test_never_syncs_only_full_segments_and_at_the_close():
    disk = LyingDisk()
    with running(disk, fsync="never", segment_bytes=10_000) as journal:
        append(journal, (b"", b""))
        before = disk.calls["sync"]
        for _ in range(20):
            append(journal, (b"", b"x" * 300))
        assert disk.calls["sync"] == before
        for _ in range(30):
            append(journal, (b"", b"x" * 300))
        assert disk.calls["sync"] == before + 2  # the old segment, the header of the new one
    assert disk.calls["sync"] == before + 4  # what was left; the empty group that says so


def test_interval_syncs_once_in_a_while_also_when_nothing_comes():
    disk = LyingDisk()
    with running(disk, fsync="interval", interval_s=0.05) as journal:
        started, before = time.monotonic(), disk.calls["sync"]
        for _ in range(200):
            append(journal, (b"", b""))
        passed = time.monotonic() - started
        assert disk.calls["sync"] - before <= 2 + passed / 0.05
        deadline = time.monotonic() + 10
        while journal._writer.synced < journal.end and time.monotonic() < deadline:
            time.sleep(0.01)
        assert journal._writer.synced >= journal.end


@pytest.mark.parametrize("call", ["append", "sync", "create", "rename", "sync_directory"])
def test_the_first_failure_is_the_last(call):
    disk = LyingDisk()
    told: list[Exception] = []
    with running(disk, on_failure=told.append, segment_bytes=1000) as journal:
        end = append(journal, (b"confirmed", b"x" * 2000))
        waiting: list[object] = []

        def wait() -> None:
            try:
                journal.wait(end + 100, 10)
            except StorageError as error:
                waiting.append(error)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        disk.fail = lambda what, name: OSError(5, "input/output error") if what == call else None
        appended = journal.append(b"lost", [b"y" * 2000])
        with pytest.raises(StorageError, match="input/output error"):
            journal.wait(appended.end, 10)
        for thread in threads:
            thread.join()
        assert len(waiting) == 3
        disk.fail = lambda what, name: None
        calls = disk.calls.total()
        for use in (
            lambda: journal.append(b""),
            lambda: journal.reserve(1, 1),
            lambda: journal.write_snapshot(appended.end, b"", []),
        ):
            with pytest.raises(StorageError, match="nothing was retried"):
                use()
        with pytest.raises(StorageError):
            journal.close()
        assert disk.calls.total() == calls  # nothing is tried again, not even at the close
        assert [str(error) for error in told] == [str(journal._writer.failure)]
        assert content(journal)[0] == (b"confirmed", b"x" * 2000)
    assert read_all(disk)[0] == (b"confirmed", b"x" * 2000)


def test_a_full_disk_stops_the_journal_and_loses_nothing_confirmed():
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"one", b"x" * 1000))
        disk.room = 500
        with pytest.raises(StorageError, match="no space left"):
            append(journal, (b"two", b"y" * 1000))
    disk.room = 5000  # the reserve
    journal = open_journal(disk)
    assert content(journal) == [(b"one", b"x" * 1000)]
    assert journal.repaired is not None


def test_a_wait_can_time_out_and_the_record_still_become_durable():
    disk = LyingDisk()
    gate = threading.Event()
    with running(disk) as journal:
        append(journal, (b"", b""))
        disk.fail = lambda call, name: gate.wait(10) and None if call == "sync" else None
        end = journal.append(b"slow").end
        with pytest.raises(TimeoutError, match=f"position {end} was not durable"):
            journal.wait(end, 0.01)
        gate.set()
        journal.wait(end, 10)


def test_what_a_failed_snapshot_or_unlink_tells_about_the_disk_stops_the_journal():
    for call in ("sync", "rename"):
        disk = LyingDisk()
        told: list[Exception] = []
        with running(disk, on_failure=told.append) as journal:
            end = append(journal, (b"", b""))
            disk.fail = lambda what, name, call=call: OSError(5, "bad disk") if what == call and "snap" in name else None
            with pytest.raises(StorageError, match="could not be written"):
                journal.write_snapshot(end, b"", [])
            assert len(told) == 1
            with pytest.raises(StorageError, match="bad disk"):
                journal.append(b"")

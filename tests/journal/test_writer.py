"""D1: the writer: many appends for one sync, the three modes, and no retry after a failure."""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import Counter

import pytest

from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import writer

from ..waiting import until
from .helpers import append, content, open_journal, read_all, running, until_idle
from .lying_disk import ROOM, LyingDisk

FAILING = ["append", "sync", "create", "rename", "sync_directory"]


def test_many_waiters_share_few_syncs():
    disk = LyingDisk()
    disk.fail = lambda call, name: time.sleep(0.002) if call == "sync" else None  # long enough for other appends
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


def test_what_nobody_waits_for_shares_a_sync():
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
        assert disk.calls["sync"] - before == 5 + 1  # one for the snapshot's file
        journal.append(b"at the close", hurry=False)
    with running(disk) as journal:
        assert [meta for meta, _ in content(journal)][-2:] == [b"nobody waits", b"at the close"]


def test_who_appends_may_write_in_the_threads_place():
    disk, notifications = LyingDisk(), list[tuple[int, int]]()
    with running(disk) as journal:
        append(journal, (b"", b""))
        journal.add_listener(lambda durable: notifications.append((durable, threading.get_ident())))
        for number in range(20):
            until_idle(journal)
            before = disk.calls["sync"]
            end = journal.append(b"%d" % number, [b"x" * number], hurry=False).end
            assert journal.write_here(lambda: None)
            assert journal.durable >= end
            assert disk.calls["sync"] == before + 1
            assert notifications.pop() == (journal.durable, threading.get_ident())
        assert not journal.write_here(lambda: None)  # no record to write
    assert content(open_journal(disk.copy()))[1:] == [(b"%d" % number, b"x" * number) for number in range(20)]


def test_nobody_but_the_thread_writes_what_takes_its_time():
    disk = LyingDisk()
    with running(disk, segment_bytes=1 << 20) as journal:

        def slowly(call: str, name: str) -> None:
            disk.time_s += 0.01 if call == "sync" else 0

        def written_here(payload: bytes = b"") -> bool:
            until_idle(journal)
            end = journal.append(b"", [payload], hurry=False).end
            calls = disk.calls["append"]
            here = journal.write_here(lambda: None)
            assert here or disk.calls["append"] == calls
            journal.wait(end, 10)
            return here

        assert not written_here()  # the first segment
        assert written_here()
        assert not written_here(b"x" * writer.QUICK_BYTES)
        assert written_here()
        assert not written_here(b"x" * (1 << 20))
        assert not written_here()  # the next segment
        assert written_here()
        disk.fail = slowly  # type: ignore[assignment]
        assert written_here()  # the previous write was fast
        assert not written_here()
        disk.fail = lambda call, name: None
        slow = next(count for count in range(1000) if written_here())
        assert slow == math.ceil(math.log(writer.QUICK_S / 0.01) / math.log(1 - 1 / writer.SYNCS_REMEMBERED))


@pytest.mark.parametrize("closes", [False, True])
def test_what_comes_while_another_writes_is_written_after_it(closes):
    disk, inside, gate = LyingDisk(), list[str](), threading.Event()

    def hold(call: str, name: str) -> None:
        assert not inside, f"{call} while another {inside}"
        inside.append(call)
        assert call != "sync" or gate.wait(10)
        inside.remove(call)

    def come() -> None:
        end = journal.append(b"second").end
        journal.close() if closes else journal.wait(end, 10)

    with running(disk) as journal:
        append(journal, (b"", b""))
        until_idle(journal)
        disk.fail = hold  # type: ignore[assignment]
        journal.append(b"first", hurry=False)
        threads = [threading.Thread(target=target) for target in (lambda: journal.write_here(lambda: None), come)]
        threads[0].start()
        while "sync" not in inside:
            threads[0].join(0.0001)
            assert threads[0].is_alive()
        threads[1].start()
        threads[1].join(0.05)
        assert threads[1].is_alive()
        gate.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    assert [meta for meta, _ in read_all(disk)] == [b"", b"first", b"second"]


def test_one_writes_at_a_time_and_what_it_writes_is_in_order():
    disk, inside, positions, here = LyingDisk(), list[str](), list[int](), Counter[bool]()

    def slowly(call: str, name: str) -> None:
        assert not inside, f"{call} while another {inside}"
        inside.append(call)
        time.sleep(0.0002)  # so that another thread could interfere
        inside.remove(call)

    with running(disk) as journal:
        append(journal, (b"", b""))
        journal.add_listener(positions.append)
        disk.fail = slowly  # type: ignore[assignment]
        lock = threading.Lock()

        def client(number: int) -> None:
            for step in range(50):
                with lock:
                    end = journal.append(b"%d %d" % (number, step), hurry=False).end
                if number:
                    until_idle(journal)
                    here[journal.write_here(lambda: None)] += 1
                journal.wait(end, 10)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        disk.fail = lambda call, name: None
        assert here[True]
        assert positions == sorted(positions)
        for number in range(3):
            mine = [meta for meta, _ in content(journal) if meta.startswith(b"%d " % number)]
            assert mine == [b"%d %d" % (number, step) for step in range(50)]


def test_what_was_appended_before_the_start_is_one_write_and_one_sync():
    disk = LyingDisk()
    journal = open_journal(disk)
    for number in range(1000):
        journal.append(b"%d" % number, [b"x" * 100])
    calls = dict(disk.calls)
    journal.start()
    journal.wait(journal.end, 10)
    assert disk.calls["append"] - calls["append"] == 3  # the segment's header, the manifest, and all records
    assert disk.calls["sync"] - calls["sync"] == 3
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
        assert disk.calls["sync"] == before + 3  # the old segment, the header of the new one, the manifest
    assert disk.calls["sync"] == before + 6  # the rest; the empty group at the end; the manifest


def test_interval_syncs_once_in_a_while_also_when_nothing_comes():
    disk = LyingDisk()
    with running(disk, fsync="interval", interval_s=0.05) as journal:
        append(journal, (b"", b""))  # begins the segment, which needs its own syncs
        before = disk.calls["sync"]
        for number in range(200):
            append(journal, (b"", b""))
            assert disk.calls["sync"] - before <= number // 50
            disk.time_s += 0.001
        assert disk.calls["sync"] - before >= 3
        disk.time_s += 0.05
        until(lambda: journal.synced >= journal.end, "all is synced")


@pytest.mark.parametrize(("call", "here"), [(call, False) for call in FAILING] + [("append", True), ("sync", True)])
def test_the_first_failure_is_the_last(call, here):
    disk = LyingDisk()
    failures: list[Exception] = []
    with running(disk, on_failure=failures.append, segment_bytes=1 << 20 if here else 1000) as journal:
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
        disk.fail = lambda operation, name: OSError(5, "input/output error") if operation == call else None
        until_idle(journal)
        appended = journal.append(b"lost", [b"y" * 2000], hurry=not here)
        assert journal.write_here(lambda: None) is here
        with pytest.raises(StorageError, match="input/output error"):
            journal.wait(appended.end, 10)
        for thread in threads:
            thread.join()
        assert len(waiting) == 3
        disk.fail = lambda operation, name: None
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
        assert disk.calls.total() == calls  # no retry, not even at the close
        assert [str(error) for error in failures] == [str(journal.failure)]
        assert content(journal)[0] == (b"confirmed", b"x" * 2000)
    assert read_all(disk)[0] == (b"confirmed", b"x" * 2000)


def test_a_kill_on_a_full_disk_loses_nothing_confirmed():
    disk = LyingDisk()
    journal = open_journal(disk)
    journal.start()
    append(journal, (b"one", b"x" * 1000))
    disk.room = 500
    end = journal.append(b"two", [b"y" * 1000]).end
    until(lambda: journal.is_full, "the journal waits")
    with pytest.raises(TimeoutError):
        journal.wait(end, 0.01)
    after = disk.kill()
    with pytest.raises(StorageError):  # its thread
        journal.close()
    after.room = 5000  # the reserve
    assert content(open_journal(after)) == [(b"one", b"x" * 1000)]


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
        failures: list[Exception] = []
        with running(disk, on_failure=failures.append) as journal:
            end = append(journal, (b"", b""))
            disk.fail = lambda operation, name, call=call: (
                OSError(5, "bad disk") if operation == call and "snap" in name else None
            )
            with pytest.raises(StorageError, match="could not be written"):
                journal.write_snapshot(end, b"", [])
            assert len(failures) == 1
            with pytest.raises(StorageError, match="bad disk"):
                journal.append(b"")


@pytest.mark.parametrize("here", [False, True])
def test_a_disk_that_fails_to_make_room_has_failed(here):
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"confirmed", b"x" * (ROOM - 1000)))
        until_idle(journal)
        disk.fail = lambda operation, name: OSError(5, "no zeros") if operation == "preallocate" else None
        end = journal.append(b"lost", [b"y" * 2000], hurry=not here).end
        assert journal.write_here(lambda: None) is here
        with pytest.raises(StorageError, match="no zeros"):
            journal.wait(end, 10)
    disk.fail = lambda operation, name: None
    assert [meta for meta, _ in read_all(disk.copy())] == [b"confirmed"]


def test_who_owns_the_journal_can_fail_it():
    disk = LyingDisk()
    failures: list[Exception] = []
    with running(disk, on_failure=failures.append) as journal:
        append(journal, (b"confirmed", b""))
        until_idle(journal)
        end = journal.append(b"given up", hurry=False).end
        journal.fail(ValueError("an event could not be applied"))
        journal.fail(ValueError("and another"))
        calls = [lambda: journal.wait(end, 10), lambda: journal.append(b"later"), lambda: journal.write_snapshot(end, b"", [])]
        for call in calls:
            with pytest.raises(StorageError, match="an event could not be applied"):
                call()
        assert ["an event could not be applied" in str(error) for error in failures] == [True]
    assert [meta for meta, _ in read_all(disk)] == [b"confirmed"]


def test_records_with_more_to_come_are_one_group_whoever_waits():
    disk = LyingDisk()
    with running(disk, buffer_bytes=1 << 16) as journal:
        append(journal, (b"before", b""))
        until_idle(journal)
        before, durable = disk.calls["append"], journal.durable
        large = b"x" * (1 << 15)  # one record fills a group
        ends = [journal.append(b"%d" % number, [large], more=True).end for number in range(4)]
        journal.hurry(ends[0])  # another thread waits for the first of them
        assert not journal.write_here(lambda: None)
        until_idle(journal)
        assert journal.durable == durable
        journal.complete(hurry=False)
        journal.wait(ends[-1], 10)
        assert disk.calls["append"] == before + 1


@pytest.mark.parametrize("hurry", [True, False])
def test_a_group_is_written_once_complete_though_somebody_has_waited_for_all_of_it_before(hurry: bool):
    """The thread was woken for all of them, could not write yet, and waits again."""
    with running(LyingDisk()) as journal:
        end = journal.append(b"first", hurry=False, more=True).end
        journal.hurry(end)  # as a reader of `end` does while the group is open
        until_idle(journal)
        journal.complete(hurry=hurry)
        journal.wait(end, 10)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("blocked_write", ["a record", "a segment"])
def test_a_full_disk_is_waited_for_and_nothing_is_lost(number: int, blocked_write: str) -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=1 << 20 if blocked_write == "a record" else 1) as journal:
        append(journal, (b"before", b""))
        disk.fail = lambda call, name: OSError(number, "full") if call == "append" else None
        ends = [journal.append(b"%d" % index).end for index in range(3)]
        until(lambda: journal.is_full, "the journal waits")
        with pytest.raises(TimeoutError):
            journal.wait(ends[-1], 0.01)
        disk.fail = lambda call, name: None
        journal.wait(ends[-1], 10)
        assert not journal.is_full
        assert journal.failure is None
        assert [meta for meta, _ in content(journal)] == [b"before", b"0", b"1", b"2"]
    with running(disk) as journal:
        assert [meta for meta, _ in content(journal)] == [b"before", b"0", b"1", b"2"]


def test_who_writes_in_the_threads_place_does_not_wait_for_space() -> None:
    """The AMQP plane's loop is such a thread, and must continue."""
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"before", b""))
        until_idle(journal)
        disk.fail = lambda call, name: OSError(errno.ENOSPC, "full") if call == "append" else None
        end = journal.append(b"here", hurry=False).end
        assert not journal.write_here(lambda: None)
        assert journal.durable < end
        later = journal.append(b"later").end
        disk.fail = lambda call, name: None
        journal.wait(later, 10)
        assert [meta for meta, _ in content(journal)] == [b"before", b"here", b"later"]


def test_a_close_on_a_full_disk_is_clean_if_all_is_written() -> None:
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"all", b""))
        disk.room = 0
    disk.room = None
    with running(disk) as journal:
        assert [meta for meta, _ in content(journal)] == [b"all"]


def test_a_sync_that_finds_the_disk_full_is_a_failure() -> None:
    """A failed sync loses its unwritten pages: a second sync may succeed without them."""
    disk = LyingDisk()
    journal = open_journal(disk)
    journal.start()
    append(journal, (b"kept", b""))
    disk.fail = lambda call, name: OSError(errno.ENOSPC, "full") if call == "sync" else None
    end = journal.append(b"lost").end
    with pytest.raises(StorageError, match="must stop"):
        journal.wait(end, 10)
    with pytest.raises(StorageError):
        journal.close()

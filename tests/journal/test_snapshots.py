"""D3: a snapshot counts when it and the log are on the disk. Segments stay as long as a snapshot needs them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from penstock.broker_core.errors import DamagedJournal, ResourceLimit, StorageError

from .helpers import append, content, drop_below, open_journal, running
from .lying_disk import LyingDisk


def test_the_latest_snapshot_comes_back_and_two_are_kept():
    disk = LyingDisk()
    arrays = [np.arange(1000), b"", np.ones((3, 3)), b"abc"]
    with running(disk) as journal:
        for number in range(5):
            append(journal, (b"%d" % number, b""))
            journal.write_snapshot(journal.end, b"state %d" % number, arrays)
    assert len([name for name in disk.names() if name.endswith(".snap")]) == 2
    journal = open_journal(disk)
    snapshot = journal.snapshot
    assert snapshot is not None
    assert snapshot.meta == b"state 4"
    assert [bytes(a) for a in snapshot.arrays] == [bytes(memoryview(a).cast("B")) if len(a) else b"" for a in arrays]
    assert content(journal, snapshot.position) == []


def test_two_snapshots_of_one_position():
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"a", b""))
        for number in range(3):
            journal.write_snapshot(journal.end, b"%d" % number, [])
    assert open_journal(disk).snapshot.meta == b"2"


def test_a_snapshot_stopped_at_any_operation_counts_wholly_or_not_at_all():
    for stop in range(1, 12):
        disk = LyingDisk()
        with running(disk) as journal:
            append(journal, (b"a", b""))
            journal.write_snapshot(journal.end, b"old", [b"o" * 9000])
            append(journal, (b"b", b""))
            disk.stop_at = disk._steps + stop
            written = True
            try:
                journal.write_snapshot(journal.end, b"new", [b"n" * 9000])
            except StorageError:
                written = False
            disk.stopped = True
        for seed in range(20):
            journal = open_journal(disk.power_cut(Random(seed)))
            assert journal.snapshot is not None
            assert journal.snapshot.meta == b"new" if written else journal.snapshot.meta in (b"old", b"new")
            assert bytes(journal.snapshot.arrays[0]) == journal.snapshot.meta[:1] * 9000
            assert [meta for meta, _ in content(journal)] == [b"a", b"b"]
        if written:
            break
    assert 5 < stop < 12


@pytest.mark.parametrize("fsync", ["interval", "never"])
def test_a_snapshot_syncs_the_log_first_in_every_mode(fsync):
    disk = LyingDisk()
    with running(disk, fsync=fsync, interval_s=1000) as journal:
        append(journal, (b"a", b"x" * 9000))
        synced = disk.calls["sync"]
        journal.write_snapshot(journal.end, b"", [])
        assert disk.calls["sync"] == synced + 2  # the log, the snapshot
        for seed in range(20):
            after = open_journal(disk.copy() if seed == 0 else disk.power_cut(Random(seed)))
            assert len(content(after)) == 1
            assert after.snapshot is not None
            disk.stopped = False


def test_a_snapshot_waits_for_the_log():
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"a", b""))
        end = journal.append(b"b").end
        disk.fail = lambda call, name: OSError(5, "no sync") if call == "sync" else None
        end = journal.append(b"c").end
        with pytest.raises(StorageError, match="no sync"):
            journal.write_snapshot(end, b"", [])
    assert not [name for name in disk.names() if "snap" in name]


def test_a_damaged_snapshot_is_reported_and_the_one_before_serves():
    start = LyingDisk()
    with running(start) as journal:
        for meta in (b"one", b"two"):
            append(journal, (meta, b""))
            journal.write_snapshot(journal.end, meta, [b"x" * 100])
    latest = max(name for name in start.names() if name.endswith(".snap"))
    for offset in range(len(start.data(latest))):
        disk = start.copy()
        disk.data(latest)[offset] ^= 1
        if 8 <= offset < 12:
            with pytest.raises(StorageError, match="format version"):
                open_journal(disk)
            continue
        journal = open_journal(disk)
        assert journal.snapshot is not None
        if journal.snapshot.meta == b"one":
            assert journal.repaired is not None
            assert journal.repaired.bad_snapshots == (f"/disk/{latest}",)
            assert [meta for meta, _ in content(journal, journal.snapshot.position)] == [b"two"]
        else:
            assert (journal.snapshot.meta, bytes(journal.snapshot.arrays[0])) == (b"two", b"x" * 100)  # padding


def test_segments_go_only_below_the_last_durable_snapshot():
    disk = LyingDisk()
    with running(disk, segment_bytes=100) as journal:
        ends = [append(journal, (b"%d" % number, b"x" * 200)) for number in range(10)]
        assert drop_below(journal, journal.end) == []
        journal.write_snapshot(ends[4], b"4", [])
        payload = journal.payload(40)
        assert [info.base for info in drop_below(journal, ends[0] + 8)] == [0]
        dropped = drop_below(journal, journal.end)
        assert dropped
        assert all(info.end <= ends[4] for info in dropped)
        assert journal.segments()[0].base <= ends[4]
        assert bytes(payload) == b"x" * 200
        assert content(journal, ends[4]) == [(b"%d" % number, b"x" * 200) for number in range(5, 10)]
        disk.fail = lambda call, name: OSError(28, "full") if call == "append" and "snap" in name else None
        with pytest.raises(ResourceLimit, match="the disk is full"):
            journal.write_snapshot(ends[8], b"8", [])
        disk.fail = lambda call, name: None
        assert drop_below(journal, journal.end) == []
        assert not [name for name in disk.names() if name.endswith(".tmp")]
        append(journal, (b"10", b""))
    for seed in range(20):
        journal = open_journal(disk.power_cut(Random(seed)))
        assert journal.snapshot is not None
        assert [meta for meta, _ in content(journal, journal.snapshot.position)] == [b"%d" % n for n in range(5, 11)]


def test_dropping_stopped_at_any_operation_leaves_a_journal():
    for stop in range(1, 30):
        disk = LyingDisk()
        with running(disk, segment_bytes=100) as journal:
            for number in range(10):
                append(journal, (b"%d" % number, b"x" * 200))
            journal.write_snapshot(journal.end, b"all", [])
            disk.stop_at = disk._steps + stop
            try:
                drop_below(journal, journal.end)
            except StorageError:
                stopped = True
            else:
                stopped = False
            disk.stopped = True
        for seed in range(10):
            assert content(open_journal(disk.power_cut(Random(seed))), journal.end) == []
        if not stopped:
            break
    assert stop > 10


def test_without_a_snapshot_the_log_must_begin_at_its_beginning():
    disk = LyingDisk()
    with running(disk, segment_bytes=100) as journal:
        for number in range(5):
            append(journal, (b"%d" % number, b"x" * 200))
        journal.write_snapshot(journal.end, b"", [])
        drop_below(journal, journal.end)
    [snapshot] = [name for name in disk.names() if name.endswith(".snap")]
    disk.data(snapshot)[100] ^= 1
    with pytest.raises(DamagedJournal, match=rf"{snapshot}.*is damaged, and the log begins at \d+, but is needed from 0 on"):
        open_journal(disk)

"""D1: after any failure of the machine, the log is a prefix of the appended records, with all confirmed ones.

A history (appends, waits, snapshots, closings) runs on a `LyingDisk` that stops at its n-th operation. Then the process is killed
or the power fails, in every way that the seed of `Random` finds, and again right after the recovery.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import Journal

from .helpers import Content, append, content, open_journal, read_all, running, until_idle
from .lying_disk import LyingDisk

SIZES = [0, 10, 300, 4000, 5000, 20_000, 70_000]


class History:
    """Successive processes on one disk, and their promises."""

    def __init__(self, random: Random, fsync: str = "always") -> None:
        self.random, self.fsync = random, fsync
        self.appended: list[Content] = []
        self.confirmed = 0  # number of confirmed records
        self.snapshot = 0  # position of the last written snapshot

    def run(self, disk: LyingDisk, steps: int) -> None:
        """Open, check, and continue; ends early when the disk stops."""
        try:
            journal = self.recover(disk)
        except StorageError:
            assert disk.stopped
            return
        journal.start()
        try:
            for _ in range(steps):
                self._step(journal)
            if self.random.random() < 0.3:
                journal.close()
        except StorageError:
            assert disk.stopped

    def _step(self, journal: Journal) -> None:
        hurry = self.random.random() < 0.5
        for _ in range(self.random.choice([1, 1, 5])):
            payload = self.random.randbytes(self.random.choice(SIZES))
            journal.append(b"%d" % len(self.appended), [payload], hurry=hurry)
            self.appended.append((b"%d" % len(self.appended), payload))
        if self.random.random() < 0.7:
            if self.random.random() < 0.5:
                until_idle(journal)
                journal.write_here(lambda: None)
            journal.wait(journal.end, 10)
            self.confirmed = len(self.appended)
        if self.random.random() < 0.2:
            position = journal.end
            journal.write_snapshot(position, b"%d" % len(self.appended), [b"x" * 5000])
            self.snapshot = position
            self.confirmed = len(self.appended)

    def recover(self, disk: LyingDisk) -> Journal:
        journal = open_journal(disk, fsync=self.fsync, segment_bytes=30_000)
        records = content(journal)
        assert records == self.appended[: len(records)]
        assert len(records) >= self.confirmed
        assert (journal.snapshot.position if journal.snapshot else 0) >= self.snapshot
        if journal.snapshot:
            assert content(journal, journal.snapshot.position) == records[int(journal.snapshot.meta) :]
        for name in disk.names():
            assert not name.endswith(".tmp")
        self.appended, self.confirmed = records, len(records)
        return journal


@given(seed=st.integers(0, 1 << 32), stops=st.lists(st.integers(5, 60), min_size=1, max_size=4), kills=st.integers(0, 15))
@settings(max_examples=200, deadline=None)
def test_everything_confirmed_is_in_the_prefix_that_recovery_gives(seed, stops, kills):
    random = Random(seed)
    history, disk = History(random), LyingDisk()
    for run, stop in enumerate(stops):
        disk.stop_at = stop
        history.run(disk, 12)
        disk = disk.kill() if kills >> run & 1 else disk.power_cut(random)
    history.recover(disk)
    history.recover(disk.power_cut(random))  # after a recovery, even after a kill, a power cut removes nothing that it returned


@given(seed=st.integers(0, 1 << 32), stop=st.integers(5, 60), fsync=st.sampled_from(["interval", "never"]))
@settings(max_examples=100, deadline=None)
def test_without_fsync_a_kill_loses_nothing_and_a_power_cut_leaves_a_prefix(seed, stop, fsync):
    random = Random(seed)
    history, disk = History(random, fsync), LyingDisk()
    disk.stop_at = stop
    history.run(disk, 12)
    disk = disk.kill()
    history.recover(disk)
    history.recover(disk.power_cut(random))
    history.run(disk := disk.kill(), 5)
    history.confirmed = 0
    history.recover(disk.power_cut(random))


def two_confirmed_one_not() -> tuple[LyingDisk, str, int, list[Content]]:
    """Build a journal whose last group was written and not synced; return its file and offset."""
    disk = LyingDisk()
    contents = [(b"first", b"a" * 5000), (b"second", b"b" * 300), (b"third", bytes(range(1, 256)) * 20)]
    with running(disk) as journal:
        append(journal, contents[0])
        append(journal, contents[1])
        name = journal.segments()[0].path.removeprefix("/disk/")
        offset = len(disk.data(name))
        disk.fail = lambda call, name: OSError(5, "no sync") if call == "sync" else None
        journal.append(contents[2][0], [contents[2][1]])
        with pytest.raises(StorageError, match="no sync"):
            journal.wait(journal.end, 10)
    disk.fail = lambda call, name: None
    return disk.copy(), name, offset, contents


@pytest.mark.parametrize("fill", [b"", b"\0"], ids=["the file ends", "zeros"])
def test_the_last_group_torn_at_every_byte_is_cut_kept_aside_and_reported(fill):
    whole, name, offset, contents = two_confirmed_one_not()
    data = bytes(whole.data(name))
    torn_at = [*range(offset, offset + 200), *range(offset + 200, len(data), 97), *range(len(data) - 20, len(data))]
    for size in torn_at:
        disk = whole.copy()
        disk.data(name)[size:] = fill * (len(data) - size)
        journal = open_journal(disk)
        assert content(journal) == contents[:2]
        left = bytes(disk.data(name))[offset:].rstrip(b"\0")  # without the room after it
        if not left:
            assert journal.repaired is None
            continue
        repaired = journal.repaired
        assert repaired is not None
        assert (repaired.path, repaired.offset, repaired.bytes) == (f"/disk/{name}", offset, len(left))
        assert repaired.position == offset - 128
        assert disk.data(str(repaired.kept_aside).removeprefix("/disk/")) == left
        assert repaired.reason.endswith("a torn write")
    journal = open_journal(whole)
    assert (content(journal), journal.repaired) == (contents, None)


@pytest.mark.parametrize("sector", range(11))
def test_a_sector_missing_anywhere_in_the_last_group_cuts_it(sector):
    disk, name, offset, contents = two_confirmed_one_not()
    data = disk.data(name)
    low = max(offset, (offset // 512 + sector) * 512)
    high = min(len(data), (low // 512 + 1) * 512)
    assert low < high
    data[low:high] = bytes(high - low)
    journal = open_journal(disk)
    assert content(journal) == contents[:2]
    assert journal.repaired is not None


def test_the_log_goes_on_after_a_cut_and_the_cut_stays_cut():
    disk, name, offset, contents = two_confirmed_one_not()
    disk.data(name)[offset + 100 :] = b""
    with running(disk) as journal:
        append(journal, (b"new", b"n" * 6000))
    with running(disk) as journal:
        assert journal.repaired is None
        append(journal, (b"newer", b""))
    assert read_all(disk) == [*contents[:2], (b"new", b"n" * 6000), (b"newer", b"")]


def test_recovery_never_writes_to_an_old_file():
    disk, name, _, _ = two_confirmed_one_not()
    before = bytes(disk.data(name))
    with running(disk) as journal:
        append(journal, (b"new", b""))
    assert bytes(disk.data(name)) == before


def test_recovery_stopped_at_any_of_its_operations_is_done_again():
    torn, name, _offset, contents = two_confirmed_one_not()
    torn.data(name)[-3:] = b""
    whole, _, _, _ = two_confirmed_one_not()
    for start, expected in ((torn, contents[:2]), (whole, contents)):
        for stop in range(1, 40):
            disk = start.copy()
            disk.stop_at = stop
            try:
                open_journal(disk)
            except StorageError:
                for seed in range(5):
                    assert read_all(disk.copy() if seed == 0 else disk.power_cut(Random(seed))) == expected
            else:
                break
        assert 5 < stop < 39


def test_what_a_killed_recovery_left_is_synced_by_the_next_one():
    for stop in range(1, 40):
        disk, name, offset, contents = two_confirmed_one_not()
        inode = disk._names[name]
        inode.synced, inode.states = offset, [len(inode.data)]
        disk.stop_at = stop
        stopped = False
        try:
            open_journal(disk)
        except StorageError:
            stopped = True
        disk = disk.kill()
        assert content(open_journal(disk)) == contents
        for seed in range(10):
            assert read_all(disk.power_cut(Random(seed))) == contents
        if not stopped:
            break
    assert 5 < stop < 39


def test_a_recovered_tail_is_synced_before_open_returns():
    whole, name, offset, contents = two_confirmed_one_not()
    inode = whole._names[name]
    inode.synced, inode.states = offset, [len(inode.data)]  # as after kill -9: it reads back, but only from memory
    journal = open_journal(whole)
    assert content(journal) == contents
    for seed in range(50):
        assert read_all(whole.power_cut(Random(seed))) == contents

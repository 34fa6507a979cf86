"""A start refuses a missing or outdated file and names it. Segments that retention removed are not missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.errors import DamagedJournal, ResourceLimit, StorageError
from penstock.broker_core.journal import LocalDisk, manifest

from .helpers import append, content, drop_below, open_journal, running
from .lying_disk import LyingDisk

RECORD = (b"meta", b"x" * 200)


def segments_of(disk: LyingDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".seg")]


def filled(*, closed: bool) -> LyingDisk:
    """Write twelve records, two in a segment, and a snapshot of eight."""
    disk = LyingDisk()
    with running(disk, segment_bytes=300) as journal:
        for number in range(12):
            append(journal, RECORD)
            if number == 7:
                journal.write_snapshot(journal.end, b"", [])
        if not closed:
            return disk.copy()
    return disk


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_any_missing_segment_is_named(closed: bool) -> None:
    start = filled(closed=closed)
    assert len(segments_of(start)) > 4
    for name in segments_of(start):
        disk = start.copy()
        disk.unlink(name)
        with pytest.raises(DamagedJournal, match=rf"/disk/{name}, offset 0: the file is missing"):
            open_journal(disk)
    disk = start.copy()
    for name in segments_of(start):
        disk.unlink(name)
    with pytest.raises(DamagedJournal, match=rf"{segments_of(start)[0]}, offset 0: the file is missing"):
        open_journal(disk)
    assert len(content(open_journal(start))) == 12


def test_a_directory_with_an_id_and_nothing_else_is_no_new_one() -> None:
    disk = filled(closed=True)
    for name in disk.names():
        if name != "id":
            disk.unlink(name)
    with pytest.raises(DamagedJournal, match=r"/disk/manifest, offset 0: .*the directory has the id of a broker and no messages"):
        open_journal(disk)


def test_a_manifest_that_is_missing_or_damaged_is_named() -> None:
    start = filled(closed=True)
    disk = start.copy()
    disk.unlink("manifest")
    with pytest.raises(DamagedJournal, match=r"/disk/manifest, offset 0: the file is missing"):
        open_journal(disk)
    for offset in range(len(start.data("manifest")) - 1):
        disk = start.copy()
        disk.data("manifest")[offset] ^= 1
        with pytest.raises(DamagedJournal, match=r"/disk/manifest, offset 0: "):
            open_journal(disk)
    disk = start.copy()
    disk.data("manifest")[:] = b""
    with pytest.raises(DamagedJournal, match=r"/disk/manifest, offset 0: "):
        open_journal(disk)


def test_another_version_of_the_manifest_is_named() -> None:
    disk = filled(closed=True)
    line = bytes(disk.data("manifest")).split(b"\n")[0].replace(b'"version": 1', b'"version": 7')
    line = line.replace(b'"product": "', b'"product": "9.')
    disk.data("manifest")[:] = line + b"\n%d\n" % manifest.crc32(line)
    with pytest.raises(StorageError, match=r"format version 7, this program reads 1.*was last written by Penstock 9\.\d"):
        open_journal(disk)


def test_damage_in_the_note_only_makes_it_useless() -> None:
    start = filled(closed=False)
    for offset in range(len(start.data("synced"))):
        disk = start.copy()
        disk.data("synced")[offset] ^= 1
        assert len(content(open_journal(disk))) == 12


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_an_older_copy_of_the_last_segment_is_named(closed: bool) -> None:
    """A single file restored from a backup: cut at the end of a record, so it is valid."""
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, RECORD)
        journal.write_snapshot(journal.end, b"", [])
        append(journal, RECORD)
        [name] = segments_of(disk)
        older = bytes(disk.data(name))
        append(journal, RECORD)
        now = disk if closed else disk.copy()
    assert len(content(open_journal(now.copy()))) == 3
    now.truncate(name, 0)
    now.data(name)[:] = older
    with pytest.raises(DamagedJournal, match=rf"{name}, offset {len(older)}: the file, which ends before position \d+"):
        open_journal(now)


def test_the_same_segment_of_a_copy_that_went_on_is_named() -> None:
    start = filled(closed=True)
    sides = []
    for _ in range(2):
        disk = start.copy()
        with running(disk) as journal:
            append(journal, RECORD)
        sides.append(disk)
    ours, theirs = sides
    last = segments_of(ours)[-1]
    assert segments_of(theirs)[-1] == last
    ours.data(last)[:] = theirs.data(last)
    with pytest.raises(DamagedJournal, match=rf"{last}, offset 0: this is not the file that was begun here"):
        open_journal(ours)


def test_what_retention_took_is_not_missed() -> None:
    disk = filled(closed=False)
    with running(disk, segment_bytes=300) as journal:
        dropped = drop_below(journal, journal.end)
        assert len(dropped) >= 2
        append(journal, RECORD)
    journal = open_journal(disk)
    assert journal.snapshot is not None
    assert len(content(journal, journal.snapshot.position)) == 5
    first = segments_of(disk)[0]
    disk.unlink(first)
    with pytest.raises(DamagedJournal, match=rf"{first}, offset 0: the file is missing"):
        open_journal(disk)


@given(seed=st.integers(0, 1 << 32), stop=st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_retention_while_segments_begin_stopped_anywhere_leaves_a_journal(seed: int, stop: int) -> None:
    """Both write the manifest, from two threads; then the power goes."""
    random, disk = Random(seed), LyingDisk()
    minimum = 0
    with running(disk, segment_bytes=300) as journal:
        for _ in range(10):
            append(journal, RECORD)
        journal.write_snapshot(journal.end, b"", [])
        disk.stop_at = disk._steps + stop
        try:
            for _ in range(5):
                journal.append(*[RECORD[0], [RECORD[1]]])
                journal.drop(segment for segment in journal.segments() if random.random() < 0.3)
            journal.wait(journal.end, 10)
            minimum = 5
        except StorageError:
            assert disk.stopped
        disk.stopped = True
    after = disk.kill() if random.random() < 0.3 else disk.power_cut(random)
    for _ in range(2):
        journal = open_journal(after)
        assert journal.snapshot is not None
        assert len(content(journal, journal.snapshot.position)) >= minimum
        after = after.power_cut(random)


def test_a_manifest_that_cannot_be_written_on_a_full_disk_drops_nothing() -> None:
    disk = filled(closed=False)
    with running(disk, segment_bytes=300) as journal:
        before = journal.segments()
        disk.room = 10
        with pytest.raises(ResourceLimit, match="the list of segments was given up"):
            drop_below(journal, journal.end)
        assert journal.segments() == before
        disk.room = None
        assert drop_below(journal, journal.end)


KILLED = """
    import sys
    from penstock.broker_core.journal import Journal, LocalDisk
    journal = Journal.open(LocalDisk(sys.argv[1]))
    journal.start()
    while True:
        journal.wait(journal.append(b"meta", [b"x" * 100]).end)
        print("one", flush=True)
"""


def test_after_kill_9_an_older_copy_of_the_last_segment_is_named_with_no_snapshot_to_tell(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "data")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    (segment,) = (tmp_path / "data").glob("*.seg")
    older = segment.read_bytes().rstrip(b"\0")
    confirmed = 20 + len([process.stdout.readline() for _ in range(20)])
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with running(LocalDisk(tmp_path / "data")) as journal:
        assert len(content(journal)) >= confirmed
    copied = tmp_path / "copy" / segment.name
    os.truncate(copied, 0)
    copied.write_bytes(older)
    disk = LocalDisk(tmp_path / "copy")
    with pytest.raises(DamagedJournal, match=rf"{segment.name}, offset \d+: "):
        open_journal(disk)
    disk.close()


def test_a_backup_of_a_running_broker_in_the_order_of_the_readme_opens(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    backup.mkdir()
    count = 0
    with running(LocalDisk(data), segment_bytes=700) as journal:
        append(journal, RECORD)
        for wanted in (("manifest", "synced"), ("*.snap",), ("id", "*.seg")):
            for path in sorted(path for pattern in wanted for path in data.glob(pattern)):
                append(journal, RECORD, RECORD, RECORD)
                journal.write_snapshot(journal.end, b"", [])
                if path.exists():  # not an older snapshot that a newer one has replaced
                    shutil.copy(path, backup)
                count = sum(1 for _ in journal.replay(0))
        assert len(journal.segments()) > 5
    with running(LocalDisk(backup)) as journal:
        assert 3 < len(content(journal)) <= count


def test_a_backup_by_hard_links_of_a_running_broker_opens(tmp_path: Path) -> None:
    """Its note of the synced position is linked to the running broker's, which has begun another segment."""
    with running(LocalDisk(tmp_path / "data"), segment_bytes=300) as journal:
        append(journal, RECORD)
        (tmp_path / "backup").mkdir()
        for path in (tmp_path / "data").iterdir():
            if path.name != "lock":
                os.link(path, tmp_path / "backup" / path.name)
        append(journal, RECORD, RECORD, RECORD)
        append(journal, RECORD)
        assert len(journal.segments()) > 1
    with running(LocalDisk(tmp_path / "backup")) as journal:
        assert len(content(journal)) == 4

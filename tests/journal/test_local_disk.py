"""The real disk: the lock, file modes, mappings that outlive their files, and a killed process."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.broker_core.errors import DirectoryLocked, StorageError
from penstock.broker_core.journal import Journal, LocalDisk

from .helpers import append, content, drop_below, running

HOLDER = """
    import sys, time
    from penstock.broker_core.journal import Journal, LocalDisk
    journal = Journal.open(LocalDisk(sys.argv[1]))
    journal.start()
    for number in range(1000):
        journal.wait(journal.append(b"%d" % number, [b"x" * number * 10]).end)
        print(number, flush=True)
"""


def start_holder(path):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER), str(path)], stdout=subprocess.PIPE, text=True)


def test_a_second_broker_is_refused_with_the_pid_and_a_killed_one_leaves_all_it_confirmed(tmp_path):
    holder = start_holder(tmp_path / "data")
    assert holder.stdout is not None
    confirmed = [int(holder.stdout.readline()) for _ in range(20)]
    with pytest.raises(DirectoryLocked, match=rf"in use by process {holder.pid} on \S+; stop that broker"):
        LocalDisk(tmp_path / "data")
    holder.send_signal(signal.SIGKILL)
    confirmed += [int(line) for line in holder.stdout.read().split()]
    holder.wait()
    holder.stdout.close()
    with running(LocalDisk(tmp_path / "data")) as journal:
        records = content(journal)
        assert len(records) >= len(confirmed)
        assert records == [(b"%d" % number, b"x" * number * 10) for number in range(len(records))]


def test_the_lock_holds_within_a_process_and_goes_with_the_close(tmp_path):
    disk = LocalDisk(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()} on"):
        LocalDisk(tmp_path)
    disk.close()
    LocalDisk(tmp_path).close()


def test_nobody_else_reads_what_is_kept(tmp_path):
    with running(LocalDisk(tmp_path / "a" / "b")) as journal:
        append(journal, (b"", b"secret"))
        journal.write_snapshot(journal.end, b"", [])
    root = tmp_path / "a" / "b"
    assert root.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in root.iterdir()} == {0o600}


def test_payloads_are_mapped_aligned_and_outlive_their_segment(tmp_path):
    payload = os.urandom(3_000_001)
    with running(LocalDisk(tmp_path), segment_bytes=1000) as journal:
        position = journal.append(b"m", [payload]).position
        buffer = journal.payload(position)
        assert buffer.address % 8 == 0
        path, offset, length, *_ = journal.locate(position)
        with open(path, "rb") as file:
            file.seek(offset)
            assert file.read(length) == payload
        append(journal, (b"next", b"small"))
        journal.write_snapshot(journal.end, b"", [])
        assert [info.path for info in drop_below(journal, journal.end)] == [path]
        assert not os.path.exists(path)
        assert buffer.to_pybytes() == payload
        later = journal.append(b"", [payload[:100]]).position
        assert journal.payload(later).to_pybytes() == payload[:100]  # after the end of the previous mapping


def test_more_buffers_than_one_writev_takes(tmp_path):
    pieces = [b"%06d" % number * 10 for number in range(3000)]
    with running(LocalDisk(tmp_path)) as journal:
        position = journal.append(b"", pieces).position
        assert journal.payload(position).to_pybytes() == b"".join(pieces)
        assert journal.free_bytes() > 0


def test_a_real_journal_opens_again(tmp_path):
    for number in range(3):
        with running(LocalDisk(tmp_path), fsync=("always", "interval", "never")[number]) as journal:
            assert [meta for meta, _ in content(journal)] == [b"%d" % n for n in range(number)]
            append(journal, (b"%d" % number, b"x" * 100_000))
    journal = Journal.open(LocalDisk(tmp_path))
    assert journal.broker_id == "broker-1"
    journal.close()
    journal = Journal.open(LocalDisk(tmp_path / "new"))
    assert len(journal.broker_id) == 32
    journal.close()


def test_small_groups_are_written_into_zeros_that_nobody_ever_sees(tmp_path):
    def file() -> bytes:
        (segment,) = (tmp_path / "data").glob("*.seg")
        return segment.read_bytes()

    contents = [(b"%d" % number, b"x" * (number % 700)) for number in range(700)]  # more than one step of room
    with running(LocalDisk(tmp_path / "data")) as journal:
        sizes = set()
        for number, record in enumerate(contents):
            append(journal, record)
            if number % 200 == 0:
                assert content(journal) == contents[: number + 1]  # mapped, and mapped again
            sizes.add(len(file()))
        assert 2 <= len(sizes) <= 4, "the file grows in steps"
        assert file().endswith(bytes(64))
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
        large = (b"large", os.urandom(300_000))
        append(journal, large, (b"small", b"again"))
    assert not file().endswith(b"\0")
    with running(LocalDisk(tmp_path / "killed")) as journal:
        assert (content(journal), journal.repaired) == (contents, None)
    with running(LocalDisk(tmp_path / "data")) as journal:
        assert content(journal) == [*contents, large, (b"small", b"again")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_without_room_for_zeros_still_takes_what_fits(tmp_path, monkeypatch, number):
    disk = LocalDisk(tmp_path)
    file = disk.create("file")

    def fails(*_: object) -> int:
        raise OSError(number, "no zeros today")

    monkeypatch.setattr(os, "pwrite", fails)
    if number == errno.EIO:
        with pytest.raises(OSError, match="no zeros today"):
            file.preallocate(100)
    else:
        file.preallocate(100)
    file.append([b"a" * 100])
    file.sync()
    file.close()
    disk.close()
    assert (tmp_path / "file").read_bytes() == b"a" * 100


def test_a_directory_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    """An empty directory, as of `mkdir data`, or a broker's. A directory with other files keeps its mode."""
    empty, used, foreign = (tmp_path / name for name in ("empty", "used", "foreign"))
    for path in (empty, used, foreign):
        path.mkdir()
        path.chmod(0o755)
    (used / "lock").touch()
    (foreign / "notes.txt").touch()
    for path in (empty, used, foreign):
        LocalDisk(path).close()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (empty, used, foreign)] == [0o700, 0o700, 0o755]


def test_a_lock_that_is_a_link_is_refused_and_what_it_names_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").symlink_to(victim)
    with pytest.raises(StorageError, match="is a symbolic link"):
        LocalDisk(tmp_path / "data")
    assert victim.read_text() == "mine"

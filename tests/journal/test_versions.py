"""Data directories of earlier formats open, go on, and are read to the octet.

`version_1/` was written by commit a5b92e6: records 0 to 11 in several segments, a snapshot after eight; closed in order, or left
as kill -9 leaves it, when nobody knows whether the last record is on the disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from penstock.broker_core.errors import DamagedJournal, StorageError
from penstock.broker_core.journal import LocalDisk

from .helpers import Content, append, content, open_journal, running
from .lying_disk import Inode, LyingDisk

DIRECTORIES = Path(__file__).parent / "version_1"
CONTENTS = [(b"meta %d" % number, Random(number).randbytes(number * 13 % 300)) for number in range(12)]


@pytest.fixture(params=["closed", "crashed"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(DIRECTORIES / request.param, tmp_path / "data")
    return tmp_path / "data"


def version_of(path: Path) -> int:
    return path.read_bytes()[8]


def test_a_directory_of_version_1_goes_on_in_version_2(directory: Path) -> None:
    expected: list[Content] = list(CONTENTS)
    for start in range(3):
        with running(LocalDisk(directory), segment_bytes=600) as journal:
            assert (journal.broker_id, journal.repaired) == ("broker-1", None)
            assert content(journal) == expected
            assert journal.snapshot is not None
            assert (journal.snapshot.meta, bytes(journal.snapshot.arrays[0])) == (b"8 records", b"state" * 20)
            assert content(journal, journal.snapshot.position) == expected[8:]
            more = [(b"new %d" % start, bytes([start]) * length) for length in (0, 10, 700, 20_000)]
            append(journal, *more)
            expected += more
    segments = sorted(directory.glob("*.seg"))
    versions = [version_of(path) for path in segments]
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}


def test_nothing_is_written_in_version_1_but_the_copy_of_a_tail(directory: Path) -> None:
    before = {path.name for path in directory.glob("*.seg")}
    with running(LocalDisk(directory)) as journal:
        copied = {path.name for path in directory.glob("*.seg")} - before
        assert len(copied) == (1 if directory.joinpath("00000000000000001416-00000001.seg").stat().st_size == 568 else 0)
        assert {version_of(directory / name) for name in copied} <= {1}
        append(journal, (b"new", b""))
        (new,) = {path.name for path in directory.glob("*.seg")} - before - copied
        assert version_of(directory / new) == 2


def test_damage_in_version_1_is_found(directory: Path) -> None:
    _, second, _ = sorted(directory.glob("*.seg"))
    data = bytearray(second.read_bytes())
    data[-100] ^= 1
    second.write_bytes(data)
    with running(LocalDisk(directory)) as journal, pytest.raises(DamagedJournal, match=rf"{second.name}, offset \d+"):
        content(journal)


def test_a_directory_of_version_1_gets_a_list_of_what_must_be_there(directory: Path) -> None:
    with running(LocalDisk(directory)):
        pass
    for path in sorted(directory.glob("*.seg"))[:2]:
        os.rename(path, directory / "aside")
        disk = LocalDisk(directory)
        with pytest.raises(DamagedJournal, match=rf"{path.name}, offset 0: the file is missing"):
            open_journal(disk)
        disk.close()
        os.rename(directory / "aside", path)
    with running(LocalDisk(directory)) as journal:
        assert content(journal) == CONTENTS


@pytest.mark.parametrize("kind", ["closed", "crashed"])
def test_the_first_start_on_a_directory_of_version_1_may_be_stopped_anywhere(kind: str) -> None:
    files = {path.name: path.read_bytes() for path in (DIRECTORIES / kind).iterdir()}
    for stop in range(1, 60):
        disk = LyingDisk({name: Inode(data, len(data)) for name, data in files.items()})
        disk.stop_at = stop
        with contextlib.suppress(StorageError):
            journal = open_journal(disk)
            journal.start()
            append(journal, (b"new", b"n" * 100))
            journal.close()
        for seed in range(6):
            after = disk.kill() if seed == 0 else disk.power_cut(Random(seed))
            for _ in range(2):
                found = content(open_journal(after))
                assert found[:12] == CONTENTS
                assert found[12:] in ([], [(b"new", b"n" * 100)])
                after = after.power_cut(Random(seed))
        if disk._steps < stop:
            break
    assert 15 < stop < 59

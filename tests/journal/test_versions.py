"""Version 1 of the journal's formats: the next version must read it. Earlier versions are refused.

`version_1/` holds records 0 to 11 in several segments, and a snapshot after eight. It was closed in order, or left as kill -9
leaves it, when the last record may be missing on the disk. `development/` was written before version 1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

from penstock.broker_core.errors import DamagedJournal, StorageError
from penstock.broker_core.journal import LocalDisk, manifest, segments, snapshots

from .helpers import Content, append, content, open_journal, running
from .lying_disk import Inode, LyingDisk

HERE = Path(__file__).parent
CONTENTS = [(b"meta %d" % number, Random(number).randbytes(number * 13 % 300)) for number in range(12)]


@pytest.fixture(params=["closed", "crashed"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(HERE / "version_1" / request.param, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def version_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Introduce the next version of segments, which differs from version 1 only by its number."""
    monkeypatch.setattr(segments, "VERSION", 2)


def version_of(path: Path) -> int:
    return path.read_bytes()[8]


@pytest.mark.usefixtures("version_2")
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
    versions = [version_of(path) for path in sorted(directory.glob("*.seg"))]
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}


@pytest.mark.usefixtures("version_2")
def test_nothing_is_written_in_version_1_but_the_copy_of_a_tail(directory: Path) -> None:
    before = {path.name for path in directory.glob("*.seg")}
    was_closed = (directory / "synced").exists()
    with running(LocalDisk(directory)) as journal:
        copied = {path.name for path in directory.glob("*.seg")} - before
        assert len(copied) == (0 if was_closed else 1)
        assert {version_of(directory / name) for name in copied} <= {1}
        append(journal, (b"new", b""))
        (new,) = {path.name for path in directory.glob("*.seg")} - before - copied
        assert version_of(directory / new) == 2


@pytest.mark.parametrize("module", [manifest, snapshots])
def test_version_2_of_the_manifest_and_of_snapshots(directory: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", 2)
    with running(LocalDisk(directory), segment_bytes=600) as journal:
        assert content(journal) == CONTENTS
        append(journal, (b"new", bytes(2000)))
        journal.write_snapshot(journal.end, b"9 records", [])
    monkeypatch.setattr(module, "VERSION", 1)
    disk = LocalDisk(directory)
    with pytest.raises(StorageError, match="format version 2, this program reads 1; use the program that wrote it"):
        open_journal(disk)
    disk.close()


def test_a_program_of_version_1_refuses_version_2(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(segments, "VERSION", 2)
        with running(LocalDisk(directory)) as journal:
            append(journal, (b"new", b""))
    disk = LocalDisk(directory)
    with pytest.raises(StorageError, match="format version 2, this program reads 1; use the program that wrote it"):
        open_journal(disk)
    disk.close()


@pytest.mark.parametrize("keeps", ["everything", "only the manifest"])
def test_a_directory_of_a_development_version_is_refused(tmp_path: Path, keeps: str) -> None:
    """Before 0.1.0 segments had no secret, or the manifest had version 2."""
    shutil.copytree(HERE / "development", tmp_path / "data")
    if keeps == "only the manifest":
        line = b'{"version": 2, "broker": "broker-1", "synced": 0, "segments": [], "holes": []}'
        (tmp_path / "data" / "manifest").write_bytes(line + b"\n%d\n" % segments.crc32(line))
    before = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    disk = LocalDisk(tmp_path / "data")
    with pytest.raises(StorageError, match=r"format version [02], this program reads 1; .*or begin with an empty directory"):
        open_journal(disk)
    disk.close()
    assert {name: (tmp_path / "data" / name).read_bytes() for name in before} == before


def test_damage_in_version_1_is_found(directory: Path) -> None:
    _, second, *_ = sorted(directory.glob("*.seg"))
    data = bytearray(second.read_bytes())
    data[-100] ^= 1
    second.write_bytes(data)
    with running(LocalDisk(directory)) as journal, pytest.raises(DamagedJournal, match=rf"{second.name}, offset \d+"):
        content(journal)


@pytest.mark.usefixtures("version_2")
def test_a_directory_of_version_1_lists_what_must_be_there(directory: Path) -> None:
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


@pytest.mark.usefixtures("version_2")
@pytest.mark.parametrize("kind", ["closed", "crashed"])
def test_the_first_start_on_a_directory_of_version_1_may_be_stopped_anywhere(kind: str) -> None:
    files = {path.name: path.read_bytes() for path in (HERE / "version_1" / kind).iterdir()}
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
                records = content(open_journal(after))
                assert records[:12] == CONTENTS
                assert records[12:] in ([], [(b"new", b"n" * 100)])
                after = after.power_cut(Random(seed))
        if disk._steps < stop:
            break
    assert 15 < stop < 59

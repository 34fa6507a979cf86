"""D7, U7: a restore that is broken off, a copy that is damaged, a directory that is not empty."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.copy import chunks, restoring
from penstock.broker_core.errors import DamagedJournal, InvalidRequest, PenstockError, ResourceLimit, StorageError
from penstock.broker_core.journal import Journal, LocalDisk
from penstock.broker_core.stores.objects import StoreError

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from ..waiting import until
from .helpers import copied, restored

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(30)]


@pytest.fixture
def store() -> FaultyStore:
    new_store = FaultyStore()
    with copied(LyingDisk(), new_store, segment_bytes=8000) as running:
        for entry in CONTENTS:
            running.append(entry)
        running.until_copied()
    return FaultyStore(new_store.objects)


def test_a_restore_that_is_broken_off_anywhere_is_refused_and_can_begin_again(store: FaultyStore, tmp_path: Path) -> None:
    step = 0
    while True:
        step += 1
        broken = FaultyStore(store.objects)
        broken.stop_at = step
        try:
            restoring.restore(broken, tmp_path / f"data-{step}")
            break
        except StoreError:
            pass
        if (tmp_path / f"data-{step}").exists():
            disk = LocalDisk(tmp_path / f"data-{step}")
            if any(name.endswith(".seg") for name in disk.names()):
                with pytest.raises(StorageError):
                    Journal.open(disk)
            disk.close()
        assert restored(store, tmp_path / f"data-{step}")[0] == CONTENTS
    assert step > 10


def test_a_disk_that_becomes_full(store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: another program fills the disk. It is reported, no broker starts there, and the same command continues once there is
    space."""
    room, lock = [20_000], threading.Lock()

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        with lock:  # several threads fill one disk
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            done = real(descriptor, data[: min(1500, room[0])], offset)  # and no more in one call
            room[0] -= done
        return done

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(ResourceLimit, match="is full"):
        restoring.restore(store, tmp_path / "data")
    room[0] = 1 << 30
    disk = LocalDisk(tmp_path / "data")
    with pytest.raises(StorageError):
        Journal.open(disk)
    disk.close()
    assert restored(store, tmp_path / "data")[0] == CONTENTS


def test_a_damaged_copy_is_named(store: FaultyStore, tmp_path: Path) -> None:
    for number, name in enumerate(sorted(store.objects)):
        damaged = FaultyStore(dict(store.objects))
        data = bytearray(damaged.objects[name])
        data[-1] ^= 1
        damaged.objects[name] = bytes(data)
        if chunks.number_of(name) == 1:
            continue  # the fence of the first start, which is never read
        with pytest.raises(DamagedJournal, match=name):
            restoring.restore(damaged, tmp_path / f"data-{number}")


def test_each_restore_begins_a_lineage(store: FaultyStore, tmp_path: Path) -> None:
    """Numbers given by a state, such as passes of the archiver, must not be taken for those of the original."""
    lineages = set()
    for name in ("one", "two"):
        restored(store, tmp_path / name)
        for _ in range(2):
            disk = LocalDisk(tmp_path / name)
            journal = Journal.open(disk)
            lineages.add(journal.lineage.name)
            assert (journal.lineage.parent, journal.lineage.name != "broker-1") == ("broker-1", True)
            disk.close()
    assert len(lineages) == 2
    assert Journal.open(LyingDisk(), new_id=lambda: "broker-1").lineage.name == "broker-1"


def test_a_directory_that_is_not_empty_is_left_alone(store: FaultyStore, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match="not empty"):
        restoring.restore(store, tmp_path)
    assert (tmp_path / "letters.txt").read_text() == "mine"
    restored(store, tmp_path / "data")
    with pytest.raises(InvalidRequest, match="not empty"):
        restoring.restore(store, tmp_path / "data")


def test_people_read_what_was_done(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from penstock.broker_core.cli import main

    url = str(tmp_path / "store")
    with Broker(tmp_path / "data", copy_url=url, copy_interval_s=0.05) as broker:
        broker.declare("q")
        assert main(["status", "--url", broker.url]) == 0
        with Client(broker.url) as client:

            def caught_up() -> bool:
                copy = client.call("broker.status")["copy"]
                return bool(copy["state"] == "copying" and not copy["lagBytes"])

            until(caught_up, "all is copied")
        assert main(["backup", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "backup")]) == 0
        assert main(["restore", "--from", url, "--data", str(tmp_path / "look")]) == 0
        assert main(["backup", "--data", str(tmp_path / "data"), "--to", url]) == 4  # that is the copy's place
    assert main(["check", str(tmp_path / "look")]) == 0
    path = next((tmp_path / "look").glob("*.seg"))
    path.write_bytes(path.read_bytes()[:-5] + b"#" + path.read_bytes()[-4:])
    assert main(["check", str(tmp_path / "look")]) == 4
    assert main(["restore", "--from", str(tmp_path / "nowhere"), "--data", str(tmp_path / "x")]) == 1
    assert main(["check", str(tmp_path)]) == 1
    output = capfd.readouterr()
    for text in ("copy lagSeconds", "backed up", "the broker that writes the copy continues", "no damage found", "1 damaged"):
        assert text in output.out
    assert f"damaged: {path}, offset " in output.out
    for text in (
        "holds a copy, and cannot also take a backup",
        "holds no copy and no backup",
        "not the data directory of a broker",
    ):
        assert text in output.err


def test_a_program_gets_one_error_of_a_store_that_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure is reported before the retry."""
    from penstock.broker_core.cli import backup, main

    monkeypatch.setattr(backup, "PATIENCE_S", 0.01)
    (tmp_path / "file").touch()
    with Broker(tmp_path / "data"):
        command = ["backup", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "file")]
        assert main(command) == 3
        assert capfd.readouterr().err.startswith("penstock: trying again for ")
        assert main([*command, "--json"]) == 3
    assert json.loads(capfd.readouterr().err)["error"]["fault"] == "peer"


def test_no_broker_starts_where_the_copy_is_anothers(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    with Broker(tmp_path / "one", copy_url=url), pytest.raises(PenstockError, match="of another broker"):
        Broker(tmp_path / "two", copy_url=url).start()

"""D7: effects of a restore on others, and on a directory, if it is impossible, interrupted, or repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.copy import restoring
from penstock.broker_core.copy.chain import Chain
from penstock.broker_core.copy.marker import Marker
from penstock.broker_core.errors import InvalidRequest, ResourceLimit
from penstock.broker_core.journal import LocalDisk
from penstock.broker_core.stores.objects import StoreError

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from .helpers import copied, restored
from .test_brokers import penstock

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(30)]


@pytest.fixture
def store() -> FaultyStore:
    new_store = FaultyStore()
    with copied(LyingDisk(), new_store, segment_bytes=8000) as running:
        for entry in CONTENTS:
            running.append(entry)
        running.until_copied()
    return FaultyStore(new_store.objects)


def test_a_take_over_into_a_place_that_will_not_do_stops_nobody(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(store.objects)
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match="not empty"):
        restoring.restore(store, tmp_path, writer="new-1")
    with monkeypatch.context() as patched:
        patched.setattr(LocalDisk, "free_bytes", lambda self: 1000)
        with pytest.raises(ResourceLimit, match="has room for 0 MiB"):
            restoring.restore(store, tmp_path / "small", writer="new-2")
    assert set(store.objects) == before
    assert restored(store, tmp_path / "small", writer="new-3")[0] == CONTENTS


def test_a_take_over_that_is_repeated_still_says_what_the_broker_had_not_copied(store: FaultyStore, tmp_path: Path) -> None:
    chain = Chain(store, "broker-1", "life-x", "copy", clock=lambda: 1e9)
    state = chain.claim(Marker((restoring._load(store).last.writer, "life-x")))
    assert state is not None
    chain.put(chain.prepare([], [], position=state.last.position, lag=12345))
    for number in range(2):
        broken = FaultyStore(store.objects)
        broken.lose = lambda call, name: StoreError("away") if call == "create" else None  # it is taken over then
        with pytest.raises(StoreError):
            restoring.restore(broken, tmp_path / "data", writer=f"new-{number}")
    for writer in ("new-9", None):
        report = restoring.restore(store, tmp_path / f"data-{writer}", writer=writer)
        assert (report.lag, report.time_ms) == (12345, 10**12)


def test_a_backup_is_nobodys_to_take_over(tmp_path: Path) -> None:
    with copied(LocalDisk(tmp_path / "data"), FaultyStore()) as running:
        running.append(*CONTENTS[:3])
    url = str(tmp_path / "backup")
    penstock("backup", "--data", tmp_path / "data", "--to", url)
    output = penstock("restore", "--from", url, "--data", tmp_path / "other", "--take-over", code=1)
    assert "--take-over" in str(output)
    penstock("restore", "--from", url, "--data", tmp_path / "other")


def test_a_directory_that_is_complete_is_not_restored_over(store: FaultyStore, tmp_path: Path) -> None:
    """The restore was killed when it had only the mark to remove, and a broker has used the directory since."""
    contents, _ = restored(store, tmp_path / "data")
    (tmp_path / "data" / restoring.RESTORING).write_text("")
    with pytest.raises(InvalidRequest, match="not empty"):
        restoring.restore(store, tmp_path / "data")
    assert contents == CONTENTS
    assert (tmp_path / "data" / "id").exists()

"""D7: a long restore: from a copy that continues, through failures of the store, into more files than may be open."""

from __future__ import annotations

import itertools
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.copy import restoring
from penstock.broker_core.errors import DamagedJournal
from penstock.broker_core.stores.objects import NoSuchObject, StoreError
from penstock.broker_core.stores.retry import RetryingStore

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from ..waiting import until
from .helpers import Content, copied, drop_before, restored

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(40)]


@pytest.fixture
def store() -> FaultyStore:
    disk, new_store = LyingDisk(), FaultyStore()
    with copied(disk, FaultyStore(), segment_bytes=8000) as running:
        running.append(*CONTENTS)
    with copied(disk.kill(), new_store, segment_bytes=8000) as running:
        running.until_copied()
    return FaultyStore(new_store.objects)


class Counting(FaultyStore):
    """Counts how often each piece is read. `meanwhile` is called before each."""

    def __init__(self, objects: dict[str, bytes], meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(objects)
        self.reads, self._meanwhile = Counter[tuple[str, int]](), meanwhile

    def get_range(self, name: str, start: int, length: int) -> bytes:
        if name.startswith("objects/") or start:  # else it is the header of a chunk
            self.reads[name, start] += 1
            self._meanwhile()
        return super().get_range(name, start, length)


def test_a_restore_from_a_copy_that_goes_on_gets_what_it_has_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore for longer than replaced objects are kept, with more changes than are allowed without progress."""
    monkeypatch.setattr(copier_module, "DELETE_AFTER_S", 0.0)
    monkeypatch.setattr(copier_module, "TEND_S", 0.01)
    monkeypatch.setattr(restoring, "PARALLEL_REQUESTS", 1)
    monkeypatch.setattr(restoring, "CHANGES", 2)
    store, sent, rounds = FaultyStore(), list[Content](), [0]
    with copied(LyingDisk(), store, segment_bytes=8000) as running:

        def go_on() -> None:
            more = [(b"meta %d" % (len(sent) + number), b"x" * 500) for number in range(3)]
            sent.extend(more)
            position = running.append(*more)
            running.journal.write_snapshot(position, repr(sent).encode(), [])
            drop_before(running.journal, position - 20_000)
            running.until_snapshot_copied(position)
            running.until_copied()
            until(lambda: not running.copier._condemned, "condemned objects are deleted")

        for _ in range(20):
            go_on()

        def meanwhile() -> None:
            if reading.reads.total() % 2 == 0 and rounds[0] < 6:
                rounds[0] += 1
                go_on()

        reading = Counting(store.objects, meanwhile)
        contents, _ = restored(reading, tmp_path / "data")
    assert contents == sent[: len(contents)]
    assert len(contents) >= 60
    assert rounds[0] > restoring.CHANGES
    assert set(reading.reads.values()) == {1}


def test_what_a_restore_had_when_it_was_broken_off_is_not_read_again(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "PARALLEL_REQUESTS", 1)
    whole = Counting(store.objects)
    restoring.restore(whole, tmp_path / "whole")

    def break_off() -> None:
        if len(first.reads) > len(whole.reads) // 2:
            first.stopped.set()

    first, second = Counting(store.objects, break_off), Counting(store.objects)
    with pytest.raises(StoreError):
        restoring.restore(first, tmp_path / "data")
    assert restored(second, tmp_path / "data")[0] == CONTENTS
    assert (first.reads + second.reads).keys() == whole.reads.keys()
    assert (first.reads + second.reads).total() <= whole.reads.total() + 1, "the piece that was under way is read twice"


def test_a_missing_object_is_named_and_not_looked_for_again_and_again(store: FaultyStore, tmp_path: Path) -> None:
    (*_, missing) = sorted(name for name in store.objects if name.startswith("objects/"))
    del store.objects[missing]
    reading = Counting(store.objects)
    with pytest.raises(DamagedJournal, match=f"{missing} is missing: .* use an older backup"):
        restoring.restore(reading, tmp_path / "data")
    assert set(reading.reads.values()) == {1}


def test_more_segments_than_files_may_be_open(tmp_path: Path) -> None:
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=2000) as running:
        for entry in CONTENTS * 3:
            running.append(entry, wait_s=None)
            running.journal.wait(running.journal.end)
        running.until_copied()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 60, before[1]))
    try:
        restoring.restore(store, tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(list((tmp_path / "data").glob("*.seg"))) > 100


def test_a_request_that_fails_is_made_again(store: FaultyStore, tmp_path: Path) -> None:
    """One of three requests fails, and each other of them was carried out."""
    failures, numbers = list[StoreError](), itertools.count()
    patient = RetryingStore(store, 60.0, failures.append)
    store.fail = store.lose = lambda call, name: StoreError("503 Slow Down") if next(numbers) % 3 == 0 else None
    restoring.restore(patient, tmp_path / "data", writer="new-1")
    assert failures
    assert restored(FaultyStore(store.objects), tmp_path / "again")[0] == CONTENTS


def test_an_object_that_is_not_there_is_asked_for_once(store: FaultyStore) -> None:
    with pytest.raises(NoSuchObject):
        RetryingStore(store, 60.0, lambda error: None).get("objects/none")
    assert store.calls["get"] == 1

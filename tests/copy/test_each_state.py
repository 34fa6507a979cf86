"""D7: after any last chunk in the store, a restore works, and returns a prefix of the sent messages."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.copy import restoring
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.stores.objects import StoreError

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from ..waiting import until
from .helpers import copied, drop_before, restored

CONTENTS = [(b"meta %d" % number, bytes([number]) * 1500) for number in range(100)]


class Remembering(FaultyStore):
    """Keep the content after each chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[dict[str, bytes]] = []

    def create(self, name: str, data) -> bool:  # type: ignore[no-untyped-def]
        done = super().create(name, data)
        self.states.append(dict(self.objects))
        return done


def test_every_state_of_the_store_can_be_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks smaller than a group, snapshots ahead of the copy, contents in between."""
    monkeypatch.setattr(copier_module, "CHUNK_BYTES", 500)
    monkeypatch.setattr(copier_module, "TEND_S", 60.0)  # the test tends
    store = Remembering()
    with copied(LyingDisk(), store, segment_bytes=6000) as running:
        for number in range(0, 20, 2):
            end = running.append(*CONTENTS[number : number + 2])
            if number % 4 == 2:
                running.journal.write_snapshot(end, repr(CONTENTS[: number + 2]).encode(), [])
                until(lambda: running.copier.status()["state"] == "copying", "the copy continues")
                running.copier.tend()
        running.until_copied()
    lengths = []
    for number, objects in enumerate(store.states):
        try:
            restored_contents, _ = restored(FaultyStore(objects), tmp_path / f"{number}")
        except InvalidRequest:
            assert not lengths  # before the first contents
            continue
        assert restored_contents == CONTENTS[: len(restored_contents)]
        lengths.append(len(restored_contents))
    assert lengths == sorted(lengths)
    assert lengths[-1] == 20
    assert len(lengths) > 50


def test_a_dropped_segment_stays_until_the_copy_has_a_snapshot_that_does_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier_module, "TEND_S", 60.0)
    store = FaultyStore()
    with copied(LyingDisk(), store, segment_bytes=6000) as running:
        end = running.append(*CONTENTS[:20])
        for entry in CONTENTS[20:30]:
            end = running.append(entry)
        running.until_copied()
        running.journal.write_snapshot(end, repr(CONTENTS[:30]).encode(), [])
        assert drop_before(running.journal, end)
        running.copier._dirty = True
        base = running.copier._chain.base
        running.append(CONTENTS[30])
        running.until_copied()
        assert running.copier._chain.base > base  # new contents, before the copy has the snapshot
        assert restored(store, tmp_path / "before")[0] == CONTENTS[:31]
        segments = len(restoring._load(store).contents.segments())
        running.copier.tend()
        running.append(CONTENTS[31])
        running.until_copied()
        assert len(restoring._load(store).contents.segments()) < segments
        assert restored(store, tmp_path / "after")[0] == CONTENTS[:32]


def test_sync_does_not_confirm_what_came_while_a_chunk_was_put() -> None:
    store, held, going = FaultyStore(), threading.Event(), threading.Event()
    with copied(LyingDisk(), store, "sync") as running:
        running.append(CONTENTS[0])

        def hold(call: str, name: str) -> None:
            if call == "create":
                held.set()
                assert going.wait(30)

        store.lose = hold  # type: ignore[assignment]
        first = running.append(CONTENTS[1], wait_s=None)
        running.journal.hurry(first)
        assert held.wait(30)
        second = running.append(CONTENTS[2], wait_s=None)
        running.journal.hurry(second)
        until(lambda: running.journal.stored >= second, "the second is on the disk")
        store.fail = lambda call, name: StoreError("away")
        going.set()
        running.journal.wait(first, 30)
        with pytest.raises(TimeoutError):
            running.journal.wait(second, 0.2)
        store.fail = lambda call, name: None
        running.journal.wait(second, 30)

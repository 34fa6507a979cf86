"""D7: any request to the store may be the last of a life, carried out or not, and the disk may lose any unsynced bytes.
Everything confirmed with copy = sync returns from the copy alone, and the directory continues with its copy."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.errors import StorageError
from penstock.broker_core.stores.objects import StoreError

from ..journal.helpers import Content, content
from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from .helpers import Copied, drop_before, restored

STEPS = 36  # requests of the history below, and a few more


class History:
    """Messages of one life after the other, and which were confirmed."""

    def __init__(self) -> None:
        self.sent: list[Content] = []
        self.confirmed = 0

    def run(self, disk: LyingDisk, store: FaultyStore, messages: int) -> None:
        """One life, which ends when the store is off, or after so many messages."""
        running = Copied(disk, store, "sync", segment_bytes=4000)
        try:
            position = running.journal.snapshot.position if running.journal.snapshot else 0
            before = eval(running.journal.snapshot.meta) if running.journal.snapshot else []
            self.sent = [*before, *content(running.journal, position)]
            assert len(self.sent) >= self.confirmed
            for number in range(messages):
                entry = (b"meta %d" % len(self.sent), Random(len(self.sent)).randbytes(900))
                self.sent.append(entry)
                end = running.append(entry, wait_s=None)
                while not store.stopped.is_set():
                    with contextlib.suppress(TimeoutError):
                        running.journal.wait(end, 0.02)
                        self.confirmed = len(self.sent)
                        break
                if store.stopped.is_set():
                    return
                if number % 4 == 3:
                    end = running.journal.end
                    running.journal.write_snapshot(end, repr(self.sent).encode(), [])
                    drop_before(running.journal, end)
                    with contextlib.suppress(StoreError):
                        running.copier.tend()
        finally:
            self.ended = running

    def end(self) -> None:
        self.ended.copier.close(0.0)
        with contextlib.suppress(StorageError):
            self.ended.journal.close()


@pytest.mark.parametrize("after", [False, True], ids=["lost", "carried out"])
def test_a_crash_at_each_request(after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier_module, "DELETE_AFTER_S", 0.0)
    monkeypatch.setattr(copier_module, "TEND_S", 60.0)
    reached = 0
    for step in range(1, STEPS):
        history, disk, store, random = History(), LyingDisk(), FaultyStore(), Random(step)
        store.stop_at, store.stop_after = step, after
        history.run(disk, store, 14)
        reached += store.stopped.is_set()
        disk = disk.power_cut(random) if step % 2 else disk.kill()
        store.stopped.set()
        history.end()
        if history.confirmed:
            contents_read, _ = restored(FaultyStore(store.objects), tmp_path / f"first-{step}")
            assert contents_read == history.sent[: len(contents_read)], step
            assert len(contents_read) >= history.confirmed, step
        again = FaultyStore(store.objects)
        history.run(disk, again, 3)
        assert history.ended.failures == [], step
        assert history.confirmed == len(history.sent), step
        contents_read, _ = restored(FaultyStore(store.objects), tmp_path / f"second-{step}")
        assert contents_read == history.sent, step
        again.stopped.set()
        disk.stopped = True
        history.end()
    assert reached > 20  # otherwise the history is shorter than STEPS

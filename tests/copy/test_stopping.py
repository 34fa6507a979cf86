"""D7: a stop waits for its copy no longer than it says: in the midst of the first copy, and while the store hangs."""

from __future__ import annotations

import threading

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.copy import uploads

from ..journal.lying_disk import LyingDisk
from ..waiting import until
from .faulty_store import FaultyStore
from .helpers import Copied, copied

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(60)]


def test_a_stop_in_the_first_copy_does_not_wait_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "OBJECT_BYTES", 1000)
    disk = LyingDisk()
    with copied(disk, FaultyStore(), segment_bytes=8000) as running:
        running.append(*CONTENTS)
    store, gate = FaultyStore(), threading.Semaphore(5)

    def wait(call: str, name: str) -> None:
        if call == "put":
            gate.acquire()

    store.fail = wait
    running = Copied(disk.kill(), store, segment_bytes=8000)
    until(lambda: store.calls["put"] > 5, "the first copy has begun")
    closing = threading.Thread(target=running.close, args=(0.0,))
    closing.start()
    gate.release(3)
    closing.join(10)
    over = not closing.is_alive()
    gate.release(1000)
    closing.join()
    assert over
    assert store.calls["put"] < 20


def test_a_stop_does_not_wait_for_a_request_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier_module, "HANGING_S", 0.1)
    store, gate = FaultyStore(), threading.Event()
    with copied(LyingDisk(), store) as running:
        running.append(*CONTENTS[:3])
        running.until_copied()
        store.fail = lambda call, name: _wait(gate)
        running.append(*CONTENTS[3:6])
        until(lambda: running.copier.status()["lagBytes"] and store.calls["create"] > 2, "a chunk is under way")
        closing = threading.Thread(target=running.close, args=(0.0,))
        closing.start()
        closing.join(10)
        over = not closing.is_alive()
        gate.set()
        closing.join()
    assert over
    assert running.failures == []


def _wait(gate: threading.Event) -> None:
    gate.wait()

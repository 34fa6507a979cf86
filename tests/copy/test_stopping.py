"""D7: a stop waits for its copy no longer than promised: during the first copy, and while the store hangs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from penstock.broker_core.copy import copier as copier_module
from penstock.broker_core.copy import uploads
from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import StorageError
from penstock.broker_core.service import copying
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.declarations import DeclaredQueue
from penstock.broker_core.settings.keys import Settings
from penstock.broker_core.stores.objects import StoreError

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from ..waiting import until
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


@pytest.mark.parametrize("hangs", [False, True], ids=["the store is away", "a request hangs"])
def test_a_broker_whose_copy_is_missing_starts_and_stops(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sync, its own threads wait for the copy. So do leftovers of an earlier life and the declarations in the settings."""
    monkeypatch.setattr(copying, "CLOSE_S", 0.3)
    monkeypatch.setattr(copier_module, "HANGING_S", 0.1)
    store, disk, gate = FaultyStore(), LyingDisk(), threading.Event()
    settings = Settings(data=Path("/disk"), copy="sync", copy_url="faulty://store", queues=(DeclaredQueue("q"),))
    before = BrokerService(settings, disk=disk, store=store)
    before.submit(c.DeclareQueue("before"))
    store.stopped.set()
    before.journal.sync(before.submit_nowait(c.DeclareQueue("not copied"))[1])
    disk.stopped = True
    with contextlib.suppress(StorageError):
        before.close()
    disk, store = disk.kill(), FaultyStore(store.objects)

    def fail(call: str, name: str) -> Exception | None:
        if store.calls["create"] <= 1:  # the claim
            return None
        if hangs:
            gate.wait()
            return None
        return StoreError("it is away")

    store.fail = fail
    running: list[BrokerService] = []

    def live() -> None:
        running.append(BrokerService(settings, disk=disk, store=store))
        running[0].declare(settings)
        until(lambda: is_waiting("penstock-ticker"), "the ticker waits for the copy")
        running[0].close()

    life = threading.Thread(target=live)
    life.start()
    life.join(20)
    over = not life.is_alive()
    gate.set()
    store.fail = lambda call, name: None
    life.join()
    assert over
    assert running[0].journal.failure is None
    store.stopped.set()
    service = BrokerService(Settings(data=Path("/disk")), disk=disk.kill())
    try:
        assert service.nodes.has_queue("q"), "unconfirmed events are also on the disk"
    finally:
        service.close()


def test_what_else_a_stop_takes_time_for_is_not_taken_from_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With async nothing waits for it before. Even with a hanging recorder and a large snapshot it gets its time."""
    monkeypatch.setattr(copying, "CLOSE_S", 1.0)
    store, settings = FaultyStore(), Settings(data=Path("/disk"), copy_url="faulty://store", copy_interval_s=60.0)
    service = BrokerService(settings, disk=LyingDisk(), store=store)
    try:
        copier = service.copier
        assert copier is not None
        until(lambda: copier.status()["state"] == "copying", "the first copy is complete")
        service.submit(c.DeclareQueue("q"))
        service._stops.callback(time.sleep, 1.1)
        assert copier.lag()[1] > 0
    finally:
        service.close()
    assert copier.lag()[1] == 0


def is_waiting(thread: str) -> bool:
    """Say whether a thread of this name waits for the journal."""
    (number,) = [running.ident for running in threading.enumerate() if running.name == thread]
    stack = traceback.extract_stack(sys._current_frames().get(number or 0))
    return any(frame.name == "wait" and frame.filename.endswith("writer.py") for frame in stack)


def _wait(gate: threading.Event) -> None:
    gate.wait()

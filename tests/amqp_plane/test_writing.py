"""Writing of the journal for the plane: immediately for a commit with waiting answers, otherwise soon."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.performatives import Accepted, Disposition
from penstock.broker_core.errors import StorageError

from ..journal.helpers import until_idle
from ..journal.lying_disk import LyingDisk
from .frames import says, transfer
from .harness import Stage, stage
from .library_client import PATIENCE_S

LOOP, WRITER = "penstock-amqp", "penstock-journal"


def _watched(s: Stage, disk: LyingDisk) -> list[str]:
    """Record the threads that sync from now on."""
    threads: list[str] = []

    def note(call: str, name: str) -> None:
        if call == "sync":
            threads.append(threading.current_thread().name)

    disk.fail = note  # type: ignore[assignment]
    until_idle(s.service.journal)
    return threads


def test_the_loop_writes_a_small_turn_itself_while_the_disk_is_quick(tmp_path: Path) -> None:
    disk = LyingDisk()
    with stage(tmp_path, disk=disk) as s:
        s.declare("q")
        a = s.script().usual()
        a.sender()
        a.receiver(handle=1, credit=1000)
        threads = _watched(s, disk)
        for number in range(3):
            a.send(transfer(number))
            a.expect(Disposition, first=number, settled=True, state=Accepted())
            a.expect_messages(b"m%d" % number)
            a.stage.settle()
        assert threads == [LOOP] * 3
        a.send(*[transfer(number) for number in range(3, 53)])
        a.expect(Disposition, first=3, last=52)
        a.expect_messages(*[b"m%d" % number for number in range(3, 53)])
        assert set(threads[3:]) == {WRITER}
        s.slow_disk()
        s.quick_disk()
        threads = _watched(s, disk)
        a.send(transfer(53))
        a.expect(Disposition, first=53)
        a.expect_messages(b"m53")
        assert threads == [WRITER]


def test_an_outcome_that_nobody_waits_for_is_soon_durable_all_the_same(tmp_path: Path) -> None:
    disk = LyingDisk()
    with stage(tmp_path, disk=disk) as s:
        s.declare("q")
        (housekeeper,) = [thread for thread in threading.enumerate() if thread.name == "penstock-housekeeping"]
        s.service._closing.set()  # or the housekeeper's turn of each second would have it written
        housekeeper.join()
        a = s.script().usual()
        a.sender()
        a.receiver(handle=1, credit=10)
        for number in range(3):
            a.send(transfer(number))
            a.expect(Disposition, first=number)
            a.expect_messages(b"m%d" % number)
            a.send(says(Accepted(), number))
            s.until(lambda number=number: s.counts("q") == {"archived": number + 1}, "the outcome")  # type: ignore[misc]
            s.until(lambda: s.service.journal.durable >= s.service.journal.end, "the disk has the outcome")
        a.send(transfer(3))
        a.expect(Disposition, first=3)
        a.expect_messages(b"m3")
        a.drop()
        s.until(lambda: s.counts("q") == {"available": 1, "archived": 3}, "the messages of the link are back")
        s.until(lambda: s.service.journal.durable >= s.service.journal.end, "the disk has that")


def test_nobody_hears_of_what_the_disk_failed_to_sync(tmp_path: Path) -> None:
    """Also for answers that were prepared while the disk was writing."""
    disk = LyingDisk()
    s = Stage(tmp_path, disk=disk)
    try:
        s.declare("q")
        a = s.script().usual()
        a.sender()
        a.receiver(handle=1, credit=10)
        threads = list[str]()

        def fail(call: str, name: str) -> OSError | None:
            if call != "sync":
                return None
            threads.append(threading.current_thread().name)
            return OSError(5, "no sync")

        until_idle(s.service.journal)
        disk.fail = fail
        a.send(transfer(0))
        a.expect_end()
        assert threads == [LOOP]
    finally:
        with contextlib.suppress(StorageError):
            s.close()


def test_a_turn_that_fails_is_logged_and_closes_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        a = s.script().usual()
        a.sender()
        works = s.service.turn
        failed = threading.Event()

        def fails(*, hurry: bool = True) -> Any:
            s.service.turn = works  # type: ignore[method-assign]
            failed.set()
            raise RuntimeError("a defect of ours")

        s.service.turn = fails  # type: ignore[method-assign]
        a.send(transfer(0))
        assert failed.wait(PATIENCE_S)
        a.send(transfer(1))
        a.expect(Disposition, first=1, settled=True, state=Accepted())
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a defect of ours",)]


def test_messages_for_which_the_journal_has_no_capacity_wait_for_the_disk_and_not_in_a_loop(tmp_path: Path) -> None:
    with stage(tmp_path, disk=LyingDisk()) as s:
        s.declare("q")
        a = s.script().usual()
        a.sender()
        runs = list[None]()
        gate = s.plane.commit_loop._gate
        run = gate._run
        gate._run = lambda: (runs.append(None), run())
        s.slow_disk()
        s.crowd("q")
        a.send(transfer(0))
        s.until(lambda: s.plane.commit_loop._batch.has_messages, "the message is held up")

        async def one_round() -> None:
            pass

        held_up = len(runs)
        for _ in range(200):
            asyncio.run_coroutine_threadsafe(one_round(), s.plane._loop).result()
        more = len(runs) - held_up
        s.quick_disk()
        assert more < 10
        a.expect(Disposition, first=0, state=Accepted())

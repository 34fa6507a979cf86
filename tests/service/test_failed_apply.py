"""A state that differs from the log is not revealed, the log gets no more records, and the broker stops. The lock is always
released."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.client.app import AcknowledgeMode, connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.errors import DamagedJournal, PenstockError, StorageError
from penstock.broker_core.service import turn as turn_module
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..journal.lying_disk import LyingDisk
from ..journal.test_holes import rewrite_manifest
from .helpers import Clock, abandon, enqueue, everything, numbered, open_service, running, stat


def test_a_start_that_fails_after_the_recovery_lets_the_directory_go(tmp_path: Path) -> None:
    def no_clock() -> c.Now:
        raise RuntimeError("no clock")

    settings = Settings(data=tmp_path / "data")
    with pytest.raises(RuntimeError, match="no clock"):
        BrokerService(settings, clock=no_clock)
    BrokerService(settings, clock=Clock()).close()


def test_a_journal_of_a_newer_version_is_refused_with_that_version() -> None:
    """Repairs after kill -9 do not hide who wrote it."""
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"))
        appended = service.journal.append(b'{"k":"queue.deleted","queue":"q","moon":1}')
        service.journal.complete(hurry=True)
        service.journal.wait(appended.end)
        left = disk.kill()
        rewrite_manifest(left, product="9.9")
    for _ in range(2):
        says = r"'queue\.deleted' with the field 'moon'.*position \d+ \(the directory was last written by Penstock 9\.9; this is"
        with pytest.raises(DamagedJournal, match=says):
            open_service(left)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[e.Event]], None]:
    """Let the events of a kind be applied, and then fail."""

    def breaks(kind: type[e.Event]) -> None:
        sound = kind.apply

        def fail(event: Any, state: Any, position: int) -> None:
            sound(event, state, position)
            raise KeyError("a mistake")

        monkeypatch.setattr(kind, "apply", fail)

    return breaks


def _refuses_everything(service: Any) -> None:
    for command in (c.Stat("q"), enqueue("q", b"late"), c.DeclareQueue("other"), c.Tick()):
        with pytest.raises(StorageError, match=r"'settled' at position \d+ could not be applied: KeyError"):
            service.submit(command)
    with pytest.raises(StorageError), service.turn() as turn:
        turn.execute(c.Stat("q"))
    for look in (lambda: list(service.slices("q", RowSet.range(0, 3))), lambda: list(service.browse("q", lambda b: b, 0, None))):
        with pytest.raises(StorageError):
            look()
    with pytest.raises(StorageError):
        service.take_snapshot()


@pytest.mark.parametrize("written", [True, False], ids=["the disk has the event", "the disk does not have it"])
def test_an_event_that_cannot_be_applied_stops_the_broker(broken: Callable[[type[e.Event]], None], written: bool) -> None:
    disk = LyingDisk()
    failures: list[Exception] = []
    service = open_service(disk, on_failure=failures.append)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(3)))
    holder = service.submit(c.Subscribe("q"))
    rows = service.submit(c.Acquire("q", holder, 2)).rows
    if written:  # before it is known that it fails
        append = service.journal.append

        def quick(*arguments: Any, **how: Any) -> Any:
            appended = append(*arguments, **how)
            service.journal.complete(hurry=True)  # as if the turn were over
            service.journal.wait(appended.end)
            return appended

        service.journal.append = quick  # type: ignore[method-assign]
    broken(e.Settled)
    with pytest.raises(StorageError, match="'settled' at position"):
        service.submit(c.Settle("q", holder, rows, Outcome.ACCEPTED))
    assert len(failures) == 1
    snapshots = [name for name in disk.names() if "snapshot" in name]
    _refuses_everything(service)
    assert not service._lock.locked()
    with pytest.raises(StorageError):
        service.close()
    assert [name for name in disk.names() if "snapshot" in name] == snapshots, "an invalid state was written"
    assert len(failures) == 1

    # The next start finds the same event and reports its position, or finds the log without it.
    if written:
        with pytest.raises(StorageError, match=r"event 'settled' at position \d+ cannot be applied \(KeyError"):
            open_service(disk.kill())
    else:
        with running(disk.kill()) as again:
            assert stat(again, "q")["available"] == 3
            assert list(everything(again, "q").values()) == numbered(3)


def test_a_mistake_before_the_log_is_one_commands_alone() -> None:
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"))
        with pytest.raises(AttributeError):
            service.submit(c.Settle("q", 1, None, Outcome.ACCEPTED))  # type: ignore[arg-type]
        assert stat(service, "q")["available"] == 0


def test_what_fails_between_two_events_of_one_command_stops_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[e.Event] = []
    sound = turn_module.apply

    def second(state: Any, event: e.Event, position: int) -> None:
        asked.append(event)
        if len(asked) == 2:
            raise RuntimeError("a mistake")
        sound(state, event, position)

    service = open_service(LyingDisk())
    service.submit(c.DeclareQueue("q", options={"maxAttempts": 1}), enqueue("q", *numbered(3)))
    holder = service.submit(c.Subscribe("q"))
    rows = service.submit(c.Acquire("q", holder, 2)).rows
    monkeypatch.setattr(turn_module, "apply", second)
    with pytest.raises(StorageError, match="could not be applied: RuntimeError"):
        service.submit(c.Unsubscribe("q", holder), c.Stat("q"))
    assert len(asked) == 2
    assert rows
    assert service.journal.failure is not None
    abandon(service)


def test_an_end_of_a_node_that_fails_stops_the_broker(broken: Callable[[type[e.Event]], None]) -> None:
    """The cascade of an event that is in the log already."""
    service = open_service(LyingDisk())
    service.submit(c.DeclareQueue("q", options={"lifetime": "link"}, maker=c.Maker("me", 9)))
    link = service.submit(c.OpenLink("q", True, True, "me"))
    broken(e.QueueDeleted)
    with pytest.raises(StorageError, match="could not be applied"):
        service.submit(c.CloseLink("q", link))
    assert service.journal.failure is not None
    abandon(service)


@pytest.mark.parametrize("thread", ["ticker", "blocked", "clock"])
def test_the_lock_is_let_go_whatever_happens(thread: str) -> None:
    working = Clock()
    clocks: list[Any] = [working]
    service = open_service(LyingDisk(), clock=lambda: clocks[-1]())
    service.submit(c.DeclareQueue("q"))

    def fail(*_: Any) -> Any:
        raise RuntimeError("a mistake")

    if thread == "clock":
        clocks.append(fail)
    else:
        (service._ticker if thread == "ticker" else service.blocked).look = fail
    with pytest.raises(RuntimeError if thread == "clock" else StorageError, match="a mistake"), service.turn() as turn:
        turn.execute(enqueue("q", b"x"))
    assert service._lock.acquire(timeout=10)
    service._lock.release()
    if thread != "clock":  # otherwise waiting callers would wait for ever
        assert service.journal.failure is not None
    clocks.append(working)
    abandon(service)


SERVE = """
import sys, threading
from penstock.broker_core.engine import events as e
from penstock.broker_core.cli.main import main

sound = e.{event}.apply

def fail(event, state, position):
    sound(event, state, position)
    if {when}:
        raise KeyError("a mistake")

e.{event}.apply = fail
sys.exit(main(["serve", "--data", sys.argv[1], "--flight-port", "0", "--amqp-port", "0", "--http-port", "0"]))
"""


@pytest.mark.parametrize("plane", ["flight", "amqp"])
def test_neither_plane_takes_it_for_a_mistake_of_one_client(tmp_path: Path, plane: str) -> None:
    """In a process of its own: no answer leaves, and it ends with a code that is not 0."""
    event, when = ("Enqueued", "event.count == 7") if plane == "flight" else ("Settled", "True")
    code = SERVE.format(event=event, when=when)
    folder = tmp_path / "data"
    errors: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        reader = threading.Thread(target=lambda: errors.append(broker.stderr.read()))  # type: ignore[union-attr]
        reader.start()
        try:
            ready = json.loads(broker.stdout.readline())
            (_through_flight if plane == "flight" else _through_amqp)(ready)
            assert broker.wait(60) == 1
        finally:
            broker.kill()
            broker.wait()
            reader.join()
    assert f"event '{event.lower()}' at position" in errors[0]
    assert "the broker stops" in errors[0]


def _through_flight(ready: dict[str, Any]) -> None:
    with Client(ready["flight"]) as client:
        client.call("queue.declare", queue="q")
        batch = pa.record_batch({"body": pa.array([b"x"] * 7, pa.binary())})
        with pytest.raises(StorageError, match="could not be applied"):
            client.put({"op": "enqueue", "queue": "q"}, batch.schema, [batch])


def _through_amqp(ready: dict[str, Any]) -> None:
    with Client(ready["flight"]) as client:
        client.call("queue.declare", queue="q")
    connection = connect([ready["amqp"]], reconnect=None)
    session = connection.session(AcknowledgeMode.INDIVIDUAL)
    session.producer("q").send("x")
    message = session.consumer("q").receive(timeout_s=30)
    assert message is not None
    with contextlib.suppress(PenstockError):
        message.acknowledge()
    with pytest.raises(PenstockError):
        session.producer("q").send("after it", timeout_s=30)
    with contextlib.suppress(PenstockError):
        connection.close()

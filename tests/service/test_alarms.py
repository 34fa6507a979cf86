"""Alarms (D6, U7): raised while something is wrong, cleared when it is over; each once in the log."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.reads import SparkBatch
from penstock.broker_core.errors import StorageError
from penstock.broker_core.security.tls import ends_at
from penstock.broker_core.service import alarms, watch
from penstock.broker_core.service.alarms import ALARMS, Alarms
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.watch import Watch
from penstock.broker_core.settings.keys import Settings
from penstock.broker_core.stores.objects import StoreError

from ..archive.rig import Rig
from ..journal.lying_disk import LyingDisk
from ..programs import needs
from ..stores.faulty_store import FaultyStore
from ..tools.pages import rows, section
from ..waiting import until
from .helpers import MIB, Clock, enqueue, numbered, running


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", "penstock.alarms")
    return caplog


def names(service: BrokerService) -> set[str]:
    service.watch.look()
    return {alarm.name for alarm in service.alarms.current()}


def lines(log: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [text for text in log.messages if text.startswith(f"alarm {name}")]


def test_an_alarm_is_logged_once_when_raised_and_once_when_cleared(log: pytest.LogCaptureFixture) -> None:
    now = [1000]
    board = Alarms(lambda: now[0])
    board.set(alarms.ARCHIVE_FAILING, "no disk", "q")
    now[0] = 4000
    board.set(alarms.ARCHIVE_FAILING, "no bucket", "q")
    board.set(alarms.DISK_LOW, None)
    assert [tuple(alarm) for alarm in board.current()] == [("archive-failing", "q", 1000, "no bucket")]
    now[0] = 61_000
    board.set_queues(alarms.ARCHIVE_FAILING, {"other": "no bucket"})
    assert [alarm.queue for alarm in board.current()] == ["other"]
    assert lines(log, "archive-failing") == [
        "alarm archive-failing of queue 'q' is raised: no disk",
        "alarm archive-failing of queue 'q' is over after 60 s: its archive table is written again, or the queue was deleted",
        "alarm archive-failing of queue 'other' is raised: no bucket",
    ]


def test_a_broker_that_is_well_has_none(tmp_path: Path) -> None:
    with contextlib.closing(Rig(tmp_path)) as rig:
        assert names(rig.service) == set()


def test_the_disk(log: pytest.LogCaptureFixture) -> None:
    disk = LyingDisk()
    with running(disk, free_space_mark_bytes=10 * MIB, free_space_low_bytes=20 * MIB) as service:
        assert names(service) == set()
        disk.room = 20 * MIB - 1
        assert names(service) == {"disk-low"}
        disk.room = 21 * MIB  # it does not come and go
        assert names(service) == {"disk-low"}
        disk.room = 10 * MIB - 1
        assert names(service) == {"disk-low", "disk-full"}
        disk.room = 22 * MIB
        assert names(service) == set()
    assert [text.partition(":")[0] for text in log.messages[:2]] == ["alarm disk-low is raised", "alarm disk-full is raised"]
    assert log.messages[2:] == [
        "alarm disk-full is over after 0 s: new messages are accepted again",
        "alarm disk-low is over after 0 s: the disk has enough free space again",
    ]


def test_a_journal_that_failed() -> None:
    disk = LyingDisk()
    with running(disk) as service:
        service.journal.fail(StorageError("the disk burns"))
        assert names(service) == {"journal-failed"}
        assert "the disk burns" in service.alarms.current()[0].text


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_copy_whose_store_is_away(mode: str, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    """Also with sync, where everything else that submits a command waits for the store."""
    monkeypatch.setattr(watch, "COPY_BEHIND_S", 0.05)
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    store = FaultyStore()
    settings = Settings(data=Path("/disk"), copy=mode, copy_url=store.url, copy_interval_s=0.01)
    service = BrokerService(settings, disk=LyingDisk(), store=store, clock=Clock())
    try:
        service.submit(c.DeclareQueue("q"))
        store.fail = lambda call, name: StoreError("the store is away")
        service.submit_nowait(enqueue("q", *numbered(1)))
        until(lambda: service.alarms.is_raised(alarms.COPY_BEHIND), "the alarm is raised")
        (alarm,) = service.alarms.current()
        assert "the store is away" in alarm.text
        assert ("Nothing is confirmed" in alarm.text) == (mode == "sync")
        store.fail = lambda call, name: None
        until(
            lambda: len(lines(log, "copy-behind")) == 2, "the end of the alarm is logged"
        )  # logged by the thread that cleared it, after that
        assert not service.alarms.current()
    finally:
        store.fail = lambda call, name: None
        service.close()


def test_the_archive(tmp_path: Path) -> None:
    """D4: by queue; behind; its disk ends before its retention helps."""
    (tmp_path / "archive").write_text("a file in its place")
    with contextlib.closing(Rig(tmp_path)) as rig:
        rig.service.submit(c.DeclareQueue("q"))
        rig.service.watch._watched = rig.service.watch._watched._replace(recorder=rig.recorder)
        try:
            rig.send("q", numbered(10))  # type: ignore[arg-type]
            rig.settle("q", 10)
            rig.record(2)
            assert names(rig.service) == {"archive-failing", "archive-behind"}
            assert {alarm.queue for alarm in rig.service.alarms.current()} == {"q", None}
            (tmp_path / "archive").unlink()
            rig.record()
            assert names(rig.service) == set()
            rig.recorder.growth.full_in_s = 86400.0
            assert names(rig.service) == {"archive-outgrows-disk"}
        finally:
            rig.service.watch._watched = rig.service.watch._watched._replace(recorder=None)


def test_a_journal_that_is_larger_than_what_waits_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: after some minutes, with the queue that needs the oldest payload, for users with a right on it."""
    up = [0.0]
    with running(LyingDisk(), segment_bytes=MIB) as service:
        monkeypatch.setattr(service.cleaner, "clean", lambda: 0)
        looking = Watch(service.watch._watched, service.alarms, service.wall_ms, threading.Event(), lambda: up[0])
        service.state.records = True
        for queue in ("stuck", "busy"):
            service.submit(c.DeclareQueue(queue))
        service.submit(enqueue("stuck", *numbered(1)))
        for _ in range(6):
            service.submit(enqueue("busy", *numbered(100, 10_000)))
        link = service.submit(c.Subscribe("busy"))
        rows = service.submit(c.Acquire("busy", link, 600)).rows
        service.submit(c.Settle("busy", link, rows, 0))
        for up[0] in (0.0, 61.0, 250.0):
            looking.look()
            assert service.alarms.current() == []
        up[0] = 361.0
        looking.look()
        (alarm,) = service.alarms.current()
        assert (alarm.name, alarm.queue) == ("journal-pinned", "stuck")


def test_a_lease_that_holds_a_batch_for_long_is_slow() -> None:
    """U9: with its query, until the batch ends. A batch that its query takes over again is the same batch."""
    up = [0.0]
    with running(LyingDisk()) as service:
        looking = Watch(service.watch._watched, Alarms(service.wall_ms), service.wall_ms, threading.Event(), lambda: up[0])

        def texts(at: float) -> list[tuple[str | None, str]]:
            up[0] = at
            looking.look()
            return [(alarm.queue, alarm.text) for alarm in looking._alarms.current()]

        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(3)))
        take = (c.EnterLease("q", "etl", "r", None, True), c.AcquireBatch("q", "etl", "r", 0))
        taken = service.submit(*take)
        service.submit(c.ReadBatch("etl", "r", taken.epoch, 1, 0, 9, reader=SparkBatch("id-of-spark", 0)))
        assert texts(20.0) == []
        service.submit(*take)
        assert texts(watch.SLOW_LEASE_S) == []
        ((queue, text),) = texts(40.0 + watch.SLOW_LEASE_S)
        assert queue == "q"
        assert text.startswith("lease 'etl' of query id-of-spark has held batch 1 (3 messages) for 15 minutes")
        service.submit(c.FinishBatches("etl", 1))
        assert texts(60.0 + watch.SLOW_LEASE_S) != [], "it does not come and go"
        assert texts(200.0 + watch.SLOW_LEASE_S) == []


class TestCertificates:
    """TLS: two weeks before the end, until the file is another one."""

    @pytest.fixture(autouse=True)
    def _needs_openssl(self) -> None:
        needs("openssl", "openssl")

    @staticmethod
    def make(folder: Path, days: int) -> Path:
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", str(days)]
        done = [*command, "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
        subprocess.run(done, check=True, capture_output=True, timeout=60)
        return folder / "cert.pem"

    @pytest.mark.parametrize("days", [1, 20_000])  # from 2050 on the date has another form
    def test_the_end_is_the_one_that_openssl_reads(self, days: int, tmp_path: Path) -> None:
        path = self.make(tmp_path, days)
        shown = subprocess.run(
            ["openssl", "x509", "-enddate", "-noout", "-in", str(path)], check=True, capture_output=True, text=True
        )
        end = datetime.strptime(shown.stdout.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=timezone.utc)
        assert ends_at(path) == end.timestamp()

    @pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----\n"])
    def test_what_is_no_certificate(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "cert.pem").write_text(text)
        with pytest.raises(ValueError, match=r"cert\.pem"):
            ends_at(tmp_path / "cert.pem")

    def test_one_that_ends(self, tmp_path: Path) -> None:
        path = self.make(tmp_path, 13)
        clock = Clock(int(datetime.now(timezone.utc).timestamp() * 1e6))
        with running(LyingDisk(), clock, tls_cert_file=path, tls_key_file=tmp_path / "key.pem") as service:
            assert names(service) == {"certificate-ends"}
            assert "ends in 1" in service.alarms.current()[0].text
            self.make(tmp_path, 15)
            service.watch._seldom_at = 0.0
            assert names(service) == set()


def test_the_documents_have_a_row_for_each(repository: Path) -> None:
    _, *table = rows(section((repository / "docs" / "operate.md").read_text(), "Alarms"))
    assert [row[0].strip("`") for row in table] == list(ALARMS)
    assert all(all(cell for cell in row) for row in table)


def test_a_queue_that_is_full_and_one_that_refuses(log: pytest.LogCaptureFixture) -> None:
    clock, now = Clock(), [0.0]
    with running(LyingDisk(), clock) as service:
        service.watch._clock = lambda: now[0]
        service.submit(c.DeclareQueue("blocks", options={"maxMessages": 10}))
        service.submit(c.DeclareQueue("ring", options={"maxMessages": 2, "overflow": "ring"}))
        service.submit(c.DeclareQueue("rejects", options={"maxBytes": 1000, "overflow": "reject"}))
        for queue, count in (("blocks", 9), ("ring", 5), ("rejects", 9)):
            service.submit(c.Enqueue(queue, count, 100))
        assert names(service) == set()
        service.submit(c.Enqueue("blocks", 1, 100))
        service.submit(c.Enqueue("rejects", 2, 60))
        assert names(service) == {"queue-full"}
        blocks, rejects = service.alarms.current()
        assert (blocks.queue, rejects.queue) == ("blocks", "rejects")
        assert blocks.text.startswith("the queue has 10 of 10 messages. Drain it")
        assert "960 of 1,000 bytes. It has refused 1 message since the start" in rejects.text
        service.submit(c.Purge("blocks", 1))
        names(service)
        assert len(service.alarms.current()) == 2, "it does not come and go"
        service.submit(c.Purge("blocks", 1))
        service.submit(c.Purge("rejects", 1))
        assert [names(service), [alarm.queue for alarm in service.alarms.current()]] == [{"queue-full"}, ["rejects"]]
        now[0] = watch.REFUSED_S + 1
        assert names(service) == set()
        service.submit(c.Enqueue("rejects", 1, 900))
        assert names(service) == {"queue-full"}, "another refused message"
    assert lines(log, "queue-full of queue 'blocks' is over")[0].endswith("the queue has room for messages again, or was deleted")

"""D7: brokers with a copy in a real S3: killed under load together with their directory, and restored on another machine from the
copy alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import Broker, connect
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client

from ..flight.helpers import browse, numbered, send
from ..s3 import BUCKET, Proxy, S3Server, environment
from ..waiting import until

MIB = 1 << 20


@pytest.fixture
def url(request: pytest.FixtureRequest, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{request.node.name.replace('[', '-').rstrip(']')}"


def penstock(*arguments: str | Path, code: int = 0) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *map(str, arguments), "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout or done.stderr)


def restore(url: str, directory: Path, *more: str) -> dict[str, object]:
    return penstock("restore", "--from", url, "--data", directory, *more)


def bodies(broker: Broker, queue: str = "q") -> list[bytes]:
    with Client(broker.url) as client:
        return [row["body"] for row in browse(client, queue, "body")]


class Load:
    """Send batches, and remember the confirmed ones."""

    def __init__(self, broker: Broker) -> None:
        self.sent = self.confirmed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(broker.url,))
        self._thread.start()

    def _run(self, url: str) -> None:
        try:
            with Client(url) as client:
                while not self._stop.is_set():
                    self.sent += 20
                    send(client, "q", numbered(20, 500, self.sent - 20))
                    self.confirmed = self.sent
        except errors.PenstockError:
            pass

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_lost_machine(mode: str, url: str, tmp_path: Path) -> None:
    with Broker(
        tmp_path / "old", copy_url=url, copy=mode, copy_interval_s=0.05, segment_bytes=MIB, snapshot_every_bytes=MIB
    ) as old:
        old.declare("q")
        load = Load(old)
        until(lambda: load.confirmed >= 5000, "5,000 messages are confirmed")
        old.kill()
        load.stop()
    shutil.rmtree(tmp_path / "old")
    report = restore(url, tmp_path / "new", "--take-over")
    with Broker(tmp_path / "new", copy_url=url, copy=mode) as new:
        restored_bodies = bodies(new)
        assert restored_bodies == numbered(len(restored_bodies), 500)  # in order, none twice, none invented
        assert len(restored_bodies) <= load.sent
        if mode == "sync":
            assert len(restored_bodies) >= load.confirmed
        else:
            assert len(restored_bodies) > 0
            assert isinstance(report["lag"], int)
        with Client(new.url) as client:
            send(client, "q", numbered(10, 500, len(restored_bodies)))
            client.call("queue.purge", queue="q")
            until(lambda: client.call("broker.status")["copy"]["lagBytes"] == 0, "all is copied")
    assert penstock("check", tmp_path / "new")["damage"] == []


def test_one_message_at_a_time_over_amqp(tmp_path: Path) -> None:
    """D7: writes of the AMQP loop itself are also not confirmed before the copy has them; connections stay."""
    lost: list[Exception] = []
    with Broker(tmp_path / "data", copy_url=str(tmp_path / "store"), copy="sync") as broker:
        broker.declare("q")
        with connect(broker.amqp_url, on_error=lost.append) as connection:
            producer = connection.session().producer("q")
            for number in range(300):
                producer.send(f"{number}")
            assert lost == []
        with Client(broker.url) as client:
            assert client.call("queue.stat", queue="q")["available"] == 300


def test_the_old_broker_is_refused_at_its_next_write_and_stops(url: str, tmp_path: Path) -> None:
    with Broker(tmp_path / "old", copy_url=url, copy="sync") as old:
        old.declare("q")
        with Client(old.url) as client:
            send(client, "q", numbered(10))
            restore(url, tmp_path / "new", "--take-over")
            with Broker(tmp_path / "new", copy_url=url, copy="sync") as new:
                assert bodies(new) == numbered(10)
                with pytest.raises(errors.PenstockError):
                    send(client, "q", numbered(10, start=10))
                until(lambda: not old.running, "the former broker has stopped")
                assert "was taken over" in old.log()
                assert "the broker stops" in old.log()
                with Client(new.url) as new_client:
                    send(new_client, "q", numbered(5, start=10))
                assert bodies(new) == numbered(15)
        with pytest.raises(errors.PenstockError, match="exit code 1"):
            old.stop()
        with pytest.raises(errors.StorageError, match="belongs to another data directory now"):
            old.start()


def test_a_broker_goes_on_with_its_copy_after_kill_and_after_stop(url: str, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", copy_url=url, copy="sync", segment_bytes=MIB) as broker:
        broker.declare("q")
        for start in range(0, 6000, 2000):
            with Client(broker.url) as client:
                send(client, "q", numbered(2000, 500, start))
            if start == 2000:
                broker.stop()
            else:
                broker.kill()
            broker.start()
    restore(url, tmp_path / "other")
    with Broker(tmp_path / "other") as second:
        assert bodies(second) == numbered(6000, 500)


def test_a_store_that_is_away_at_the_start(url: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(s3.port)
    for name, value in environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    proxy.fault = lambda method, path: "503"
    with Broker(tmp_path / "data", copy_url=url, copy_interval_s=0.05) as broker:
        assert "the broker starts without it" in broker.log()
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            status = client.call("broker.status")["copy"]
            assert (status["state"], status["lagBytes"] > 0) == ("waiting", True)
            proxy.fault = lambda method, path: None
            until(lambda: client.call("broker.status")["copy"]["state"] == "copying", "the copy continues", limit_s=60)
            until(lambda: client.call("broker.status")["copy"]["lagBytes"] == 0, "all is copied")
    restore(url, tmp_path / "other")
    proxy.close()
    with Broker(tmp_path / "other") as second:
        assert bodies(second) == numbered(10)


def test_faults_of_the_network_lose_nothing_and_double_nothing(
    url: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(s3.port)
    for name, value in environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    numbers = iter(range(1_000_000))
    kinds = [None, "500", None, "cut", None, "lost", None, "503", "slow"]
    proxy.fault = lambda method, path: kinds[next(numbers) % len(kinds)] if method == "PUT" else None
    with Broker(tmp_path / "data", copy_url=url, copy="sync") as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            for start in range(0, 60, 10):
                send(client, "q", numbered(10, start=start))
        assert {fault for _, _, fault in proxy.seen} == {None, "500", "503", "cut", "lost", "slow"}
        restore(url, tmp_path / "other")
        with Broker(tmp_path / "other") as second:
            assert bodies(second) == numbered(60)
    proxy.close()


def test_a_bucket_that_was_deleted(url: str, s3: S3Server, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", copy_url=url, copy_interval_s=0.05) as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            until(lambda: client.call("broker.status")["copy"]["lagBytes"] == 0, "all is copied")
            s3.delete_bucket()
            send(client, "q", numbered(10, start=10))
            until(lambda: client.call("broker.status")["copy"]["state"] == "waiting", "the copy waits for its store")
            assert "bucket" in client.call("broker.status")["copy"]["error"].lower()
            s3.make_bucket()
            until(lambda: client.call("broker.status")["copy"]["state"] == "copying", "the copy continues", limit_s=60)
            until(lambda: client.call("broker.status")["copy"]["lagBytes"] == 0, "all is copied")
    restore(url, tmp_path / "other")
    with Broker(tmp_path / "other") as second:
        assert bodies(second) == numbered(20)


def test_a_backup_of_a_running_broker_is_consistent(url: str, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", segment_bytes=MIB, snapshot_every_bytes=MIB) as broker:
        broker.declare("q")
        load = Load(broker)
        until(lambda: load.confirmed >= 3000, "3,000 messages are confirmed")
        before = load.confirmed
        first = penstock("backup", "--data", tmp_path / "data", "--to", url)
        assert load._thread.is_alive()
        until(lambda: load.confirmed >= before + 1000, "1,000 more are confirmed")
        middle = load.confirmed
        second = penstock("backup", "--data", tmp_path / "data", "--to", url)
        load.stop()
    assert int(second["put"]) < int(second["bytes"])  # type: ignore[call-overload]
    assert int(second["position"]) > int(first["position"])  # type: ignore[call-overload]
    report = restore(url, tmp_path / "other")
    assert report["kind"] == "backup"
    assert penstock("check", tmp_path / "other")["damage"] == []
    with Broker(tmp_path / "other") as restored_broker:
        restored_bodies = bodies(restored_broker)
        assert middle <= len(restored_bodies) <= load.sent
        assert restored_bodies == numbered(len(restored_bodies), 500)


def test_a_backup_of_a_killed_broker_has_all_that_was_confirmed(tmp_path: Path) -> None:
    url = str(tmp_path / "backup")
    with Broker(tmp_path / "data") as broker:
        broker.declare("q")
        load = Load(broker)
        until(lambda: load.confirmed >= 1000, "1,000 messages are confirmed")
        broker.kill()
        load.stop()
        penstock("backup", "--data", tmp_path / "data", "--to", url)
    restore(url, tmp_path / "other")
    with Broker(tmp_path / "other") as second:
        assert len(bodies(second)) >= load.confirmed


def test_a_checkpoint_ahead_of_a_restored_directory_is_refused(tmp_path: Path) -> None:
    """The lineage of a restored directory is another one: its batches have other signs."""
    url = str(tmp_path / "backup")
    lease = {"queue": "q", "lease": "l", "run": "r"}
    with Broker(tmp_path / "data") as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            penstock("backup", "--data", tmp_path / "data", "--to", url)
            taken = client.call("lease.advance", **lease, epoch=None, finished=0, messages=5, fresh=True)
    restore(url, tmp_path / "other")
    with Broker(tmp_path / "other") as second, Client(second.url) as client, pytest.raises(errors.WrongOffset):
        client.call("lease.advance", **lease, epoch=None, finished=taken["batch"])

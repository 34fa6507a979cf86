"""D4: a broker and its archiver as they run: two processes, of which either is killed at any instant."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock import Broker, connect
from penstock.broker_core.archive.recorder import process as child
from penstock.broker_core.client.app.program import program_name
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client

from ..flight.helpers import numbered, send
from ..s3 import BUCKET, S3Server, environment
from ..security.helpers import user, write
from ..waiting import until
from .rig import numbers, sequences, table


def status(broker: Broker) -> dict[str, Any]:
    with Client(broker.url) as client:
        return client.call("archive.status")


def recorded(broker: Broker) -> bool:
    return bool(status(broker)["unrecorded"] == 0)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


def steps_back(child: int, broker: int) -> None:
    """Check that the broker goes first on a shared processor; Linux looks at priorities only inside of a session."""
    assert os.getsid(child) == os.getsid(broker)
    assert os.getpriority(os.PRIO_PROCESS, child) >= os.getpriority(os.PRIO_PROCESS, broker) + 10
    assert os.sched_getscheduler(child) == os.SCHED_BATCH
    assert os.getpgid(child) == child  # a terminal's Ctrl-C is for the broker


def test_a_broker_records_what_is_settled_and_stops_its_process(tmp_path: Path) -> None:
    """D4: the start logs place and retention. The process starts with the first recording and ends with the broker."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker:
        assert f"recorded in {tmp_path / 'data' / 'archive'}, and kept there for 30 days" in broker.log()
        assert status(broker)["process"] is None
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(1000))
            client.call("queue.purge", queue="q")
            until(lambda: recorded(broker), "all is recorded")
            assert client.call("queue.stat", queue="q")["archive"]["error"] is None
        pid = status(broker)["process"]
        assert alive(pid)
        steps_back(pid, broker.pid)
    until(lambda: not alive(pid), "the process ends with a clean stop")
    assert sequences(table(tmp_path / "data" / "archive")) == numbers(range(1000))


def test_the_process_ends_with_its_broker_and_another_one_comes(tmp_path: Path) -> None:
    """D4: kill -9 of the process alone, then of the broker alone."""
    broker = Broker(tmp_path / "data", archive_after_s=0.1).start()
    try:
        broker.declare("q")
        pids = []
        for _ in range(2):
            with Client(broker.url) as client:
                send(client, "q", numbered(10))
                client.call("queue.purge", queue="q")
            until(lambda: recorded(broker), "all is recorded")
            pids.append(status(broker)["process"])
            os.kill(pids[-1], signal.SIGKILL)
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            client.call("queue.purge", queue="q")
        until(lambda: recorded(broker), "all is recorded")
        pids.append(status(broker)["process"])
        assert len(set(pids)) == 3
    finally:
        broker.kill()
    until(lambda: not alive(pids[-1]), "the process ends with its broker")
    assert sequences(table(tmp_path / "data" / "archive")) == numbers(range(30))


@pytest.mark.parametrize("seed", [11, 12])
def test_kills_at_random_instants_leave_every_message_in_the_table_once(tmp_path: Path, seed: int) -> None:
    """D4: of the broker, of its process, of both."""
    _kill_at_random(tmp_path / "data", str(tmp_path / "data" / "archive"), Random(seed), 8)


def test_kills_at_random_instants_beside_an_object_store(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: the same with the table in a real S3 server."""
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    _kill_at_random(tmp_path / "data", f"s3://{BUCKET}/{tmp_path.name}", Random(13), 6)


def _kill_at_random(data: Path, archive: str, random: Random, times: int) -> None:
    broker = Broker(data, archive=archive, archive_after_s=0.1, fsync="never", segment_bytes=1 << 20).start()
    sent = 0
    try:
        broker.declare("q")
        for _ in range(times):
            with Client(broker.url) as client:
                count = random.choice([100, 5000, 70_000])
                send(client, "q", numbered(count, 24, sent))
                sent += count
                client.call("queue.purge", queue="q")
            time.sleep(random.choice([0.0, 0.3, 1.2]) * random.random())  # the instant itself: before a pass, in it, after it
            victim = random.choice(["broker", "process", "both"])
            pid = status(broker)["process"]
            if victim != "broker" and pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if victim != "process":
                broker.kill()
                broker.start()
        with Client(broker.url) as client:
            assert client.call("queue.stat", queue="q")["archived"] == sent
        until(lambda: recorded(broker), "all is recorded")
    finally:
        broker.kill()
    rows = table(archive)
    assert Counter(Counter(sequences(rows)).values()) == {1: sent}
    assert rows["body"].to_pylist() == numbered(sent, 24)


def test_a_process_that_hears_nothing_does_not_hold_up_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: neither SIGTERM nor the end of its requests reaches a process that was stopped."""
    monkeypatch.setattr(child, "STOP_S", 0.2)
    asked = child.RecorderProcess({"data": str(tmp_path), "broker": "b"})
    request = {"op": "tables", "url": str(tmp_path / "archive")}
    assert asked.ask(request)["names"] == []
    assert asked.pid is not None
    os.kill(asked.pid, signal.SIGSTOP)
    gone: list[BaseException] = []

    def ask() -> None:
        try:
            asked.ask(request)
        except child.ProcessEnded as error:
            gone.append(error)

    threads = [threading.Thread(target=target, daemon=True) for target in (ask, asked.close)]
    threads[0].start()
    until(asked._asking.locked, "an answer is waited for")
    process = asked._process
    threads[1].start()
    for thread in threads:
        thread.join(20)
    over = not any(thread.is_alive() for thread in threads)
    assert process is not None
    process.kill()
    assert over
    assert len(gone) == 1


def test_settings_that_are_read_again_reach_the_archiver(tmp_path: Path) -> None:
    """D4: messages that waited for an hour are recorded when SIGHUP shortens the wait."""
    config = tmp_path / "penstock.toml"
    config.write_text('archive_after_s = "1 h"\n')
    with Broker(tmp_path / "data", config=config) as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            client.call("queue.purge", queue="q")
        assert not recorded(broker)
        config.write_text("archive_after_s = 0.1\n")
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: recorded(broker), "all is recorded")


def test_without_an_archive_there_is_no_table_and_no_process(tmp_path: Path) -> None:
    """D4: `archive = "off"`."""
    with Broker(tmp_path / "data", archive="off", archive_after_s=0.1) as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(10))
            client.call("queue.purge", queue="q")
            assert client.call("archive.status") == {"archive": "off", "queues": []}
            client.call("queue.delete", queue="q")
    assert not (tmp_path / "data" / "archive").exists()


def take(client: Client, lease: str, count: int, **known: Any) -> dict[str, Any]:
    """Read and finish a batch as Spark does; return the fields that the next one needs."""
    fields = {"queue": "q", "lease": lease, "run": "r"}
    state = known or {"epoch": None, "finished": 0, "fresh": True}
    taken = client.call("lease.advance", **fields, **state, messages=count)
    part = {**fields, "epoch": taken["epoch"], "batch": taken["batch"], "first": 0, "last": 1 << 60, "columns": ["body"]}
    del part["queue"]
    assert sum(batch.num_rows for batch in client.get(op="batch", **part)) == count
    client.call("lease.settle", **fields, epoch=taken["epoch"], finished=taken["batch"])
    return {"epoch": taken["epoch"], "finished": taken["batch"]}


def test_the_archive_says_which_user_and_which_lease_took_a_message(tmp_path: Path) -> None:
    """D4: an AMQP client by its login, Spark by its lease; also from the broker's log after a kill."""
    users = tmp_path / "users.json"
    everything = {"*": "send,receive,browse,replay,admin"}
    write(users, {"ann": user("of ann"), "root": user("of root")}, {"ann": everything, "root": everything})
    root = Credentials("root", "of root")
    with Broker(tmp_path / "data", archive_after_s=0.1, users_file=users) as broker:
        with Client(broker.url, root) as client:
            client.call("queue.declare", queue="q")
            send(client, "q", numbered(8))
            with connect(broker.amqp_url, user="ann", password="of ann") as connection:
                for message in connection.queue("q").receive(limit=2):
                    message.accept()
                for message in connection.queue("q").receive(limit=1):
                    message.reject("no use")
            known = take(client, "etl", 2)
        broker.kill()
        broker.start()
        with Client(broker.url, root) as client:
            take(client, "etl", 1, **known)
            client.call("queue.purge", queue="q")
            until(lambda: bool(client.call("archive.status")["unrecorded"] == 0), "all is recorded")
    rows = table(tmp_path / "data" / "archive").select(["holder", "outcome"]).to_pylist()
    names = [row["holder"] for row in rows]
    expected = [
        (f"{program_name()} (ann)", "accepted", 2),
        (f"{program_name()} (ann)", "rejected", 1),
        ("root:etl", "accepted", 3),
        ("root", "purged", 2),
    ]
    wanted = [group[:2] for group in expected for _ in range(group[2])]
    assert list(zip(names, (row["outcome"] for row in rows), strict=True)) == wanted

"""D4: an archive in an object store, a real S3 server: every settled message once, through faults of store and network."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.archive.table.layout import exact_messages
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import FolderTableStore, store_of
from penstock.broker_core.engine import commands as c

from ..flight.helpers import numbered
from ..s3 import ACCESS, BUCKET, SECRET, Proxy, S3Server, environment
from .rig import STEPS, Died, Rig, encoded, encoded_value, numbers, sequences, table
from .test_keeping import STEPS_OF_KEEPING, die_after


@pytest.fixture
def archive(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an archive of this test's own."""
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}/archive"


@pytest.fixture
def remote(make_rig: Callable[..., Rig], archive: str) -> Rig:
    """A broker with the queue `q`, and its archive in the store."""
    rig = make_rig(archive=archive)
    rig.service.submit(c.DeclareQueue("q"))
    return rig


@pytest.fixture
def wire(s3: S3Server) -> Iterator[Proxy]:
    proxy = Proxy(s3.port)
    yield proxy
    proxy.close()


@pytest.fixture
def over_wire(make_rig: Callable[..., Rig], archive: str, wire: Proxy, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Rig with a process of its own for the archiver that reaches the store over `wire`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", environment(wire.port)["AWS_ENDPOINT_URL"])
        rig = make_rig(archive=archive, own_process=True)
        rig.service.submit(c.DeclareQueue("q"))
        settle(rig, 1)
        rig.record()
    assert wire.seen
    return rig


def settle(rig: Rig, count: int, queue: str = "q") -> None:
    rig.send(queue, numbered(count))
    rig.settle(queue, count)


def error_of(rig: Rig) -> str:
    return str(rig.recorder.of_queue("q")["error"])


def queue_table(rig: Rig, archive: str, queue: str = "q") -> QueueTable:
    return QueueTable(store_of(f"{archive}/{queue}"), rig.service.broker_id, None)


def test_a_store_s_table_is_kept_small_as_a_folder_s_is(remote: Rig, archive: str, s3: S3Server) -> None:
    """D4: passes, compaction, retention, vacuum; files of attempts that died go."""
    for _ in range(6):
        settle(remote, 10)
        remote.record(1)
    assert remote.unrecorded() == 0
    assert queue_table(remote, archive).compact(1 << 20) == 5
    assert sequences(table(archive)) == numbers(range(60))
    orphan = next((s3.folder / BUCKET).glob(f"{archive.split('/', 3)[3]}/q/day=*")) / "pass-1-99-dead.parquet"
    orphan.write_bytes(b"left behind")
    assert queue_table(remote, archive).vacuum(0.0) == 7
    assert not orphan.exists()
    assert sequences(table(archive)) == numbers(range(60))
    assert queue_table(remote, archive).expire(86400.0, datetime.now(timezone.utc) + timedelta(days=3)) == 1
    assert table(archive).num_rows == 0


def test_the_files_of_a_day_become_one_in_a_store(remote: Rig, archive: str) -> None:
    """D8: two days after it began. Messages of AMQP clients keep their columns and their exact bytes."""
    for first in range(0, 30, 10):
        remote.send("q", encoded(*range(first, first + 10)), encoded_value(first))
        remote.settle("q", 11)
        remote.record(1)
    ended = datetime.now(timezone.utc) + timedelta(days=2)
    assert queue_table(remote, archive).compact_ended_days(ended) == 2
    assert queue_table(remote, archive).compact_ended_days(ended) == 0
    rows = table(archive)
    assert sequences(rows) == numbers(range(33))
    content = [(row["subject"], dict(row["properties"] or ()), row["body"], row["bodyType"]) for row in rows.to_pylist()]
    sent = [
        *(("s", {"n": str(number)}, b"%d" % number, "data") for number in range(10)),
        (None, {}, b'["list",0]', "json"),
    ]
    assert content[:11] == sent
    exact = [octets for batch in rows.combine_chunks().to_batches() for octets in exact_messages(batch).to_pylist()]
    assert exact[:11] == [*encoded(*range(10)).column(0).to_pylist(), *encoded_value(0).column(0).to_pylist()]


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_at_any_step_leaves_each_message_in_a_store_s_table_once(
    remote: Rig, archive: str, step: str
) -> None:
    """D4 D8: and the broker with it."""
    remote.send("q", numbered(5), encoded(*range(5)))
    remote.settle("q", 10)
    died: list[str] = []

    def stop(name: str) -> None:
        if name == step and not died:
            died.append(name)
            raise Died

    remote.step = stop
    remote.record(1)
    assert died == [step]
    remote.reopen()
    remote.record()
    assert sequences(table(archive)) == numbers(range(10))
    assert table(archive)["body"].to_pylist() == [*numbered(5), *(b"%d" % number for number in range(5))]
    assert remote.unrecorded() == 0


@pytest.mark.parametrize(
    ("owner", "name"),
    [case for case in STEPS_OF_KEEPING if case[0] is not FolderTableStore],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_process_that_dies_while_it_keeps_a_store_s_table_small(
    remote: Rig, archive: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """D4: after any step of compaction, retention or vacuum, each row is there once, and the next process finishes the work."""
    for _ in range(3):
        settle(remote, 10)
        remote.record()
    remote.options |= {"archive_compact_files": 2, "archive_vacuum_after_s": 0.0, "archive_retention_age_s": 1.0}
    die_after(remote, monkeypatch, owner, name)
    left = range(0 if name == "delete" else 30)
    if left:
        assert sequences(table(archive)) == numbers(left)
    remote.reopen()
    remote.up += 100_000
    remote.record()
    assert sequences(table(archive)) == numbers(left)


def test_tables_of_deleted_queues_are_looked_after(make_rig: Callable[..., Rig], archive: str) -> None:
    """D4: retention continues; tables of other brokers are left alone, without a message."""
    rig, second = make_rig(archive=archive), make_rig("other", archive=archive)
    for broker, name in ((rig, "gone ü"), (second, "theirs")):
        broker.service.submit(c.DeclareQueue(name))
        settle(broker, 3, name)
        broker.record()
        broker.service.submit(c.DeleteQueue(name))
    rig.up += 100_000
    rig.record()
    asked = [request["url"] for request in rig.child.asked if request["op"] == "keep"]
    assert sorted(asked) == [f"{archive}/gone-x20-xC3-xBC", f"{archive}/theirs"]
    assert table(archive, "theirs").num_rows == 3


def test_a_store_that_is_gone_for_a_while_is_waited_for(remote: Rig, archive: str, s3: S3Server) -> None:
    """D4: the server is killed, before a pass and in the middle of one, and started again."""
    settle(remote, 10)
    remote.record()
    s3.kill()
    try:
        settle(remote, 10)
        remote.record()
        assert "cannot be opened" in error_of(remote)
        assert "\x1b" not in error_of(remote)
        assert remote.unrecorded() == 10
    finally:
        s3.start()
    remote.record()
    assert sequences(table(archive)) == numbers(range(20))
    for step in ("write", "commit"):
        settle(remote, 10)
        remote.step = lambda name, step=step: s3.kill() if name == step else None  # type: ignore[misc]
        try:
            remote.record()
            assert remote.unrecorded() == 10, step
        finally:
            remote.step = lambda name: None
            s3.start()
        remote.record()
    assert sequences(table(archive)) == numbers(range(40))
    assert remote.unrecorded() == 0


@pytest.mark.parametrize("answer", ["500", "503"])
def test_a_store_that_refuses_now_and_then_holds_up_nothing(over_wire: Rig, wire: Proxy, archive: str, answer: str) -> None:
    """D4: every second request is answered so; and all of them, until it is over."""
    count = iter(range(1 << 20))
    wire.fault = lambda method, path: answer if next(count) % 2 else None
    settle(over_wire, 10)
    over_wire.record()
    assert over_wire.unrecorded() == 0
    wire.fault = lambda method, path: answer
    settle(over_wire, 10)
    over_wire.record(1)
    assert over_wire.unrecorded() == 10
    assert error_of(over_wire) != "None"
    wire.fault = lambda method, path: None
    over_wire.record()
    assert sequences(table(archive)) == numbers(range(21))


def test_a_store_that_is_slow_and_whose_clock_is_off(over_wire: Rig, wire: Proxy, archive: str) -> None:
    """D4: the first is retried, the second is reported and retried."""
    wire.fault = lambda method, path: "slow" if method == "PUT" else None
    settle(over_wire, 10)
    over_wire.record()
    assert over_wire.unrecorded() == 0
    wire.fault = lambda method, path: "403"
    settle(over_wire, 10)
    over_wire.record()
    assert over_wire.unrecorded() == 10
    assert "RequestTimeTooSkewed" in error_of(over_wire)
    wire.fault = lambda method, path: None
    over_wire.record()
    assert sequences(table(archive)) == numbers(range(21))


@pytest.mark.parametrize("fault", ["cut", "lost"])
@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_a_put_of_which_nobody_knows_whether_it_was_done(
    over_wire: Rig, wire: Proxy, archive: str, fault: str, suffix: str
) -> None:
    """D4: the network fails in the middle of a file, or of a commit, or before the answer: each message is there once."""
    failed: list[str] = []

    def fail(method: str, path: str) -> str | None:
        if method != "PUT" or suffix not in path or failed:
            return None
        failed.append(path)
        return fault

    wire.fault = fail
    settle(over_wire, 10)
    over_wire.record()
    over_wire.record()
    assert failed
    assert over_wire.unrecorded() == 0
    assert sequences(table(archive)) == numbers(range(11))


@pytest.mark.parametrize("when", ["cut", "lost"])
def test_a_process_that_is_killed_while_it_commits(over_wire: Rig, wire: Proxy, archive: str, when: str) -> None:
    """D4: by kill -9 while the commit is on its way, which then arrives or does not."""
    killed: list[int] = []

    def kill(method: str, path: str) -> str | None:
        pid = over_wire.recorder._process.pid
        if method != "PUT" or ".json" not in path or killed or pid is None:
            return None
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)
        return when

    wire.fault = kill
    settle(over_wire, 10)
    over_wire.record(1)
    assert killed
    assert over_wire.unrecorded() == 10
    over_wire.record()
    assert over_wire.recorder._process.pid not in killed
    assert sequences(table(archive)) == numbers(range(11))


def test_credentials_that_expire_are_said_and_new_ones_are_used(
    make_rig: Callable[..., Rig], archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: from a file that is written again, without a restart."""
    file = tmp_path / "credentials"

    def write(secret: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {secret}\n")

    write(SECRET)
    rig = make_rig(archive=archive, own_process=True)
    rig.service.submit(c.DeclareQueue("q"))
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        patch.delenv("AWS_ACCESS_KEY_ID")
        settle(rig, 5)
        rig.record()
    assert rig.unrecorded() == 0, error_of(rig)
    process = rig.recorder._process.pid
    write("expired")
    settle(rig, 5)
    rig.record(4)
    assert "privileges" in error_of(rig)
    assert rig.unrecorded() == 5
    write(SECRET)
    rig.record()
    assert rig.recorder._process.pid == process
    assert sequences(table(archive)) == numbers(range(10))


def test_a_bucket_that_is_deleted_is_said_and_waited_for(remote: Rig, archive: str, s3: S3Server) -> None:
    """D4: recorded rows are lost with it; later ones are recorded in a new table."""
    settle(remote, 10)
    remote.record()
    s3.delete_bucket()
    try:
        settle(remote, 10)
        remote.record()
        assert "NoSuchBucket" in error_of(remote)
        assert remote.unrecorded() == 10
    finally:
        s3.make_bucket()
    remote.record()
    assert sequences(table(archive)) == numbers(range(10, 20))
    assert error_of(remote) == "None"

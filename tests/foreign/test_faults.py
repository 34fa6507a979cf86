"""S11: brokers that are away, and spools that are full, emptied, shared or of another user."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.foreign import arrivals, batches, consumer, intake, spool, spool_files
from penstock.connector.foreign.partition import Part
from penstock.connector.foreign.recognition import keys_of
from penstock.connector.foreign.spool import Spool
from penstock.connector.foreign.window import Window
from penstock.connector.offset import SpoolOffset

from ..waiting import until
from .helpers import INITIAL, LIMIT, Queue, bodies, drained, lost, next_batch, rows


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "SPOOL_S", 0.3)
    monkeypatch.setattr(consumer, "RECONNECT_S", 0.3)
    monkeypatch.setattr(intake, "RECONNECT_S", 0.3)


def test_a_broker_that_is_away_at_the_first_start_is_named_at_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "RECONNECT_S", 1000.0)
    queue.hidden.close()
    with pytest.raises(errors.PeerError, match=f"{queue.hidden.port}"):
        queue.reader().latestOffset(INITIAL, LIMIT)


def test_a_message_that_no_batch_can_hold_ends_the_query_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no other attempt, and no log of one."""
    monkeypatch.setattr(arrivals, "MOST_OF_ONE", 5)
    monkeypatch.setattr(arrivals, "MOST_OCTETS", 5)
    monkeypatch.setattr(consumer, "SPOOL_S", 1000.0)
    queue.send(0, 1)
    reader = queue.reader()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(errors.ResourceLimit, match="larger than the 5 that a batch can hold"):
        reader.latestOffset(INITIAL, LIMIT)
    reader.stop()
    assert not [text for text in caplog.messages if "taken up again" in text]
    assert queue.available() == 1


def test_what_is_in_the_spool_is_read_without_the_broker(queue: Queue) -> None:
    queue.send(0, 10)
    first = queue.reader()
    end = next_batch(first, INITIAL)
    first.stop()
    queue.hidden.close()
    second = queue.reader()
    assert second.latestOffset(INITIAL, LIMIT) == end
    assert bodies(second, INITIAL, end) == list(range(10))


def test_a_query_waits_for_a_broker_that_goes_and_comes(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send(0, 10)
    reader = queue.reader()
    end = next_batch(reader, INITIAL)
    queue.hidden.away = True
    queue.hidden.cut()
    for _ in range(100):
        assert reader.latestOffset(end, LIMIT) == end
        counts = reader.reportLatestOffset()["queues"]
        if "away" in counts:
            break
    assert "away" in counts
    in_an_hour = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600, time_ns=time.time_ns)
    monkeypatch.setattr(intake, "time", in_an_hour)
    assert reader.latestOffset(end, LIMIT) == end
    queue.hidden.away = False
    queue.send(10, 20)
    assert bodies(reader, end, next_batch(reader, end)) == list(range(10, 20))


def test_a_run_that_ends_fails_when_its_broker_stays_away(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user waits for its end."""
    monkeypatch.setattr(consumer, "SPOOL_S", 1000.0)
    queue.send(0, 10)
    reader = queue.reader()
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, INITIAL)
    queue.hidden.away = True
    queue.hidden.cut()
    lost(reader, queue)
    with pytest.raises(errors.PeerError, match=f"{queue.hidden.port}"):
        reader.latestOffset(end, LIMIT)


def test_a_queue_that_is_not_there_at_the_first_start_is_named_at_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "RECONNECT_S", 1000.0)
    with pytest.raises(errors.NotFound, match="no-such-queue"):
        queue.reader(queue="no-such-queue").latestOffset(INITIAL, LIMIT)


def test_a_query_that_starts_again_is_patient_with_a_broker_that_refuses(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was started a moment ago may not have its queues yet."""
    queue.send(0, 10)
    first = queue.reader()
    numbers, end = drained(first)
    first.stop()
    queue.client.call("queue.delete", queue=queue.name, force=True)
    with pytest.raises(errors.NotFound, match="no queue"):
        queue.reader().latestOffset(end, LIMIT)  # but not for ever
    monkeypatch.setattr(consumer, "RECONNECT_S", 1000.0)
    start = intake.Intake.start

    def refused(self: intake.Intake) -> None:
        try:
            start(self)
        except errors.NotFound:
            queue.client.call("queue.declare", queue=queue.name)
            queue.send(10, 20)
            raise

    monkeypatch.setattr(intake.Intake, "start", refused)
    assert numbers + drained(queue.reader(), end)[0] == list(range(20))


def test_a_full_spool_loses_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send(0, 50)
    reader, put = queue.reader(), spool_files.SpoolFiles._put_local

    def full(self: spool_files.SpoolFiles, name: str, write: Any, new: bool = False) -> None:
        if name.startswith("batch"):
            raise OSError(errno.ENOSPC, "no space left on device")
        put(self, name, write, new)

    monkeypatch.setattr(spool_files.SpoolFiles, "_put_local", full)
    with pytest.raises(errors.DiskFull, match="is full: make room"):
        next_batch(reader, INITIAL)
    reader.stop()
    assert queue.available() == 50
    monkeypatch.setattr(spool_files.SpoolFiles, "_put_local", put)
    assert drained(queue.reader())[0] == list(range(50))


def test_a_commit_makes_room_on_a_disk_that_has_none_for_its_own_note(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written while the committed batch is there."""
    queue.send(0, 50)
    reader, put = queue.reader(maxMessagesPerTrigger="30"), spool_files.SpoolFiles._put_local
    end = next_batch(reader, INITIAL)
    numbers = bodies(reader, INITIAL, end)

    def full(self: spool_files.SpoolFiles, name: str, write: Any, new: bool = False) -> None:
        if "batch-1.arrow" in queue.files():
            raise OSError(errno.ENOSPC, "no space left on device")
        put(self, name, write, new)

    monkeypatch.setattr(spool_files.SpoolFiles, "_put_local", full)
    again = next_batch(reader, end)
    assert numbers + bodies(reader, end, again) == list(range(50))
    reader.stop()
    assert json.loads((queue.spool / "owner.json").read_text())["committed"] == 1


def test_a_stream_that_is_closed_writes_into_no_file_of_somebody_else(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that wakes the receiving thread, at the moment when the number of its pipe is given to another file."""
    queue.send(0, 1)
    reader = queue.reader()
    next_batch(reader, INITIAL)
    made = reader._consumer(INITIAL)
    assert isinstance(made, consumer.ForeignConsumer)
    receives, close, others = made._intake, os.close, tmp_path / "others"
    wakes = threading.Thread(target=receives._wake)
    number, opened = receives._wake_write, list[int]()

    def reused(descriptor: int) -> None:
        close(descriptor)
        if descriptor == number and not opened:
            opened.append(os.open(others, os.O_WRONLY | os.O_CREAT))
            if opened[0] != number:
                os.dup2(opened[0], number)
            wakes.start()
            wakes.join(0.2)

    monkeypatch.setattr(os, "close", reused)
    reader.stop()
    monkeypatch.undo()
    wakes.join(10)
    for descriptor in {number, *opened}:
        os.close(descriptor)
    assert others.read_bytes() == b""


def test_a_slow_spool_bounds_what_is_received_ahead(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "WAITING_ROWS", 50)
    monkeypatch.setattr(intake, "MOST_CREDIT", 20)
    queue.send(0, 600)
    reader, put, waiting = queue.reader(maxMessagesPerTrigger="200"), spool_files.SpoolFiles.put, []
    rests, sleep = threading.Event(), intake.Intake._sleep
    writes, go_on = threading.Event(), threading.Event()

    def resting(self: intake.Intake, *limit_s: float) -> None:
        rests.set()  # it has no more, or takes no more
        sleep(self, *limit_s)
        rests.clear()

    def ahead() -> int:
        return int(reader.reportLatestOffset()["queues"][queue.name]["waiting"])

    def slow(self: spool_files.SpoolFiles, name: str, write: Any, **how: bool) -> None:
        writes.set()
        go_on.wait(30)
        rests.wait(30)
        waiting.append(ahead())
        put(self, name, write, **how)

    monkeypatch.setattr(intake.Intake, "_sleep", resting)
    end = next_batch(reader, INITIAL)
    monkeypatch.setattr(spool_files.SpoolFiles, "put", slow)
    numbers = bodies(reader, INITIAL, end)
    with ThreadPoolExecutor(1) as spark:
        more = spark.submit(drained, reader, end)
        try:
            assert writes.wait(30)
            until(lambda: rests.is_set() and ahead() >= 50, "as much waits as may, while the spool writes")
        finally:
            go_on.set()
        assert numbers + more.result(60)[0] == list(range(600))
    assert max(waiting) <= 50 + 100 + 20  # and the first credit


def test_a_spool_that_was_emptied_is_data_loss(queue: Queue) -> None:
    queue.send(0, 50)
    reader = queue.reader()
    end = next_batch(reader, INITIAL)
    reader.stop()
    for path in queue.spool.iterdir():
        path.unlink()
    again = queue.reader()
    with pytest.raises(errors.DataLoss, match="was emptied"):
        again.partitions(INITIAL, end)
    lenient = queue.reader(failOnDataLoss="false")
    assert rows(lenient, INITIAL, end) == []
    queue.send(50, 60)
    more = drained(lenient, end)[0]
    assert more[-10:] == list(range(50, 60))


def test_an_emptied_spool_stops_the_query_that_runs(queue: Queue) -> None:
    queue.send(0, 5)
    reader = queue.reader()
    end = next_batch(reader, INITIAL)
    for path in queue.spool.iterdir():
        path.unlink()
    queue.send(5, 9)
    with pytest.raises(errors.DataLoss, match="emptied while the query ran"):
        next_batch(reader, end)


def test_two_queries_cannot_share_a_spool(queue: Queue) -> None:
    queue.send(0, 20)
    first, second = queue.reader(maxMessagesPerTrigger="5"), queue.reader(maxMessagesPerTrigger="5")
    end = next_batch(first, INITIAL)
    next_batch(second, INITIAL)  # it began as well: without a commit it could be the first one, started again
    with pytest.raises(errors.Fenced, match="another query is using the spool"):
        next_batch(first, end)


BEGIN = SpoolOffset("", 0)


def rows_of(*bodies: bytes) -> batches.Rows:
    queues, times = pa.array([0] * len(bodies), pa.int8()), pa.array([0] * len(bodies), pa.int64()).view(batches.TIMESTAMP)
    return batches.Rows(pa.array(bodies, pa.binary()), queues, times, ["q"])


def keys(rows: batches.Rows) -> tuple[Any, Any]:
    pair = keys_of(rows.message, rows.queues.to_numpy(), rows.names)
    return pair.high, pair.low


def known_keys(rows: batches.Rows) -> tuple[Any, Any]:
    pair = keys_of(rows.message, rows.queues.to_numpy(), rows.names)
    return pair.high[pair.known], pair.low[pair.known]


def encoded(id_: str | None) -> bytes:
    return Message(properties=Properties(message_id=id_), data=[b""]).encode()


@pytest.mark.parametrize("when", ["before its file", "after its file"])
def test_of_two_planners_at_once_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The old planner stands still between its look at the token and its file, or after it, while the new one takes over."""
    old, new = (Spool(str(tmp_path), None, fail_on_data_loss=True) for _ in range(2))
    old.enter(BEGIN)
    put = spool_files.SpoolFiles.put

    def standing_still(self: spool_files.SpoolFiles, name: str, write: Any, **how: bool) -> None:
        monkeypatch.setattr(spool_files.SpoolFiles, "put", put)
        if when == "after its file":
            put(self, name, write, **how)
        new.enter(BEGIN)
        if when == "before its file":
            new.put(1, rows_of(b"new"), None, 100)
            put(self, name, write, **how)

    monkeypatch.setattr(spool_files.SpoolFiles, "put", standing_still)
    with pytest.raises(errors.Fenced):
        old.put(1, rows_of(b"old"), None, 100)
    assert new.after(0) == 1
    with new.store.open("batch-1.arrow") as file:
        held = batches.opened(file, "batch-1.arrow").reader.get_batch(0).column(0).to_pylist()
    assert held == ([b"new"] if when == "before its file" else [b"old"])  # not accepted yet: the new planner does


def test_a_batch_beside_keys_of_another_planner_is_recognised_by_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old planner stands still before its file, the new one dies before its own: one's messages, the other's keys."""
    old, new, last = (Spool(str(tmp_path), Window(1000), fail_on_data_loss=True) for _ in range(3))
    mine, others = (rows_of(*map(encoded, names)) for names in ("ab", "bc"))
    old.enter(BEGIN)
    put = spool_files.SpoolFiles.put

    def dying(self: spool_files.SpoolFiles, name: str, write: Any, **how: bool) -> None:
        if name.startswith("batch"):
            raise KeyboardInterrupt
        put(self, name, write, **how)

    def standing_still(self: spool_files.SpoolFiles, name: str, write: Any, **how: bool) -> None:
        if name.startswith("batch"):
            monkeypatch.setattr(spool_files.SpoolFiles, "put", dying)
            new.enter(BEGIN)
            with pytest.raises(KeyboardInterrupt):
                new.put(1, others, keys(others), 100)
            monkeypatch.setattr(spool_files.SpoolFiles, "put", put)
        put(self, name, write, **how)

    monkeypatch.setattr(spool_files.SpoolFiles, "put", standing_still)
    with pytest.raises(errors.Fenced):
        old.put(1, mine, keys(mine), 100)
    for again in (last, Spool(str(tmp_path), Window(1000), fail_on_data_loss=True)):  # it has only the files of the first one
        again.enter(BEGIN)
        assert again.after(0) == 1
        assert again.window is not None
        assert again.window.find(*keys(mine)).tolist() == [1, 1]
        assert again.window.find(*keys(others)).tolist() == [1, 0]  # the last is in no file: it must not be left out


@pytest.mark.parametrize("names", ["", "ab"])
def test_the_keys_of_a_batch_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Also where no message has an id: a planner that starts reads no batch that has keys of its own."""
    mine = rows_of(*(encoded(name) for name in names or [None, None]))
    first, last = (Spool(str(tmp_path), Window(1000), fail_on_data_loss=True) for _ in range(2))
    first.enter(BEGIN)
    first.put(1, mine, known_keys(mine), 100)
    monkeypatch.delattr(spool, "keys_in")
    last.enter(BEGIN)
    last.settle(1)
    assert (tmp_path / "keys-1.arrow").exists() == bool(names)  # for as long as the window holds one of them


def test_keys_of_another_planner_are_gone_once_the_batch_has_its_own(tmp_path: Path) -> None:
    """Such keys lie next to a batch without ids. Their messages are still at the broker, and in no batch."""
    mine, others = rows_of(encoded(None)), rows_of(encoded("a"))
    first, last = (Spool(str(tmp_path), Window(1000), fail_on_data_loss=True) for _ in range(2))
    first.enter(BEGIN)
    first.store.put("keys-1.arrow", lambda file: batches.write_keys(file, *keys(others), "of another"))
    first.put(1, mine, known_keys(mine), 100)
    first.settle(1)
    last.enter(SpoolOffset(first.id, 1))
    assert last.window is not None
    assert last.window.find(*keys(others)).tolist() == [0]


def test_a_planner_goes_on_where_its_own_file_was_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Spool(str(tmp_path), None, fail_on_data_loss=True)
    mine.enter(BEGIN)
    (tmp_path / "batch-1.arrow").write_bytes(b"named, and then the folder was not synced")
    mine.put(1, rows_of(b"x"), None, 100)
    assert [plan.parts for plan in mine.plan(0, 1, 10, 1)] == [(Part(1, 0, 1),)]


def test_a_spool_of_another_query_is_refused(queue: Queue, tmp_path: Path) -> None:
    queue.send(0, 20)
    first = queue.reader()
    _, end = drained(first)
    with pytest.raises(errors.WrongOffset, match="two queries cannot share a spool"):
        queue.reader().latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.WrongOffset, match="belongs to spool another"):
        queue.reader().latestOffset({**end, "spool": "another"}, LIMIT)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "part-0.parquet").write_text("x")
    with pytest.raises(errors.WrongOffset, match="does not belong to a spool"):
        queue.reader(spool=str(strange)).latestOffset(INITIAL, LIMIT)


def test_orphans_of_a_crash_are_deleted(queue: Queue) -> None:
    queue.send(0, 20)
    first = queue.reader()
    _, end = drained(first)
    first.stop()
    (queue.spool / "batch-9.arrow.0123.part").write_text("half")
    (queue.spool / "keys-9.arrow").write_text("of a batch that never came to be")
    second = queue.reader()
    assert second.latestOffset(end, LIMIT) == end
    assert not [name for name in queue.files() if "9" in name]


def test_an_older_checkpoint_is_told(queue: Queue) -> None:
    queue.send(0, 20)
    reader = queue.reader(maxMessagesPerTrigger="5")
    first = next_batch(reader, INITIAL)
    _, end = drained(reader, first)
    reader.commit(end)
    reader.stop()
    with pytest.raises(errors.DataLoss, match="the checkpoint is old"):
        queue.reader().latestOffset(first, LIMIT)

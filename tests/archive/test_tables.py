"""D4: every settled message is a row of its queue's table, once, with all that is known of it; also where a process dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.broker_core.archive.table.layout import READABLE, folder_name
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import store_of
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.model import recordings
from penstock.broker_core.engine.model.recordings import Backlog, Recording
from penstock.broker_core.messages.columns import SYSTEM_COLUMNS
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.reloading import changed_settings
from penstock.broker_core.settings.keys import Settings

from ..flight.helpers import numbered
from ..service.helpers import retain
from .rig import STEPS, Died, Rig, encoded, numbers, sequences


def as_read(service: BrokerService, queue: str = "q") -> pa.Table:
    """The settled messages as the broker itself returns them."""
    (block,) = service.state.queues[queue].blocks.values()
    slices = service.slices(queue, RowSet.of([(block.number, block.rows_between(0, 1 << 40))]))
    return pa.Table.from_batches(record_batches(service.journal, slices, BatchRequest(READABLE, queue)))


def test_the_table_has_what_the_broker_has_of_messages_of_either_form(rig: Rig) -> None:
    """D4: columns, AMQP messages octet for octet, outcomes, errors, times, delivery counts, added annotations."""
    columns = {"body": pa.array([b"a", None], pa.binary()), "subject": ["s", None], "priority": pa.array([7, None], pa.int16())}
    rig.send("q", [b"one", b"two"], encoded(2, 3, 4), pa.record_batch(columns), encoded(7))
    link = rig.service.submit(c.Subscribe("q"))
    first = rig.service.submit(c.Acquire("q", link, 3)).rows
    rig.service.submit(
        c.Release("q", link, first, Cause.MODIFIED, annotations=b"\xc1\x07\x02\xa3\x01a\xa1\x01b"), c.Unsubscribe("q", link)
    )
    rig.settle("q", 3)
    rig.settle("q", 2, Outcome.REJECTED, "not wanted")
    rig.service.submit(c.Purge("q"))
    rig.record()
    rows = rig.table()
    assert rows["deliveryCount"].to_pylist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert rows["outcome"].to_pylist() == ["accepted"] * 3 + ["rejected"] * 2 + ["purged"] * 3
    assert rows["error"].to_pylist() == [None] * 3 + ["not wanted"] * 2 + [None] * 3
    assert set(rows["queueId"].to_pylist()) == {1}
    assert rows.select(READABLE).cast(as_read(rig.service).schema).to_pylist() == as_read(rig.service).to_pylist()
    assert all(time is not None for time in rows["settledTime"].to_pylist())
    assert "settledTime" in SYSTEM_COLUMNS
    assert rig.recorder.status()["recorded"] == 8


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_at_any_step_leaves_each_message_in_the_table_once(rig: Rig, step: str, restart: bool) -> None:
    """D4 D8: the process alone, or the broker with it before the pass has ended. Spark and AMQP clients sent the messages."""
    rig.send("q", numbered(50), encoded(*range(50)))
    rig.settle("q", 60)
    died: list[str] = []

    def stop(name: str) -> None:
        if name == step and not died:
            died.append(name)
            raise Died

    rig.step = stop
    assert rig.recorder.turn() is False or not died
    rig.record(1)
    assert died == [step]
    rig.settle("q", 20)
    if restart:
        rig.reopen()
    rig.record()
    assert sequences(rig.table()) == numbers(range(80))
    assert rig.unrecorded() == 0
    assert rig.table()["pass"].to_pylist() == [1] * 60 + [2] * 20


@pytest.mark.parametrize("seed", range(4))
def test_processes_that_die_again_and_again_leave_each_message_once(rig: Rig, seed: int) -> None:
    """D4: messages arrive, are settled, packed and recorded meanwhile; the queue is deleted and declared again."""
    random = Random(seed)

    def stop(name: str) -> None:
        if random.random() < 0.3:
            raise Died

    rig.step = stop
    settled: dict[int, int] = {}
    for _ in range(12):
        rig.send("q", numbered(random.choice([1, 50, 30_000]), 12))
        queue = rig.service.state.queues["q"]
        rows = rig.settle("q", random.choice([1, 40, 50_000]))
        settled[queue.id] = settled.get(queue.id, 0) + rows.count
        rig.service.pack_blocks()
        rig.record(random.randint(1, 3))
        if random.random() < 0.2:
            rig.service.submit(c.DeleteQueue("q"), c.DeclareQueue("q"))
        if random.random() < 0.3:
            rig.reopen()
    while rig.unrecorded():
        rig.record()
    content = rig.table()
    for number, count in settled.items():
        mine = [
            row for row, queue_id in zip(sequences(content), content["queueId"].to_pylist(), strict=True) if queue_id == number
        ]
        assert mine == numbers(range(count)), f"of queue {number}"
    assert rig.unrecorded() == 0


def test_a_packed_block_is_recorded_from_where_it_went(rig: Rig) -> None:
    """D4: also after a restart; large passes make several files."""
    rig.options["archive_file_bytes"] = 64 << 10
    rig.reopen()
    rig.send("q", *[numbered(8192, 16, start) for start in range(0, BLOCK_ROWS + 8192, 8192)])
    rig.settle("q", BLOCK_ROWS + 5)
    assert rig.service.pack_blocks() == 1
    rig.reopen()
    rig.record()
    rows = rig.table()
    assert sequences(rows) == numbers(range(BLOCK_ROWS + 5))
    assert rows["body"].to_pylist()[::BLOCK_ROWS] == [numbered(1, 16)[0], numbered(1, 16, BLOCK_ROWS)[0]]


def test_a_queue_without_archive_has_no_table(rig: Rig) -> None:
    """D4."""
    rig.service.submit(c.DeclareQueue("private", options={"archive": False}))
    rig.send("private", numbered(3))
    rig.settle("private", 3)
    rig.record()
    assert not (rig.data / "archive").exists()


def test_a_deleted_queue_s_messages_reach_the_table_of_its_name(rig: Rig) -> None:
    """D4: and those of a new queue of that name, with another queueId."""
    rig.send("q", numbered(5))
    rig.settle("q", 3)
    rig.service.submit(c.DeleteQueue("q"), c.DeclareQueue("q"))
    rig.send("q", numbered(2))
    rig.settle("q", 2)
    rig.reopen()
    rig.record()
    rows = rig.table()
    assert list(zip(rows["queueId"].to_pylist(), sequences(rows), strict=True)) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("name", ["orders", "a.b c", "ünïcode 𝄞", "..", "=41", "A" * 255, "ü" * 255, "con:?|<>", "%2F", "sub:x"])
def test_a_queue_of_any_name_has_a_table(make_rig: Callable[..., Rig], name: str) -> None:
    """D4."""
    rig = make_rig()
    rig.service.submit(c.DeclareQueue(name))
    rig.send(name, numbered(3))
    rig.settle(name, 3)
    rig.record()
    assert sequences(rig.table(name)) == [0, 1, 2]
    assert {path.name for path in (rig.data / "archive").iterdir()} == {folder_name(name)}
    assert set(rig.table(name)["queue"].to_pylist()) == {name}


def test_a_large_queue_does_not_hold_up_the_others(rig: Rig) -> None:
    """D4: queues take turns, pass by pass."""
    rig.options["archive_file_bytes"] = 64 << 10
    rig.reopen()
    for name in ("a", "b"):
        rig.service.submit(c.DeclareQueue(name))
        rig.send(name, numbered(10))
        rig.settle(name, 10)
    rig.send("q", numbered(60_000, 16))
    rig.settle("q", 60_000)
    rig.record()
    order = [request["queue"] for request in rig.child.asked if request["op"] == "record"]
    assert order.index("b") < 3
    assert order.count("q") > 3
    assert sequences(rig.table("q")) == numbers(range(60_000))


def test_a_pass_has_few_blocks_however_few_of_their_messages_have_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: the columns of a block are copied for its pass, and a queue may have thousands of blocks."""
    monkeypatch.setattr(recordings, "MOST_BLOCKS", 2)
    for _ in range(5):
        rig.send("q", *[numbered(8192, 8)] * 8)
    ended = [number * BLOCK_ROWS + 7 for number in range(5)]
    for number in ended:
        rig.service.submit(c.DiscardMessages("q", number, number, "bad"))
    rig.record()
    assert sequences(rig.table()) == ended
    assert [len(request["blocks"]) for request in rig.child.asked if request["op"] == "record"] == [2, 2, 1]


def test_queues_that_are_due_together_are_listed_once(rig: Rig) -> None:
    """D4: a listing asks all queues, and a broker may have ten thousand."""
    names = [f"q{number}" for number in range(12)]
    for name in names:
        rig.service.submit(c.DeclareQueue(name))
        rig.send(name, numbered(2))
        rig.settle(name, 2)
    host, asked = rig.recorder._host, list[type]()
    submit = host.submit

    def noted(command: Any) -> Any:
        asked.append(type(command))
        return submit(command)

    host.submit = noted  # type: ignore[method-assign]
    rig.record()
    assert [sequences(rig.table(name)) for name in names] == [[0, 1]] * 12
    assert asked.count(c.EndRecording) == 12
    assert asked.count(c.ListBacklogs) <= 3


def test_messages_whose_payload_retention_took_without_an_archive_are_left_out(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """D4: a broker whose archive was off records the remaining messages, and reports the number of the others."""
    rig.options |= {"segment_bytes": 1 << 20, "retention_bytes": 1 << 20}
    rig.reopen()
    rig.service.state.records = False
    rig.send("q", *[numbered(100, 9000) for _ in range(5)])
    rig.settle("q", 450)
    assert retain(rig.service) > 0
    rig.service.state.records = True
    rig.record()
    numbers_read = sequences(rig.table())
    assert numbers_read == numbers(range(400, 450))
    assert "400 messages of queue 'q' settled without an archive" in caplog.text
    assert rig.unrecorded() == 0


def test_what_is_not_recorded_stays_in_the_journal(rig: Rig) -> None:
    """D4: retention waits for the archive."""
    rig.options |= {"segment_bytes": 1 << 20, "retention_bytes": 1 << 20}
    rig.reopen()
    rig.send("q", *[numbered(100, 9000) for _ in range(5)])
    rig.settle("q", 500)
    retain(rig.service)
    before = sum(segment.bytes for segment in rig.service.journal.segments())
    assert before > 4 << 20
    rig.record()
    retain(rig.service)
    assert sum(segment.bytes for segment in rig.service.journal.segments()) < before / 2
    assert sequences(rig.table()) == numbers(range(500))


def test_nothing_is_due_before_its_time(rig: Rig) -> None:
    """D4: no process is needed until then."""
    rig.options["archive_after_s"] = 3600.0
    rig.reopen()
    rig.send("q", numbered(3))
    rig.settle("q", 3)
    assert rig.recorder.turn() is False
    assert rig.child.asked == []
    assert rig.recorder.of_queue("q")["error"] is None


def test_small_files_are_put_together_old_days_go_and_so_does_what_dead_attempts_left(rig: Rig, tmp_path: Path) -> None:
    """D4: readers of an older version still find its files until vacuum comes."""
    rig.options |= {"archive_compact_files": 4, "archive_vacuum_after_s": 0.0}
    rig.reopen()
    for _ in range(6):
        rig.send("q", numbered(10))
        rig.settle("q", 10)
        rig.record(1)
    rig.record()
    table = deltalake.DeltaTable(rig.data / "archive" / "q")
    assert table.get_add_actions().num_rows < 6
    assert rig.recorder.growth.replaced_bytes > 0
    assert sequences(rig.table()) == numbers(range(60))
    orphan = next((rig.data / "archive" / "q").glob("day=*")) / "pass-1-99-dead.parquet"
    orphan.write_bytes(b"left behind")
    rig.up += 100_000
    rig.record()
    assert not orphan.exists()
    assert sequences(rig.table()) == numbers(range(60))
    rig.options["archive_retention_age_s"] = 1.0
    rig.reopen()
    rig.send("q", numbered(1))
    rig.settle("q", 1)
    rig.record()
    mine = QueueTable(store_of(str(rig.data / "archive" / "q")), rig.service.broker_id, "q")
    assert mine.expire(86400.0, datetime.now(timezone.utc)) == 0
    assert mine.expire(86400.0, datetime.now(timezone.utc) + timedelta(days=3)) > 0
    assert rig.table().num_rows == 0


def test_vacuum_leaves_files_for_as_long_as_it_was_told(rig: Rig) -> None:
    """D4: also where that is less than an hour, delta-rs's unit: a reader of a version of a minute ago still finds its files."""
    rig.send("q", numbered(10))
    for _ in range(2):
        rig.settle("q", 5)
        rig.record()
    version = deltalake.DeltaTable(rig.data / "archive" / "q")
    mine = QueueTable(store_of(str(rig.data / "archive" / "q")), rig.service.broker_id, "q")
    files = list((rig.data / "archive" / "q").rglob("pass-*.parquet"))
    assert mine.compact(1 << 30) == 1
    assert mine.replaced == sum(path.stat().st_size for path in files)
    assert mine.vacuum(1800.0) == 0
    assert sequences(version.to_pyarrow_table().sort_by("sequenceNumber")) == numbers(range(10))
    assert mine.vacuum(0.0) == 2


def test_settings_of_the_archive_that_are_read_again_hold_from_then_on(rig: Rig) -> None:
    """D4: when something is due, how large files are, how long rows stay."""
    rig.send("q", numbered(20_000, 20))
    rig.settle("q", 20_000)
    before = Settings(data=rig.data, fsync="never", archive_after_s=3600.0)
    rig.recorder.change(before)
    assert rig.recorder.turn() is False
    settings, _, waiting = changed_settings(
        before, replace(before, archive_after_s=0.1, archive_file_bytes=64 << 10, archive_retention_age_s=60.0)
    )
    assert waiting == []
    rig.recorder.change(settings)
    rig.record()
    assert rig.unrecorded() == 0
    assert len(list((rig.data / "archive" / "q").glob("day=*/*.parquet"))) > 1
    rig.up += 100_000
    rig.record()
    assert [request["retentionS"] for request in rig.child.asked if request["op"] == "keep"][-1] == 60.0


def test_a_dead_letter_that_is_redriven_as_its_pass_begins_is_not_in_it(rig: Rig) -> None:
    """D4: it is live again. Its next end is recorded, once."""
    rig.service.submit(c.DeclareQueue("once", options={"maxAttempts": 1}))
    rig.send("once", [b"ends", b"dies"])
    rig.settle("once", 1)
    link = rig.service.submit(c.Subscribe("once"))
    rows = rig.service.submit(c.Acquire("once", link, 1)).rows
    rig.service.submit(c.Release("once", link, rows, Cause.MODIFIED), c.Unsubscribe("once", link))
    host, redriven = rig.recorder._host, list[int]()

    def redrive_before(backlog: Backlog, current: Recording, content: Any = host.content) -> Any:
        redriven.append(rig.service.submit(c.Redrive("once")).messages)
        return content(backlog, current)

    host.content = redrive_before  # type: ignore[method-assign]
    rig.record()
    assert (redriven, sequences(rig.table("once"))) == ([1], [0])
    rig.settle("once", 1)
    rig.record()
    final = rig.table("once")
    assert (sequences(final), final["outcome"].to_pylist()) == ([0, 1], ["accepted", "accepted"])

"""S11: without limits, messages are in files and accepted while Spark still works on the batch before."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.client.amqp.address import parse
from penstock.broker_core.client.flight import Client
from penstock.connector.foreign import consumer, intake, spool_files
from penstock.connector.foreign.partition import cut
from penstock.connector.stream.credit import Credit
from penstock.connector.stream.reader import StreamReader

from ..waiting import until
from .helpers import INITIAL, LIMIT, Queue, bodies, came, drained, lost, next_batch, rows
from .hidden import Hidden


@pytest.fixture(autouse=True)
def files_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (consumer, intake):
        monkeypatch.setattr(module, "FILE_ROWS", 10)


def wait_for_fifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no more than fifty messages wait, in memory and in files."""
    for module in (consumer, intake):
        monkeypatch.setattr(module, "WAITING_ROWS", 50)


def answers_of_the_thread(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Collect whether the thread that writes ahead may continue, after each of its files."""
    answers, write = list[bool](), consumer.ForeignConsumer._write_ahead

    def noted(self: consumer.ForeignConsumer) -> bool:
        answers.append(write(self))
        return answers[-1]

    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", noted)
    return answers


def begun(queue: Queue, **options: str) -> tuple[StreamReader, dict[str, Any]]:
    """Return a reader whose first batch Spark works on, five messages, and the offset of it."""
    queue.send(0, 5)
    reader = queue.reader(**options)
    return reader, next_batch(reader, INITIAL)


def bounded(queue: Queue, monkeypatch: pytest.MonkeyPatch, sent: int, **options: str) -> tuple[StreamReader, dict[str, Any]]:
    """Return such a reader, for which so many messages are sent, when the thread writes no more of them."""
    answers = answers_of_the_thread(monkeypatch)
    reader, end = begun(queue, **options)
    queue.send(5, sent)
    until(lambda: False in answers, "the thread that writes ahead stops")
    return reader, end


def batches_of(queue: Queue) -> list[int]:
    """Numbers of the batches whose files are there."""
    return [int(name[6:-6]) for name in queue.files() if name.startswith("batch-") and name.endswith(".arrow")]


def test_what_comes_while_spark_works_is_accepted_and_one_trigger_takes_all_of_it(queue: Queue) -> None:
    reader, end = begun(queue)
    assert bodies(reader, INITIAL, end) == list(range(5))
    queue.send(5, 100)
    until(lambda: queue.available() < 10, "messages are accepted while Spark works")
    assert len(batches_of(queue)) > 2
    again = reader.latestOffset(end, LIMIT)
    assert again["batch"] > end["batch"] + 1
    assert len(reader.partitions(end, again)) == 1, "a task for each small file"
    taken = bodies(reader, end, again)
    assert taken + drained(reader, again)[0] == list(range(5, 100))


def test_a_trigger_of_a_run_that_ends_takes_what_comes_only_when_more_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artemis sends 20 MiB of a paged queue, and then waits: a trigger of Spark's for each would take longer than all else."""
    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", lambda _: False)  # so that the trigger itself has to
    monkeypatch.setattr(consumer, "ENDING_S", 60.0)
    for name in ("QUIET_S", "ENDING_QUIET_S"):
        monkeypatch.setattr(consumer, name, 2.0)  # a busy machine
    with (
        Broker(tmp_path / "data", fsync="never", amqp_max_unsettled=10) as narrow,
        closing(Hidden(parse(narrow.amqp_url).port)) as relay,
        Client(narrow.url) as client,
    ):
        queue = Queue(narrow, relay, client, "paged", tmp_path / "spool")
        queue.send(0, 5)
        reader = queue.reader()
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(INITIAL, LIMIT)  # the first trigger waits for no more: Spark starts meanwhile
        queue.send(5, 35)
        again = reader.latestOffset(end, LIMIT)
        assert again["batch"] > end["batch"] + 1, "a trigger for each part"
        assert bodies(reader, end, again) == list(range(5, 35))
        reader.stop()


def test_files_of_large_messages_are_full_before_the_message_that_goes_beyond(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trigger writes and takes all, though no file has all its octets."""
    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", lambda _: False)
    monkeypatch.setattr(consumer, "ENDING_S", 60.0)
    for module in (consumer, intake):
        monkeypatch.setattr(module, "FILE_BYTES", 100_000)
    large = [Message(data=[b"x" * 30_000]).encode() for _ in range(12)]
    queue.send_octets(large[:1])
    reader = queue.reader()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(INITIAL, LIMIT)  # the first trigger takes no more: Spark starts meanwhile
    queue.send_octets(large)
    came(reader, queue, 12)
    again = reader.latestOffset(end, LIMIT)
    assert again["batch"] == end["batch"] + 4, "three to a file"
    assert len(rows(reader, end, again)) == 12


def test_what_is_written_ahead_is_bounded(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_fifty(monkeypatch)
    monkeypatch.setattr(intake, "MOST_CREDIT", 20)
    reader, end = bounded(queue, monkeypatch, 1000)
    assert 6 <= len(batches_of(queue)) <= 7  # the batch that Spark has, and the first file that reaches the limit
    assert bodies(reader, INITIAL, end) + drained(reader, end)[0] == list(range(1000))


@pytest.mark.usefixtures("patient")  # the broker has yet to put back messages that were not accepted
def test_what_is_not_accepted_before_spark_has_committed_stays_recognised(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, end = bounded(queue, monkeypatch, 300, settle="committed", dedupeWindow="40")
    assert 2 <= len(batches_of(queue)) <= 4
    queue.hidden.cut()
    lost(reader, queue)
    assert bodies(reader, INITIAL, end) + drained(reader, end)[0] == list(range(300))


def test_what_is_sent_again_and_again_takes_no_more_memory(queue: Queue) -> None:
    """With `settle=committed`, while Spark works on a batch: only deliveries of the connection that there is can be accepted."""
    queue.send(0, 10)
    reader = queue.reader(settle="committed")
    end = next_batch(reader, INITIAL)
    made = reader._consumer(INITIAL)
    assert isinstance(made, consumer.ForeignConsumer)

    def looked_at(received: int) -> bool:
        counts = made.counts()[queue.name]
        return bool(counts["received"] == received and not counts["waiting"])

    until(lambda: made.counts()[queue.name]["received"] == 10, "all have come")
    for times in (1, 2, 3):
        queue.hidden.cut()
        until(partial(looked_at, 10 + 10 * times), "repeated messages are looked at")
    reader.partitions(INITIAL, end)  # a turn: the thread is between two steps
    assert sum(len(unsettled.ids) for all_ in made._unsettled.values() for unsettled in all_) == 10
    assert bodies(reader, INITIAL, end) + drained(reader, end)[0] == list(range(10))
    reader.stop()
    assert queue.available() == 0


def test_files_are_written_while_spark_works_on_as_many_as_one_trigger_takes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_fifty(monkeypatch)
    reader, end = bounded(queue, monkeypatch, 500)
    numbers = bodies(reader, INITIAL, end)
    again = next_batch(reader, end)
    numbers += bodies(reader, end, again)
    assert len(numbers) >= 55
    until(lambda: len(batches_of(queue)) >= again["batch"] - end["batch"] + 5, "more is written behind a large batch")
    assert numbers + drained(reader, again)[0] == list(range(500))


def full_spool(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Callable[[], None]]:
    """Let no batch be written. Return the names of the files that were tried, and a function that makes room again."""
    put, tried = spool_files.SpoolFiles._put_local, list[str]()

    def full(self: spool_files.SpoolFiles, name: str, write: Any, new: bool = False) -> None:
        if name.startswith("batch"):
            tried.append(name)
            raise OSError(errno.ENOSPC, "no space left on device")
        put(self, name, write, new)

    monkeypatch.setattr(spool_files.SpoolFiles, "_put_local", full)
    return tried, lambda: monkeypatch.setattr(spool_files.SpoolFiles, "_put_local", put)


def test_a_spool_that_gets_full_in_a_trigger_gives_what_is_in_hand(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit makes room."""
    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", lambda _: False)
    monkeypatch.setattr(consumer, "SPOOL_S", 0.3)
    reader, end = begun(queue)
    numbers = bodies(reader, INITIAL, end)
    take, rooms = consumer.ForeignConsumer._write_more, list[Callable[[], None]]()

    def more(self: consumer.ForeignConsumer, *arguments: Any) -> bool:
        if not rooms:
            rooms.append(full_spool(monkeypatch)[1])
        return take(self, *arguments)

    monkeypatch.setattr(consumer.ForeignConsumer, "_write_more", more)
    queue.send(5, 50)
    came(reader, queue, 45)
    again = next_batch(reader, end)
    assert rooms
    numbers += bodies(reader, end, again)
    assert numbers == list(range(15))
    with pytest.raises(errors.DiskFull, match="is full: make room"):
        next_batch(reader, again)
    rooms[0]()
    assert numbers + drained(reader, again)[0] == list(range(50))


def test_what_could_not_be_written_ahead_is_logged_once_and_tried_again_at_the_next_turn(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = answers_of_the_thread(monkeypatch)
    reader, end = begun(queue)
    tried, make_room = full_spool(monkeypatch)
    queue.send(5, 15)

    def refused(times: int) -> bool:
        return answers.count(False) == times

    for times in (1, 2):
        until(partial(refused, times), "it is tried again")
        if times == 2:
            make_room()
        reader.partitions(INITIAL, end)  # a turn
    until(lambda: queue.available() == 0, "the taken messages are written when there is room")
    assert len(tried) == 2
    (warning,) = (text for text in caplog.messages if "no file is written while Spark works on a batch" in text)
    assert "is full: make room" in warning
    assert drained(reader, end)[0] == list(range(5, 15))


def test_what_is_wrong_for_good_is_no_reason_to_try_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next trigger fails with it, and no log promises another attempt when Spark has made room."""
    answers = answers_of_the_thread(monkeypatch)
    reader, end = begun(queue)
    queue.reader().latestOffset(INITIAL, LIMIT)  # another planner takes up the spool
    queue.send(5, 50)
    until(lambda: False in answers, "the thread that writes ahead stops")
    with pytest.raises(errors.Fenced):
        next_batch(reader, end)
    assert not [text for text in caplog.messages if "no file is written while" in text]


def test_a_trigger_whose_credit_is_spent_receives_nothing_and_no_gathering_outlasts_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", lambda _: False)
    monkeypatch.setattr(consumer, "GATHER_S", 30.0)
    reader = queue.reader()
    made = reader._consumer(INITIAL)
    queue.send(0, 5)
    end = next_batch(reader, INITIAL)
    queue.send(5, 15)
    asked, take = [], intake.Intake.take

    def noted(self: intake.Intake, rows: int, octets: int, wait_s: float, gather: intake.Gather, **how: bool) -> Any:
        asked.append(gather)
        return take(self, rows, octets, wait_s, gather, **how)

    monkeypatch.setattr(intake.Intake, "take", noted)
    again = next_batch(reader, end)  # a full file, behind which it looks for more
    first, *others = asked
    assert first.most_s == 30.0
    assert others
    assert all(gather.most_s < 30.0 for gather in others)
    asked.clear()
    queue.send(15, 25)
    came(reader, queue, 10)
    assert made.advance(end, wait_ms=0, credit=Credit(0, None)) == again
    assert not asked


def test_a_spool_that_is_full_while_spark_works_fails_the_next_trigger_and_loses_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "SPOOL_S", 0.3)
    reader, end = begun(queue)
    numbers = bodies(reader, INITIAL, end)
    tried, make_room = full_spool(monkeypatch)
    queue.send(5, 50)
    until(lambda: tried, "something is written while Spark works")
    with pytest.raises(errors.DiskFull, match="is full: make room"):
        next_batch(reader, end)
    reader.stop()
    make_room()
    assert numbers + drained(queue.reader(), end)[0] == list(range(50))


def test_what_goes_wrong_in_the_thread_fails_the_next_trigger(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, end = begun(queue)
    put, tried = spool_files.SpoolFiles.put, list[str]()

    def wrong(self: spool_files.SpoolFiles, name: str, write: Any, **how: bool) -> None:
        if threading.current_thread().name == "penstock-ahead":
            tried.append(name)
            raise RuntimeError("a bug")
        put(self, name, write, **how)

    monkeypatch.setattr(spool_files.SpoolFiles, "put", wrong)
    queue.send(5, 50)
    until(lambda: tried, "something is written while Spark works")
    with pytest.raises(RuntimeError, match="a bug"):
        next_batch(reader, end)


def test_a_file_that_cannot_be_read_in_the_thread_is_tried_again_with_the_next_trigger(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by NFS: the content of a file that opens is not there for a moment."""
    reader, end = begun(queue)
    opened, tried = spool_files.SpoolFiles.open, list[str]()

    class Unreadable:
        def __init__(self, file: Any) -> None:
            self.close = file.close

        def __enter__(self) -> Unreadable:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def read(self) -> bytes:
            raise OSError(errno.EIO, "input/output error")

    def broken(self: spool_files.SpoolFiles, name: str) -> Any:
        file = opened(self, name)
        if threading.current_thread().name == "penstock-ahead" and not tried:
            tried.append(name)
            return Unreadable(file)
        return file

    monkeypatch.setattr(spool_files.SpoolFiles, "open", broken)
    queue.send(5, 50)
    until(lambda: tried, "something is written while Spark works")
    assert bodies(reader, INITIAL, end) + drained(reader, end)[0] == list(range(50))


def test_an_error_of_the_thread_is_raised_once_and_another_thread_goes_on(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    write, tried = consumer.ForeignConsumer._write_ahead, list[bool]()

    def wrong(self: consumer.ForeignConsumer) -> bool:
        tried.append(True)
        if len(tried) == 1:
            raise RuntimeError("a bug")
        return write(self)

    monkeypatch.setattr(consumer.ForeignConsumer, "_write_ahead", wrong)
    reader, end = begun(queue)
    queue.send(5, 50)
    until(lambda: tried, "something is written while Spark works")
    with pytest.raises(RuntimeError, match="a bug"):
        next_batch(reader, end)
    again = next_batch(reader, end)
    queue.send(50, 100)
    until(lambda: len(tried) > 1 and queue.available() < 10, "another thread writes ahead")
    assert bodies(reader, end, again) + drained(reader, again)[0] == list(range(5, 100))


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": "20"}, {"maxBytesPerTrigger": "1k"}])
def test_nothing_is_written_ahead_where_a_trigger_has_a_limit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, limit: dict[str, str]
) -> None:
    answers = answers_of_the_thread(monkeypatch)
    queue.send(0, 200)
    reader = queue.reader(**limit)
    end = next_batch(reader, INITIAL)
    came(reader, queue, 20)
    assert batches_of(queue) == [end["batch"]]
    assert bodies(reader, INITIAL, end) + drained(reader, end)[0] == list(range(200))
    assert not answers


def written_ahead_of(queue: Queue) -> tuple[dict[str, Any], list[int]]:
    """Have 45 messages in files, of which Spark has one batch. Return its offset, and its messages."""
    first, end = begun(queue)
    queue.send(5, 45)
    until(lambda: queue.available() == 0, "messages are accepted while Spark works")
    first.stop()
    assert len(batches_of(queue)) > 2
    return end, bodies(first, INITIAL, end)


def test_the_next_planner_takes_all_that_was_written_ahead_in_one_trigger(queue: Queue) -> None:
    """Spark did not have it, and the broker has let it go."""
    end, numbers = written_ahead_of(queue)
    queue.hidden.away = True
    reader = queue.reader()
    again = next_batch(reader, end, tries=1)
    assert numbers + bodies(reader, end, again) == list(range(45))
    queue.hidden.away = False
    queue.send(45, 50)
    assert drained(reader, again)[0] == list(range(45, 50))


def test_a_run_that_ends_begins_with_what_was_written_ahead_and_reads_the_rest(queue: Queue) -> None:
    """Its first trigger does not ask the broker, and must not end the run for that."""
    end, numbers = written_ahead_of(queue)
    queue.released()
    queue.send(45, 50)
    assert numbers + drained(queue.reader(), end)[0] == list(range(50))


@pytest.mark.parametrize("limit", [{}, {"maxMessagesPerTrigger": "1000"}])
def test_a_trigger_of_the_next_planner_stays_within_its_limits(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, limit: dict[str, str]
) -> None:
    end, numbers = written_ahead_of(queue)
    monkeypatch.setattr(consumer, "WAITING_ROWS", 20)
    queue.hidden.away = True
    reader = queue.reader(**limit)
    while len(numbers) < 45:
        start, end = end, next_batch(reader, end, tries=1)
        files = end["batch"] - start["batch"]
        assert files == 1 if limit else 1 <= files <= 3
        numbers += bodies(reader, start, end)
    assert numbers == list(range(45))


@pytest.mark.parametrize("most", [1, 3, 4, 7, 100])
@pytest.mark.parametrize("least", [1, 2, 8, 15, 1000])
def test_partitions_hold_each_row_once_in_order(most: int, least: int) -> None:
    batches = {3: 7, 4: 1, 5: 0, 6: 7}
    made = cut("/spool", batches, most, least)
    rows = [[(part.batch, row) for part in plan.parts for row in range(part.first, part.end)] for plan in made]
    assert [row for task in rows for row in task] == [(batch, row) for batch, count in batches.items() for row in range(count)]
    assert max(map(len, rows)) <= most
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert len(rows) == max(-(-15 // most), min(least, 15))


def test_a_batch_of_no_rows_has_no_partition() -> None:
    assert cut("/spool", {1: 0}, 10, 8) == cut("/spool", {}, 10, 8) == []


def test_a_trigger_has_at_least_so_many_tasks_whatever_files_it_has(queue: Queue) -> None:
    """Spark's cores also get work from a few large record batches, and from several files."""
    reader, end = begun(queue, minPartitions="8")
    assert tasks_of(reader, INITIAL, end) == [[0], [1], [2], [3], [4]]
    queue.send(5, 50)
    until(lambda: len(batches_of(queue)) > 3, "files are written while Spark works")
    again = next_batch(reader, end)
    assert again["batch"] > end["batch"] + 1
    tasks = tasks_of(reader, end, again)
    assert len(tasks) == 8
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    assert [number for task in tasks for number in task] + drained(reader, again)[0] == list(range(5, 50))


def tasks_of(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[list[int]]:
    """The numbers that each task of a batch reads."""
    parts = reader.partitions(start, end)
    return [[int(row["body"]) for batch in reader.read(part) for row in batch.to_pylist()] for part in parts]

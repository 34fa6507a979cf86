"""Triggers of a stream: acquire, plan and settle. No Spark: the reader's own methods in the order Spark calls them."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream import lease as lease_module

from .helpers import INITIAL, LIMIT, Queue, idle_seconds, read_all


def test_the_initial_offset_is_a_constant_and_creates_nothing(queue: Queue) -> None:
    reader = queue.reader()
    assert reader.initialOffset() == reader.initialOffset() == INITIAL
    assert queue.client.call("lease.list")["leases"] == []


def test_an_empty_queue_gives_the_same_offset_and_leaves_no_lease(queue: Queue) -> None:
    reader = queue.reader()
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    assert queue.client.call("lease.list")["leases"] == []


def test_a_first_batch_after_idle_calls(queue: Queue) -> None:
    reader = queue.reader(lease="idle")
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    queue.send(3)
    end = reader.latestOffset(INITIAL, LIMIT)
    assert end["batches"][queue.name] == 1
    assert read_all(reader, INITIAL, end) == [0, 1, 2]
    assert reader.latestOffset(end, LIMIT) == end
    assert queue.counts() == (0, 0, 3)


def test_an_offset_names_durable_data(queue: Queue) -> None:
    queue.send(1)
    end = queue.reader().latestOffset(INITIAL, LIMIT)
    hello = queue.client.call("hello")
    assert list(end) == ["v", "kind", "broker", "lease", "run", "rotation", "batches", "signs", "firstQueue"]
    assert end["broker"] == hello["broker"]
    assert end["lease"].startswith("q-")
    assert (end["lease"], end["run"]) == (queue.lease()["lease"], queue.lease()["run"])


def test_latest_offset_repeats_an_unfinished_batch_unchanged(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader(maxMessagesPerTrigger="1")
    first = reader.latestOffset(INITIAL, LIMIT)
    queue.send(5)
    assert reader.latestOffset(INITIAL, LIMIT) == first
    assert queue.counts() == (6, 1, 0)


def test_latest_offset_settles_what_is_finished_and_acquires_within_the_credit(queue: Queue) -> None:
    queue.send(5)
    reader = queue.reader(maxMessagesPerTrigger="2")
    offset, seen = INITIAL, []
    for expected in ((3, 2, 0), (1, 2, 2), (0, 1, 4)):
        end = reader.latestOffset(offset, LIMIT)
        assert queue.counts() == expected
        seen += read_all(reader, offset, end)
        offset = end
    assert reader.latestOffset(offset, LIMIT) == offset
    assert seen == [0, 1, 2, 3, 4]
    assert queue.counts() == (0, 0, 5)


def test_bytes_are_a_limit_too_and_a_larger_message_travels_alone(queue: Queue) -> None:
    queue.send(2, b"x" * 40)
    queue.send(1, b"x" * 500)
    queue.send(2, b"x" * 40)
    reader = queue.reader(maxBytesPerTrigger="100")
    offset, batches = INITIAL, []
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        batches.append(read_all(reader, offset, end))
        offset = end
    assert batches == [[0, 1], [2], [3, 4]]


def test_commit_is_the_same_idempotent_settlement(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    reader.commit(end)
    assert queue.counts() == (0, 0, 2)
    reader.commit(end)
    reader.commit(INITIAL)
    assert reader.latestOffset(end, LIMIT) == end


def test_a_trigger_is_one_request_of_the_planner(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which Spark asks: the advance has planned the next batch, and settled the last one permanently. The first
    trigger makes sure before its tasks that the lease is still its own."""
    queue.send(6)
    asked: list[str] = []
    call = Client.call
    reader = queue.reader(maxMessagesPerTrigger="2", minPartitions="2")
    offset, seen, previous = INITIAL, [], None
    monkeypatch.setattr(Client, "call", lambda self, action, **fields: (asked.append(action), call(self, action, **fields))[1])
    for _ in range(3):
        end = reader.latestOffset(offset, LIMIT)
        if previous is not None:
            reader.commit(offset)
        assert len(reader.partitions(offset, end)) == 2
        seen += read_all(reader, offset, end)
        previous, offset = offset, end
    asked = [action for action in asked if action != "lease.renew"]
    assert asked == ["hello", "lease.advance", "lease.plan", "lease.advance", "lease.advance"]
    assert seen == [0, 1, 2, 3, 4, 5]
    assert queue.counts() == (0, 2, 4)
    reader.commit(offset)  # no advance has settled this one
    assert queue.counts() == (0, 0, 6)


def test_tasks_between_other_offsets_than_the_last_advance_s_are_planned_for_them(queue: Queue) -> None:
    queue.send(6)
    reader = queue.reader(maxMessagesPerTrigger="2")
    ends = [INITIAL]
    for expected in ([0, 1], [2, 3], [4, 5]):
        ends.append(reader.latestOffset(ends[-1], LIMIT))
        assert read_all(reader, ends[-2], ends[-1]) == expected
    assert read_all(reader, ends[1], ends[3]) == [2, 3, 4, 5]
    assert read_all(reader, ends[0], ends[1]) == [0, 1]
    assert read_all(reader, ends[3], ends[3]) == []


def test_partitions_is_a_pure_function_and_read_is_repeatable(queue: Queue) -> None:
    queue.send(10)
    reader = queue.reader(maxMessagesPerPartition="3")
    end = reader.latestOffset(INITIAL, LIMIT)
    first, second = reader.partitions(INITIAL, end), reader.partitions(INITIAL, end)
    assert [repr(part) for part in first] == [repr(part) for part in second]
    assert len(first) == 4
    assert read_all(reader, INITIAL, end) == read_all(reader, INITIAL, end) == list(range(10))
    assert len(queue.reader().partitions(INITIAL, end)) == 1
    assert len(queue.reader(minPartitions="5").partitions(INITIAL, end)) == 5


def test_a_settled_batch_can_be_read_again(queue: Queue) -> None:
    queue.send(4)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    reader.commit(end)
    assert read_all(reader, INITIAL, end) == [0, 1, 2, 3]
    assert queue.counts() == (0, 0, 4)


def test_a_finished_batch_that_nobody_read_is_given_back(queue: Queue) -> None:
    queue.send(3)
    reader = queue.reader()
    first = reader.latestOffset(INITIAL, LIMIT)
    second = reader.latestOffset(first, LIMIT)
    assert second["batches"][queue.name] == 2
    assert queue.stat()["unread"] == 3
    assert read_all(reader, INITIAL, first) == []  # that number is void for ever
    assert read_all(reader, first, second) == [0, 1, 2]
    counts = [b.column("deliveryCount").to_pylist() for p in reader.partitions(first, second) for b in reader.read(p)]
    assert counts == [[0, 0, 0]]


def test_available_now_fixes_the_tail_and_takes_no_message_twice(queue: Queue) -> None:
    queue.send(3)
    reader = queue.reader()
    reader.prepareForTriggerAvailableNow()
    queue.send(2)
    first = reader.latestOffset(INITIAL, LIMIT)
    assert queue.counts() == (2, 3, 0)
    # The batch is not read: it goes back, and this run does not take it again.
    assert reader.latestOffset(first, LIMIT) == first
    assert queue.counts() == (5, 0, 0)
    # The next run takes it.
    again = queue.reader()
    again.prepareForTriggerAvailableNow()
    assert read_all(again, first, again.latestOffset(first, LIMIT)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("trigger", ["available now", "once"])
def test_there_is_no_long_poll_where_the_answer_is_final(queue: Queue, trigger: str) -> None:
    held, final = queue.reader(), queue.reader(lease="final")
    if trigger == "available now":
        final.prepareForTriggerAvailableNow()
    assert idle_seconds(final, ReadAllAvailable() if trigger == "once" else LIMIT) < idle_seconds(held) * 0.8


def test_an_idle_query_is_held_by_the_broker_for_a_tenth_of_a_second_at_most(queue: Queue) -> None:
    assert lease_module.LONG_POLL_MS <= 100
    assert idle_seconds(queue.reader()) >= lease_module.LONG_POLL_MS / 1000 * 0.9


def test_the_read_limit_is_of_one_kind_so_that_once_shows(queue: Queue) -> None:
    assert isinstance(queue.reader().getDefaultReadLimit(), ReadMaxRows)
    assert queue.reader(maxMessagesPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)


def test_a_query_that_never_reads_is_slowed_down_and_told(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.send(2)
    reader = queue.reader()
    end, batches = INITIAL, 0
    began = time.monotonic()
    while time.monotonic() < began + 1.0:
        following = reader.latestOffset(end, LIMIT)
        batches += following != end
        end = following
    assert batches < 10  # it were hundreds
    assert queue.counts() in ((2, 0, 0), (0, 2, 0))
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    assert "in a row without reading them" in warning
    while (following := reader.latestOffset(end, LIMIT)) == end:
        pass
    assert read_all(reader, end, following) == [0, 1]
    reader.commit(following)
    assert queue.counts() == (0, 0, 2)


def test_what_a_query_logs_in_with_is_in_no_partition(queue: Queue) -> None:
    """Spark pickles them one by one: with a CA bundle a trigger of a hundred tasks was 22 MB."""
    queue.send(100)
    reader = queue.reader(minPartitions="50")
    end = reader.latestOffset(INITIAL, LIMIT)
    looks = BatchReader(Options({"url": queue.broker.url, "queue": queue.name, "minPartitions": "50"}), source_schema(("body",)))
    secret = Credentials("ann", "hunter2", ca=b"." * 220_000)
    parts = [*reader.partitions(INITIAL, end)]
    reader._options.access = replace(reader._options.access, credentials=secret)
    assert len(parts) == 50
    for part in (*parts, *looks.partitions(), *reader.partitions(INITIAL, end)):
        assert len(pickle.dumps(part)) < 2_000
    assert b"hunter2" in pickle.dumps(reader._options)  # which travels once, with the reader


def test_a_batch_read_has_tasks_for_what_is_there(queue: Queue) -> None:
    """Not for every sequence number ever: of a queue that a million messages have gone through, one is left."""
    for _ in range(20):
        queue.send(50_000)
    queue.client.call("queue.purge", queue=queue.name)
    queue.send(1)
    options = Options({"url": queue.broker.url, "queue": queue.name, "maxMessagesPerPartition": "1000"})
    reader = BatchReader(options, source_schema(("sequenceNumber",)))
    (part,) = reader.partitions()
    assert [batch.column(0).to_pylist() for batch in reader.read(part)] == [[1_000_000]]

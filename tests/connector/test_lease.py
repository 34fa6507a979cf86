"""The stream protocol without Spark: the reader's own methods in the order Spark calls them, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from broker_core import Broker, errors
from broker_core.client import Client
from connector import lease as lease_module
from connector.options import Options
from connector.read import Part, read_part
from connector.schema import default_schema, source_schema
from connector.stream import StreamReader

from .waiting import idle_seconds

INITIAL = {"v": 1, "batch": 0}
LIMIT = ReadMaxRows(2**63 - 1)


class Queue:
    """A queue on a running broker, and readers of it."""

    def __init__(self, broker: Broker, client: Client, name: str) -> None:
        self.broker, self.client, self.name = broker, client, name
        self.readers: list[StreamReader] = []
        client.call("queue.declare", queue=name)

    def send(self, count: int, body: bytes = b"%d") -> None:
        bodies = [body % i if b"%d" in body else body for i in range(count)]
        batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        self.client.put({"op": "enqueue", "queue": self.name}, batch.schema, [batch])

    def stat(self) -> dict[str, Any]:
        return self.client.call("queue.stat", queue=self.name)

    def counts(self) -> tuple[int, int, int]:
        """Available, acquired, archived."""
        stat = self.stat()
        return stat["available"], stat["acquired"], stat["archived"]

    def reader(self, **options: str) -> StreamReader:
        """A reader as one planner process has it."""
        reader = StreamReader(Options({"url": self.broker.url, "queue": self.name, **options}), default_schema())
        self.readers.append(reader)
        return reader

    def lease(self) -> dict[str, Any]:
        (found,) = self.client.call("lease.list")["leases"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Queue]:
    with Client(broker.url) as client:
        made = Queue(broker, client, request.node.name[:200])
        yield made
        for reader in made.readers:
            reader.stop()
        client.call("queue.delete", queue=made.name, force=True)
        for lease in client.call("lease.list")["leases"]:
            client.call("lease.delete", lease=lease["lease"])


def read_all(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The sequence numbers of a batch, as its tasks read them."""
    return [
        number
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for number in batch.column("sequenceNumber").to_pylist()
    ]


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
    reader = queue.reader(consumer="idle")
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    queue.send(3)
    end = reader.latestOffset(INITIAL, LIMIT)
    assert end["batch"] == 1
    assert read_all(reader, INITIAL, end) == [0, 1, 2]
    assert reader.latestOffset(end, LIMIT) == end
    assert queue.counts() == (0, 0, 3)


def test_an_offset_names_durable_data(queue: Queue) -> None:
    queue.send(1)
    end = queue.reader().latestOffset(INITIAL, LIMIT)
    hello = queue.client.call("hello")
    assert list(end) == ["v", "broker", "lease", "run", "batch"]
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
    """In the order in which Spark asks: the advance has planned the next batch, and settled the last one for good. The first
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
    one, two = reader.partitions(INITIAL, end), reader.partitions(INITIAL, end)
    assert [repr(part) for part in one] == [repr(part) for part in two]
    assert len(one) == 4
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
    assert second["batch"] == 2
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
    # Nobody reads the batch: it goes back, and is not taken again by this run.
    assert reader.latestOffset(first, LIMIT) == first
    assert queue.counts() == (5, 0, 0)
    # The next run takes it.
    again = queue.reader()
    again.prepareForTriggerAvailableNow()
    assert read_all(again, first, again.latestOffset(first, LIMIT)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("trigger", ["available now", "once"])
def test_there_is_no_long_poll_where_the_answer_is_final(queue: Queue, trigger: str) -> None:
    held, final = queue.reader(), queue.reader(consumer="final")
    if trigger == "available now":
        final.prepareForTriggerAvailableNow()
    assert idle_seconds(final, ReadAllAvailable() if trigger == "once" else LIMIT) < idle_seconds(held) * 0.8


def test_an_idle_query_is_held_by_the_broker_for_a_tenth_of_a_second_at_most(queue: Queue) -> None:
    assert lease_module.LONG_POLL_MS <= 100
    assert idle_seconds(queue.reader()) >= lease_module.LONG_POLL_MS / 1000 * 0.9


def test_the_read_limit_is_of_one_kind_so_that_once_shows(queue: Queue) -> None:
    assert isinstance(queue.reader().getDefaultReadLimit(), ReadMaxRows)
    assert queue.reader(maxMessagesPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)


@pytest.mark.parametrize("call", ["partitions", "latestOffset", "commit"])
def test_any_call_may_be_the_first_after_a_restart(queue: Queue, call: str) -> None:
    queue.send(2)
    old = queue.reader()
    end = old.latestOffset(INITIAL, LIMIT)
    read_all(old, INITIAL, end)
    new = queue.reader()
    if call == "partitions":
        assert read_all(new, INITIAL, end) == [0, 1]
    elif call == "latestOffset":
        assert new.latestOffset(end, LIMIT) == end
    else:
        new.commit(end)
    assert queue.lease()["epoch"] == 2
    assert new.latestOffset(end, LIMIT) == end
    assert queue.lease()["epoch"] == 2  # one planner, one epoch
    assert queue.counts() == (0, 0, 2)


def test_what_an_older_epoch_asks_is_refused_and_the_text_names_the_self_join(queue: Queue) -> None:
    queue.send(2)
    old = queue.reader()
    end = old.latestOffset(INITIAL, LIMIT)
    (zombie,) = old.partitions(INITIAL, end)
    new = queue.reader()
    new.partitions(INITIAL, end)
    for call in (lambda: old.latestOffset(end, LIMIT), lambda: old.commit(end), lambda: list(old.read(zombie))):
        with pytest.raises(errors.Fenced, match=r"mode=browse.*foreachBatch"):
            call()
    assert queue.counts() == (0, 2, 0)


def test_two_sides_of_a_self_join_learn_of_it_before_any_task_runs(queue: Queue) -> None:
    """Spark asks both what there is, then both for the tasks."""
    queue.send(2)
    one, other = queue.reader(consumer="me"), queue.reader(consumer="me")
    end = one.latestOffset(INITIAL, LIMIT)
    other.latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.PenstockError, match=r"self-join|earlier run"):
        one.partitions(INITIAL, end)


def test_a_batch_that_was_read_waits_for_its_query(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    assert queue.lease()["stage"] == "read"
    queue.broker.kill()
    queue.broker.start()
    assert queue.counts() == (0, 2, 0)
    assert read_all(reader, INITIAL, end) == [0, 1]  # the same planner goes on with its epoch
    assert reader.latestOffset(end, LIMIT) == end
    assert queue.counts() == (0, 0, 2)


def test_an_operator_gives_a_read_batch_back_and_the_query_says_so(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.client.call("lease.release", lease=end["lease"], how="return")
    with pytest.raises(errors.Fenced):  # the query that still runs
        reader.latestOffset(end, LIMIT)
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        read_all(queue.reader(), INITIAL, end)
    with pytest.raises(errors.DataLoss, match="at least once"):
        queue.reader().latestOffset(end, LIMIT)
    lax = queue.reader(failOnDataLoss="false")
    assert read_all(lax, INITIAL, end) == []
    following = lax.latestOffset(end, LIMIT)
    assert read_all(lax, end, following) == [0, 1]
    counts = [b.column("deliveryCount").to_pylist() for p in lax.partitions(end, following) for b in lax.read(p)]
    assert counts == [[1, 1]]


def test_a_commit_follows_the_choice_on_data_loss_too(queue: Queue) -> None:
    """After a restart it may be the first call."""
    queue.send(2)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.client.call("lease.release", lease=end["lease"], how="return")
    with pytest.raises(errors.DataLoss, match="failOnDataLoss=false"):
        queue.reader().commit(end)
    queue.reader(failOnDataLoss="false").commit(end)
    assert queue.lease()["finished"] == end["batch"]


def test_a_fresh_checkpoint_on_a_lease_that_holds_a_read_batch_is_refused(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader(consumer="named")
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    with pytest.raises(errors.InUse, match=r"penstock lease release named --settle.*--return"):
        queue.reader(consumer="named").latestOffset(INITIAL, LIMIT)
    queue.client.call("lease.release", lease="named", how="settle")
    queue.send(1)
    fresh = queue.reader(consumer="named")
    following = fresh.latestOffset(INITIAL, LIMIT)
    assert following["run"] != end["run"]
    assert read_all(fresh, INITIAL, following) == [2]


def test_a_query_that_died_before_its_first_checkpoint_leaves_nothing_stuck(queue: Queue) -> None:
    queue.send(2)
    queue.reader(consumer="named").latestOffset(INITIAL, LIMIT)  # acquired, read by no task, no offset written
    again = queue.reader(consumer="named")
    assert read_all(again, INITIAL, again.latestOffset(INITIAL, LIMIT)) == [0, 1]


def test_an_older_checkpoint_is_refused_unless_data_loss_is_accepted(queue: Queue) -> None:
    queue.send(3)
    reader = queue.reader(maxMessagesPerTrigger="1")
    first = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, first)
    second = reader.latestOffset(first, LIMIT)
    read_all(reader, first, second)
    reader.commit(second)
    with pytest.raises(errors.DataLoss, match="older than"):
        queue.reader().latestOffset(first, LIMIT)
    lax = queue.reader(failOnDataLoss="false", maxMessagesPerTrigger="1")
    following = lax.latestOffset(first, LIMIT)
    assert following["batch"] > second["batch"]
    assert read_all(lax, second, following) == [2]


def test_a_checkpoint_of_an_earlier_run_is_refused(queue: Queue) -> None:
    queue.send(1)
    old = queue.reader(consumer="named")
    end = old.latestOffset(INITIAL, LIMIT)
    read_all(old, INITIAL, end)
    old.commit(end)
    queue.reader(consumer="named").latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.WrongOffset, match="earlier run"):
        queue.reader(consumer="named").latestOffset(end, LIMIT)


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"broker": "0" * 32}, {}, "belongs to broker 0+.*option url"),
        ({"lease": "other"}, {"consumer": "named"}, "option consumer says 'named'"),
        ({"lease": "other"}, {}, "option consumer is not set"),
        ({"lease": "q-" + "0" * 32}, {}, "no lease 'q-0+'.*new checkpoint"),
        ({"run": "beef"}, {"consumer": "named"}, "earlier run"),
        ({"batch": 9}, {"consumer": "named"}, "names batch 9.*last batch is 1"),
    ],
)
def test_an_offset_that_is_not_this_query_s_is_refused(
    queue: Queue, change: dict[str, Any], options: dict[str, str], says: str
) -> None:
    queue.send(1)
    reader = queue.reader(consumer="named")
    end = {**reader.latestOffset(INITIAL, LIMIT), **change}
    for call in (lambda r: r.latestOffset(end, LIMIT), lambda r: r.partitions(INITIAL, end)):
        with pytest.raises(errors.WrongOffset, match=says):
            call(queue.reader(**options))


def test_another_queue_under_a_checkpoint_is_refused(queue: Queue) -> None:
    queue.send(1)
    end = queue.reader().latestOffset(INITIAL, LIMIT)
    queue.client.call("queue.declare", queue="elsewhere")
    with pytest.raises(errors.WrongOffset, match="belongs to queue"):
        queue.reader(queue="elsewhere").latestOffset(end, LIMIT)


def test_a_queue_that_does_not_exist_and_a_broker_that_does_not_answer(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.NotFound, match="nowhere"):
        queue.reader(queue="nowhere").latestOffset(INITIAL, LIMIT)
    monkeypatch.setattr(lease_module, "RECONNECT_S", 86_400.0)
    with pytest.raises(errors.PeerError, match="penstock serve"):  # the url may be wrong: said at once, not after a day
        queue.reader(url="grpc://127.0.0.1:1").latestOffset(INITIAL, LIMIT)


def test_two_readers_share_a_queue(queue: Queue) -> None:
    queue.send(4)
    one, two = queue.reader(maxMessagesPerTrigger="2"), queue.reader(maxMessagesPerTrigger="2")
    ends = [reader.latestOffset(INITIAL, LIMIT) for reader in (one, two)]
    assert ends[0]["lease"] != ends[1]["lease"]
    assert read_all(one, INITIAL, ends[0]) == [0, 1]
    assert read_all(two, INITIAL, ends[1]) == [2, 3]


def test_the_planner_renews_while_it_lives(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)
    queue.send(1)
    reader = queue.reader()
    reader.latestOffset(INITIAL, LIMIT)
    silent = queue.lease()["renewed"]
    while (now := queue.lease()["renewed"]) >= silent:  # grows until it is renewed
        silent = now
    reader.stop()
    for thread in threading.enumerate():
        if thread.name == "penstock-renew":
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize("columns", [tuple(source.name for source in default_schema()), ("body", "sequenceNumber", "queue")])
def test_a_task_reads_the_same_from_the_files_as_from_the_broker(queue: Queue, columns: tuple[str, ...]) -> None:
    for count in (3, 70_000, 20, 9_000):
        queue.send(count)
    reader = queue.reader(minPartitions="3")
    end = reader.latestOffset(INITIAL, LIMIT)
    for part in reader.partitions(INITIAL, end):
        assert isinstance(part, Part)
        assert part.data_dir
        mapped = pa.Table.from_batches(read_part(part, columns, True))
        part.data_dir = "/nowhere"
        sent = pa.Table.from_batches(read_part(part, columns, True))
        assert mapped.equals(sent)
        assert mapped.num_rows == part.last - part.first + 1


def test_scattered_messages_come_from_the_broker(queue: Queue) -> None:
    for _ in range(40):
        queue.send(1)
    reader = queue.reader()
    assert read_all(reader, INITIAL, reader.latestOffset(INITIAL, LIMIT)) == list(range(40))


def test_the_delivery_column_names_lease_batch_and_row(queue: Queue) -> None:
    queue.send(3)
    schema = source_schema(("sequenceNumber", "delivery"))
    reader = StreamReader(Options({"url": queue.broker.url, "queue": queue.name}), schema)
    queue.readers.append(reader)
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    (batch,) = reader.read(part)
    deliveries = batch.column("delivery").to_pylist()
    assert len(set(deliveries)) == 3
    assert None not in deliveries


def test_a_broker_that_restarts_ends_no_query(queue: Queue, tmp_path: Path) -> None:
    queue.send(1)
    reader = queue.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    read_all(reader, INITIAL, end)
    queue.broker.kill()
    restart = threading.Timer(1.0, queue.broker.start)
    restart.start()
    assert reader.latestOffset(end, LIMIT) == end
    restart.join()
    assert queue.counts() == (0, 0, 1)


@pytest.mark.parametrize("data_dir", [None, "/nowhere"], ids=["mapped", "sent"])
def test_a_task_waits_for_a_broker_that_restarts(queue: Queue, data_dir: str | None) -> None:
    queue.send(1000)
    reader = queue.reader()
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    assert isinstance(part, Part)
    part.data_dir = data_dir or part.data_dir
    queue.broker.kill()
    restart = threading.Timer(1.0, queue.broker.start)
    restart.start()
    assert sum(batch.num_rows for batch in reader.read(part)) == 1000
    restart.join()

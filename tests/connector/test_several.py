"""C3: one consumer over several queues, without Spark: the reader's methods in Spark's order, against a real broker."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.connector.batch.reader import BatchReader
from penstock.connector.offset import parse_queues
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream import lease as lease_module
from penstock.connector.stream.consumer import QueuesConsumer
from penstock.connector.stream.credit import Credit, TriggerLimits
from penstock.connector.stream.lease import PlannerLease, Renewals
from penstock.connector.stream.reader import StreamReader
from penstock.connector.task.partition import LeasePartition

from .helpers import INITIAL, LIMIT, idle_seconds

SCHEMA = source_schema(("queue", "sequenceNumber"))
Rows = list[tuple[str, int]]


class Queues:
    """Queues a, b and c of one test on a running broker, and readers of them. In answers they are called by these letters."""

    def __init__(self, broker: Broker, client: Client, prefix: str) -> None:
        self.broker, self.client, self.prefix = broker, client, prefix
        self.readers: list[StreamReader] = []
        self.declare("abc")

    def declare(self, letters: str) -> None:
        for letter in letters:
            self.client.call("queue.declare", queue=self.prefix + letter)

    def send(self, letter: str, count: int, size: int = 10, colour: str = "red") -> None:
        colours = pa.array([[("colour", colour)]] * count, pa.map_(pa.string(), pa.string()))
        batch = pa.record_batch({"body": pa.array([b"x" * size] * count, pa.binary()), "properties": colours})
        self.client.put({"op": "enqueue", "queue": self.prefix + letter}, batch.schema, [batch])

    def options(self, letters: str, **options: str) -> Options:
        queues = ", ".join(self.prefix + letter for letter in letters)
        return Options({"url": self.broker.url, "queue": queues, "lease": self.prefix + "me", **options})

    def reader(self, letters: str = "abc", **options: str) -> StreamReader:
        self.readers.append(StreamReader(self.options(letters, **options), SCHEMA))
        return self.readers[-1]

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Available, acquired, archived."""
        stats = {letter: self.client.call("queue.stat", queue=self.prefix + letter) for letter in "abc"}
        return {letter: (stat["available"], stat["acquired"], stat["archived"]) for letter, stat in stats.items()}

    def leases(self) -> dict[str, dict[str, Any]]:
        return {lease["lease"].removeprefix(self.prefix): lease for lease in self.client.call("lease.list")["leases"]}

    def read(self, reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Rows:
        """The messages of a batch, as its tasks read them."""
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [(row["queue"].removeprefix(self.prefix), row["sequenceNumber"]) for b in batches for row in b.to_pylist()]

    def triggers(self, reader: StreamReader, most: int) -> list[dict[str, int]]:
        """So many batches, each read: how many messages of each queue it had."""
        offset, counts = INITIAL, []
        for _ in range(most):
            end = reader.latestOffset(offset, LIMIT)
            counts.append(dict(Counter(queue for queue, _ in self.read(reader, offset, end))))
            offset = end
        return counts


@pytest.fixture
def queues(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Queues]:
    with Client(broker.url) as client:
        made = Queues(broker, client, request.node.name[:60] + ".")
        yield made
        for reader in made.readers:
            reader.stop()
        for queue in client.call("queue.list")["queues"]:
            client.call("queue.delete", queue=queue["queue"], force=True)
        for lease in client.call("lease.list")["leases"]:
            client.call("lease.delete", lease=lease["lease"])


# --- Offsets and leases ----------------------------------------------------------------------------------------------------


def test_each_queue_has_a_lease_that_its_name_tells(queues: Queues) -> None:
    queues.send("a", 1)
    queues.send("b", 2)
    reader = queues.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    assert list(end) == ["v", "kind", "broker", "lease", "run", "rotation", "batches", "signs"]
    assert (end["kind"], end["rotation"]) == ("queues", 1)
    assert list(end["batches"].items()) == [(queues.prefix + "a", 1), (queues.prefix + "b", 1)]
    assert {name: lease["messages"] for name, lease in queues.leases().items()} == {
        f"me/{queues.prefix}a": 1,
        f"me/{queues.prefix}b": 2,
    }
    assert queues.read(reader, INITIAL, end) == [("a", 0), ("b", 0), ("b", 1)]
    assert json.dumps(reader.latestOffset(end, LIMIT)) == json.dumps(end)  # idle: the same text
    assert queues.counts() == {"a": (0, 0, 1), "b": (0, 0, 2), "c": (0, 0, 0)}


def test_empty_queues_give_the_initial_offset_and_leave_no_lease(queues: Queues) -> None:
    reader = queues.reader()
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    assert queues.leases() == {}


def test_the_order_in_the_option_means_nothing(queues: Queues) -> None:
    queues.send("b", 2)
    end = queues.reader("ab").latestOffset(INITIAL, LIMIT)
    swapped = queues.reader("ba")
    assert queues.read(swapped, INITIAL, end) == [("b", 0), ("b", 1)]
    assert json.dumps(swapped.latestOffset(end, LIMIT)) == json.dumps(end)


@pytest.mark.parametrize("call", ["partitions", "latestOffset", "commit"])
def test_any_call_of_a_new_planner_takes_up_all_leases(queues: Queues, call: str) -> None:
    queues.send("a", 1)
    old = queues.reader()
    first = old.latestOffset(INITIAL, LIMIT)
    queues.read(old, INITIAL, first)
    queues.send("b", 1)
    second = old.latestOffset(first, LIMIT)  # of b alone
    (zombie,) = old.partitions(first, second)
    before = {name: lease["epoch"] for name, lease in queues.leases().items()}
    new = queues.reader()
    if call == "partitions":
        assert queues.read(new, first, second) == [("b", 0)]
    elif call == "latestOffset":
        assert new.latestOffset(first, LIMIT) == second
    else:
        new.commit(second)
    assert {name: lease["epoch"] for name, lease in queues.leases().items()} == {name: 1 + before[name] for name in before}
    for again in (lambda: old.latestOffset(second, LIMIT), lambda: old.commit(second), lambda: list(old.read(zombie))):
        with pytest.raises(errors.Fenced):
            again()


def test_an_earlier_driver_takes_up_no_queue_that_had_nothing_in_it(queues: Queues) -> None:
    queues.send("a", 1)
    earlier = queues.reader()
    first = earlier.latestOffset(INITIAL, LIMIT)
    queues.read(earlier, INITIAL, first)
    later = queues.reader()
    assert later.latestOffset(first, LIMIT) == first
    queues.send("b", 1)
    second = later.latestOffset(first, LIMIT)
    # The earlier one asks b first this time, of which it has no epoch yet.
    with pytest.raises(errors.Fenced, match="second driver on the same checkpoint"):
        earlier.latestOffset(first, LIMIT)
    assert queues.read(later, first, second) == [("b", 0)]
    (begun,) = (lease["epoch"] for name, lease in queues.leases().items() if name.endswith("b"))
    assert later.latestOffset(second, LIMIT) == second
    assert {lease["epoch"] for name, lease in queues.leases().items() if name.endswith("b")} == {begun}


def test_of_two_drivers_that_start_together_one_goes_on(queues: Queues) -> None:
    for letter in "ab":
        queues.send(letter, 1)
    begun = queues.reader()
    first = begun.latestOffset(INITIAL, LIMIT)
    queues.read(begun, INITIAL, first)
    known = parse_queues(first)
    assert known is not None
    two = [queues.reader()._consumer(), queues.reader()._consumer()]
    for reader in two:  # each has taken up the lease of a, but not that of b
        assert isinstance(reader, QueuesConsumer)
        reader._begin(known)
        reader._leases[queues.prefix + "a"].plan(known.of(queues.prefix + "a"), known.of(queues.prefix + "a"))
    assert two[1].advance(first, wait_ms=0, credit=Credit(None, None)) == first
    with pytest.raises(errors.Fenced):
        two[0].advance(first, wait_ms=0, credit=Credit(None, None))
    assert two[1].advance(first, wait_ms=0, credit=Credit(None, None)) == first


def test_a_comma_in_a_name_is_written_twice(queues: Queues) -> None:
    queues.declare(["x,y"])  # type: ignore[arg-type]
    queues.send("x,y", 1)
    reader = StreamReader(Options({"url": queues.broker.url, "queue": queues.prefix + "x,,y"}), SCHEMA)
    queues.readers.append(reader)
    assert queues.read(reader, INITIAL, reader.latestOffset(INITIAL, LIMIT)) == [("x,y", 0)]


# --- Credit ----------------------------------------------------------------------------------------------------------------


def test_the_credit_is_shared_and_another_queue_is_first_each_time(queues: Queues) -> None:
    for letter in "abc":
        queues.send(letter, 8)
    counts = queues.triggers(queues.reader(maxMessagesPerTrigger="10"), 3)
    assert counts == [{"a": 8, "b": 2}, {"b": 6, "c": 4}, {"c": 4}]


def test_no_queue_starves_beside_a_full_one(queues: Queues) -> None:
    queues.send("a", 1000)
    for letter in "bc":
        queues.send(letter, 2)
    counts = queues.triggers(queues.reader(maxMessagesPerTrigger="10"), 4)
    assert counts == [{"a": 10}, {"b": 2, "c": 2, "a": 6}, {"a": 10}, {"a": 10}]


def test_bytes_are_shared_too_and_a_larger_message_travels_alone(queues: Queues) -> None:
    """S5 over several queues: never more than the limit, but for one message that is larger than that."""
    size = len(b"colour") + len(b"red")
    queues.send("a", 3, 40 - size)
    queues.send("b", 1, 500)
    queues.send("b", 1, 40 - size)
    queues.send("c", 1, 40 - size)
    reader = queues.reader(maxBytesPerTrigger="100")
    batches, offset = [], INITIAL
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        batches.append(sorted(queues.read(reader, offset, end)))
        offset = end
    assert [("b", 0)] in batches
    assert sorted(row for rows in batches for row in rows) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
    assert all(len(rows) <= 2 for rows in batches)


def test_a_queue_that_gets_no_credit_is_settled_all_the_same(queues: Queues) -> None:
    queues.send("a", 1)
    queues.send("b", 1)
    reader = queues.reader("ab", maxMessagesPerTrigger="2")
    end = reader.latestOffset(INITIAL, LIMIT)
    queues.read(reader, INITIAL, end)
    queues.send("b", 2)
    reader.latestOffset(end, LIMIT)  # b is first, and takes all
    assert queues.counts() == {"a": (0, 0, 1), "b": (0, 2, 1), "c": (0, 0, 0)}


def test_a_selector_goes_for_every_queue(queues: Queues) -> None:
    for letter in "abc":
        queues.send(letter, 2, colour="blue")
        queues.send(letter, 2)
    reader = queues.reader(maxMessagesPerTrigger="3", selector="colour = 'red'")
    assert queues.triggers(reader, 2) == [{"a": 2, "b": 1}, {"b": 1, "c": 2}]


def test_tasks_are_dealt_out_among_the_queues(queues: Queues) -> None:
    for letter in "ab":
        queues.send(letter, 10)
    reader = queues.reader(minPartitions="4")
    parts = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    assert Counter(part.queue for part in parts if isinstance(part, LeasePartition)) == {
        queues.prefix + "a": 2,
        queues.prefix + "b": 2,
    }


# --- Waiting ---------------------------------------------------------------------------------------------------------------


def test_an_idle_query_waits_once_for_all_its_queues(queues: Queues) -> None:
    several, final = idle_seconds(queues.reader()), idle_seconds(queues.reader(lease="final"), ReadAllAvailable())
    assert several >= lease_module.LONG_POLL_MS / 1000 * 0.9
    assert several < idle_seconds(queues.reader("a", lease="of one")) * 2
    assert final < several * 0.8


@pytest.mark.parametrize("letter", "abc")
def test_a_message_in_any_queue_is_found(queues: Queues, letter: str) -> None:
    reader = queues.reader()
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    queues.send(letter, 1)
    assert queues.read(reader, INITIAL, reader.latestOffset(INITIAL, LIMIT)) == [(letter, 0)]


def test_available_now_fixes_every_tail_and_takes_no_message_twice(queues: Queues) -> None:
    queues.send("a", 2)
    queues.send("b", 1)
    reader = queues.reader()
    reader.prepareForTriggerAvailableNow()
    queues.send("a", 1)
    queues.send("c", 1)
    first = reader.latestOffset(INITIAL, LIMIT)
    assert queues.counts() == {"a": (1, 2, 0), "b": (0, 1, 0), "c": (1, 0, 0)}
    assert reader.latestOffset(first, LIMIT) == first  # unread: it goes back, and this run does not take it again
    assert queues.counts() == {"a": (3, 0, 0), "b": (1, 0, 0), "c": (1, 0, 0)}


# --- Crashes ---------------------------------------------------------------------------------------------------------------


def interrupted(queues: Queues, offset: dict[str, Any], most: int) -> None:
    """Leave the state of a planner that dies after the first queue of its trigger has acquired."""
    known = parse_queues(offset)
    assert known is not None
    queue = sorted(offset["batches"])[known.rotation % len(offset["batches"])]
    with Client(queues.broker.url) as client:
        lease = PlannerLease(queues.options("abc"), queue, client, Renewals(), known, lambda: None)
        lease.plan(known.of(queue), known.of(queue))
        lease.advance(known.of(queue), TriggerLimits(most, None, measure=True))


def test_a_crash_between_two_queues_changes_nothing(queues: Queues) -> None:
    """S1: the batch of the one queue is the next batch, alone."""
    for letter in "abc":
        queues.send(letter, 4)
    reader = queues.reader(maxMessagesPerTrigger="6")
    first = reader.latestOffset(INITIAL, LIMIT)
    assert queues.read(reader, INITIAL, first) == [*(("a", i) for i in range(4)), ("b", 0), ("b", 1)]
    reader.commit(first)
    reader.stop()
    interrupted(queues, first, 6)
    assert queues.counts() == {"a": (0, 0, 4), "b": (0, 2, 2), "c": (4, 0, 0)}
    after = queues.reader(maxMessagesPerTrigger="6")
    second = after.latestOffset(first, LIMIT)
    assert after.latestOffset(first, LIMIT) == second
    assert queues.read(after, first, second) == [("b", 2), ("b", 3)]
    third = after.latestOffset(second, LIMIT)
    assert queues.read(after, second, third) == [("c", i) for i in range(4)]
    assert after.latestOffset(third, LIMIT) == third
    assert queues.counts() == dict.fromkeys("abc", (0, 0, 4))


def test_a_batch_that_is_asked_for_again_is_the_same_whatever_has_come_since(queues: Queues) -> None:
    queues.send("b", 2)
    reader = queues.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    queues.send("a", 1)
    assert reader.latestOffset(INITIAL, LIMIT) == end
    following = reader.latestOffset(end, LIMIT)  # the batch of b is unread: it is taken again
    assert reader.latestOffset(end, LIMIT) == queues.reader().latestOffset(end, LIMIT) == following


def test_an_unfinished_batch_is_taken_up_even_where_the_credit_is_less_now(queues: Queues) -> None:
    for letter in "abc":
        queues.send(letter, 4)
    wide = queues.reader()
    first = wide.latestOffset(INITIAL, LIMIT)
    assert queues.reader(maxMessagesPerTrigger="1").partitions(INITIAL, first)
    assert queues.reader(maxMessagesPerTrigger="1").latestOffset(first, LIMIT)["rotation"] == 2  # unread: given back, taken again
    assert sum(acquired for _, acquired, _ in queues.counts().values()) == 1


@pytest.mark.parametrize("seed", range(3))
def test_exactly_once_whenever_the_planner_dies(queues: Queues, seed: int) -> None:
    """S1 as Spark has it: a batch's end is logged before it runs, and a logged batch without a commit runs again; the sink
    keeps one copy of each batch."""
    dice = random.Random(seed)
    log: list[dict[str, Any]] = [INITIAL]
    table: dict[int, Rows] = {}
    sent: Counter[str] = Counter()
    reader = queues.reader(maxMessagesPerTrigger="7")
    idle = 0
    for step in range(400):
        if step < 40:
            letter = dice.choice("aabc")
            queues.send(letter, count := dice.randint(1, 5))
            sent[letter] += count
        deaths = ["offered", "logged", "read", "none", "none"] if step < 40 else ["none"]
        death = dice.choice(deaths)
        if len(log) - 1 not in table and len(log) > 1:
            end = log[-1]  # it runs again
        else:
            end = reader.latestOffset(log[-1], ReadAllAvailable())
            if death == "offered" or end == log[-1]:
                idle = idle + 1 if end == log[-1] and step >= 40 else 0
                if idle == 2:
                    break
                reader = queues.reader(maxMessagesPerTrigger="7") if death == "offered" else reader
                if death == "offered" and len(log) > 1 and dice.random() < 0.5:
                    interrupted(queues, log[-1], 7)
                    reader = queues.reader(maxMessagesPerTrigger="7")
                continue
            log.append(end)
        if death == "logged":
            reader = queues.reader(maxMessagesPerTrigger="7")
            continue
        rows = queues.read(reader, log[-2], end)
        assert len(rows) <= 7, f"seed {seed}"
        if death == "read":
            reader = queues.reader(maxMessagesPerTrigger="7")
            assert queues.read(reader, log[-2], end) == rows, f"seed {seed}"
        table[len(log) - 1] = rows
        if dice.random() < 0.5:
            reader.commit(end)
    delivered = sorted(row for rows in table.values() for row in rows)
    assert delivered == sorted((letter, i) for letter, count in sent.items() for i in range(count)), f"seed {seed}"
    assert queues.counts() == {letter: (0, 0, sent[letter]) for letter in "abc"}


# --- Refusals --------------------------------------------------------------------------------------------------------------


def test_queues_can_be_added_under_a_checkpoint_and_not_taken_away(queues: Queues) -> None:
    for letter in "abc":
        queues.send(letter, 1)
    reader = queues.reader("ab")
    first = reader.latestOffset(INITIAL, LIMIT)
    queues.read(reader, INITIAL, first)
    wider = queues.reader("abc")
    second = wider.latestOffset(first, LIMIT)
    assert queues.read(wider, first, second) == [("c", 0)]
    assert list(second["batches"].values()) == [1, 1, 1]
    for letters in ("ab", "ac"):
        with pytest.raises(errors.WrongOffset, match=r"belongs to queue '.*[bc]', which.*put it back"):
            queues.reader(letters).latestOffset(second, LIMIT)


def test_a_query_over_several_queues_cannot_become_one_over_a_single_queue(queues: Queues) -> None:
    queues.send("a", 1)
    queues.send("b", 1)
    both = queues.reader("ab").latestOffset(INITIAL, LIMIT)
    with pytest.raises(errors.WrongOffset, match=r"belongs to queue '.*b', which.*put it back"):
        queues.reader("a").partitions(INITIAL, both)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"broker": "0" * 32}, "belongs to broker 0+.*option url"),
        ({"lease": "other"}, "belongs to lease 'other', but the option lease"),
        ({"run": "beef"}, "earlier run"),
        ({"batches": None}, "no batch number"),
        ({"rotation": -1}, "no batch number"),
        ({"epoch": 1}, "exactly the fields"),
    ],
)
def test_an_offset_that_is_not_this_query_s_is_refused(queues: Queues, change: dict[str, Any], says: str) -> None:
    queues.send("a", 1)
    end = {**queues.reader().latestOffset(INITIAL, LIMIT), **change}
    queues.send("b", 1)
    for call in (lambda r: r.latestOffset(end, LIMIT), lambda r: r.partitions(INITIAL, end)):
        with pytest.raises(errors.WrongOffset, match=says):
            call(queues.reader())
    assert list(queues.leases()) == [f"me/{queues.prefix}a"]  # refused before another queue is touched


def test_a_fresh_checkpoint_on_a_lease_that_holds_a_read_batch_touches_no_other_lease(queues: Queues) -> None:
    queues.send("a", 1)
    reader = queues.reader()
    first = reader.latestOffset(INITIAL, LIMIT)
    queues.read(reader, INITIAL, first)
    queues.send("b", 1)
    second = reader.latestOffset(first, LIMIT)
    queues.read(reader, first, second)  # b's batch is read, a's lease is idle
    queues.send("a", 1)
    with pytest.raises(errors.InUse, match=r"another query uses lease '.*me/.*b' now"):
        queues.reader().latestOffset(INITIAL, LIMIT)
    going_on = queues.reader()
    third = going_on.latestOffset(second, LIMIT)
    assert queues.read(going_on, second, third) == [("a", 1)]


def test_a_fresh_checkpoint_on_a_lease_whose_first_batch_is_planned_touches_no_other_lease(queues: Queues) -> None:
    queues.send("a", 1)
    queues.reader().latestOffset(INITIAL, LIMIT)  # and dies: no checkpoint names a's lease
    queues.client.call("queue.pause", queue=queues.prefix + "a")
    queues.send("b", 1)
    reader = queues.reader()
    first = reader.latestOffset(INITIAL, LIMIT)
    reader.partitions(INITIAL, first)
    (epoch,) = (lease["epoch"] for name, lease in queues.leases().items() if name.endswith("a"))
    queues.client.call("lease.renew", lease=f"{queues.prefix}me/{queues.prefix}a", epoch=epoch)
    with pytest.raises(errors.LeaseInUse, match=r"another query uses lease '.*me/.*b' now"):
        queues.reader().latestOffset(INITIAL, LIMIT)
    assert queues.read(reader, INITIAL, first) == [("b", 0)]
    queues.client.call("queue.resume", queue=queues.prefix + "a")
    second = reader.latestOffset(first, LIMIT)
    assert queues.read(reader, first, second) == [("a", 0)]


def test_a_queue_that_is_not_there_is_named(queues: Queues) -> None:
    with pytest.raises(errors.NotFound, match=r"\.x'"):
        queues.reader("ax").latestOffset(INITIAL, LIMIT)


# --- Looking ---------------------------------------------------------------------------------------------------------------


def test_a_batch_read_is_the_union(queues: Queues) -> None:
    for letter, count in (("a", 3), ("b", 0), ("c", 2)):
        if count:
            queues.send(letter, count)
    options = Options({"url": queues.broker.url, "queue": ",".join(queues.prefix + x for x in "abc"), "startingSequence": "1"})
    reader = BatchReader(options, SCHEMA)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["queue"].removeprefix(queues.prefix), row["sequenceNumber"]) for row in rows] == [("a", 1), ("a", 2), ("c", 1)]
    assert queues.counts()["a"] == (3, 0, 0)

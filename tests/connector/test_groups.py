"""S6 Q16: tasks of a queue with message groups: a group is in one task, in order, and held until the batch is settled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import Fenced
from penstock.connector.access import BrokerAccess
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader
from penstock.connector.task.partition import LeasePartition
from penstock.connector.task.reading import read_leased

from .helpers import elsewhere

INITIAL = {"v": 1, "kind": "initial"}
LIMIT = ReadMaxRows(2**63 - 1)
GROUPS = 7


def fill(client: Client, queue: str, count: int) -> None:
    """Message i belongs to group i modulo `GROUPS`, but every eighth to none."""
    client.call("queue.declare", queue=queue, options={"groups": "held"})
    for start in range(0, count, 500):
        numbers = range(start, min(count, start + 500))
        names = [None if i % 8 == 0 else f"group {i % GROUPS}" for i in numbers]
        batch = pa.record_batch({"body": pa.array([b"%d" % i for i in numbers]), "groupId": pa.array(names, pa.string())})
        client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])


def rows_of(part: LeasePartition) -> list[dict[str, Any]]:
    assert part.known is not None
    batches = read_leased(part, BrokerAccess(part.known.url), ["sequenceNumber", "body", "groupId"], True)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("local", [True, False])
def test_a_group_is_in_one_task_and_in_order(
    broker: Broker, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not local:
        elsewhere(monkeypatch, tmp_path)
    queue = f"grouped {local}"
    with Client(broker.url) as client:
        fill(client, queue, 3000)
        options = Options({"url": broker.url, "queue": queue, "minPartitions": "3", "maxMessagesPerTrigger": "2000"})
        reader = StreamReader(options, default_schema())
        end = reader.latestOffset(INITIAL, LIMIT)
        parts = list(reader.partitions(INITIAL, end))
        assert len(parts) == 3
        tasks = []
        for part in parts:
            assert isinstance(part, LeasePartition)
            tasks.append(rows_of(part))
        seen = [row["sequenceNumber"] for task in tasks for row in task]
        assert sorted(seen) == list(range(2000))
        assert all(row["body"] == b"%d" % row["sequenceNumber"] for task in tasks for row in task)
        for task in tasks:
            numbers = [row["sequenceNumber"] for row in task]
            assert numbers == sorted(numbers)
        tasks_of: dict[str, set[int]] = {}
        for number, task in enumerate(tasks):
            for row in task:
                if row["groupId"] is not None:
                    tasks_of.setdefault(row["groupId"], set()).add(number)
        assert len(tasks_of) == GROUPS
        assert all(len(numbers) == 1 for numbers in tasks_of.values())
        assert len({min(numbers) for numbers in tasks_of.values()}) == 3  # and the groups are dealt out among the tasks
        again = list(reader.partitions(INITIAL, end))
        assert [rows_of(part) for part in again if isinstance(part, LeasePartition)] == tasks
        reader.stop()


def test_what_waits_of_a_group_that_a_query_holds_is_for_nobody_else(broker: Broker) -> None:
    with Client(broker.url) as client:
        fill(client, "waiting", 100)
        options = {"url": broker.url, "queue": "waiting", "maxMessagesPerTrigger": "10"}
        holder, waiter = StreamReader(Options(options), default_schema()), StreamReader(Options(options), default_schema())
        end = holder.latestOffset(INITIAL, LIMIT)
        taken = waiter.latestOffset(INITIAL, LIMIT)
        (part,) = waiter.partitions(INITIAL, taken)
        assert isinstance(part, LeasePartition)
        assert [row["sequenceNumber"] for row in rows_of(part)] == list(range(16, 96, 8))  # of no group
        held = [lease["groups"] for lease in client.call("lease.list")["leases"] if lease["queue"] == "waiting"]
        assert sorted(map(len, held)) == [0, GROUPS]
        list(map(rows_of, (part for part in holder.partitions(INITIAL, end) if isinstance(part, LeasePartition))))
        holder.commit(end)
        following = waiter.latestOffset(taken, LIMIT)
        (part,) = waiter.partitions(taken, following)
        assert isinstance(part, LeasePartition)
        assert [row["sequenceNumber"] for row in rows_of(part)] == [10, 11, 12, 13, 14, 15, 17, 18, 19, 20]
        for reader in (holder, waiter):
            reader.stop()


def test_a_task_may_have_nothing_in_one_block_and_much_in_another(broker: Broker) -> None:
    """A block has 65,536 places: of the first all belong to one group, of the second to another."""
    with Client(broker.url) as client:
        client.call("queue.declare", queue="apart", options={"groups": "held"})
        for name in ("one", "other"):
            batch = pa.record_batch({"body": pa.array([b""] * (1 << 16)), "groupId": pa.array([name] * (1 << 16))})
            client.put({"op": "enqueue", "queue": "apart"}, batch.schema, [batch])
        reader = StreamReader(Options({"url": broker.url, "queue": "apart", "minPartitions": "2"}), default_schema())
        parts = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
        seen = [{row["groupId"] for row in rows_of(part)} for part in parts if isinstance(part, LeasePartition)]
        assert sorted(seen, key=str) == [{"one"}, {"other"}]
        reader.stop()


def test_a_settled_batch_is_planned_again_for_one_task(broker: Broker) -> None:
    """S1: the groups are not remembered. A cached DataFrame is read again in this way."""
    with Client(broker.url) as client:
        fill(client, "settled", 100)
        reader = StreamReader(Options({"url": broker.url, "queue": "settled", "minPartitions": "3"}), default_schema())
        end = reader.latestOffset(INITIAL, LIMIT)
        held = [part for part in reader.partitions(INITIAL, end) if isinstance(part, LeasePartition)]
        assert len(held) == 3
        assert sum(len(rows_of(part)) for part in held) == 100
        reader.commit(end)
        (again,) = reader.partitions(INITIAL, end)
        assert isinstance(again, LeasePartition)
        assert [row["sequenceNumber"] for row in rows_of(again)] == list(range(100))
        with pytest.raises(Fenced):
            rows_of(held[0])
        reader.stop()

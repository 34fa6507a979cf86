"""S1 S6: the tasks of a batch of message groups, while it is held and when it is read again."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client

from .helpers import Reader, send


def of_groups(*groups: str) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([b"x"] * len(groups), pa.binary()), "groupId": pa.array(groups)})


def test_no_message_is_lost_or_doubled_where_a_batch_is_settled_between_two_of_its_tasks(client: Client, queue: str) -> None:
    """S1 S6: by an operator, or by the query itself while another thread still evaluates its DataFrame. Planned again, the batch
    is read by one task."""
    grouped = f"{queue} with groups"
    client.call("queue.declare", queue=grouped, options={"groups": "held"})
    send(client, grouped, of_groups(*"abcdefgh"))
    reader = Reader(client, grouped)
    batch = reader.advance()
    parts = reader.plan(batch, minPartitions=3)
    assert [part[4:] for part in parts] == [[0, 3], [1, 3], [2, 3]]

    def task(part: list[int], op: str = "batch") -> Counter[int]:
        _, first, last, _, bucket, buckets = part
        rows = reader.read(batch, first, last, op=op, bucket=bucket, buckets=buckets, columns=["sequenceNumber"])
        return Counter(row["sequenceNumber"] for row in rows)

    every = Counter(range(8))
    assert sum((task(part) for part in parts), Counter[int]()) == every
    client.call("lease.release", lease=reader.lease, how="settle")
    send(client, grouped, of_groups(*(f"new {number}" for number in range(8))))
    for part in parts:
        with pytest.raises(errors.Fenced, match="Start the query again"):
            task(part)
    (again,) = reader.plan(batch, minPartitions=3)
    assert task(again) == every

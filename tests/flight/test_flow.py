"""Messages in, through a lease, and out: the promises of the protocol to clients that follow it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.actions.lease_actions import MAX_WAIT_MS
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .helpers import BODY, Reader, batch_of, browse, descriptor, numbered, raw, send, sequences


def test_messages_come_out_once_in_order_and_are_archived_when_settled(client: Client, queue: str) -> None:
    assert send(client, queue, numbered(60), numbered(40, start=60)) == {"batches": 2, "messages": 100, "next": 100}
    reader = Reader(client, queue)
    got: list[bytes] = []
    for expected in (30, 30, 30, 10):
        batch = reader.advance(messages=30)
        rows = reader.read(batch)
        assert len(rows) == expected
        assert reader.read(batch) == rows, "a batch reads the same every time"
        got += [row["body"] for row in rows]
        assert reader.settle(batch) == {"epoch": 1, "settled": expected, "unread": 0}
        assert reader.settle(batch) == {"epoch": 1, "settled": 0, "unread": 0}
    assert reader.advance() == reader.finished
    assert got == numbered(100)
    rows = browse(client, queue, "state", "outcome", "sequenceNumber", states=["archived"])
    assert rows == [{"state": "archived", "outcome": "accepted", "sequenceNumber": n} for n in range(100)]
    stat = client.call("queue.stat", queue=queue)
    assert {name: stat[name] for name in ("enqueued", "available", "acquired", "archived", "bytes", "unread")} == {
        "enqueued": 100, "available": 0, "acquired": 0, "archived": 100, "bytes": 0, "unread": 0,
    }  # fmt: skip


def test_a_plan_cuts_a_batch_into_parts_that_hold_each_row_once(client: Client, queue: str) -> None:
    send(client, queue, numbered(100))
    reader = Reader(client, queue)
    batch = reader.advance()
    for options, count in (({}, 1), ({"minPartitions": 7}, 7), ({"maxMessages": 9}, 12), ({"minPartitions": 1000}, 100)):
        parts = reader.plan(batch, **options)
        assert parts == reader.plan(batch, **options), "planning is pure"
        assert len(parts) == count
        rows = [row for _, first, last, messages in parts for row in _counted(reader.read(batch, first, last), messages)]
        assert [row["body"] for row in rows] == numbered(100)
    assert reader.plan(batch, after=batch) == []


def test_an_advance_plans_the_batch_if_it_is_asked_to(client: Client, queue: str) -> None:
    """As `lease.plan` does; nothing where nothing was taken."""
    reader = Reader(client, queue)

    def advanced(**options: Any) -> dict[str, Any]:
        named = {**reader.named, "finished": reader.finished, "fresh": not reader.finished}
        answer = client.call("lease.advance", **named, **options)
        reader.epoch = answer["epoch"]
        assert ("sign" in answer) == (answer["batch"] > 0)
        return {name: value for name, value in answer.items() if name != "sign"}

    assert advanced(plan=True) == {"epoch": None, "batch": 0, "parts": []}
    send(client, queue, numbered(100))
    assert "parts" not in advanced(messages=60)
    for options in ({}, {"minPartitions": 7}, {"maxMessages": 9}):
        assert advanced(plan=True, **options) == {"epoch": 1, "batch": 1, "parts": reader.plan(1, **options)}
    reader.read(1)
    reader.settle(1)
    parts = advanced(plan=True, maxMessages=30)["parts"]
    assert parts == reader.plan(2, maxMessages=30)
    assert [part[3] for part in parts] == [20, 20]
    reader.read(2)
    reader.settle(2)
    assert advanced(plan=True) == {"epoch": 1, "batch": 2, "parts": []}


def _counted(rows: list[Any], count: int) -> list[Any]:
    assert len(rows) == count
    return rows


def test_a_plan_of_more_parts_than_anybody_can_hold_is_refused(client: Client, queue: str) -> None:
    send(client, queue, batch_of([b""] * 150_000))
    reader = Reader(client, queue)
    batch = reader.advance()
    for options in ({"maxMessages": 1}, {"minPartitions": 2**62}):
        with pytest.raises(errors.ResourceLimit, match="at most 100000 parts"):
            reader.plan(batch, **options)
    assert len(reader.plan(batch, maxMessages=2)) == 75_000


def test_limits_of_messages_bytes_and_until_are_exact(client: Client, queue: str) -> None:
    send(client, queue, [b"x" * 100] * 10, [b"y" * n for n in range(1, 11)])
    reader = Reader(client, queue)
    for options, count in (
        ({"messages": 3}, 3),
        ({"bytes": 299}, 2),
        ({"bytes": 300}, 3),
        ({"bytes": 1}, 1),  # one larger than the limit travels alone
        ({"messages": 5, "until": 10}, 1),
        ({"bytes": 1 + 2 + 3 + 4}, 4),
        ({"messages": 1000}, 6),
    ):
        batch = reader.advance(**options)
        assert len(reader.read(batch)) == count, options
        reader.settle(batch)


def test_a_batch_that_no_task_read_is_given_back_in_its_old_place_and_counted(client: Client, queue: str) -> None:
    send(client, queue, numbered(10))
    reader = Reader(client, queue)
    assert reader.advance(messages=4) == 1
    assert reader.settle(1) == {"epoch": 1, "settled": 0, "unread": 4}
    assert client.call("queue.stat", queue=queue)["unread"] == 4
    assert reader.read(1) == [], "it stays empty: no task saw its rows"
    assert reader.plan(1) == []
    assert reader.advance(messages=4) == 2
    assert [row["sequenceNumber"] for row in reader.read(2)] == [0, 1, 2, 3]
    reader.settle(2)
    assert reader.advance(messages=4, exclude=True) == 3
    reader.settle(3)


def test_what_an_epoch_gave_back_unread_it_does_not_take_again_when_it_says_so(client: Client, queue: str) -> None:
    send(client, queue, numbered(10))
    reader = Reader(client, queue)
    assert reader.advance(messages=4, until=10, exclude=True) == 1
    reader.finished = 1
    assert reader.advance(messages=4, until=10, exclude=True) == 2
    assert [row["sequenceNumber"] for row in reader.read(2)] == [4, 5, 6, 7]


# ---- fencing


def test_a_planner_that_takes_the_lease_up_fences_the_one_before_everywhere(client: Client, queue: str) -> None:
    send(client, queue, numbered(10))
    zombie = Reader(client, queue)
    batch = zombie.advance(messages=5)
    heir = Reader(client, queue)
    assert heir.advance() == batch
    assert heir.epoch == 2
    asks = [
        lambda: zombie.advance(),
        lambda: zombie.plan(batch),
        lambda: zombie.read(batch),
        lambda: list(client.get(**{**zombie.ticket(batch), "op": "map"})),
        lambda: zombie.settle(batch),
        lambda: client.call("lease.renew", lease=zombie.lease, epoch=zombie.epoch),
    ]
    for ask in asks:
        with pytest.raises(errors.Fenced, match="epoch 2, this one has 1"):
            ask()
    assert client.call("queue.stat", queue=queue)["acquired"] == 5, "the zombie changed nothing"
    assert len(heir.read(batch)) == 5
    assert heir.settle(batch)["settled"] == 5


def test_an_operator_ends_one_message_or_the_batch(client: Client, queue: str) -> None:
    send(client, queue, numbered(10))
    reader = Reader(client, queue)
    batch = reader.advance(messages=5)
    reader.read(batch)
    for sequence, outcome in ((0, "rejected"), (1, "accepted"), (2, "released"), (3, "modified")):
        client.call("lease.settleRow", lease=reader.lease, sequence=sequence, outcome=outcome, error="by hand")
    with pytest.raises(errors.Fenced):
        reader.read(batch)
    reader.epoch = None
    assert reader.advance() == batch
    assert [row["sequenceNumber"] for row in reader.read(batch)] == [4]
    columns = ("sequenceNumber", "state", "outcome", "deliveryCount")
    assert [
        tuple(row.values()) for row in browse(client, queue, *columns, states=["available", "acquired", "archived"], last=4)
    ] == [
        (0, "archived", "rejected", 0),
        (1, "archived", "accepted", 0),
        (2, "available", None, 0),
        (3, "available", None, 1),
        (4, "acquired", None, 0),
    ]
    assert client.call("lease.release", lease=reader.lease, how="return") == {"messages": 1}
    with pytest.raises(errors.Fenced):
        reader.settle(batch)
    assert sequences(client, queue, states=["available"]) == [2, 3, 4, 5, 6, 7, 8, 9]
    reader.epoch = None
    with pytest.raises(errors.DataLoss, match="given back after a task had read it"):
        reader.advance()
    assert reader.advance(failOnDataLoss=False) == 2
    assert [row["deliveryCount"] for row in reader.read(2, columns=["deliveryCount"])][:4] == [0, 1, 1, 0]


def test_a_delivery_names_lease_batch_epoch_and_place(client: Client, queue: str) -> None:
    send(client, queue, numbered(3))
    reader = Reader(client, queue, lease="läse of " + queue)
    batch = reader.advance()
    rows = reader.read(batch, columns=["delivery", "sequenceNumber"])
    name = reader.lease.encode()
    for row in rows:
        assert row["delivery"] == b"\x01" + len(name).to_bytes(2, "big") + name + b"".join(
            number.to_bytes(8, "big") for number in (batch, 1, row["sequenceNumber"])
        )


# ---- long polls (that they are woken: tests/service/test_arrivals.py)


def test_a_long_poll_ends_by_its_limit_also_while_other_queues_are_busy(client: Client, queue: str) -> None:
    client.call("queue.declare", queue=queue + " busy")
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            send(client, queue + " busy", numbered(1))

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        reader = Reader(client, queue)
        begun = time.monotonic()
        for _ in range(5):
            assert reader.advance(waitMs=10**9, fresh=True) == 0
        # Each request waited for messages that did not come, but less than its limit.
        assert 5 * MAX_WAIT_MS / 1000 <= time.monotonic() - begun < 60
    finally:
        stop.set()
        busy.join()


# ---- stages


def test_a_publish_is_all_or_nothing_over_queues_and_once(client: Client, queue: str) -> None:
    second = queue + " other"
    client.call("queue.declare", queue=second)
    key = {"kind": "stream", "id": queue, "number": 3}
    for stage, target, start in (("a", queue, 0), ("b", second, 10), ("a", second, 20)):
        acknowledged = send(client, target, numbered(5, start=start), op="stage", stage=queue + stage)
        assert acknowledged == {"batches": 1, "messages": 5}
    assert browse(client, queue) == browse(client, second) == []
    with pytest.raises(errors.NotFound):
        client.call("stage.publish", stages=[queue + "a", queue + "missing"], key=key)
    assert browse(client, queue) == browse(client, second) == []
    stages = [queue + "b", queue + "a"]
    assert client.call("stage.publish", stages=stages, key=key) == {"published": 15, "repeated": False}
    assert [row["body"] for row in browse(client, queue)] == numbered(5)
    assert [row["body"] for row in browse(client, second)] == numbered(5, start=10) + numbered(5, start=20)
    # A task that was run again left its stage behind; the repeated publish takes it away.
    send(client, queue, numbered(5), op="stage", stage=queue + "a")
    for number in (3, 2):
        again = client.call("stage.publish", stages=stages, key={**key, "number": number})
        assert again == {"published": 0, "repeated": True}
    assert client.call("stage.discard", stages=stages) == {"discarded": 0}
    assert len(browse(client, queue)) + len(browse(client, second)) == 15


# ---- acknowledgements


def test_each_batch_is_acknowledged_as_it_becomes_durable_without_an_end_of_the_stream(client: Client, queue: str) -> None:
    connection = raw(client)
    writer, reader = connection.do_put(descriptor(op="enqueue", queue=queue), BODY)
    with writer:
        for number in range(1, 6):
            writer.write_batch(batch_of(numbered(10)))
            answer = pa.py_buffer(reader.read()).to_pybytes().decode()
            assert answer == f'{{"batches": {number}, "messages": {10 * number}, "next": {10 * number}}}'
            assert len(sequences(client, queue)) == 10 * number
        writer.done_writing()
        assert reader.read() is None


def test_a_write_that_waits_for_a_full_queue_is_told_after_two_seconds(
    client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each write, with the time limit."""
    client.call("queue.alter", queue=queue, options={"maxMessages": 2})
    send(client, queue, [b"1"], [b"2"])
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        sending = pool.submit(send, client, queue, [b"3"], [b"4"])
        until(lambda: "is full" in caplog.text, "the log names the full queue")
        assert 2 <= time.monotonic() - began < 8  # ten seconds pass between two other signs of life
        with Client(client.url) as other:
            other.call("queue.purge", queue=queue)
        assert sending.result()["messages"] == 2
    assert f"queue '{queue}' is full: this write waits for room, and fails if it stays full for 60 s" in caplog.text
    assert caplog.text.count("is full") == 1


def test_two_senders_on_one_queue_keep_their_own_order(client: Client, queue: str) -> None:
    def sender(name: bytes) -> None:
        send(client, queue, *[[b"%s%06d" % (name, 10 * batch + row) for row in range(10)] for batch in range(50)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(sender, [b"a", b"b", b"c", b"d"]))
    bodies = [row["body"] for row in browse(client, queue)]
    assert len(bodies) == 2000
    for name in (b"a", b"b", b"c", b"d"):
        mine = [body for body in bodies if body.startswith(name)]
        assert mine == [b"%s%06d" % (name, number) for number in range(500)]

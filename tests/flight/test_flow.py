"""Messages in, through a lease, and out: what the protocol promises to those who keep to it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker_core import assembly, errors, message, representable
from broker_core.amqp import Message
from broker_core.amqp.performatives import Properties
from broker_core.amqp.types import UInt
from broker_core.client import Client
from broker_core.flight_plane.actions import MAX_WAIT_MS

from .helpers import BODY, Reader, batch_of, browse, descriptor, numbered, raw, rows_of, send, sequences


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
        return answer

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
    assert reader.read(1) == [], "it reads as empty for ever: nobody saw its rows"
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


# ---- long polls (that they are woken: tests/broker/test_arrivals.py)


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
        # Each waited for what did not come, and none for the time that it asked for.
        assert 5 * MAX_WAIT_MS / 1000 <= time.monotonic() - begun < 60
    finally:
        stop.set()
        busy.join()


# ---- stages


def test_a_publish_is_all_or_nothing_over_queues_and_once(client: Client, queue: str) -> None:
    other = queue + " other"
    client.call("queue.declare", queue=other)
    key = {"kind": "stream", "id": queue, "number": 3}
    for stage, target, start in (("a", queue, 0), ("b", other, 10), ("a", other, 20)):
        acknowledged = send(client, target, numbered(5, start=start), op="stage", stage=queue + stage)
        assert acknowledged == {"batches": 1, "messages": 5}
    assert browse(client, queue) == browse(client, other) == []
    with pytest.raises(errors.NotFound):
        client.call("stage.publish", stages=[queue + "a", queue + "missing"], key=key)
    assert browse(client, queue) == browse(client, other) == []
    stages = [queue + "b", queue + "a"]
    assert client.call("stage.publish", stages=stages, key=key) == {"published": 15, "repeated": False}
    assert [row["body"] for row in browse(client, queue)] == numbered(5)
    assert [row["body"] for row in browse(client, other)] == numbered(5, start=10) + numbered(5, start=20)
    # A task that was run again left its stage behind; the repeated publish takes it away.
    send(client, queue, numbered(5), op="stage", stage=queue + "a")
    for number in (3, 2):
        again = client.call("stage.publish", stages=stages, key={**key, "number": number})
        assert again == {"published": 0, "repeated": True}
    assert client.call("stage.discard", stages=stages) == {"discarded": 0}
    assert len(browse(client, queue)) + len(browse(client, other)) == 15


# ---- browse


@pytest.fixture
def mixed(client: Client, queue: str) -> str:
    """0-3 accepted, 4 rejected, 5 held by a lease, 6-9 purged, 10-14 available; enqueued in three batches at three times."""
    for start in (0, 5):
        send(client, queue, numbered(5, start=start))
    reader = Reader(client, queue)
    batch = reader.advance(messages=5)
    reader.read(batch)
    client.call("lease.settleRow", lease=reader.lease, sequence=4, outcome="rejected", error="bad")
    reader.epoch = None
    reader.advance()
    reader.settle(batch)
    reader.advance(messages=1)
    client.call("queue.purge", queue=queue)
    send(client, queue, numbered(5, start=10))
    return queue


ALL = ["available", "acquired", "archived"]


def test_a_browse_shows_what_it_is_asked_for_and_takes_nothing(client: Client, mixed: str) -> None:
    before = client.call("queue.stat", queue=mixed)
    times = [row["enqueuedTime"] for row in browse(client, mixed, "enqueuedTime", states=ALL)]
    micros = [round(time.timestamp() * 1e6) for time in times]
    assert micros == sorted(micros)
    assert len({micros[0], micros[5], micros[10]}) == 3
    expected: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [10, 11, 12, 13, 14]),
        ({"states": ALL}, list(range(15))),
        ({"states": ["acquired"]}, [5]),
        ({"states": ["archived"]}, [0, 1, 2, 3, 4, 6, 7, 8, 9]),
        ({"states": []}, []),
        ({"states": ALL, "outcome": "accepted"}, [0, 1, 2, 3]),
        ({"states": ALL, "outcome": "rejected"}, [4]),
        ({"states": ALL, "outcome": "purged"}, [6, 7, 8, 9]),
        ({"states": ALL, "outcome": "expired"}, []),
        ({"states": ["available"], "outcome": "accepted"}, []),
        ({"states": ALL, "first": 3, "last": 6}, [3, 4, 5, 6]),
        ({"states": ALL, "first": 14}, [14]),
        ({"states": ALL, "first": 15}, []),
        ({"states": ALL, "first": 6, "last": 5}, []),
        ({"states": ALL, "since": micros[5]}, list(range(5, 15))),
        ({"states": ALL, "since": micros[5] + 1}, list(range(10, 15))),
        ({"states": ALL, "until": micros[5]}, list(range(5))),
        ({"states": ALL, "until": micros[5] + 1}, list(range(10))),
        ({"states": ALL, "since": micros[5], "until": micros[10]}, list(range(5, 10))),
        ({"states": ["archived"], "outcome": "purged", "first": 7, "since": micros[5], "until": micros[10]}, [7, 8, 9]),
    ]
    for filters, found in expected:
        assert sequences(client, mixed, **filters) == found, filters
    assert client.call("queue.stat", queue=mixed) == before


def test_a_stream_has_exactly_the_schema_of_its_columns(client: Client, mixed: str) -> None:
    for columns in (list(message.DEFAULT_COLUMNS), ["settledTime", "outcome", "body"], [*message.SYSTEM_COLUMNS, "properties"]):
        batches = list(client.get(op="browse", queue=mixed, states=ALL, columns=columns))
        assert batches
        assert all(batch.schema.equals(message.arrow_schema(columns), check_metadata=True) for batch in batches)
        assert sum(batch.num_rows for batch in batches) == 15


# ---- what a message is


def full_batch() -> pa.RecordBatch:
    columns: dict[str, Any] = {"body": pa.array([b"", b"\x00\xff", "é".encode()], pa.binary())}
    for name in message.SENT_COLUMNS:
        kind = message.MESSAGE_COLUMNS[name]
        if pa.types.is_string(kind):
            columns[name] = pa.array([name, None, "x" if name in representable.SYMBOLS else "𓅃"])
        elif pa.types.is_map(kind):
            columns[name] = pa.array([[("a", "1"), ("b", None)], None, []], kind)
        elif pa.types.is_timestamp(kind):
            columns[name] = pa.array([0, None, 1_700_000_000_123_456], pa.int64()).cast(kind)
        elif pa.types.is_integer(kind):
            columns[name] = pa.array([0, None, 200], kind)
        elif pa.types.is_boolean(kind):
            columns[name] = pa.array([True, False, None])
    return pa.record_batch(columns)


def test_every_column_comes_out_as_it_went_in(client: Client, queue: str) -> None:
    batch = full_batch()
    assert len(batch.schema.names) == len(message.SENT_COLUMNS) - 1
    send(client, queue, batch)
    assert browse(client, queue, *batch.schema.names) == batch.to_pylist()
    reader = Reader(client, queue)
    assert reader.read(reader.advance(), columns=batch.schema.names) == batch.to_pylist()


#: Properties whose subject is a smallint.
WRONG_SUBJECT = b"\0Ss\xc0\6\4\x40\x40\x40\x54\7"


def test_an_encoded_block_is_stored_and_given_back_byte_for_byte(client: Client, queue: str) -> None:
    # Well-formed as far as sections go; what is in them is looked at by who asks for a part of it.
    large = b"\0Su\xb0" + (70_000).to_bytes(4, "big") + bytes(70_000)
    bare = [WRONG_SUBJECT, b"", b"\0Sw\xc0\2\2\x54", large]
    columns = {
        "message": pa.array(bare, pa.binary()),
        "priority": pa.array([4, None, 9, 0], pa.int16()),
        "durable": pa.array([True, None, False, True]),
        "ttl": pa.array([None, 2**32 - 1, 0, 3_600_000], pa.int64()),
        "annotations": pa.array([[("x-opt", "1")], None, [], None], message.STRING_MAP),
    }
    batch = pa.concat_batches([pa.record_batch(columns)] * 5)  # long enough to be mapped
    send(client, queue, batch)
    assert browse(client, queue, *columns) == batch.to_pylist()
    reader = Reader(client, queue)
    number = reader.advance()
    assert reader.read(number, columns=list(columns)) == batch.to_pylist()
    assert [row["message"] for row in mapped(client, reader, number, ["message"])] == bare * 5
    # What asks for a part of them names the first that is none, and how to get past it.
    with pytest.raises(errors.MalformedMessage, match=r"message 0 of queue .* --sequence 0 --outcome rejected"):
        reader.read(number, columns=["subject"])
    client.call("lease.settleRow", lease=reader.lease, sequence=0, outcome="rejected")
    reader.epoch = None  # the query is started again
    assert reader.advance(fresh=False) == number
    with pytest.raises(errors.MalformedMessage, match="message 2 of queue"):
        reader.read(number, columns=["body"])


def test_what_no_amqp_client_could_get_is_refused_when_it_is_sent_whole_or_into_a_stage(client: Client, queue: str) -> None:
    """Sections of a bare message, and what columns say: named with their row, and the batches before it stay."""
    good, header = b"\0Su\xa0\1x", b"\0Sp\x45"
    for op in ("enqueue", "stage"):
        command = {"op": op, **({"stage": queue} if op == "stage" else {})}
        with pytest.raises(
            errors.InvalidRequest, match=r"'message' in row 1: a header .* in the columns durable, priority and ttl"
        ):
            send(
                client,
                queue,
                *(pa.record_batch({"message": pa.array(both)}) for both in ([good], [good, header + good])),
                **command,
            )
        with pytest.raises(errors.InvalidRequest, match=r"'message' in row 0: not a bare AMQP message"):
            send(client, queue, pa.record_batch({"message": pa.array([good[:-1]])}), **command)
        columns = {"body": pa.array([b""] * 2), "annotations": pa.array([None, [("ü", "")]], message.STRING_MAP)}
        with pytest.raises(errors.InvalidRequest, match=r"'annotations' has 'ü' in row 1; .* symbols are ASCII"):
            send(client, queue, pa.record_batch(columns), **command)
    assert [row["message"] for row in browse(client, queue, "message")] == [good]
    client.call("stage.publish", stages=[queue])
    assert [row["message"] for row in browse(client, queue, "message")] == [good, good]


FORMS = ["sequenceNumber", "body", "subject", "priority", "properties", "annotations", "message", "encodedAnnotations"]


def test_stored_columns_are_given_as_they_are_and_both_forms_become_columns_for_who_asks_for_them(
    client: Client, queue: str
) -> None:
    """With `stored` the reader converts, and gets nulls where a message's form lacks a column; without it the broker does."""
    bare = Message(properties=Properties(subject="s"), application_properties={"n": UInt(7)}, data=[b"two", b"!"]).encode()
    send(client, queue, pa.record_batch({"body": pa.array([b"one"]), "subject": pa.array(["r"])}))
    send(client, queue, pa.record_batch({"message": pa.array([bare]), "priority": pa.array([9], pa.int16())}))
    nothing = dict.fromkeys(FORMS)
    stored = [
        {**nothing, "sequenceNumber": 0, "body": b"one", "subject": "r"},
        {**nothing, "sequenceNumber": 1, "message": bare, "priority": 9},
    ]
    columns = ["sequenceNumber", "body", "subject", "priority", "properties"]
    plain = [
        dict(zip(columns, (0, b"one", "r", None, None), strict=True)),
        dict(zip(columns, (1, b"two!", "s", 9, [("n", "7")]), strict=True)),
    ]
    reader = Reader(client, queue)
    number = reader.advance()

    def look(**asked: Any) -> list[dict[str, Any]]:
        return rows_of(client.get(op="browse", queue=queue, states=ALL, **asked))

    def take(**asked: Any) -> list[dict[str, Any]]:
        return reader.read(number, **asked)

    for read in (look, take):
        assert read(columns=FORMS, stored=True) == stored
        assert read(columns=columns) == plain
        asked = assembly.needed(columns)
        assert assembly.converted(columns, batch_from(read(columns=asked, stored=True), asked), queue).to_pylist() == plain
        with pytest.raises(errors.InvalidRequest, match="no column 'encodedAnnotations'"):
            read(columns=FORMS)


def batch_from(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=message.arrow_schema(columns, stored=True))


# ---- readers on the broker's own host


def mapped(client: Client, reader: Reader, batch: int, columns: list[str]) -> list[dict[str, Any]]:
    """The rows of a batch as such a reader finds them in the files."""
    rows = []
    for piece in rows_of(client.get(**{**reader.ticket(batch, columns=columns), "op": "map"})):
        data = Path(piece["file"]).read_bytes()[piece["offset"] : piece["offset"] + piece["length"]]
        record, sequence = message.unpack(piece["columns"], pa.py_buffer(data)), piece["sequence"]
        if piece["taken"] is None:
            record = record.slice(piece["row"], piece["count"])
        else:
            taken = np.frombuffer(piece["taken"], "<i4")
            record, sequence = record.take(pa.array(taken)), sequence + taken.astype(np.int64) - piece["row"]
        assert record.num_rows == piece["count"]
        made = assembly.assemble(
            columns,
            record,
            queue=reader.queue,
            sequence=sequence,
            time=piece["time"],
            delivery_count=piece["deliveryCount"],
        )
        rows += made.to_pylist()
    return rows


def test_what_is_read_from_the_mapped_files_equals_what_the_broker_sends(client: Client, queue: str) -> None:
    columns = ["queue", "sequenceNumber", "enqueuedTime", "deliveryCount", "body", "subject", "properties"]
    for number in range(5):
        send(client, queue, numbered(200, start=1000 * number))
        send(client, queue, pa.concat_batches([full_batch().select(["body", "subject", "properties"])] * 20))
    reader = Reader(client, queue)
    batch = reader.advance(messages=500)
    sent = reader.read(batch, columns=columns)
    assert len(sent) == 500
    assert mapped(client, reader, batch, columns) == sent
    reader.settle(batch)
    batch = reader.advance(messages=300)  # begins in the middle of a record
    reader.read(batch)
    client.call("lease.settleRow", lease=reader.lease, sequence=600, outcome="rejected")  # and has a hole
    reader.epoch = None
    assert reader.advance() == batch
    sent = reader.read(batch, columns=columns)
    assert len(sent) == 299
    assert mapped(client, reader, batch, columns) == sent


def test_rows_that_lie_too_scattered_to_be_mapped_are_still_read(client: Client, queue: str) -> None:
    for number in range(40):
        send(client, queue, numbered(1, start=number))
    reader = Reader(client, queue)
    batch = reader.advance()
    with pytest.raises(errors.NotMappable):
        mapped(client, reader, batch, ["body"])
    assert [row["body"] for row in reader.read(batch)] == numbered(40)
    # Or, if it is asked to, the broker sends them at once, as they are stored.
    columns = ["sequenceNumber", "body", "encodedAnnotations"]
    wanted = {**reader.ticket(batch, columns=columns), "op": "map", "orMessages": True}
    assert rows_of(client.get(**wanted)) == reader.read(batch, columns=columns, stored=True)
    send(client, queue, numbered(40))
    reader.settle(batch)
    (piece,) = rows_of(client.get(**{**wanted, "batch": reader.advance()}))
    assert (piece["row"], piece["count"], piece["sequence"]) == (0, 40, 40)


def test_what_differs_in_delivery_counts_is_not_mapped(client: Client, queue: str) -> None:
    send(client, queue, numbered(100))
    reader = Reader(client, queue)
    batch = reader.advance(messages=50)
    reader.read(batch)
    client.call("lease.release", lease=reader.lease, how="return")
    reader = Reader(client, queue, lease=f"another of {queue}")
    batch = reader.advance()
    wanted = {**reader.ticket(batch, columns=["deliveryCount"]), "op": "map"}
    with pytest.raises(errors.NotMappable, match="delivery counts"):
        list(client.get(**wanted))
    assert rows_of(client.get(**wanted, orMessages=True)) == [{"deliveryCount": 1}] * 50 + [{"deliveryCount": 0}] * 50


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

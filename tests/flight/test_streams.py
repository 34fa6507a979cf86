"""Streams: the messages that a browse or a batch names, with the columns that are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import UInt
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages import assembly, value_checks
from penstock.broker_core.messages.columns import (
    DEFAULT_COLUMNS,
    MESSAGE_COLUMNS,
    SENT_COLUMNS,
    STRING_MAP,
    SYSTEM_COLUMNS,
    arrow_schema,
    unpack,
)

from .helpers import Reader, browse, numbered, rows_of, send, sequences

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
    before = {**client.call("queue.stat", queue=mixed), "archive": None}  # whose lag grows
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
    for filters, rows in expected:
        assert sequences(client, mixed, **filters) == rows, filters
    assert {**client.call("queue.stat", queue=mixed), "archive": None} == before


def test_a_stream_has_exactly_the_schema_of_its_columns(client: Client, mixed: str) -> None:
    for columns in (list(DEFAULT_COLUMNS), ["settledTime", "outcome", "body"], [*SYSTEM_COLUMNS, "properties"]):
        batches = list(client.get(op="browse", queue=mixed, states=ALL, columns=columns))
        assert batches
        assert all(batch.schema.equals(arrow_schema(columns), check_metadata=True) for batch in batches)
        assert sum(batch.num_rows for batch in batches) == 15


def test_a_batch_says_what_became_of_its_messages_where_that_is_asked_for(client: Client, queue: str) -> None:
    send(client, queue, numbered(2))
    reader = Reader(client, queue)
    batch = reader.advance()
    columns = ["sequenceNumber", "state", "outcome", "settledTime"]
    waits = {"state": "acquired", "outcome": None, "settledTime": None}
    assert reader.read(batch, columns=columns) == [{"sequenceNumber": n, **waits} for n in range(2)]
    reader.settle(batch)
    again = reader.read(batch, columns=columns)
    assert [(row["state"], row["outcome"]) for row in again] == [("archived", "accepted")] * 2
    for name in columns:
        assert reader.read(batch, columns=[name]) == [{name: row[name]} for row in again], "each of them alone"
    assert again == browse(client, queue, *columns, states=["archived"])


# ---- contents of messages


def full_batch() -> pa.RecordBatch:
    columns: dict[str, Any] = {"body": pa.array([b"", b"\x00\xff", "é".encode()], pa.binary())}
    for name in SENT_COLUMNS:
        kind = MESSAGE_COLUMNS[name]
        if pa.types.is_string(kind):
            columns[name] = pa.array([name, None, "x" if name in value_checks.SYMBOLS else "𓅃"])
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
    assert len(batch.schema.names) == len(SENT_COLUMNS) - 1
    send(client, queue, batch)
    assert browse(client, queue, *batch.schema.names) == batch.to_pylist()
    reader = Reader(client, queue)
    assert reader.read(reader.advance(), columns=batch.schema.names) == batch.to_pylist()


#: Properties whose subject is a smallint.
WRONG_SUBJECT = b"\0Ss\xc0\6\4\x40\x40\x40\x54\7"


def test_an_encoded_block_is_stored_and_given_back_byte_for_byte(client: Client, queue: str) -> None:
    large = b"\0Su\xb0" + (70_000).to_bytes(4, "big") + bytes(70_000)
    bare = [b"\0Ss\xc0\5\4\x40\x40\x40\x40", b"", b"\0Sw\xc0\3\1\x54\7", large]
    columns = {
        "message": pa.array(bare, pa.binary()),
        "priority": pa.array([4, None, 9, 0], pa.int16()),
        "durable": pa.array([True, None, False, True]),
        "ttl": pa.array([None, 2**32 - 1, 0, 3_600_000], pa.int64()),
        "annotations": pa.array([[("x-opt", "1")], None, [], None], STRING_MAP),
    }
    batch = pa.concat_batches([pa.record_batch(columns)] * 5)  # long enough to be mapped
    send(client, queue, batch)
    assert browse(client, queue, *columns) == batch.to_pylist()
    reader = Reader(client, queue)
    number = reader.advance()
    assert reader.read(number, columns=list(columns)) == batch.to_pylist()
    assert [row["message"] for row in mapped(client, reader, number, ["message"])] == bare * 5
    # Invalid contents are refused. test_malformed.py tests such messages that are already stored.
    with pytest.raises(errors.InvalidRequest, match=r"column 'message' in row 1: not a valid AMQP message: .*subject"):
        send(client, queue, pa.record_batch({"message": pa.array([b"", WRONG_SUBJECT])}))


def test_what_no_amqp_client_could_get_is_refused_when_it_is_sent_whole_or_into_a_stage(client: Client, queue: str) -> None:
    """Invalid sections of a bare message, and invalid columns: the error names their row, and earlier batches stay."""
    good, header = b"\0Su\xa0\1x", b"\0Sp\x45"
    for op in ("enqueue", "stage"):
        command = {"op": op, **({"stage": queue} if op == "stage" else {})}
        with pytest.raises(errors.InvalidRequest, match=r"'message' in row 1: a header .* the columns durable, priority and ttl"):
            send(
                client,
                queue,
                *(pa.record_batch({"message": pa.array(both)}) for both in ([good], [good, header + good])),
                **command,
            )
        with pytest.raises(errors.InvalidRequest, match=r"'message' in row 0: not a bare AMQP message"):
            send(client, queue, pa.record_batch({"message": pa.array([good[:-1]])}), **command)
        columns = {"body": pa.array([b""] * 2), "annotations": pa.array([None, [("ü", "")]], STRING_MAP)}
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
        assert assembly.converted(columns, batch_from(read(columns=asked, stored=True), asked), queue, {}).to_pylist() == plain
        with pytest.raises(errors.InvalidRequest, match="no column 'encodedAnnotations'"):
            read(columns=FORMS)


def batch_from(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns, stored=True))


# ---- readers on the broker's own host


def mapped(client: Client, reader: Reader, batch: int, columns: list[str]) -> list[dict[str, Any]]:
    """The rows of a batch as such a reader finds them in the files."""
    rows = []
    for location in rows_of(client.get(**{**reader.ticket(batch, columns=columns), "op": "map", "host": this_host()})):
        data = Path(location["file"]).read_bytes()[location["offset"] : location["offset"] + location["length"]]
        record, sequence = unpack(location["columns"], pa.py_buffer(data)), location["sequence"]
        if location["taken"] is None:
            record = record.slice(location["row"], location["count"])
        else:
            taken = np.frombuffer(location["taken"], "<i4")
            record, sequence = record.take(pa.array(taken)), sequence + taken.astype(np.int64) - location["row"]
        assert record.num_rows == location["count"]
        made = assembly.assemble(
            columns,
            record,
            {
                "queue": reader.queue,
                "sequenceNumber": sequence,
                "enqueuedTime": location["time"],
                "deliveryCount": location["deliveryCount"],
            },
            malformed={},
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
    # On request, the broker sends them as they are stored.
    columns = ["sequenceNumber", "body", "encodedAnnotations"]
    wanted = {**reader.ticket(batch, columns=columns), "op": "map", "orMessages": True, "host": this_host()}
    assert rows_of(client.get(**wanted)) == reader.read(batch, columns=columns, stored=True)
    send(client, queue, numbered(40))
    reader.settle(batch)
    (location,) = rows_of(client.get(**{**wanted, "batch": reader.advance()}))
    assert (location["row"], location["count"], location["sequence"]) == (0, 40, 40)


@pytest.mark.parametrize("host", [None, "", "0" * 64], ids=str)
def test_who_is_not_on_the_brokers_host_is_told_no_path(client: Client, queue: str, host: str | None) -> None:
    send(client, queue, numbered(100))
    reader = Reader(client, queue)
    batch = reader.advance()
    wanted = {**reader.ticket(batch), "op": "map", "host": host}
    with pytest.raises(errors.NotMappable, match="on the broker's host"):
        list(client.get(**wanted))
    assert rows_of(client.get(**wanted, orMessages=True)) == reader.read(batch)
    (location,) = rows_of(client.get(**{**wanted, "host": this_host()}))
    status = Path(location["file"]).stat()
    assert (location["device"], location["inode"]) == (status.st_dev, status.st_ino)


def test_what_differs_in_delivery_counts_is_not_mapped(client: Client, queue: str) -> None:
    send(client, queue, numbered(100))
    reader = Reader(client, queue)
    batch = reader.advance(messages=50)
    reader.read(batch)
    client.call("lease.release", lease=reader.lease, how="return")
    reader = Reader(client, queue, lease=f"another of {queue}")
    batch = reader.advance()
    wanted = {**reader.ticket(batch, columns=["deliveryCount"]), "op": "map", "host": this_host()}
    with pytest.raises(errors.NotMappable, match="delivery counts"):
        list(client.get(**wanted))
    assert rows_of(client.get(**wanted, orMessages=True)) == [{"deliveryCount": 1}] * 50 + [{"deliveryCount": 0}] * 50

"""Stage, then publish once: the sink's own methods against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, ShortType, StringType, StructField, StructType

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.sink.writer import BatchWriter, StageReport, StreamWriter
from penstock.connector.stream.reader import StreamReader

SCHEMA = StructType([StructField("body", BinaryType())])


@pytest.fixture
def client(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(broker.url) as connected:
        connected.call("queue.declare", queue="q")
        yield connected
        connected.call("queue.delete", queue="q", force=True)


def rows(*bodies: bytes) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array(bodies, pa.binary())})


def batch_writer(client: Client, **options: str) -> BatchWriter:
    return BatchWriter(Options({"url": client.url, "queue": "q", **options}), SCHEMA, False)


def stream_writer(client: Client) -> StreamWriter:
    return StreamWriter(Options({"url": client.url, "queue": "q"}), SCHEMA, False)


def bodies(client: Client) -> list[bytes]:
    tickets = client.get(op="browse", queue="q", columns=["body"])
    return [body for batch in tickets for body in batch.column("body").to_pylist()]


def staged(writer: BatchWriter, *parts: pa.RecordBatch) -> StageReport:
    report = writer.write(iter(parts))
    assert isinstance(report, StageReport)
    return report


def of_stream(writer: StreamWriter, query: str, number: int, *parts: pa.RecordBatch) -> StageReport:
    """Attributes of a task of that micro-batch, which only Spark can provide."""
    key = {"kind": "stream", "id": query, "number": number}
    report = writer._stage(iter(parts), writer._write_of(number), key)
    report.query, report.batch = query, number
    return report


def test_what_is_staged_is_invisible_until_the_commit_and_then_in_partition_order(client: Client) -> None:
    writer = batch_writer(client)
    second, first = staged(writer, rows(b"c")), staged(writer, rows(b"a"), rows(), rows(b"b"))
    assert bodies(client) == []
    assert client.call("queue.stat", queue="q")["nextSequence"] == 0
    writer.commit([first, second])
    assert bodies(client) == [b"a", b"b", b"c"]


def test_only_the_stages_that_the_driver_names_are_published(client: Client) -> None:
    writer = batch_writer(client)
    staged(writer, rows(b"zombie"))
    writer.commit([staged(writer, rows(b"retry"))])
    assert bodies(client) == [b"retry"]


def test_each_write_has_a_stage_of_its_own_and_a_task_without_rows_none(client: Client) -> None:
    writer = batch_writer(client)
    assert staged(writer, rows(b"x")).attempt != staged(writer, rows(b"x")).attempt
    assert staged(writer, rows()).attempt is staged(writer).attempt is None
    writer.commit([staged(writer), staged(writer)])
    assert bodies(client) == []


def test_publishing_what_was_discarded_is_an_error_and_never_a_part(client: Client) -> None:
    writer = batch_writer(client)
    published, dropped = staged(writer, rows(b"a")), staged(writer, rows(b"b"))
    writer.abort([dropped, None])
    with pytest.raises(errors.NotFound, match="write the data again"):
        writer.commit([published, dropped])
    assert bodies(client) == []


def test_an_abort_does_not_hide_why_the_write_failed(client: Client) -> None:
    writer = BatchWriter(Options({"url": "grpc://127.0.0.1:1", "queue": "q"}), SCHEMA, False)
    writer.abort([StageReport("w", 1)])
    writer.abort([None])


def test_a_transaction_is_published_once(client: Client) -> None:
    for version, body in (("1", b"a"), ("1", b"again"), ("0", b"older"), ("2", b"b")):
        writer = batch_writer(client, txnAppId="test_a_transaction", txnVersion=version)
        writer.commit([staged(writer, rows(body))])
    assert bodies(client) == [b"a", b"b"]


def test_a_stream_batch_is_published_once_and_a_lower_one_after_a_rollback_not_at_all(client: Client) -> None:
    for number, body in ((3, b"a"), (3, b"again"), (2, b"rolled back"), (4, b"b")):
        writer = stream_writer(client)
        task = of_stream(writer, "query", number, rows(body))
        writer.commit([task, StageReport(task.write, None, "query", number)], number)
    assert bodies(client) == [b"a", b"b"]


def test_an_empty_stream_batch_counts_as_done(client: Client) -> None:
    writer = stream_writer(client)
    writer.commit([of_stream(writer, "empty", 0)], 0)
    late = stream_writer(client)
    late.commit([of_stream(late, "empty", 0, rows(b"late"))], 0)
    writer.commit([], 1)  # a batch without tasks has no query
    assert bodies(client) == []


def test_a_stream_write_without_a_query_id_fails_before_it_sends(client: Client) -> None:
    with pytest.raises(errors.InvalidRequest, match="no query id"):
        stream_writer(client).write(iter([rows(b"x")]))


@pytest.mark.parametrize(("query", "number"), [("another", 0), ("query", 7)])
def test_tasks_of_another_query_or_batch_are_not_published(client: Client, query: str, number: int) -> None:
    writer = stream_writer(client)
    with pytest.raises(errors.InvalidRequest, match="nothing was published"):
        writer.commit([of_stream(writer, "query", 0), of_stream(writer, query, number, rows(b"x"))], 0)


def test_overwrite_and_transactions_of_a_stream_are_refused(client: Client) -> None:
    options = Options({"url": client.url, "queue": "q"})
    for writer in (BatchWriter, StreamWriter):
        with pytest.raises(errors.InvalidRequest, match="penstock queue purge"):
            writer(options, SCHEMA, True)
    with pytest.raises(errors.InvalidRequest, match=r"for df\.write"):
        StreamWriter(Options({"url": client.url, "queue": "q", "txnAppId": "a", "txnVersion": "1"}), SCHEMA, False)


def test_rows_are_routed_in_their_order_over_many_batches(client: Client) -> None:
    client.call("queue.declare", queue="r")
    schema = StructType([StructField("queue", StringType()), *SCHEMA.fields])
    writer = BatchWriter(Options({"url": client.url}), schema, False)
    names = ["q", "r", "r", "q", "q"]
    parts = [
        pa.record_batch({"queue": pa.array(names), "body": pa.array([b"%d" % (5 * n + i) for i in range(5)])}) for n in range(40)
    ]
    writer.commit([staged(writer, *parts)])
    assert bodies(client) == [b"%d" % n for n in range(200) if names[n % 5] == "q"]
    assert client.call("queue.stat", queue="r")["available"] == 80
    client.call("queue.delete", queue="r", force=True)


def test_S3_outcomes_with_errors_as_long_as_a_stack_trace_are_said_in_blocks_that_the_broker_takes(client: Client) -> None:
    """Spark hands over ten thousand rows at a time: these have 80 MB."""
    count = 10_000
    client.put({"op": "enqueue", "queue": "q"}, rows().schema, [rows(*[b"x"] * count)])
    reader = StreamReader(Options({"url": client.url, "queue": "q"}), source_schema(("delivery",)))
    end = reader.latestOffset({"v": 1, "kind": "initial"}, reader.getDefaultReadLimit())
    (part,) = reader.partitions({"v": 1, "kind": "initial"}, end)
    (read,) = reader.read(part)
    outcomes = [read["delivery"], pa.repeat("rejected", count), pa.repeat("at line 1\n" * 800, count)]
    columns = ["delivery", "outcome", "error"]
    schema = StructType([StructField("delivery", BinaryType()), *(StructField(name, StringType()) for name in columns[1:])])
    writer = BatchWriter(Options({"url": client.url, "operation": "settle"}), schema, False)
    writer.commit([writer.write(iter([pa.record_batch(outcomes, columns)]))])
    reader.commit(end)
    reader.stop()
    ended = client.get(op="browse", queue="q", columns=["outcome"], states=["archived"], outcome="rejected")
    assert sum(batch.num_rows for batch in ended) == count


def test_E3_a_task_all_of_whose_rows_an_exchange_drops_publishes_nothing_and_hinders_nobody(client: Client) -> None:
    client.call("exchange.declare", exchange="x", options={"unroutable": "drop"})
    client.call("exchange.bind", exchange="x", queue="q", key="known")
    schema = StructType([*SCHEMA.fields, StructField("subject", StringType())])
    writer = BatchWriter(Options({"url": client.url, "exchange": "x"}), schema, False)

    def task(*subjects: str) -> StageReport:
        return staged(writer, *(rows(b"to %s" % s.encode()).append_column("subject", pa.array([s])) for s in subjects))

    writer.commit([task("nobody", "no one"), task("nobody", "known")])
    assert bodies(client) == [b"to known"]
    writer.commit([task("nobody")])
    assert bodies(client) == [b"to known"]


def test_a_task_that_fails_leaves_no_stage_that_takes_room_in_the_queue(client: Client) -> None:
    client.call("queue.alter", queue="q", options={"maxMessages": 100_000, "overflow": "reject"})
    many = rows(*[b""] * 65_536)
    writer = batch_writer(client)
    with pytest.raises(errors.InvalidRequest, match="null in row 0"):
        writer.write(iter([many, pa.record_batch({"body": pa.nulls(1, pa.binary())})]))
    writer.commit([staged(writer, many)])
    assert client.call("queue.stat", queue="q")["available"] == 65_536


@pytest.mark.parametrize("app", ["job", "j" * 255])
def test_S7_each_queue_and_exchange_keeps_versions_of_its_own(client: Client, app: str) -> None:
    """As each table does in Delta: the same pair of one `foreachBatch` is for several targets."""
    client.call("exchange.declare", exchange="keys", type="topic")
    client.call("exchange.bind", exchange="keys", queue="q", key="#")
    schema = StructType([*SCHEMA.fields, StructField("queue", StringType())])
    routed = rows(b"routed").append_column("queue", pa.array(["q"]))
    places = {
        b"queue": {"queue": "q"},
        b"exchange": {"exchange": "keys"},
        b"one": {"exchange": "keys/one"},
        b"other": {"exchange": "keys/2"},
    }
    for _ in range(2):  # the second time nothing is sent
        for name, place in places.items():
            writer = BatchWriter(Options({"url": client.url, **place, "txnAppId": app, "txnVersion": "1"}), SCHEMA, False)
            writer.commit([staged(writer, rows(name))])
        writer = BatchWriter(Options({"url": client.url, "txnAppId": app, "txnVersion": "1"}), schema, False)
        writer.commit([staged(writer, routed)])
    assert bodies(client) == [*places, b"routed"]


def prioritised(client: Client, kind: pa.DataType, *priorities: int | None) -> tuple[BatchWriter, pa.RecordBatch]:
    schema = StructType([StructField("body", BinaryType()), StructField("priority", ShortType())])
    writer = BatchWriter(Options({"url": client.url, "queue": "q"}), schema, False)
    return writer, pa.record_batch({"body": pa.array([b"x"] * len(priorities)), "priority": pa.array(priorities, kind)})


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int64()])
def test_a_priority_is_0_to_9(client: Client, kind: pa.DataType) -> None:
    writer, right = prioritised(client, kind, 0, None, 9)
    writer.commit([staged(writer, right)])
    assert len(bodies(client)) == 3
    for wrong, row in (((3, 10), 1), ((-1, 3), 0)):
        writer, batch = prioritised(client, kind, *wrong)
        with pytest.raises(errors.InvalidColumn, match=f"'priority' is {wrong[row]} in row {row}; it takes 0 to 9, of which 9"):
            writer.write(iter([batch]))
    assert len(bodies(client)) == 3

"""S1 S2: the stream source under Spark's own triggers. Tests without Spark are in tests/connector (test_triggers, test_lease,
test_tasks)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def numbers(frame: DataFrame) -> list[int]:
    return [int(row.body) for row in frame.selectExpr("cast(body as string) body").collect()]


def test_into_delta_and_the_last_batch_of_available_now_is_settled(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 1000)
    query = rig.drain(rig.stream("orders", maxMessagesPerTrigger="300"))
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [300, 300, 300, 100]
    assert rig.table() == list(range(1000))
    assert rig.counts("orders") == (0, 0, 1000)


def test_a_restart_goes_on_where_the_checkpoint_stands(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 10)
    rig.drain(rig.stream("orders"))
    rig.drain(rig.stream("orders"))
    rig.send("orders", 10, 5)
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(15))
    (lease,) = rig.client.call("lease.list")["leases"]
    texts = [(Path(rig.path("checkpoint", "offsets")) / str(n)).read_text().splitlines()[-1] for n in (0, 1)]
    offsets = [json.loads(text) for text in texts]
    assert [list(offset) for offset in offsets] == [
        ["v", "kind", "broker", "lease", "run", "rotation", "batches", "signs", "firstQueue"]
    ] * 2
    assert [(offset["lease"], offset["run"], offset["batches"]["orders"]) for offset in offsets] == [
        (lease["lease"], lease["run"], 1),
        (lease["lease"], lease["run"], 2),
    ]


def test_an_idle_stream_settles_its_last_batch(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 10)
    seen: list[int] = []
    writer = rig.stream("orders").writeStream.foreachBatch(lambda frame, _: seen.extend(numbers(frame)))
    query = writer.option("checkpointLocation", rig.path("checkpoint")).trigger(processingTime="0 seconds").start()
    rig.until(lambda: rig.counts("orders") == (0, 0, 10), "all are settled")
    rig.send("orders", 10, 10)
    rig.until(lambda: rig.counts("orders") == (0, 0, 20), "all are settled")
    query.stop()
    assert seen == list(range(20))


def test_available_now_takes_what_was_there_when_it_began(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 4)
    seen: list[int] = []

    def take(frame: DataFrame, batch: int) -> None:
        seen.extend(numbers(frame))
        rig.send("orders", 100 + batch, 1)
        _, acquired, _ = rig.counts("orders")
        assert acquired <= 2  # the trigger's limit is the lease's credit

    writer = rig.stream("orders", maxMessagesPerTrigger="2").writeStream.foreachBatch(take)
    writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert seen == [0, 1, 2, 3]
    assert rig.bodies("orders") == ["100", "101"]


def test_with_once_the_last_batch_is_settled_at_the_next_start(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 3)

    def once() -> None:
        writer = rig.stream("orders").writeStream.format("delta").option("checkpointLocation", rig.path("checkpoint"))
        writer.trigger(once=True).start(rig.path("table")).awaitTermination()

    once()
    assert rig.counts("orders") == (0, 3, 0)
    once()
    assert rig.counts("orders") == (0, 0, 3)
    assert rig.table() == [0, 1, 2]


def test_two_actions_in_foreach_batch_see_the_same_rows(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 50)
    seen: list[tuple[list[int], int, list[int]]] = []

    def look(frame: DataFrame, _: int) -> None:
        seen.append((numbers(frame), frame.count(), numbers(frame)))

    writer = rig.stream("orders", maxMessagesPerTrigger="20").writeStream.foreachBatch(look)
    writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert [numbers for numbers, _, _ in seen] == [list(range(20)), list(range(20, 40)), list(range(40, 50))]
    assert all(first == second and count == len(first) for first, count, second in seen)
    assert rig.counts("orders") == (0, 0, 50)


def test_a_batch_that_foreach_batch_does_not_look_at_is_given_back(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 4)
    calls: list[int] = []
    writer = rig.stream("orders", maxMessagesPerTrigger="2").writeStream.foreachBatch(lambda _, batch: calls.append(batch))
    writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert len(calls) == 2  # no message was taken twice, or this would not have ended
    assert rig.counts("orders") == (4, 0, 0)
    assert rig.client.call("queue.stat", queue="orders")["unread"] == 4
    rig.drain(rig.stream("orders"), checkpoint="another")
    assert rig.table() == [0, 1, 2, 3]


def test_a_batch_that_failed_is_read_again(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 5)
    seen: list[list[int]] = []

    def fail_once(frame: DataFrame, _: int) -> None:
        seen.append(numbers(frame))
        if len(seen) == 1:
            raise RuntimeError("the sink is away")

    def run() -> None:
        writer = rig.stream("orders").writeStream.foreachBatch(fail_once)
        writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        run()
    assert rig.counts("orders") == (0, 5, 0)
    rig.send("orders", 5, 5)
    run()
    assert seen == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert rig.counts("orders") == (0, 0, 10)


@pytest.mark.parametrize("lost", ["commits", "delta skips it"])
def test_a_lost_commit_file_costs_nothing(rig: Rig, lost: str) -> None:
    """Spark repeats the batch; Delta finds its number and may skip it unread."""
    rig.declare("orders")
    rig.send("orders", 0, 10)
    rig.drain(rig.stream("orders"))
    if lost == "delta skips it":
        # The last batch is planned again, although the broker has settled it.
        assert rig.counts("orders") == (0, 0, 10)
    for name in ("0", ".0.crc"):
        Path(rig.path("checkpoint", "commits", name)).unlink()
    rig.send("orders", 10, 10)
    rig.drain(rig.stream("orders"))
    rig.drain(rig.stream("orders"))
    assert rig.table() == list(range(20))
    assert rig.counts("orders") == (0, 0, 20)


def test_foreach_batch_into_delta_with_txn_options(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 10)

    def run() -> None:
        def save(frame: DataFrame, batch: int) -> None:
            app = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert app
            frame.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", batch).save(rig.path("table"))

        writer = rig.stream("orders").writeStream.foreachBatch(save)
        writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()

    run()
    Path(rig.path("checkpoint", "commits", "0")).unlink()
    Path(rig.path("checkpoint", "commits", ".0.crc")).unlink()
    run()
    assert rig.table() == list(range(10))


def test_several_queries_on_one_queue_share_it(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 200)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    queries = []
    for name, taken in seen.items():
        frame = rig.stream("orders", maxMessagesPerTrigger="10", lease=name)
        writer = frame.writeStream.foreachBatch(lambda batch, _, into=taken: into.extend(numbers(batch)))
        queries.append(writer.option("checkpointLocation", rig.path(name)).start())
    rig.until(lambda: rig.counts("orders") == (0, 0, 200), "all are settled")
    for query in queries:
        query.stop()
    assert sorted(seen["a"] + seen["b"]) == list(range(200))
    assert seen["a"]
    assert seen["b"]


def test_tasks_are_made_by_the_options(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 100)
    batches: list[Any] = []
    frame = rig.stream("orders", maxMessagesPerPartition="30", maxMessagesPerTrigger="90", minPartitions="2")
    writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append((batch.rdd.getNumPartitions(), batch.count())))
    writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert batches == [(3, 90), (2, 10)]


def test_a_user_s_schema_narrows_what_is_moved(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 3)
    reader = rig.spark.readStream.format("amqp").options(url=rig.broker.url, queue="orders")
    rig.drain(reader.schema("body BINARY, queue STRING, delivery BINARY").load())
    table = rig.spark.read.format("delta").load(rig.path("table"))
    assert table.columns == ["body", "queue", "delivery"]
    assert table.where("delivery is not null and queue = 'orders'").count() == 3


def test_a_wrong_option_is_refused_before_anything_starts(rig: Rig) -> None:
    rig.declare("orders")
    with pytest.raises(AnalysisException, match="maxMessagesPerTrigger cannot be 'lots'; it must be a whole number"):
        rig.stream("orders", maxMessagesPerTrigger="lots")
    with pytest.raises(AnalysisException, match="no option 'queues'"):
        rig.spark.readStream.format("amqp").option("queues", "orders").load()
    assert rig.client.call("lease.list")["leases"] == []


def test_the_two_sides_of_a_self_join_are_told_what_to_do(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 10)
    both = rig.stream("orders", lease="me").unionAll(rig.stream("orders", lease="me"))
    with pytest.raises(StreamingQueryException, match="mode=browse"):
        rig.drain(both)
    assert rig.counts("orders")[2] == 0


def test_a_changed_queue_under_a_checkpoint_is_refused(rig: Rig) -> None:
    rig.declare("orders", "others")
    rig.send("orders", 0, 1)
    rig.drain(rig.stream("orders"))
    with pytest.raises(StreamingQueryException, match="belongs to queue 'orders'"):
        rig.drain(rig.stream("others"))
    with pytest.raises(StreamingQueryException, match="option lease"):
        rig.drain(rig.stream("orders", lease="me"))


def test_an_older_checkpoint_is_refused_unless_data_loss_is_accepted(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 2)
    rig.drain(rig.stream("orders"))
    shutil.copytree(rig.path("checkpoint"), rig.path("backup"))
    rig.send("orders", 2, 2)
    rig.drain(rig.stream("orders"))
    rig.send("orders", 4, 2)
    with pytest.raises(StreamingQueryException, match="older than lease"):
        rig.drain(rig.stream("orders"), table="copy", checkpoint="backup")
    rig.drain(rig.stream("orders", failOnDataLoss="false"), table="copy", checkpoint="backup")
    assert rig.table("copy")[-2:] == [4, 5]
    assert rig.counts("orders") == (0, 0, 6)


def test_the_archive_names_the_query(rig: Rig) -> None:
    """By `queryName`, or by the query's id; a lease with a name of its own follows. `foreachBatch` keeps the name."""
    rig.declare("orders")
    started: list[StreamingQuery] = []

    def run(name: str | None, *, in_batches: bool = False, **options: str) -> None:
        number = len(started)
        rig.send("orders", number, 1)
        writer = rig.stream("orders", **options).writeStream
        writer = writer.foreachBatch(lambda frame, _: numbers(frame)) if in_batches else writer.format("noop")
        writer = writer if name is None else writer.queryName(name)
        query = writer.option("checkpointLocation", rig.path(str(number))).trigger(availableNow=True).start()
        query.awaitTermination()
        started.append(query)

    run("nightly job")
    run(None)
    run("nightly job", in_batches=True)
    run("nightly job", lease="etl")
    names = ["nightly job", str(started[1].id), "nightly job", "nightly job"]
    assert sorted(lease["query"] for lease in rig.client.call("lease.list")["leases"]) == sorted(names)
    archived = rig.spark.read.schema("sequenceNumber long, holder string").format("amqp")
    rows = archived.options(url=rig.broker.url, queue="orders", states="archived").load().collect()
    assert [row.holder for row in sorted(rows)] == [*names[:3], "nightly job (etl)"]

"""S7: a write sends a whole DataFrame, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql import DataFrame


LATIN_1 = "string(X'41FF')"  # text in another charset


def forget_commit(rig: Rig, batch: int, checkpoint: str = "checkpoint") -> None:
    """Delete Spark's last commit, as if it died between the sink's commit and its own."""
    for name in (str(batch), f".{batch}.crc"):
        Path(rig.path(checkpoint, "commits", name)).unlink()


def test_rows_keep_the_order_of_partitions_and_rows(rig: Rig) -> None:
    rig.declare("orders")
    rig.write(rig.spark.range(0, 25_000, 1, 5).selectExpr("cast(id as string) body"), "orders")
    assert rig.bodies("orders") == [str(i) for i in range(25_000)]


def test_every_column_arrives_as_it_was_sent(rig: Rig) -> None:
    rig.declare("orders", "copy")
    sent = rig.spark.sql(
        """select cast('x' as binary) body, 'm1' messageId, 'c1' correlationId, 's' subject, 't' `to`, 'r' replyTo, 'text/plain'
        contentType, 'g' groupId, 'u' userId, 'gzip' contentEncoding, cast(7 as tinyint) priority, true durable,
        timestamp'2025-03-30 01:59:59.123456' creationTime, timestamp'2025-03-30 03:00:00' absoluteExpiryTime,
        map('a', 'b', 'n', null) properties, 3L groupSequence, map('x-opt', '1') annotations"""
    )
    rig.write(sent, "orders")
    names = [name for name in sent.columns if name != "priority"]
    reader = rig.spark.read.format("amqp").options(url=rig.broker.url, queue="orders")
    columns = (
        "body binary, messageId string, correlationId string, subject string, `to` string, replyTo string, contentType string,"
        " groupId string, userId string, contentEncoding string, priority smallint, durable boolean, creationTime timestamp,"
        " absoluteExpiryTime timestamp, properties map<string,string>, groupSequence bigint, annotations map<string,string>"
    )
    arrived = reader.schema(columns).load()
    assert arrived.select(names).collect() == sent.select(names).collect()
    assert arrived.first().priority == 7  # type: ignore[union-attr]
    # And back in one line.
    rig.write(rig.look("orders"), "copy")
    ignored = ("queue", "sequenceNumber", "enqueuedTime")
    assert rig.look("copy").drop(*ignored).collect() == rig.look("orders").drop(*ignored).collect()


def test_E1_rows_go_through_an_exchange_by_their_subject_or_a_key(rig: Rig) -> None:
    rig.declare("a", "b", "rest")
    rig.client.call("exchange.declare", exchange="events", type="topic", options={"alternate": "rest"})
    for queue, key in (("a", "order.#"), ("b", "*.eu")):
        rig.client.call("exchange.bind", exchange="events", queue=queue, key=key)
    subject = "element_at(array('order.eu', 'order.us', 'stock.eu', 'stock.us'), int(id % 4) + 1) subject"
    frame = rig.spark.range(0, 400, 1, 2).selectExpr("cast(id as string) body", subject, "'ignored' queue")
    frame.write.format("amqp").options(url=rig.broker.url, exchange="events").mode("append").save()
    assert rig.bodies("a") == [str(i) for i in range(400) if i % 4 < 2]
    assert rig.bodies("b") == [str(i) for i in range(400) if i % 2 == 0]
    assert rig.bodies("rest") == [str(i) for i in range(400) if i % 4 == 3]
    frame.write.format("amqp").options(url=rig.broker.url, exchange="events/stock.eu").mode("append").save()
    assert len(rig.bodies("b")) == 600
    with pytest.raises(PySparkException, match="option exchange has no meaning"):
        rig.spark.read.format("amqp").options(url=rig.broker.url, exchange="events").load().count()


def test_rows_go_where_their_queue_column_says(rig: Rig) -> None:
    rig.declare("a", "b", "c")
    route = "element_at(array('a', 'b', 'c'), int(id % 3) + 1) queue"
    frame = rig.spark.range(0, 3000, 1, 2).selectExpr("cast(id as string) body", route)
    rig.write(frame)
    for k, queue in enumerate("abc"):
        assert rig.bodies(queue) == [str(i) for i in range(k, 3000, 3)]


def test_a_write_that_fails_publishes_nothing(rig: Rig) -> None:
    rig.declare("orders")
    frame = rig.spark.range(0, 100, 1, 4).selectExpr("if(id = 99, raise_error('broken row'), cast(id as string)) body")
    with pytest.raises(PySparkException, match="broken row"):
        rig.write(frame, "orders")
    assert rig.bodies("orders") == []


def test_a_row_without_content_is_named(rig: Rig) -> None:
    rig.declare("orders")
    with pytest.raises(PySparkException, match="'body' is null in row 3"):
        rig.write(rig.spark.range(0, 5, 1, 1).selectExpr("if(id = 3, null, 'x') body"), "orders")
    assert rig.bodies("orders") == []


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["'x' body", "if(id = 3, 4294967296, 7L) groupSequence"], "'groupSequence' is 4294967296 in row 3; allowed are 0 to"),
        (["'x' body", "if(id = 3, 'ü', 'x') contentType"], "'contentType' has 'ü' in row 3; .*symbols are ASCII"),
        (["'x' body", "if(id = 3, map('ü', ''), null) annotations"], "'annotations' has 'ü' in row 3; .*symbols are ASCII"),
        (["'x' body", f"if(id = 3, {LATIN_1}, 'x') subject"], r"'subject' is not UTF-8 in row 3 \(b'A.xff'\).*make_valid_utf8"),
        (["'x' body", f"map('k', if(id = 3, {LATIN_1}, 'x')) properties"], "'properties' has values that are not UTF-8 in row 3"),
        (["if(id = 3, X'0053', X'005375A000') message"], "'message' in row 3: not a bare AMQP message"),
        (
            ["if(id = 3, X'005370C000005375A000', X'005375A000') message"],
            "'message' in row 3: a header does not belong in a bare",
        ),
    ],
)
def test_a_row_that_no_amqp_client_could_get_is_named_when_it_is_written(rig: Rig, columns: list[str], says: str) -> None:
    rig.declare("orders")
    with pytest.raises(PySparkException, match=says):
        rig.write(rig.spark.range(0, 5, 1, 1).selectExpr(*columns), "orders")
    assert rig.bodies("orders") == []


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (["'x' value"], {"queue": "orders"}, "no sink column 'value': did you mean 'body'.*ignoreUnknownColumns"),
        (["'x' body", "'y' message"], {"queue": "orders"}, "must be binary"),
        (["'x' body"], {}, "set the option queue"),
        (["'x' body"], {"queue": "orders", "operation": "settle"}, "the column 'delivery' names the message"),
        (["'x' body", "'rejected' outcome"], {"operation": "settle"}, "needs a column 'delivery'.*the stream's schema"),
        (["cast('x' as binary) delivery"], {"operation": "settle"}, "needs a column 'outcome' .accepted, rejected"),
        (["1 delivery", "'x' outcome"], {"operation": "settle"}, "'delivery' has type int; it must be binary"),
        (["1 value"], {"operation": "settle"}, "no column 'value' to settle by.*ignoreUnknownColumns"),
        # Delta's session extension may refuse it first.
        (["'x' body"], {"queue": "orders", "txnAppId": "a"}, "txnVersion and txnAppId|name both"),
        (["'x' body"], {"queue": "orders", "states": "archived"}, "has no meaning for df.write"),
    ],
)
def test_a_wrong_write_is_refused(rig: Rig, columns: list[str], options: dict[str, str], says: str) -> None:
    rig.declare("orders")
    with pytest.raises(PySparkException, match=says):
        rig.write(rig.spark.range(1).selectExpr(*columns), **options)


def test_a_stream_names_the_row_whose_text_is_not_utf8_and_its_remedy_works(rig: Rig) -> None:
    """Also in the column `queue`, and in a settlement."""
    rig.declare("orders")
    rows = rig.spark.range(0, 5, 1, 1).selectExpr("string(id) body", f"if(id = 3, {LATIN_1}, 'orders') queue")
    rows.write.parquet(rig.path("rows"))
    stream = rig.spark.readStream.schema(rows.schema).parquet(rig.path("rows"))

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.format("amqp").options(url=rig.broker.url, checkpointLocation=rig.path("c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="column 'queue' is not UTF-8 in row 3"):
        run(stream)
    run(stream.selectExpr("body", "'orders' queue", "make_valid_utf8(queue) subject"))
    assert len(rig.bodies("orders")) == 5
    frame = rig.spark.sql(f"select X'01000141' delivery, 'rejected' outcome, {LATIN_1} error")
    with pytest.raises(PySparkException, match="column 'error' is not UTF-8 in row 0"):
        rig.write(frame, operation="settle")


def test_a_queue_that_does_not_exist_is_named(rig: Rig) -> None:
    with pytest.raises(PySparkException, match="nowhere"):
        rig.write(rig.spark.range(1).selectExpr("'x' body"), "nowhere")


def test_nothing_is_ever_overwritten(rig: Rig) -> None:
    rig.declare("orders", "in")
    frame = rig.spark.range(1).selectExpr("'x' body")
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        frame.write.format("amqp").options(url=rig.broker.url, queue="orders").mode("overwrite").save()
    counted = rig.stream("in").groupBy("subject").count().selectExpr("cast(count as string) body")
    writer = counted.writeStream.format("amqp").options(url=rig.broker.url, queue="orders").outputMode("complete")
    with pytest.raises((StreamingQueryException, AnalysisException), match="cannot be overwritten"):
        writer.option("checkpointLocation", rig.path("c")).trigger(availableNow=True).start().awaitTermination()


def test_a_batch_write_is_new_each_time_unless_it_has_a_transaction(rig: Rig) -> None:
    rig.declare("orders")
    frame = rig.spark.range(0, 2, 1, 1).selectExpr("cast(id as string) body")
    rig.write(frame, "orders")
    rig.write(frame, "orders")
    assert rig.bodies("orders") == ["0", "1", "0", "1"]
    for version, expected in ((5, 6), (5, 6), (4, 6), (6, 8)):
        rig.write(frame, "orders", txnAppId="job", txnVersion=str(version))
        assert len(rig.bodies("orders")) == expected


def test_two_writes_inside_one_foreach_batch_are_two(rig: Rig) -> None:
    rig.declare("in", "out")
    rig.send("in", 0, 3)

    def twice(frame: DataFrame, _: int) -> None:
        rig.write(frame, "out")
        rig.write(frame, "out")

    writer = rig.stream("in").writeStream.foreachBatch(twice).option("checkpointLocation", rig.path("c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert rig.bodies("out") == ["0", "1", "2"] * 2


def copy(rig: Rig, source: str, target: str) -> None:
    writer = rig.stream(source, maxMessagesPerTrigger="40").writeStream.format("amqp").options(url=rig.broker.url, queue=target)
    writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()


def test_from_queue_to_queue_exactly_once(rig: Rig) -> None:
    rig.declare("in", "out")
    rig.send("in", 0, 100)
    copy(rig, "in", "out")
    assert rig.bodies("out") == [str(i) for i in range(100)]
    assert rig.counts("in") == (0, 0, 100)
    # The last batch is repeated, and the broker recognizes its publish.
    forget_commit(rig, 2)
    rig.send("in", 100, 10)
    copy(rig, "in", "out")
    assert rig.bodies("out") == [str(i) for i in range(110)]


def test_stages_of_a_repeated_batch_do_not_stay(rig: Rig) -> None:
    rig.declare("in", "out")
    rig.send("in", 0, 10)
    copy(rig, "in", "out")
    forget_commit(rig, 0)
    copy(rig, "in", "out")
    assert rig.bodies("out") == [str(i) for i in range(10)]


def test_a_file_stream_into_a_queue(rig: Rig) -> None:
    rig.declare("out")
    rig.spark.range(10).selectExpr("cast(id as string) body").coalesce(1).write.json(rig.path("files"))
    frame = rig.spark.readStream.schema("body string").json(rig.path("files"))
    for _ in range(2):
        writer = frame.writeStream.format("amqp").options(url=rig.broker.url, queue="out", checkpointLocation=rig.path("c"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(rig.bodies("out"), key=int) == [str(i) for i in range(10)]

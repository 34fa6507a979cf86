"""C3 from Spark: one stream over several queues into Delta, and a batch read of their union."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from chispa import assert_df_equality

if TYPE_CHECKING:
    from conftest import Rig


def test_several_queues_into_one_table_exactly_once(rig: Rig) -> None:
    """A run without its last commit repeats that batch: it reads the same from every queue, and Delta skips it."""
    rig.declare("orders", "returns", "claims")
    rig.send("orders", 0, 60)
    rig.send("returns", 100, 30)
    looked = rig.look("orders, returns, claims")
    assert looked.count() == 90
    names = "orders,returns,claims"
    query = rig.drain(rig.stream(names, maxMessagesPerTrigger="40"))
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [40, 40, 10]
    last = max(Path(rig.path("checkpoint", "commits")).glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    rig.send("claims", 200, 5)
    rig.drain(rig.stream(names, maxMessagesPerTrigger="40"))
    table = rig.spark.read.format("delta").load(rig.path("table")).selectExpr("queue", "cast(body as string) body")
    expected = [("orders", str(i)) for i in range(60)] + [("returns", str(i)) for i in range(100, 130)]
    expected += [("claims", str(i)) for i in range(200, 205)]
    assert_df_equality(table, rig.spark.createDataFrame(expected, table.schema), ignore_row_order=True, ignore_nullable=True)
    assert [rig.counts(queue) for queue in names.split(",")] == [(0, 0, 60), (0, 0, 30), (0, 0, 5)]


def test_a_query_over_one_queue_becomes_one_over_two_and_three(rig: Rig) -> None:
    """With one checkpoint, and an unfinished batch: each message is in the table once."""
    rig.declare("orders", "returns", "claims")
    rig.send("orders", 0, 20)
    for names, queue, first in (
        ("orders", "orders", 20),
        ("returns,orders", "returns", 100),
        ("claims,orders,returns", "claims", 200),
    ):
        rig.drain(rig.stream(names, lease="nightly"))
        last = max(Path(rig.path("checkpoint", "commits")).glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
        rig.send(queue, first, 10)
        rig.send("orders", first + 50, 10)
    rig.drain(rig.stream("orders,returns,claims", lease="nightly"))
    assert rig.table() == sorted(
        [*range(30), *range(70, 80), *range(100, 110), *range(150, 160), *range(200, 210), *range(250, 260)]
    )
    assert [rig.counts(queue) for queue in ("orders", "returns", "claims")] == [(0, 0, 60), (0, 0, 10), (0, 0, 10)]


def test_two_brokers_behind_one_write_and_one_query(rig: Rig, tmp_path: Path) -> None:
    """S12 from Spark: a batch write with groups, a repeated write of a stream, and all messages in one table, exactly once."""
    from penstock import Broker

    with Broker(tmp_path / "second") as second:
        both = f"{rig.broker.url},{second.url}"
        rig.declare("orders", "again")
        for queue in ("orders", "again"):
            second.declare(queue)
        rows = rig.spark.range(0, 400, 1, 4).selectExpr("cast(id as string) body", "concat('g', id % 40) groupId")
        for version in (1, 1):
            writer = rows.write.format("amqp").options(url=both, queue="orders", txnAppId="load", txnVersion=version)
            writer.mode("append").save()
        reader = rig.spark.read.format("amqp").options(queue="orders")
        parts = [reader.options(url=url).load().count() for url in (rig.broker.url, second.url, both)]
        assert parts[0] + parts[1] == parts[2] == 400
        assert min(parts) > 0
        source = rig.spark.readStream.format("amqp").options(url=both)
        sink = source.options(queue="orders", maxMessagesPerTrigger="150").load().select("body", "groupId").writeStream
        for _ in range(2):
            forward = sink.format("amqp").options(url=both, queue="again", checkpointLocation=rig.path("forward"))
            forward.trigger(availableNow=True).start().awaitTermination()
        query = rig.drain(rig.spark.readStream.format("amqp").options(url=both, queue="again").load())
        assert rig.table() == [*range(400)]
        assert json.loads(query.recentProgress[0].sources[0].endOffset)["kind"] == "brokers"

"""S3: per-message outcomes from a DataFrame, exactly once with the batch that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql import DataFrame


class Killed(Exception):
    """The simulated death of the driver's process."""


def outcomes(rig: Rig) -> Iterator[tuple[int, str]]:
    reader = rig.spark.read.format("amqp").options(url=rig.broker.url, queue="orders", states="available,acquired,archived")
    columns = "sequenceNumber bigint, state string, outcome string, deliveryCount int"
    for row in reader.schema(columns).load().orderBy("sequenceNumber").collect():
        yield row.deliveryCount, row.outcome or row.state


def test_outcomes_of_a_foreach_batch_hold_once_the_batch_does(rig: Rig) -> None:
    """The first run dies between its outcomes and Spark's own commit; the second writes them again, and they apply."""
    rig.declare("orders")
    rig.send("orders", 0, 40)
    schema = "sequenceNumber bigint, body binary, delivery binary"
    source = rig.spark.readStream.schema(schema).format("amqp").options(url=rig.broker.url, queue="orders")
    seen: list[int] = []

    def settle(batch: DataFrame, number: int) -> None:
        seen.append(number)
        outcomes = batch.selectExpr(
            "*",
            """case when sequenceNumber < 10 then 'rejected' when sequenceNumber < 20 then 'released'
            when sequenceNumber < 25 then 'modified' when sequenceNumber < 30 then 'accepted' end outcome""",
            "concat('bad ', sequenceNumber) error",
        )
        outcomes.repartition(3).write.format("amqp").options(url=rig.broker.url, operation="settle").mode("append").save()
        assert rig.counts("orders") == (0, 40, 0)  # not before the batch is finished
        if len(seen) == 1:
            raise Killed

    def run() -> None:
        writer = source.load().writeStream.foreachBatch(settle).option("checkpointLocation", rig.path("checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="Killed"):
        run()
    run()
    assert seen[:2] == [0, 0]
    expected = [(0, "rejected")] * 10 + [(0, "available")] * 10 + [(1, "available")] * 5 + [(0, "accepted")] * 15
    assert list(outcomes(rig)) == expected


def test_rows_that_no_stream_has_read_settle_nothing(rig: Rig) -> None:
    frame = rig.spark.sql("select cast('x' as binary) delivery, 'rejected' outcome")
    with pytest.raises(Exception, match="contains no key from a stream"):
        frame.write.format("amqp").options(url=rig.broker.url, operation="settle").mode("append").save()

"""W1: a write that is recognised as a repetition settles nothing that it did not send: every message arrives once, or waits."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Rig
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter


def run(writer: DataStreamWriter, checkpoint: str) -> None:
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def through_the_sink(rig: Rig, checkpoint: str, **options: str) -> None:
    stream = rig.stream("in", maxMessagesPerTrigger="10", **options)
    run(stream.writeStream.format("amqp").options(url=rig.broker.url, queue="out"), checkpoint)


def through_foreach_batch(rig: Rig, checkpoint: str, app: str | None = None, **options: str) -> None:
    """`app`: a constant; None: the query's id, which stays with the checkpoint."""

    def send(frame: DataFrame, number: int) -> None:
        name = app or frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "the query"
        rig.write(frame, "out", txnAppId=name, txnVersion=str(number))

    run(rig.stream("in", maxMessagesPerTrigger="10", **options).writeStream.foreachBatch(send), checkpoint)


def arrived_once(rig: Rig, count: int) -> None:
    """Of `count` messages each is in `out` once, or waits in `in`; none is settled that was not sent."""
    sent, waiting = rig.bodies("out"), rig.bodies("in")
    assert sorted([*sent, *waiting], key=int) == [str(i) for i in range(count)]
    assert rig.counts("in") == (len(waiting), 0, len(sent))


def until_all_is_sent(rig: Rig, again: object, count: int) -> None:
    """Each run takes the messages once; a number that is published already gives them back."""
    for _ in range(20):
        if rig.counts("in") == (0, 0, count):
            break
        again()  # type: ignore[operator]
        arrived_once(rig, count)
    assert sorted(rig.bodies("out"), key=int) == [str(i) for i in range(count)]


@pytest.mark.parametrize("through", [through_the_sink, through_foreach_batch])
def test_an_older_checkpoint_loses_nothing_and_doubles_nothing(rig: Rig, through: object) -> None:
    assert callable(through)
    rig.declare("in", "out")
    checkpoint, older = rig.path("checkpoint"), rig.path("older")
    rig.send("in", 0, 10)
    through(rig, checkpoint)
    shutil.copytree(checkpoint, older)
    rig.send("in", 10, 20)
    through(rig, checkpoint)  # two more batches: their numbers are published
    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)
    rig.send("in", 30, 25)
    through(rig, checkpoint, failOnDataLoss="false")
    arrived_once(rig, 55)
    until_all_is_sent(rig, lambda: through(rig, checkpoint, failOnDataLoss="false"), 55)


def test_a_constant_application_and_a_new_checkpoint_lose_nothing(rig: Rig) -> None:
    rig.declare("in", "out")
    rig.send("in", 0, 20)
    through_foreach_batch(rig, rig.path("first"), app="always the same")
    rig.send("in", 20, 30)
    through_foreach_batch(rig, rig.path("second"), app="always the same")
    arrived_once(rig, 50)
    until_all_is_sent(rig, lambda: through_foreach_batch(rig, rig.path("second"), app="always the same"), 50)

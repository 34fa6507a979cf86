"""Writes of Spark to a foreign broker: ids by query and batch, and the broker's error texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from penstock.broker_core.amqp import Message, Rejected, Session, decode_message
from penstock.broker_core.amqp.performatives import Error

from ..amqp_client.peer import Peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def identified(peer: Peer) -> list[tuple[Any, bytes]]:
    """Return message id and body of all messages, sorted."""
    messages: list[Message] = [decode_message(payload) for payload in peer.received]
    return sorted((message.properties.message_id, message.data[0]) for message in messages if message.properties is not None)


def test_a_stream_sends_a_repeated_batch_with_the_same_ids(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(100).selectExpr("cast(id AS string) AS body").coalesce(1).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema("body string").json(str(tmp_path / "in"))
    with Peer(properties={"product": "Other"}) as peer:
        options = {"url": peer.url, "queue": "q", "checkpointLocation": str(tmp_path / "checkpoint")}

        def run() -> str:
            query = stream.writeStream.queryName("q").format("amqp").options(**options).trigger(availableNow=True).start()
            query.awaitTermination()
            return str(query.id)

        query = run()
        first = identified(peer)
        assert sorted(int(body) for _, body in first) == list(range(100))
        assert all(name.startswith(f"{query}/0/") for name, _ in first)
        assert len({name for name, _ in first}) == 100
        for commit in (tmp_path / "checkpoint" / "commits").iterdir():
            commit.unlink()  # as if the driver died between the tasks' end and Spark's commit
        peer.received.clear()
        assert run() == query
        assert identified(peer) == first


def test_what_the_broker_refuses_is_told_by_spark(spark: SparkSession) -> None:
    def refuse(session: Session, deliveries: list[Any]) -> None:
        session.dispose(deliveries, Rejected(error=Error(condition="amqp:not-allowed", description="no such colour")))

    with Peer(on_deliveries=refuse) as peer:
        frame = spark.range(10).selectExpr("cast(id AS string) AS body")
        refused = pytest.raises(PySparkException, match=r"\[PENSTOCK\.INVALID_REQUEST\] .*'q'.*no such colour")
        with refused:
            frame.write.format("amqp").options(url=peer.url, queue="q").mode("append").save()

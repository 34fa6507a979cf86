"""S11: a stream of Spark from a broker that is no Penstock, by all that the connector can know."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock import Broker
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp_client import connect
from penstock.broker_core.amqp_client.address import parse

from ..foreign.hidden import Hidden


def test_a_stream_from_a_broker_that_is_no_penstock(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare("orders")
    with connect(broker.amqp_url) as connection:
        sender = connection.sender("orders")
        sender.send([Message(data=[b"%d" % n], properties=Properties(message_id=f"id-{n}")).encode() for n in range(1000)])
        sender.flush()
    hidden = Hidden(parse(broker.amqp_url).port)
    options = {"url": hidden.url, "queue": "orders", "spool": str(tmp_path / "spool"), "maxMessagesPerTrigger": "300"}
    for _ in range(2):  # the second run finds nothing new
        stream = spark.readStream.format("amqp").options(**options).load().selectExpr("cast(body as string) body", "messageId")
        writer = stream.writeStream.format("json").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "t"))
        query.awaitTermination()
    rows = spark.read.json(str(tmp_path / "t")).collect()
    assert sorted(int(row.body) for row in rows) == list(range(1000))
    assert {row.messageId for row in rows} == {f"id-{n}" for n in range(1000)}
    assert [path.name for path in (tmp_path / "spool").iterdir() if path.name.startswith("batch-")] in ([], ["batch-4.arrow"])
    hidden.close()

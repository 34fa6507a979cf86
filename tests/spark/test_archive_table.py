"""D4: Spark's own Delta source reads the archive, with no broker."""

from __future__ import annotations

from pathlib import Path

import deltalake
from pyspark.sql import SparkSession

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..flight.helpers import numbered, send
from ..waiting import until


def test_spark_reads_the_table_of_settled_messages(spark: SparkSession, tmp_path: Path) -> None:
    """D4: each once, with its outcome; a query prunes by day. The log has a checkpoint, as the archiver makes it."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="orders")
        for _ in range(2):
            send(client, "orders", numbered(500))
            client.call("queue.purge", queue="orders")
            until(lambda: not client.call("archive.status")["unrecorded"], "all is recorded", limit_s=60)
    table = str(tmp_path / "data" / "archive" / "orders")
    deltalake.DeltaTable(table).create_checkpoint()
    frame = spark.read.format("delta").load(table)
    assert frame.count() == frame.select("sequenceNumber").distinct().count() == 1000
    assert frame.where("day >= '2020-01-01' AND outcome = 'purged'").count() == 1000
    first = frame.where("sequenceNumber = 500").select("body", "queue", "deliveryCount").first()
    assert first is not None
    assert (bytes(first[0]), first[1], first[2]) == (numbered(1)[0], "orders", 0)

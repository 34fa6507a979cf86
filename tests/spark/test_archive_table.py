"""D4: Spark's own Delta source reads the archive, with no broker."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock import Broker
from penstock.broker_core.archive.table.layout import table_url
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import store_of
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c

from ..archive.rig import Rig
from ..flight.helpers import numbered, send
from ..waiting import until

#: Names of queues: a Hive partition, a URL, a glob, an escape, a hidden folder, and a name that is truncated.
NAMES = ("orders:eu", "day=2026-01-01", "100% #1?", "{a,b}[c]~", "_hidden", "ü" * 255)


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


def test_rows_that_spark_deletes_stay_deleted_and_no_row_doubles(spark: SparkSession, tmp_path: Path) -> None:
    """D4 S8: by deletion vectors of Delta's own writer: in reads, after compaction and vacuum, and once Delta has purged them."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        table = str(tmp_path / "data" / "archive" / "q")

        def record() -> None:
            batch = pa.record_batch({"body": [b"a", b"b"], "subject": ["alice", "bob"]})
            client.put({"op": "enqueue", "queue": "q"}, batch.schema, [batch])
            client.call("queue.purge", queue="q")
            until(lambda: not client.call("archive.status")["unrecorded"], "all is recorded", limit_s=60)

        def numbers(source: str, **options: str) -> list[int]:
            rows = (
                spark.read.format(source).options(**options).load(table if source == "delta" else None).select("sequenceNumber")
            )
            return sorted(row[0] for row in rows.collect())

        for _ in range(2):
            record()
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
        spark.sql(f"DELETE FROM delta.`{table}` WHERE subject = 'bob'")
        for _ in range(2):
            record()
        left = [0, 2, 4, 5, 6, 7]
        archived = {"url": broker.url, "queue": "q", "states": "archived"}
        assert (numbers("delta"), numbers("amqp", **archived)) == (left, left)
        mine = QueueTable(store_of(table), (tmp_path / "data" / "id").read_text().strip(), "q")
        assert mine.compact(1 << 30) == 1
        mine.vacuum(0.0)
        assert (numbers("delta"), numbers("amqp", **archived)) == (left, left)
        spark.sql(f"REORG TABLE delta.`{table}` APPLY (PURGE)")
        record()
        assert (numbers("delta"), numbers("amqp", **archived)) == ([*left, 8, 9], [*left, 8, 9])


def test_spark_reads_the_table_of_a_queue_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """D4: by its path, also in SQL."""
    rig = Rig(tmp_path / "data")
    for name in NAMES:
        rig.service.submit(c.DeclareQueue(name))
        rig.send(name, [name.encode()])
        rig.settle(name, 1)
    rig.record()
    rig.close()
    urls = [table_url(str(tmp_path / "data" / "archive"), name) for name in NAMES]
    frames = [spark.read.format("delta").load(url).select("queue", "body") for url in urls]
    frames += [
        spark.sql(f"SELECT queue, body FROM delta.`{urls[0]}`"),
        spark.read.parquet(f"{urls[0]}/day=*").select("queue", "body"),
    ]
    rows = [(row.queue, bytes(row.body).decode()) for row in reduce(DataFrame.unionAll, frames).collect()]
    assert sorted(rows) == sorted((name, name) for name in [*NAMES, NAMES[0], NAMES[0]])

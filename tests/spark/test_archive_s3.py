"""D8, S14: the archive in an object store, from an AMQP client's message to Spark's Delta source and `penstock trace`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Broker
from penstock.broker_core.archive.write.queue_table import QueueTable
from penstock.broker_core.archive.write.table_files import store_of
from penstock.broker_core.cli.main import main
from penstock.broker_core.client.flight import Client
from penstock.broker_core.stores.credentials import delta_options

from ..clients.conftest import command_or_skip
from ..clients.driving import Program
from ..flight.helpers import numbered, send
from ..s3 import ACCESS, BUCKET, SECRET, S3Server, environment
from ..waiting import until


@pytest.fixture
def s3a(spark: SparkSession, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark, the broker and this process reach the store, each with its own settings."""
    command_or_skip("hadoop_aws")
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    settings = {
        "fs.s3a.endpoint": f"http://127.0.0.1:{s3.port}",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": ACCESS,
        "fs.s3a.secret.key": SECRET,
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.usefixtures("s3a")
def test_S14_a_store_that_refuses_spark_is_read_through_the_broker(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a wrong key, and without the jars of the file system."""
    with Broker(tmp_path / "data", archive=f"s3://{BUCKET}/{tmp_path.name}", archive_after_s=0.1) as broker:
        with Client(broker.url) as client:
            client.call("queue.declare", queue="q")
            send(client, "q", numbered(1))
            client.call("queue.purge", queue="q")
            until(lambda: not client.call("archive.status")["unrecorded"], "all is recorded", limit_s=60)
        spark.conf.set("fs.s3a.impl.disable.cache", "true")
        faults = {"fs.s3a.secret.key": ("wrong", "Forbidden"), "fs.s3a.impl": ("S3AFileSystem", "S3AFileSystem not found")}
        for name, (value, reason) in faults.items():
            before = spark.conf.get(name, None)
            spark.conf.set(name, value)
            caplog.clear()
            with caplog.at_level("WARNING", logger="penstock"):
                rows = penstock.archive(spark, "q", broker.url)
            assert "more slowly" in caplog.text
            assert reason in caplog.text or "packages for S3" in caplog.text
            assert [bytes(row.body) for row in rows.select("body").collect()] == numbered(1)
            if before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)
        spark.conf.unset("fs.s3a.impl.disable.cache")


@pytest.mark.usefixtures("s3a")
def test_S14_spark_and_a_trace_read_an_archive_in_a_store(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after the compaction of an ended day, and with messages that are not recorded yet."""
    url = f"s3://{BUCKET}/{tmp_path.name}"
    with Broker(tmp_path / "data", archive=url, archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        program = Program(command_or_skip("proton"))
        try:
            program.do("open", url=broker.amqp_url)
            for number in range(2):
                properties = {"message-id": {"string": f"id-{number}"}, "subject": "created"}
                body = {"value": {"string": f"order {number}"}}
                program.send("q", {"properties": properties, "application": {"n": {"int": number}}, "body": body})
                client.call("queue.purge", queue="q")
                until(lambda: not client.call("archive.status")["unrecorded"], "all is recorded", limit_s=60)
            program.do("close")
        finally:
            program.close()
        mine = QueueTable(store_of(f"{url}/q"), (tmp_path / "data" / "id").read_text().strip(), "q")
        assert mine.compact_ended_days(datetime.now(timezone.utc) + timedelta(days=2)) == 1
        send(client, "q", numbered(1))
        client.call("queue.purge", queue="q")

        rows = penstock.archive(spark, "q", broker.url)
        (location,) = re.findall(r"Location: .*?\[(s3a://[^\]]*)\]", rows._jdf.queryExecution().toString())
        assert location == f"s3a://{BUCKET}/{tmp_path.name}/q"
        wanted = [(f"id-{number}", "created", str(number), f"order {number}", "string") for number in range(2)]
        chosen = rows.selectExpr("messageId", "subject", "properties['n']", "cast(body AS string)", "bodyType", "sequenceNumber")
        read = sorted(chosen.collect(), key=lambda row: row.sequenceNumber)
        assert [tuple(row)[:5] for row in read] == [*wanted, (None, None, None, numbered(1)[0].decode(), "data")]

        assert main(["trace", "id-1", "--json", "--url", broker.url]) == 0
        (message,) = json.loads(capsys.readouterr().out)
        assert [event["event"] for event in message["events"]] == ["arrived", "settled", "recorded"]
    content = deltalake.DeltaTable(f"{url}/q", storage_options=delta_options(url)).to_pyarrow_table()
    table = content.sort_by("sequenceNumber").slice(0, 2).to_pylist()
    assert [
        (row["messageId"], row["subject"], dict(row["properties"])["n"], row["body"].decode(), row["bodyType"]) for row in table
    ] == wanted

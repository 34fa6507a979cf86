"""D8, S14: the archive as people read it, with messages of all senders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Broker
from penstock.broker_core.archive.table.layout import READABLE
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import InvalidOption, NotFound
from penstock.connector import archive_table

from ..clients.conftest import command_or_skip
from ..clients.driving import Program
from ..flight.helpers import numbered, send
from ..waiting import until

SENDERS = ("proton", "rhea", "go_amqp", "qpid_jms")
SPARK = "spark"
BODY = b'{"order": 7, "shop": "x"}'


def record_all(client: Client) -> None:
    until(lambda: not client.call("archive.status")["unrecorded"], "all is recorded", limit_s=60)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table with the same two messages from each sender: a body of bytes, and a body of text (from Spark both are bytes)."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with Broker(data, archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        for name in SENDERS:
            program = Program(command_or_skip(name))
            try:
                program.do("open", url=broker.amqp_url)
                application = {"n": {"int": 7}, "sender": {"string": name}}
                sent = {"properties": {"subject": "created"}, "application": application}
                program.send("q", {**sent, "body": {"data": BODY.hex()}}, {**sent, "body": {"value": {"string": BODY.decode()}}})
                program.do("close")
            finally:
                program.close()
        rows = spark.range(2).selectExpr(
            f"cast('{BODY.decode()}' AS binary) AS body",
            "'created' AS subject",
            f"map('n', '7', 'sender', '{SPARK}') AS properties",
        )
        rows.write.format("amqp").options(url=broker.url, queue="q").mode("append").save()
        client.call("queue.purge", queue="q")
        record_all(client)
        yield str(data / "archive" / "q")


def duckdb_rows(table: str) -> list[tuple[Any, ...]]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("archive", deltalake.DeltaTable(table).to_pyarrow_dataset())
    return list(connection.execute("SELECT properties['sender'], subject, properties['n'], body FROM archive").fetchall())


def polars_rows(table: str) -> list[tuple[Any, ...]]:
    polars = pytest.importorskip("polars")
    rows = polars.read_delta(table).select("subject", "properties", "body").rows()
    # A map of Parquet is a map or a list of structs, as the version of polars decides.
    maps = [p if isinstance(p, dict) else {entry["key"]: entry["value"] for entry in p} for _, p, _ in rows]
    return [(by["sender"], subject, by["n"], body) for by, (subject, _, body) in zip(maps, rows, strict=True)]


def pandas_rows(table: str) -> list[tuple[Any, ...]]:
    frame = deltalake.DeltaTable(table).to_pandas()
    maps = [dict(entries) for entries in frame["properties"]]
    return [
        (by["sender"], subject, by["n"], body) for by, subject, body in zip(maps, frame["subject"], frame["body"], strict=True)
    ]


def arrow_rows(table: str) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return [(dict(row["properties"])["sender"], row["subject"], dict(row["properties"])["n"], row["body"]) for row in rows]


def spark_rows(table: str) -> list[tuple[Any, ...]]:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    rows = spark.sql(f"SELECT properties['sender'], subject, properties['n'], body FROM delta.`{table}`").collect()
    return [(sender, subject, number, bytes(body)) for sender, subject, number, body in rows]


@pytest.mark.parametrize("read", [duckdb_rows, polars_rows, pandas_rows, arrow_rows, spark_rows])
def test_every_reader_finds_the_same_columns_from_every_sender(
    table: str, read: Callable[[str], list[tuple[Any, ...]]], spark: SparkSession
) -> None:
    """D8."""
    assert sorted(read(table)) == sorted((name, "created", "7", BODY) for name in (*SENDERS, SPARK) for _ in range(2))


def test_the_type_of_each_body_is_the_sender_s(table: str) -> None:
    """D8."""
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    kinds = {(dict(row["properties"])["sender"], row["bodyType"]) for row in rows}
    assert kinds == {(name, kind) for name in SENDERS for kind in ("data", "string")} | {(SPARK, "data")}
    assert all((row["envelope"] is None) == (dict(row["properties"])["sender"] == SPARK) for row in rows)


def test_S14_the_archive_has_each_message_once_recorded_or_not(spark: SparkSession, tmp_path: Path) -> None:
    """While the recorder works; the rest comes from the broker."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(500))
        client.call("queue.purge", queue="q")
        record_all(client)
        before = penstock.archive(spark, "q", broker.url)
        assert before.columns == list(READABLE)
        plan = before._jdf.queryExecution().executedPlan().toString()
        assert "FileScan parquet" in plan
        assert "Filter (" not in plan, "all rows of the table are wanted"
        send(client, "q", numbered(500))
        client.call("queue.purge", queue="q")
        for rows in (before, penstock.archive(spark, "q", broker.url)):
            assert sorted(row[0] for row in rows.select("sequenceNumber").collect()) == list(range(1000))
        record_all(client)
        assert before.count() == before.select("sequenceNumber").distinct().count() == 1000
        first = before.where("sequenceNumber = 700").select("queue", "body", "bodyType", "outcome").collect()
        assert [(row.queue, bytes(row.body), row.bodyType, row.outcome) for row in first] == [
            ("q", numbered(500)[200], "data", "purged")
        ]
        client.call("queue.delete", queue="q")
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(7))
        client.call("queue.purge", queue="q")
        record_all(client)
        assert penstock.archive(spark, "q", broker.url).count() == 7, "of the queue that has the name now"


def test_S14_several_queues_and_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(tmp_path / "a") as left, Broker(tmp_path / "b", archive_after_s=0.1) as right:
        for broker in (left, right):
            with Client(broker.url) as client:
                for queue in ("q", "p,1"):
                    client.call("queue.declare", queue=queue)
                    send(client, queue, numbered(10))
                    client.call("queue.purge", queue=queue)
        with Client(right.url) as client:
            record_all(client)
        rows = penstock.archive(spark, ["q", "p,1"], [left.url, right.url])
        assert sorted((row.queue, row.n) for row in rows.groupBy("queue").agg({"*": "count"}).toDF("queue", "n").collect()) == [
            ("p,1", 20),
            ("q", 20),
        ]
        with pytest.raises(NotFound, match="nowhere"):
            penstock.archive(spark, "nowhere", left.url)
        with pytest.raises(InvalidOption, match="startingsequence"):
            penstock.archive(spark, "q", left.url, startingSequence="3")


def test_S14_a_table_that_spark_cannot_reach_is_read_through_the_broker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the folder were not mounted where Spark runs."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(10))
        client.call("queue.purge", queue="q")
        record_all(client)
        monkeypatch.setattr(archive_table, "_path", lambda url: f"file://{tmp_path}/not-mounted")
        with caplog.at_level("WARNING", logger="penstock"):
            rows = penstock.archive(spark, "q", broker.url)
        assert "more slowly" in caplog.text
        assert sorted(bytes(row.body) for row in rows.select("body").collect()) == numbered(10)


def test_bodies_of_json_are_parsed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S14: `body_schema` adds a column; a body of another form is null in it. The url comes from the environment."""
    with Broker(tmp_path / "data", archive_after_s=0.1) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", [json.dumps({"order": 7, "shop": "x"}).encode(), b"no json"])
        client.call("queue.purge", queue="q")
        monkeypatch.setenv("PENSTOCK_URL", broker.url)
        rows = penstock.archive(spark, "q", body_schema="order bigint, shop string").orderBy("sequenceNumber").collect()
        assert [(row.json.order, row.json.shop) for row in rows] == [(7, "x"), (None, None)]

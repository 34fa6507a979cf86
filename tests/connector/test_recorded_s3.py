"""S8, S9: an archive in an object store: tasks read it with the credentials of their own environment, or let the broker read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import DataLoss
from penstock.connector.access import BrokerAccess
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.replay import ReplayReader
from penstock.connector.task import archive
from penstock.connector.task.partition import RecordedPartition

from ..s3 import ACCESS, BUCKET, SECRET, Proxy, S3Server, environment
from ..waiting import until

COLUMNS = ("sequenceNumber", "subject", "outcome")
WANTED = [(number, f"s {number}", "purged") for number in range(300)]


@pytest.fixture(scope="module")
def broker(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """300 messages are in the table, by two passes, and nothing else is in the queue."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(s3.port).items():
            patch.setenv(name, value)
        running = Broker(tmp_path_factory.mktemp("s3") / "data", archive=f"s3://{BUCKET}/recorded", archive_after_s=0.1)
        running.start()
    with running, Client(running.url) as client:
        client.call("queue.declare", queue="q")
        for first in (0, 150):
            texts = [f"s {number}" for number in range(first, first + 150)]
            batch = pa.record_batch({"body": [text.encode() for text in texts], "subject": texts})
            client.put({"op": "enqueue", "queue": "q"}, batch.schema, [batch])
            client.call("queue.purge", queue="q")
            until(lambda: not client.call("archive.status")["unrecorded"], lambda: f"all is recorded: {running.log()}")
        yield running


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    archive._unreachable.clear()
    yield
    archive._unreachable.clear()


@pytest.fixture
def credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)


def planned(broker: Broker) -> tuple[BatchReader, list[Any]]:
    reader = BatchReader(Options({"url": broker.url, "queue": "q", "states": "archived"}), source_schema(COLUMNS))
    return reader, reader.partitions()


def rows(reader: Any, parts: Any) -> list[tuple[Any, ...]]:
    parts = pickle.loads(pickle.dumps(parts))
    return sorted(tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist())


def test_tasks_read_the_store(broker: Broker, credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no word to the broker; by a batch read and by a replay."""
    reader, parts = planned(broker)
    replay = ReplayReader(Options({"url": broker.url, "queue": "q", "mode": "replay"}), source_schema(COLUMNS))
    end = replay.latestOffset(replay.initialOffset(), ReadMaxRows(2**62))
    replayed = replay.partitions(replay.initialOffset(), end)
    assert {type(part) for part in [*parts, *replayed]} == {RecordedPartition}
    monkeypatch.setattr(BrokerAccess, "client", None)
    assert rows(reader, parts) == rows(replay, replayed) == WANTED


def test_without_credentials_the_broker_reads(broker: Broker, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer of the broker, and no value for tasks, contains a credential."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    reader, parts = planned(broker)
    assert {type(part) for part in parts} == {RecordedPartition}
    assert archive._unreachable
    assert rows(reader, parts) == WANTED
    with Client(broker.url) as client:
        plan = client.call("archive.plan", queue="q", states=["archived"])
    assert plan["table"]["url"] == f"s3://{BUCKET}/recorded/q"
    for octets in (json.dumps(plan).encode(), pickle.dumps(parts)):
        assert ACCESS.encode() not in octets
        assert SECRET.encode() not in octets


def test_a_planner_with_credentials_and_tasks_without(broker: Broker, credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, parts = planned(broker)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    assert rows(reader, parts) == WANTED
    assert archive._unreachable


def test_an_object_that_is_gone_is_data_loss(broker: Broker, s3: S3Server, credentials: None) -> None:
    """And the store is still reached."""
    reader, parts = planned(broker)
    file = min((s3.folder / BUCKET / "recorded" / "q").glob("day=*/*.parquet"))
    aside = file.rename(s3.folder / "aside")
    try:
        with pytest.raises(DataLoss, match=r"messages \d+ to \d+ of queue 'q' cannot be read: .* is gone: retention"):
            rows(reader, parts)
        assert not archive._unreachable
    finally:
        aside.rename(file)
    assert rows(reader, parts) == WANTED


def test_a_store_that_falters_is_asked_again(
    broker: Broker, s3: S3Server, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer in three is `503 Slow Down`; tasks still read on their own."""
    reader, parts = planned(broker)
    proxy = Proxy(s3.port)
    proxy.fault = lambda method, path: "503" if len(proxy.seen) % 3 == 0 else None
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setattr(BrokerAccess, "client", None)
        assert rows(reader, parts) == WANTED
        assert {fault for _, _, fault in proxy.seen} == {None, "503"}
    finally:
        proxy.close()

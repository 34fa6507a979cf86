"""S8: an archive in Azure's blob storage: tasks read it themselves, with the environment of an archiver."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.archive.read.scan import opened
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import ArchiveUnreachable
from penstock.broker_core.stores.credentials import arrow_file_system
from penstock.connector.access import BrokerAccess
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.task.partition import RecordedPartition

from ..azure import ACCOUNT, CONTAINER, HOST, KEY, AzureServer, environment, signature
from ..waiting import until


@pytest.fixture
def broker(
    azure: AzureServer, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """A broker whose archive has 100 messages. This process has the place of the store, and no credentials."""
    for name, value in environment(azure.port).items():
        monkeypatch.setenv(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        running = Broker(tmp_path_factory.mktemp("azure") / "data", archive=request.param, archive_after_s=0.1)
        running.start()
    with running, Client(running.url) as client:
        client.call("queue.declare", queue="q")
        batch = pa.record_batch({"body": [b"%d" % number for number in range(100)]})
        client.put({"op": "enqueue", "queue": "q"}, batch.schema, [batch])
        client.call("queue.purge", queue="q")
        until(lambda: not client.call("archive.status")["unrecorded"], lambda: f"all is recorded: {running.log()}")
        yield running


@pytest.mark.parametrize("broker", [f"abfss://{HOST}/recorded", f"az://{CONTAINER}/named"], ids=["abfss", "az"], indirect=True)
def test_tasks_read_the_store(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no word to the broker: with a key, and with a token."""
    reader = BatchReader(
        Options({"url": broker.url, "queue": "q", "states": "archived"}), source_schema(("sequenceNumber", "body"))
    )
    for credentials in ({"AZURE_STORAGE_ACCOUNT_KEY": KEY}, {"AZURE_STORAGE_SAS_TOKEN": signature()}):
        with monkeypatch.context() as patch:
            for name, value in credentials.items():
                patch.setenv(name, value)
            parts = reader.partitions()
            assert {type(part) for part in parts} == {RecordedPartition}
            patch.setattr(BrokerAccess, "client", None)
            rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert sorted((row["sequenceNumber"], row["body"]) for row in rows) == [(number, b"%d" % number) for number in range(100)]


def test_the_account_is_named_by_the_url_or_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with pytest.raises(ArchiveUnreachable, match="az://c/t names no account: set AZURE_STORAGE_ACCOUNT_NAME"):
        opened("az://c/t", "x.parquet")
    named, path = arrow_file_system("abfss://c@other.dfs.core.example/t")
    assert path == "c/t"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    system, path = arrow_file_system("az://c/t")
    assert path == "c/t"
    assert not named.equals(system)

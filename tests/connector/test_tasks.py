"""Reads of a stream's tasks: from the files, from the broker, from a broker that restarts."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.connector.access import BrokerAccess
from penstock.connector.options import Options
from penstock.connector.schema import default_schema, source_schema
from penstock.connector.stream.reader import StreamReader
from penstock.connector.task import mapping as mapped
from penstock.connector.task.partition import LeasePartition
from penstock.connector.task.reading import read_leased

from .helpers import INITIAL, LIMIT, Queue, elsewhere, files_mapped, read_all


def watched(queue: Queue, part: LeasePartition, columns: tuple[str, ...]) -> tuple[pa.Table, bool]:
    """A copy of the messages that a task reads, and whether it had the broker's files mapped meanwhile."""
    batches = read_leased(part, BrokerAccess(queue.broker.url), columns, True)
    first = next(batches)
    in_place = files_mapped(queue.broker)
    table = pa.Table.from_batches([first, *batches])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(out.getvalue()).read_all(), in_place


@pytest.mark.parametrize("columns", [tuple(source.name for source in default_schema()), ("body", "sequenceNumber", "queue")])
def test_a_task_reads_the_same_from_the_files_as_from_the_broker(
    queue: Queue, columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for count in (3, 70_000, 20, 9_000):
        queue.send(count)
    reader = queue.reader(minPartitions="3")
    end = reader.latestOffset(INITIAL, LIMIT)
    for part in reader.partitions(INITIAL, end):
        assert isinstance(part, LeasePartition)
        mapped, in_place = watched(queue, part, columns)
        assert in_place
        with monkeypatch.context() as patch:
            elsewhere(patch, tmp_path)
            sent, in_place = watched(queue, part, columns)
        assert not in_place
        assert mapped.equals(sent)
        assert mapped.num_rows == part.last - part.first + 1


def test_scattered_messages_come_from_the_broker(queue: Queue) -> None:
    for _ in range(40):
        queue.send(1)
    reader = queue.reader()
    assert read_all(reader, INITIAL, reader.latestOffset(INITIAL, LIMIT)) == list(range(40))


def test_the_delivery_column_names_lease_batch_and_row(queue: Queue) -> None:
    queue.send(3)
    schema = source_schema(("sequenceNumber", "delivery"))
    reader = StreamReader(Options({"url": queue.broker.url, "queue": queue.name}), schema)
    queue.readers.append(reader)
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    (batch,) = reader.read(part)
    deliveries = batch.column("delivery").to_pylist()
    assert len(set(deliveries)) == 3
    assert None not in deliveries


@pytest.mark.parametrize("local", [True, False], ids=["mapped", "sent"])
def test_a_task_waits_for_a_broker_that_restarts(
    queue: Queue, local: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not local:
        elsewhere(monkeypatch, tmp_path)
    queue.send(1000)
    reader = queue.reader()
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    assert isinstance(part, LeasePartition)
    queue.broker.kill()
    restart = threading.Timer(1.0, queue.broker.start)
    restart.start()
    assert sum(batch.num_rows for batch in reader.read(part)) == 1000
    restart.join()


def test_a_copy_of_the_data_directory_at_the_same_path_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in a container, or after an rsync: path, id, names, sizes and positions are the broker's, the messages are not."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Broker(data) as broker, Client(broker.url) as client:
        Queue(broker, client, "q")
    shutil.copytree(data, copy)
    with Broker(copy) as broker, Client(broker.url) as client:
        Queue(broker, client, "q").send(3000, b"theirs %d")
    with Broker(data) as broker, Client(broker.url) as client:
        queue = Queue(broker, client, "q")
        queue.send(3000, b"ours.. %d")
        reader = queue.reader(minPartitions="2")
        parts = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
        os.rename(data, tmp_path / "aside")
        os.rename(copy, data)
        bodies = []
        for part in parts:
            assert isinstance(part, LeasePartition)
            table, in_place = watched(queue, part, ("body",))
            bodies += table["body"].to_pylist()
            assert not in_place
        assert bodies == [b"ours.. %d" % number for number in range(3000)]
        reader.stop()
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    assert "it is another file of the same name" in warning
    mapped._unreachable.clear()

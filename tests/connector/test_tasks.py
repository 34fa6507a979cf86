"""What a stream's tasks read: from the files, from the broker, from a broker that restarts."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from connector.options import Options
from connector.read import Part, read_part
from connector.schema import default_schema, source_schema
from connector.stream import StreamReader

from .helpers import INITIAL, LIMIT, Queue, read_all


@pytest.mark.parametrize("columns", [tuple(source.name for source in default_schema()), ("body", "sequenceNumber", "queue")])
def test_a_task_reads_the_same_from_the_files_as_from_the_broker(queue: Queue, columns: tuple[str, ...]) -> None:
    for count in (3, 70_000, 20, 9_000):
        queue.send(count)
    reader = queue.reader(minPartitions="3")
    end = reader.latestOffset(INITIAL, LIMIT)
    for part in reader.partitions(INITIAL, end):
        assert isinstance(part, Part)
        assert part.data_dir
        mapped = pa.Table.from_batches(read_part(part, columns, True))
        part.data_dir = "/nowhere"
        sent = pa.Table.from_batches(read_part(part, columns, True))
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


@pytest.mark.parametrize("data_dir", [None, "/nowhere"], ids=["mapped", "sent"])
def test_a_task_waits_for_a_broker_that_restarts(queue: Queue, data_dir: str | None) -> None:
    queue.send(1000)
    reader = queue.reader()
    (part,) = reader.partitions(INITIAL, reader.latestOffset(INITIAL, LIMIT))
    assert isinstance(part, Part)
    part.data_dir = data_dir or part.data_dir
    queue.broker.kill()
    restart = threading.Timer(1.0, queue.broker.start)
    restart.start()
    assert sum(batch.num_rows for batch in reader.read(part)) == 1000
    restart.join()

"""A queue on a running broker, and the stream reader's own methods in the order Spark calls them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock import Broker
from penstock.broker_core.client import discovery
from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader

INITIAL = {"v": 1, "kind": "initial"}
LIMIT = ReadMaxRows(2**63 - 1)


class Queue:
    """A queue on a running broker, and readers of it."""

    def __init__(self, broker: Broker, client: Client, name: str) -> None:
        self.broker, self.client, self.name = broker, client, name
        self.readers: list[StreamReader] = []
        client.call("queue.declare", queue=name)

    def send(self, count: int, body: bytes = b"%d") -> None:
        bodies = [body % i if b"%d" in body else body for i in range(count)]
        batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        self.client.put({"op": "enqueue", "queue": self.name}, batch.schema, [batch])

    def stat(self) -> dict[str, Any]:
        return self.client.call("queue.stat", queue=self.name)

    def counts(self) -> tuple[int, int, int]:
        """Available, acquired, archived."""
        stat = self.stat()
        return stat["available"], stat["acquired"], stat["archived"]

    def reader(self, **options: str) -> StreamReader:
        """A reader as one planner process has it."""
        reader = StreamReader(Options({"url": self.broker.url, "queue": self.name, **options}), default_schema())
        self.readers.append(reader)
        return reader

    def lease(self) -> dict[str, Any]:
        (entry,) = self.client.call("lease.list")["leases"]
        assert isinstance(entry, dict)
        return entry


def elsewhere(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on this process is on another host, by all it can know."""
    (folder / "boot_id").write_text("00000000-another-host\n")
    patch.setattr(discovery, "BOOT_ID", str(folder / "boot_id"))


def files_mapped(broker: Broker) -> bool:
    """Say whether this process has mapped a segment of the broker's at this moment."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(str(broker.data_dir) in line and ".seg" in line for line in lines)


def read_all(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The sequence numbers of a batch, as its tasks read them."""
    return [
        number
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for number in batch.column("sequenceNumber").to_pylist()
    ]


def idle_seconds(reader: StreamReader, limit: Any = LIMIT) -> float:
    """The shortest of five empty triggers, to compare with other readers in the same run."""
    reader.latestOffset(INITIAL, limit)  # connects
    return min(_seconds(reader, limit) for _ in range(5))


def _seconds(reader: StreamReader, limit: Any) -> float:
    begin = time.perf_counter()
    reader.latestOffset(INITIAL, limit)
    return time.perf_counter() - begin

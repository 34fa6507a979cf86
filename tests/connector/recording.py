"""A broker in this process, whose settled messages become rows of tables when a test asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from penstock.broker_core.archive.read.files import BROKER, OWNER
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write.rows import table_rows
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine.commands import Now
from penstock.broker_core.engine.commands.recordings import BeginRecording, EndRecording
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.task import archive


class Site:
    """The broker, and a batch reader of it as Spark calls it."""

    def __init__(self, folder: Path, clock: Callable[[], Now] | None = None) -> None:
        self._clock = clock
        self.settings = Settings(data=folder / "data", fsync="never")
        self.finished: dict[str, tuple[int, int]] = {}  # by queue: the last batch of its lease, and the epoch
        self.start()
        self.service.archive = str(folder / "archive")

    def start(self) -> None:
        self.service = BrokerService(self.settings, clock=self._clock)
        self.plane = FlightPlane(self.service, "127.0.0.1", 0)
        self.client = Client(self.plane.url)

    def close(self) -> None:
        self.client.close()
        self.plane.close()
        self.service.close()

    def send(self, queue: str, **columns: Any) -> None:
        batch = pa.record_batch(columns)
        self.client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])

    def settle(self, queue: str, count: int) -> None:
        """Let a lease accept the next messages."""
        fields = {"queue": queue, "lease": f"l-{queue}", "run": "r"}
        done, epoch = self.finished.get(queue, (0, None))
        answer = self.client.call("lease.advance", **fields, epoch=epoch, finished=done, fresh=done == 0, messages=count)
        self.finished[queue] = answer["batch"], answer["epoch"]
        names = {name: fields[name] for name in ("lease", "run")}
        ticket = {**names, "epoch": answer["epoch"], "batch": answer["batch"], "first": 0, "last": 2**60, "columns": ["body"]}
        assert sum(batch.num_rows for batch in self.client.get(op="batch", **ticket)) == count
        self.client.call("lease.settle", **fields, epoch=answer["epoch"], finished=answer["batch"])

    def record(self, queue: str, rows: int = 1 << 30) -> int:
        """Let one pass of so many rows begin and end; return its number."""
        number = self.begin(queue, rows)
        self.end(queue, number)
        return number

    def begin(self, queue: str, rows: int = 1 << 30) -> int:
        """Let a pass begin, and commit its rows to the table."""
        queue_id = self.service.state.queues[queue].id
        begun = self.service.submit(BeginRecording(queue_id, rows, 1 << 60))
        assert begun is not None
        slices = self.service.slices(queue, begun.rows)
        batches = list(record_batches(self.service.journal, slices, BatchRequest(table.STORED, queue, stored=True)))
        own = {"queueId": queue_id, "pass": begun.number, "lineage": self.service.broker_id}
        made = [table_rows(batch, own) for batch in batches]
        url = self.url(queue)
        if not deltalake.DeltaTable.is_deltatable(url):
            deltalake.DeltaTable.create(
                url,
                table.SCHEMA,
                partition_by=[table.DAY],
                configuration={OWNER: self.service.broker_id, **table.PROPERTIES},
                raise_if_key_not_exists=False,
            )
        deltalake.write_deltalake(url, pa.Table.from_batches(made), mode="append", partition_by=[table.DAY])
        return begun.number

    def end(self, queue: str, number: int) -> None:
        version = deltalake.DeltaTable(self.url(queue)).version()
        assert self.service.submit(EndRecording(self.service.state.queues[queue].id, number, version))

    def url(self, queue: str) -> str:
        assert self.service.archive is not None
        return table.table_url(self.service.archive, queue)

    def reader(self, queue: str, columns: Iterable[str] = ("sequenceNumber", "body"), **options: str) -> BatchReader:
        settings = {"url": self.plane.url, "queue": queue, "states": "archived", **options}
        return BatchReader(Options(settings), source_schema(tuple(columns)))

    def read(self, queue: str, columns: Iterable[str] = ("sequenceNumber", "body"), **options: str) -> list[dict[str, Any]]:
        """Plan and read, as Spark does; in the order of the sequence numbers, where these are read."""
        reader = self.reader(queue, columns, **options)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: row.get("sequenceNumber", 0))

    def numbers(self, queue: str, **options: str) -> list[int]:
        return [row["sequenceNumber"] for row in self.read(queue, **options)]


@contextlib.contextmanager
def recording(folder: Path) -> Iterator[Site]:
    """Run a broker with the queue `q`, whose tables every reader tries again to reach."""
    archive._unreachable.clear()
    with contextlib.closing(Site(folder)) as site:
        site.client.call("queue.declare", queue="q")
        yield site


def retain(table: deltalake.DeltaTable, day: str) -> None:
    """Take the days before one out of a table, as the archiver does."""
    table.delete(f"day < '{day}'", commit_properties=deltalake.CommitProperties(custom_metadata={BROKER: "retention"}))

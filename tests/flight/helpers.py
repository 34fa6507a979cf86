"""Helpers that the tests of the Flight plane share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

BODY = pa.schema([("body", pa.binary())])


def numbered(count: int, size: int = 8, start: int = 0) -> list[bytes]:
    return [b"%08d" % number + b"." * (size - 8) for number in range(start, start + count)]


def batch_of(bodies: Iterable[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(bodies, pa.binary())], schema=BODY)


def send(client: Client, queue: str, *batches: Any, **command: Any) -> dict[str, Any]:
    """Each of `batches` is a record batch, or a list of bodies."""
    made = [batch if isinstance(batch, pa.RecordBatch) else batch_of(batch) for batch in batches]
    return client.put({"op": "enqueue", "queue": queue, **command}, made[0].schema, made)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def browse(client: Client, queue: str, *columns: str, **filters: Any) -> list[dict[str, Any]]:
    return rows_of(client.get(op="browse", queue=queue, columns=list(columns or ("sequenceNumber", "body")), **filters))


def sequences(client: Client, queue: str, **filters: Any) -> list[int]:
    return [row["sequenceNumber"] for row in browse(client, queue, "sequenceNumber", **filters)]


def raw(client: Client) -> flight.FlightClient:
    return flight.connect(client.url.replace("grpc://", "grpc+tcp://"))


def descriptor(**command: Any) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(command).encode())


class Reader:
    """A planner and its tasks, as Spark would be, on one lease."""

    def __init__(self, client: Client, queue: str, lease: str | None = None, run: str = "run") -> None:
        self.client, self.queue, self.lease, self.run = client, queue, lease or f"lease of {queue}", run
        self.epoch: int | None = None
        self.finished = 0

    @property
    def named(self) -> dict[str, Any]:
        return {"queue": self.queue, "lease": self.lease, "run": self.run, "epoch": self.epoch}

    def advance(self, **options: Any) -> int:
        fresh = options.pop("fresh", self.finished == 0)
        answer = self.client.call("lease.advance", **self.named, finished=self.finished, fresh=fresh, **options)
        self.epoch = answer["epoch"]
        return int(answer["batch"])

    def plan(self, batch: int, **options: Any) -> list[list[int]]:
        after = options.pop("after", batch - 1)
        return list(self.client.call("lease.plan", **self.named, after=after, batch=batch, **options)["parts"])

    def ticket(self, batch: int, first: int = 0, last: int = 2**62, **options: Any) -> dict[str, Any]:
        columns = options.pop("columns", ["sequenceNumber", "body"])
        named = {"lease": self.lease, "run": self.run, "epoch": self.epoch}
        return {"op": "batch", **named, "batch": batch, "first": first, "last": last, "columns": columns, **options}

    def read(self, batch: int, first: int = 0, last: int = 2**62, **options: Any) -> list[dict[str, Any]]:
        return rows_of(self.client.get(**self.ticket(batch, first, last, **options)))

    def settle(self, batch: int) -> dict[str, Any]:
        answer = self.client.call("lease.settle", **self.named, finished=batch)
        self.finished = batch
        return answer


def plant(data: Path, queue: str, *batches: pa.RecordBatch, **options: Any) -> None:
    """Put stored batches into a closed data directory without any check on arrival, as a broker with fewer checks would have."""
    service = BrokerService(Settings(data=data, fsync="never"))
    try:
        service.submit(c.DeclareQueue(queue, options=options))
        for batch in batches:
            service.submit(c.Enqueue(queue, batch.num_rows, stored_sizes(batch), store(batch)))
    finally:
        service.close()

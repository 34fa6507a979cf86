"""A queue of one name at several brokers, and the stream reader's own methods in the order Spark calls them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import PenstockError
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.reader import StreamReader

INITIAL = {"v": 1, "kind": "initial"}
LIMIT = ReadMaxRows(2**63 - 1)
SCHEMA = source_schema(("body", "sequenceNumber"))
SENT = StructType([StructField("body", BinaryType()), StructField("groupId", StringType())])


class Site:
    """Brokers a, b and c, each with the test's queue, and readers of it. A message's body is the broker's letter and a number."""

    def __init__(self, brokers: list[Broker], queue: str) -> None:
        self.brokers, self.queue = brokers, queue
        self.readers: list[StreamReader] = []
        self.sent: dict[str, int] = dict.fromkeys("abc", 0)
        for letter in "abc":
            self.call(letter, "queue.declare", queue=queue)

    def broker(self, letter: str) -> Broker:
        return self.brokers["abc".index(letter)]

    def urls(self, letters: str = "abc") -> str:
        return ",".join(self.broker(letter).url for letter in letters)

    def id(self, letter: str) -> str:
        return str(self.call(letter, "hello")["broker"])

    def call(self, letter: str, action: str, **fields: Any) -> dict[str, Any]:
        with Client(self.broker(letter).url) as client:
            return client.call(action, **fields)

    def send(self, letter: str, count: int) -> None:
        first = self.sent[letter]
        self.sent[letter] += count
        bodies = [f"{letter}{first + i}".encode() for i in range(count)]
        batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        with Client(self.broker(letter).url) as client:
            client.put({"op": "enqueue", "queue": self.queue}, batch.schema, [batch])

    def options(self, letters: str = "abc", **options: str) -> Options:
        return Options({"url": self.urls(letters), "queue": self.queue, **options})

    def reader(self, letters: str = "abc", **options: str) -> StreamReader:
        """A reader as one planner process has it."""
        self.readers.append(StreamReader(self.options(letters, **options), SCHEMA))
        return self.readers[-1]

    def read(self, reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        """The bodies of a batch, as its tasks read them."""
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]

    def drained(self, reader: StreamReader, offset: dict[str, Any]) -> tuple[list[list[str]], dict[str, Any]]:
        """All that is there, batch by batch, and the offset after it."""
        bodies = []
        while (end := reader.latestOffset(offset, LIMIT)) != offset:
            bodies.append(self.read(reader, offset, end))
            offset = end
        return bodies, offset

    def counts(self, letters: str = "abc") -> dict[str, tuple[int, int, int]]:
        """Available, acquired, archived."""
        stats = {letter: self.call(letter, "queue.stat", queue=self.queue) for letter in letters}
        return {letter: (stat["available"], stat["acquired"], stat["archived"]) for letter, stat in stats.items()}

    def bodies(self, letter: str) -> list[str]:
        """Bodies of the messages that wait at a broker, in order."""
        with Client(self.broker(letter).url) as client:
            batches = client.get(op="browse", queue=self.queue, columns=["body"])
            return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]

    def expected(self, letters: str = "abc") -> list[str]:
        """All that was sent to these, sorted."""
        return sorted(f"{letter}{i}" for letter in letters for i in range(self.sent[letter]))

    def close(self) -> None:
        for reader in self.readers:
            reader.stop()
        for letter in "abc":
            if not self.broker(letter).running:
                self.broker(letter).start()
            with suppress(PenstockError):
                self.call(letter, "queue.delete", queue=self.queue, force=True)
            for lease in self.call(letter, "lease.list")["leases"]:
                self.call(letter, "lease.delete", lease=lease["lease"])

"""A queue on a broker that hides its product, and the stream reader's own methods in the order Spark calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock import Broker
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.amqp.address import parse
from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.schema import default_schema, source_schema
from penstock.connector.stream.reader import StreamReader

from ..amqp_client.peer import Peer
from ..waiting import until
from .hidden import Hidden

INITIAL = {"v": 1, "kind": "initial"}
LIMIT = ReadMaxRows(2**63 - 1)


class Queue:
    """A queue on a running broker, and readers of it."""

    def __init__(self, broker: Broker, hidden: Hidden, client: Client, name: str, spool: Path) -> None:
        self.broker, self.hidden, self.client, self.name, self.spool = broker, hidden, client, name, spool
        self.readers: list[StreamReader] = []
        self.sent = 0
        client.call("queue.declare", queue=name)

    def send(self, first: int, last: int, *, ids: bool = True, to: str | None = None) -> None:
        """Send the numbers from `first` up to `last`, excluded, with message ids or without."""
        sent = [
            Message(data=[b"%d" % n], properties=Properties(message_id=f"id-{n}") if ids else None).encode()
            for n in range(first, last)
        ]
        self.send_octets(sent, to)
        self.sent = last

    def send_octets(self, payloads: list[bytes], to: str | None = None) -> None:
        with connect(self.broker.amqp_url) as connection:
            sender = connection.sender(to or self.name)
            sender.send(payloads)
            sender.flush()

    def restart_broker(self) -> None:
        """Kill the broker, and start it again."""
        self.broker.kill()
        self.hidden.cut()
        self.broker.start()
        self.hidden.retarget(parse(self.broker.amqp_url).port)
        self.client.close()
        self.client = Client(self.broker.url)

    def released(self) -> None:
        """Return when the broker has noticed that a consumer is gone."""
        gone = lambda: not self.client.call("queue.stat", queue=self.name)["acquired"]  # noqa: E731
        until(gone, "the broker holds no messages for a consumer that is gone")

    def available(self) -> int:
        stat = self.client.call("queue.stat", queue=self.name)
        return int(stat["available"] + stat["acquired"])

    def reader(self, columns: tuple[str, ...] = (), **options: str) -> StreamReader:
        """A reader as one planner process has it."""
        settings = {"url": self.hidden.url, "queue": self.name, "spool": str(self.spool), **options}
        reader = StreamReader(Options(settings), source_schema(columns) if columns else default_schema())
        self.readers.append(reader)
        return reader

    def files(self) -> list[str]:
        return sorted(path.name for path in self.spool.iterdir())


def reader_of(peer: Peer, tmp_path: Path, **options: str) -> StreamReader:
    settings = {"url": peer.url, "queue": "q", "spool": str(tmp_path / "spool"), **options}
    return StreamReader(Options(settings), source_schema(("body", "deliveryCount", "durable", "priority")))


def next_batch(reader: StreamReader, start: dict[str, Any], tries: int = 100) -> dict[str, Any]:
    """Ask as Spark's trigger does, until there is something."""
    for _ in range(tries):
        end = reader.latestOffset(start, LIMIT)
        if end != start:
            return end
    raise AssertionError("nothing came")


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a batch, as its tasks read them."""
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def bodies(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [int(row["body"]) for row in rows(reader, start, end)]


def drained(reader: StreamReader, start: dict[str, Any] = INITIAL, *, most: int = 1000) -> tuple[list[int], dict[str, Any]]:
    """All numbers up to the end of an `availableNow` run, batch by batch, and the offset that was reached."""
    reader.prepareForTriggerAvailableNow()
    values: list[int] = []
    for _ in range(most):
        end = reader.latestOffset(start, LIMIT)
        if end == start:
            break
        values += bodies(reader, start, end)
        start = end
    return values, start


def came(reader: StreamReader, queue: Queue, count: int) -> None:
    """Return when so many messages have come that are in no batch yet."""
    until(lambda: reader.reportLatestOffset()["queues"][queue.name]["waiting"] >= count, f"{count} messages wait for a batch")


def lost(reader: StreamReader, queue: Queue) -> None:
    """Return when the planner has noticed the loss of its connection, and dropped the messages that came over it."""
    until(lambda: reader.reportLatestOffset()["queues"][queue.name]["lostConnections"], "the loss is noticed")

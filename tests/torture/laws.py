"""Rules for a data directory after a crash, derived from the recorded requests and confirmations (see `workload`)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from penstock.broker_core.client.flight import Client
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..flight.helpers import browse
from .workload import ROWS, STAGES


class Said:
    """The witness's lines so far."""

    def __init__(self) -> None:
        self.numbers: dict[str, set[int]] = defaultdict(set)
        self.batches: dict[int, list[int]] = {}

    def note(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "read":
            batch, _, numbers = rest.partition(" ")
            self.batches[int(batch)] = [int(number) for number in numbers.split(",") if number]
        elif rest:
            self.numbers[kind].add(int(rest))


def check(data: Path, claims: Said) -> dict[str, int]:
    """Open the directory, and compare it with the record. Return counts, which prove that messages were compared."""
    service = BrokerService(Settings(data=data, amqp_port=None))
    plane = FlightPlane(service, "127.0.0.1", 0)
    try:
        if not {"in", "out", "rows"} <= set(service.state.queues):
            assert not any(claims.numbers.values()), "confirmed queues are lost"
            return {}
        with Client(plane.url) as client:
            tables = {name: _messages(client, name) for name in ("in", "out", "rows")}
        _sent(tables["in"], claims)
        _relayed(tables["in"], tables["out"], claims)
        _published(tables["rows"], claims)
        _leased(service, tables["rows"], claims)
        return {name: len(rows) for name, rows in tables.items()}
    finally:
        plane.close()
        service.close()


Message = tuple[bytes, str]  # body, state


def _messages(client: Client, queue: str) -> list[Message]:
    """Return all messages that are or were in a queue, by sequence number."""
    rows = browse(client, queue, "sequenceNumber", "body", "state", states=["available", "acquired", "archived"])
    assert [row["sequenceNumber"] for row in rows] == list(range(len(rows))), "sequence numbers have gaps"
    assert len(rows) == client.call("queue.stat", queue=queue)["enqueued"]
    return [(row["body"], row["state"]) for row in rows]


def _sent(rows: list[Message], claims: Said) -> None:
    numbers = [int(text.split()[1]) for text, _ in rows]
    assert numbers == sorted(set(numbers)), "messages of one sender are out of order or duplicated"
    assert numbers == list(range(len(numbers))), "a message is missing before an existing one"
    assert claims.numbers["confirmed"] <= set(numbers), "a confirmed message is lost"
    assert set(numbers) <= claims.numbers["sent"], "a message was never sent"


def _relayed(taken: list[Message], copies: list[Message], claims: Said) -> None:
    """A session accepts a message, then sends its copy: if the copy exists, the message is settled."""
    numbers = [int(text.split()[1]) for text, _ in copies]
    assert len(numbers) == len(set(numbers)), "a message was relayed twice"
    assert claims.numbers["relayed"] <= set(numbers), "a confirmed copy is lost"
    for number in numbers:
        assert taken[number][1] == "archived", f"message {number} is available again, although its later copy exists"


def _published(rows: list[Message], claims: Said) -> None:
    writes: dict[int, list[int]] = defaultdict(list)
    for text, _ in rows:
        write, row = text.split()[:2]
        writes[int(write[1:])].append(int(row))
    assert list(writes) == sorted(writes)
    for write, numbers in writes.items():
        assert numbers == list(range(ROWS * STAGES)), f"write {write} is stored in part, or twice"
    assert claims.numbers["published"] <= set(writes), "a write that was confirmed is lost"


def _leased(service: BrokerService, rows: list[Message], claims: Said) -> None:
    lease = service.state.leases.get("query")
    assert lease is not None or not claims.batches, "a lease is lost"
    if lease is None:
        return
    for number, sequences in claims.batches.items():
        if number <= max(claims.numbers["settled"], default=0):
            assert all(rows[sequence][1] == "archived" for sequence in sequences), f"batch {number} is no longer settled"
        held = lease.batches.get(number)
        assert held is not None or number <= lease.finished, f"batch {number} was read, and is lost"
        if held is not None:
            assert held.rows.sequences().tolist() == sequences, f"batch {number} contains other messages than the read"

"""C8, W5: kill -9 of the broker under AMQP clients, again and again.

No confirmed message is lost, and no message whose settlement was confirmed comes back. Order is kept. Deliveries in flight come
back with their count by the table of returns (BROKER_LOST does not count). No message is invented.

Receivers settle second: an outcome holds for certain when the broker has sent its own settled disposition. Outcomes without one
may hold or not when the broker is killed, and both are accepted.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from penstock import Broker
from penstock.broker_core.amqp import Accepted, Message, Modified, Receiver, Released, Source, Target, decode_message, events
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import RCV_SECOND, Header
from penstock.broker_core.client.flight import Client as FlightClient

from ..flight.helpers import browse
from .library_client import Client

CYCLES = 50
WINDOW = 30  # unconfirmed messages of a sender
CREDIT = 40
SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261121"))  # another one with each `./dev torture`
MIB = 1 << 20
QUEUES = ("q", "p")
SENDERS = {"a": "q", "b": "q", "relay": None}
RECEIVERS = {"one": "q", "two": "q", "three": "p"}


@dataclass
class Known:
    """A message as its receiver expects it. `count`: the delivery-count that it came with, or must come with next."""

    count: int
    outcome: str = ""  # "held" while it waits for one; empty when the message is not with a receiver
    confirmed: bool = False

    def counts(self) -> set[int]:
        """Return the possible counts after a restart: an unconfirmed outcome may be applied or not."""
        if self.outcome == "modified":
            return {self.count + 1} if self.confirmed else {self.count, self.count + 1}
        return {self.count}

    def next(self) -> int:
        """The delivery-count of its next delivery in the same life."""
        return self.count + (self.outcome == "modified")


@dataclass
class Record:
    """The confirmations, kept outside of the broker."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    sent: dict[str, int] = field(default_factory=dict)  # by sender: numbers below this
    confirmed: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in SENDERS})
    known: dict[tuple[str, int], Known] = field(default_factory=dict)  # by queue and sequence number; without settled messages
    settled: set[tuple[str, int]] = field(default_factory=set)
    bodies: dict[tuple[str, int], bytes] = field(default_factory=dict)
    seen: set[tuple[str, int]] = field(default_factory=set)  # delivered in this life
    first: dict[str, int] = field(default_factory=dict)  # by receiver: the first that was delivered to it in this life
    events: int = 0
    returned: int = 0

    def note(self, count: int) -> None:
        self.events += count
        self.changed.notify_all()

    def ended(self, _: Future[None]) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, more: int, work: list[Future[None]]) -> None:
        with self.changed:
            target = self.events + more
            assert self.changed.wait_for(lambda: self.events >= target or any(future.done() for future in work), 60)
        for future in work:
            if future.done():
                future.result()
                raise AssertionError("a client stopped before the broker did")


def until_killed(client: Client, step: Any) -> None:
    """Allow any end of the socket."""
    while not client.gone:
        step()
        try:
            client.pump(0.02)
        except OSError:
            break
    client.drop()


def send_until_killed(client: Client, name: str, record: Record) -> None:
    """Send durable messages, some unconfirmed at a time. Messages under way when the broker dies are not sent again."""
    link = client.connection.begin().sender(name)
    link.attach(source=Source(), target=Target(address=SENDERS[name]))

    def on_event(event: Any) -> None:
        assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
        if isinstance(event, events.Disposed):
            assert isinstance(event.state, Accepted)
            with record.changed:
                record.confirmed[name].update(int.from_bytes(delivery.tag, "big") for delivery in event.deliveries)
                record.note(len(event.deliveries))

    def step() -> None:
        count = min(link.link_credit, WINDOW - len(link.unsettled))
        if count > 0:
            first = record.sent.get(name, 0)
            numbers = range(first, first + count)
            record.sent[name] = first + count
            sent = link.send_many([number.to_bytes(8, "big") for number in numbers], [encoded(name, n) for n in numbers])
            record.sent[name] = first + len(sent)

    client.on_event = on_event
    until_killed(client, step)


def queue_of(sender: str, number: int) -> str:
    return SENDERS[sender] or QUEUES[number % 2]


def encoded(sender: str, number: int) -> bytes:
    properties = Properties(to=queue_of(sender, number))
    return Message(header=Header(durable=True), properties=properties, data=[body(sender, number)]).encode()


def body(sender: str, number: int) -> bytes:
    return (b"%s %08d " % (sender.encode(), number)).ljust(500, b".")


def receive_until_killed(client: Client, name: str, queue: str, record: Record, random: Random) -> None:
    """Accept most messages, return some in two ways, and hold some until the end."""
    session = client.connection.begin()
    link = session.receiver(name)
    link.attach(source=Source(address=queue), target=Target(), rcv_settle_mode=RCV_SECOND)
    highest = [-1]
    mine: dict[int, tuple[int, Known]] = {}  # by delivery id: the message and its expected state

    def delivered(link: Receiver, deliveries: list[Any]) -> None:
        outcomes: dict[str, list[Any]] = {}
        with record.changed:
            for delivery in deliveries:
                number, message = int.from_bytes(delivery.tag, "big"), decode_message(delivery.payload)
                place = queue, number
                assert place not in record.settled, f"{place} was settled, and that was confirmed"
                assert record.bodies.setdefault(place, message.data[0]) == message.data[0]
                record.first.setdefault(name, number)
                if place not in record.seen:  # otherwise it was given back, to its place
                    assert number > highest[0], f"{place} comes after {highest[0]}"
                    highest[0] = number
                    record.seen.add(place)
                count = (message.header.delivery_count if message.header else 0) or 0
                before = record.known.get(place, Known(0))
                assert before.outcome != "held", f"{place} has two holders"
                assert count == before.next(), f"{place}: delivery-count {count} after {before}"
                outcome = random.choices(["accepted", "released", "modified", "held"], [70, 10, 10, 10])[0]
                record.known[place] = Known(count, outcome)
                mine[delivery.id] = number, record.known[place]
                outcomes.setdefault(outcome, []).append(delivery)
        for outcome, several in outcomes.items():
            if outcome != "held":
                state = {"accepted": Accepted(), "released": Released(), "modified": Modified(delivery_failed=True)}[outcome]
                session.dispose(several, state, settled=False)

    def disposed(event: Any) -> None:
        assert event.settled
        with record.changed:
            for delivery in event.deliveries:
                number, known = mine.pop(delivery.id)
                known.confirmed = True
                if known.outcome == "accepted":
                    record.settled.add((queue, number))
                    del record.known[queue, number]
                else:
                    record.returned += 1
            record.note(len(event.deliveries))

    def on_event(event: Any) -> None:
        assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
        if isinstance(event, events.Delivered):
            delivered(event.link, event.deliveries)
        elif isinstance(event, events.Disposed):
            disposed(event)

    def step() -> None:
        if link.remote_attach is not None and link.link_credit < CREDIT // 2:
            link.grant(CREDIT)

    client.on_event = on_event
    until_killed(client, step)


def test_fifty_kills_under_amqp_clients(tmp_path: Path) -> None:
    random = Random(SEED)
    print("seed", SEED)
    record = Record()
    broker = Broker(tmp_path / "data", segment_bytes=MIB, snapshot_every_bytes=MIB)
    broker.start()
    for queue in QUEUES:
        broker.declare(queue, maxAttempts=0)
    host, _, port = broker.amqp_url.partition("://")[2].rpartition(":")
    address = host, int(port)
    lowest: dict[str, int | None] = {}
    flying = began = 0
    for cycle in range(CYCLES):
        clients = {name: Client(address, name) for name in (*SENDERS, *RECEIVERS)}
        with ThreadPoolExecutor(len(clients)) as pool:
            work = [pool.submit(send_until_killed, clients[name], name, record) for name in SENDERS]
            for name, queue in RECEIVERS.items():
                work.append(pool.submit(receive_until_killed, clients[name], name, queue, record, Random(random.random())))
            for future in work:
                future.add_done_callback(record.ended)
            try:
                record.wait_for(random.randint(1, 400), work)
            finally:
                broker.kill()
            for future in work:
                future.result(60)
        if "three" in record.first and lowest.get("p") is not None:  # the only receiver of its queue
            assert record.first["three"] == lowest["p"], f"cycle {cycle}: the queue does not begin with its first message"
            began += 1
        record.first.clear()
        record.seen.clear()
        broker.start()
        flying += sum(known.outcome == "held" for known in record.known.values())
        with FlightClient(broker.url) as client:
            lowest = {queue: check_what_is_left(client, queue, record) for queue in QUEUES}
    with FlightClient(broker.url) as client:
        check_all(client, record)
    confirmed = sum(map(len, record.confirmed.values()))
    print(f"{confirmed} confirmed, {len(record.settled)} settled, {record.returned} given back, {flying} in flight at a kill")
    assert min(confirmed, len(record.settled)) > 20 * CYCLES
    assert min(record.returned, flying) > CYCLES
    assert began > CYCLES / 2
    broker.stop()


def check_what_is_left(client: FlightClient, queue: str, record: Record) -> int | None:
    """After a start: the unsettled messages with their counts. The lowest sequence number must be delivered first."""
    left = {}
    for row in browse(client, queue, "sequenceNumber", "deliveryCount", "state", states=["available", "acquired"]):
        assert row["state"] == "available", "its holder is gone"
        left[row["sequenceNumber"]] = row["deliveryCount"]
    for place in [place for place in record.known if place[0] == queue]:
        known = record.known.pop(place)
        if place[1] not in left:
            assert known.outcome == "accepted", f"{place} is missing, and was not settled: {known}"
            record.settled.add(place)
            continue
        assert left[place[1]] in known.counts(), f"{place} has the count {left[place[1]]} after {known}"
    for number, count in left.items():
        assert (queue, number) not in record.settled, f"{queue} {number} was settled, and that was confirmed"
        record.known[queue, number] = Known(count)
    return min(left, default=None)


def check_all(client: FlightClient, record: Record) -> None:
    by_sender: dict[str, list[tuple[int, str]]] = {name: [] for name in SENDERS}
    for queue in QUEUES:
        rows = browse(client, queue, "sequenceNumber", "body", "state", states=["available", "acquired", "archived"])
        assert [row["sequenceNumber"] for row in rows] == list(range(client.call("queue.stat", queue=queue)["enqueued"]))
        for row in rows:
            place, text = (queue, row["sequenceNumber"]), row["body"]
            sender, number = text.split()[0].decode(), int(text.split()[1])
            assert text == body(sender, number)
            assert record.bodies.get(place, text) == text, "another message was received under that number"
            assert queue_of(sender, number) == queue
            assert (row["state"] == "archived") == (place in record.settled)
            by_sender[sender].append((number, queue))
    for sender, places in by_sender.items():
        for queue in QUEUES:
            numbers = [number for number, where in places if where == queue]
            assert numbers == sorted(set(numbers)), f"messages of {sender} are out of order or duplicated"
        numbers = [number for number, _ in places]
        assert record.confirmed[sender] <= set(numbers), "a confirmed message is lost"
        assert max(numbers) < record.sent[sender], "a message exists that was not sent"

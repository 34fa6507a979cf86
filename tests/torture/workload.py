"""A broker under load, to be run under strace: `python workload.py DATA WITNESS SECONDS SEED`.

The broker is a separate process; its clients are threads of this process. Each request and each confirmation is a line of the
file WITNESS, written by one system call. So the trace contains it in order with the broker's writes and syncs.

    sent N          message N is about to be sent to `in`           confirmed N     its outcome is *accepted*
    relaying N      N was received, accepted and sent to `out`      relayed N       the copy in `out` is confirmed
    publishing N    write N of a DataFrame will be published        published N     the broker has confirmed it
    read B N,N,…    batch B of the lease contains these messages    settled B       the broker has settled it
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":  # run as a script, in the checkout or with the installed wheel
    sys.path.append(str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from penstock import Broker
from penstock.broker_core.amqp import Accepted, Message, Source, Target, decode_message, events
from penstock.broker_core.amqp.performatives import RCV_FIRST, Header
from penstock.broker_core.client.flight import Client as FlightClient
from tests.amqp_plane.library_client import Client
from tests.flight.helpers import Reader, send

MIB = 1 << 20
WINDOW = 20  # unconfirmed messages of a sender
ROWS = 20  # in a stage
STAGES = 3  # in a published write


def body(kind: str, number: int, size: int) -> bytes:
    return (b"%s %08d " % (kind.encode(), number)).ljust(size, b".")


class Witness:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *lines: str) -> None:
        if lines:
            os.write(self._file, "".join(line + "\n" for line in lines).encode())


class Load:
    def __init__(self, broker: Broker, witness: Witness, seconds: float, seed: int) -> None:
        host, _, port = broker.amqp_url.partition("://")[2].rpartition(":")
        self.address, self.url, self.witness, self.seed = (host, int(port)), broker.url, witness, seed
        self._end = time.monotonic() + seconds
        self._stop = threading.Event()

    @property
    def over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._end

    def run(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            work = [pool.submit(step) for step in (self.send, self.relay, self.publish, self.lease)]
            for task in work:
                task.add_done_callback(lambda done: self._stop.set() if done.exception() else None)
            for task in work:
                task.result()

    def send(self) -> None:
        """Send single messages to `in`, a few of them unconfirmed."""
        random, client = Random(self.seed), Client(self.address, "sender")
        link = client.connection.begin().sender("sender")
        link.attach(source=Source(), target=Target(address="in"))
        sent = 0

        def on_event(event: Any) -> None:
            assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
            if isinstance(event, events.Disposed):
                assert isinstance(event.state, Accepted), event.state
                self.witness.note(*(f"confirmed {int.from_bytes(delivery.tag, 'big')}" for delivery in event.deliveries))

        client.on_event = on_event
        while not self.over and not client.gone:
            count = min(link.link_credit, WINDOW - len(link.unsettled), random.choice([1, 1, 5, WINDOW]))
            for number in range(sent, sent + max(0, count)):
                payload = Message(header=Header(durable=True), data=[body("m", number, random.choice([50, 900, 4000]))])
                self.witness.note(f"sent {number}")
                link.send(number.to_bytes(8, "big"), payload.encode())
                sent += 1
            client.pump(random.choice([0.001, 0.01]))
        client.drop()

    def relay(self) -> None:
        """Move messages from `in` to `out` on one session, whose requests become durable in their order."""
        client = Client(self.address, "relay")
        session = client.connection.begin()
        taker, giver = session.receiver("taker"), session.sender("giver")
        giver.attach(source=Source(), target=Target(address="out"))
        taker.attach(source=Source(address="in"), target=Target(), rcv_settle_mode=RCV_FIRST)

        def on_event(event: Any) -> None:
            assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
            if isinstance(event, events.Disposed):
                assert isinstance(event.state, Accepted), event.state
                self.witness.note(*(f"relayed {int.from_bytes(delivery.tag, 'big')}" for delivery in event.deliveries))
            elif isinstance(event, events.Delivered):
                for delivery in event.deliveries:
                    number = int(decode_message(delivery.payload).data[0].split()[1])
                    self.witness.note(f"relaying {number}")
                    session.dispose([delivery], Accepted(), settled=True)
                    payload = Message(header=Header(durable=True), data=[body("x", number, 60)])
                    giver.send(number.to_bytes(8, "big"), payload.encode())

        client.on_event = on_event
        client.until(lambda: giver.link_credit > 0, "credit")
        while not self.over and not client.gone:
            if taker.link_credit < 5 and giver.link_credit > 20:
                taker.grant(10)
            client.pump(0.01)
        client.drop()

    def publish(self) -> None:
        """Write like Spark: several tasks stage, and the driver publishes, sometimes twice."""
        random = Random(self.seed + 1)
        with FlightClient(self.url) as client:
            for number in range(1, 1_000_000):
                if self.over:
                    return
                stages = [f"write {number} task {task}" for task in range(STAGES)]
                for task, stage in enumerate(stages):
                    rows = [body(f"w{number}", task * ROWS + row, random.choice([30, 2000])) for row in range(ROWS)]
                    send(client, "rows", rows, op="stage", stage=stage)
                self.witness.note(f"publishing {number}")
                for _ in range(random.choice([1, 1, 2])):
                    key = {"kind": "txn", "id": "torture", "number": number}
                    client.call("stage.publish", stages=stages, key=key)
                self.witness.note(f"published {number}")

    def lease(self) -> None:
        """Run a query on `rows`: read batches, and settle each with the request for the next one."""
        with FlightClient(self.url) as client:
            reader, read = Reader(client, "rows", "query"), 0
            while not self.over:
                batch = reader.advance(messages=45)
                if reader.finished:
                    self.witness.note(f"settled {reader.finished}")
                if batch == reader.finished:
                    self._stop.wait(0.02)
                    continue
                numbers = [row["sequenceNumber"] for row in reader.read(batch)]
                self.witness.note(f"read {batch} {','.join(map(str, numbers))}")
                reader.finished, read = batch, read + len(numbers)


def main(data: str, witness: str, seconds: str, seed: str) -> None:
    # A quarter of the mark is the disk's reserve, which every state after a crash writes.
    broker = Broker(data, segment_bytes=MIB, snapshot_every_bytes=MIB, free_space_mark_bytes=MIB)
    broker.start()
    for queue in ("in", "out", "rows"):
        broker.declare(queue, maxAttempts=0)  # each kill is a failed attempt for messages on links
    noted = Witness(witness)
    noted.note("begin")
    try:
        Load(broker, noted, float(seconds), int(seed)).run()
    finally:  # otherwise strace would follow the broker
        broker.kill()
    pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    main(*sys.argv[1:])

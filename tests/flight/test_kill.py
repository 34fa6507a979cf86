"""kill -9 of the broker under load, again and again: nothing confirmed is lost, nothing is invented, order holds."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client

from .helpers import BODY, Reader, batch_of, browse, descriptor, raw, send

CYCLES = 50
ROWS = 100
SIZE = 600  # bytes: with three senders a segment is full after some twenty batches
WINDOW = 4  # batches that a sender has unacknowledged
SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261121"))  # another one with each `./dev torture`
MIB = 1 << 20


class Record:
    """Record of confirmations, kept outside of the broker."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.confirmed: dict[str, set[int]] = {"a": set(), "b": set(), "stager": set()}  # by sender
        self.sent: dict[str, int] = {}  # by sender: numbers below this
        self.read: dict[int, list[tuple[int, bytes]]] = {}  # by batch
        self.finished = 0  # the reader's own checkpoint, written before the broker confirms it
        self.settled: set[int] = set()  # batches of which the settlement was confirmed
        self.events = 0

    def note(self, sender: str | None = None, start: int = 0, stop: int = 0) -> None:
        if sender is not None:
            self.confirmed[sender].update(range(start, stop))
        self.events += 1
        self.changed.notify_all()

    def ended(self, _: Future[None]) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, more: int, work: list[Future[None]]) -> None:
        """Wait until this many more confirmations have come while all clients are still working."""
        with self.changed:
            target = self.events + more
            assert self.changed.wait_for(lambda: self.events >= target or any(future.done() for future in work), 60)
        for task in work:
            if task.done():
                task.result()
                raise AssertionError("a client stopped before the broker did")


def body(sender: str, number: int) -> bytes:
    return (b"%s %08d " % (sender.encode(), number)).ljust(SIZE, b".")


def send_until_killed(url: str, sender: str, record: Record) -> None:
    """Send batch after batch on one stream, some unacknowledged. Batches under way when the broker dies are not sent again."""
    start = record.sent.get(sender, 0)
    acknowledged = 0
    with Client(url) as client, contextlib.suppress(pa.ArrowException):
        writer, reader = raw(client).do_put(descriptor(op="enqueue", queue="q"), BODY)
        with contextlib.suppress(pa.ArrowException), writer:
            while True:
                first = record.sent.get(sender, 0)
                record.sent[sender] = first + ROWS
                writer.write_batch(batch_of([body(sender, number) for number in range(first, first + ROWS)]))
                while first + ROWS - start - acknowledged >= WINDOW * ROWS:
                    answer = reader.read()
                    assert answer is not None
                    acknowledged = json.loads(answer.to_pybytes())["messages"]
                    with record.changed:
                        record.note(sender, start, start + acknowledged)


def stage_until_killed(url: str, record: Record, cycle: int) -> None:
    """Stages over two queues and publishes, with a key; a publish that was not answered is repeated in the next life."""
    with Client(url) as client, contextlib.suppress(errors.PeerError):
        while True:
            number = len(record.confirmed["stager"]) // ROWS
            record.sent["stager"] = ROWS * (number + 1)
            key = {"kind": "stream", "id": "stager", "number": number}
            stages = [f"{cycle} {number} {queue}" for queue in ("q", "p")]
            rows = [body("stager", ROWS * number + row) for row in range(ROWS)]
            for stage, queue, part in zip(stages, ("q", "p"), (rows[: ROWS // 2], rows[ROWS // 2 :]), strict=True):
                send(client, queue, part, op="stage", stage=stage)
            client.call("stage.publish", stages=stages, key=key)
            with record.changed:
                record.note("stager", ROWS * number, ROWS * (number + 1))


def read_until_killed(url: str, record: Record) -> None:
    """A lease that takes, reads and settles. In each life it continues at the last confirmed settlement."""
    with Client(url) as client:
        reader = Reader(client, "q", lease="lease")
        reader.finished = record.finished
        with contextlib.suppress(errors.PeerError):
            while True:
                batch = reader.advance(messages=150, waitMs=100, fresh=not record.read)
                if batch == reader.finished:
                    continue
                rows = [(row["sequenceNumber"], row["body"]) for row in reader.read(batch)]
                assert record.read.setdefault(batch, rows) == rows, f"batch {batch} reads differently in another life"
                record.finished = batch
                reader.settle(batch)
                with record.changed:
                    record.settled.add(batch)
                    record.note()


def test_fifty_kills_under_load_lose_nothing_confirmed_and_invent_nothing(tmp_path: Path) -> None:
    random = Random(SEED)
    print("seed", SEED)
    record = Record()
    data = tmp_path / "data"
    broker = Broker(data, segment_bytes=MIB, snapshot_every_bytes=MIB)
    broker.start()
    for queue in ("q", "p"):
        broker.declare(queue)
    snapshots: set[str] = set()
    for cycle in range(CYCLES):
        if cycle:
            broker.start()
        with ThreadPoolExecutor(4) as pool:
            work = [
                pool.submit(send_until_killed, broker.url, "a", record),
                pool.submit(send_until_killed, broker.url, "b", record),
                pool.submit(stage_until_killed, broker.url, record, cycle),
                pool.submit(read_until_killed, broker.url, record),
            ]
            for future in work:
                future.add_done_callback(record.ended)
            try:
                record.wait_for(random.randint(1, 12), work)
                while cycle % 12 == 11 and not {path.name for path in data.glob("*.snap")} - snapshots:
                    record.wait_for(1, work)  # in some lives housekeeping comes to a snapshot
            finally:
                broker.kill()
            for future in work:
                future.result(60)
        snapshots |= {path.name for path in data.glob("*.snap")}
    broker.start()
    with Client(broker.url) as client:
        check(client, record)
    segments = len(list(data.glob("*.seg")))
    print(f"{sum(map(len, record.confirmed.values()))} confirmed, {len(record.settled)} batches settled, {segments} segments")
    assert segments > CYCLES / 2
    assert len(snapshots) >= 3
    broker.stop()


def check(client: Client, record: Record) -> None:
    states = ["available", "acquired", "archived"]
    sent_rows: dict[str, list[tuple[int, str, bytes, str]]] = {}
    for queue in ("q", "p"):
        rows = browse(client, queue, "sequenceNumber", "body", "state", states=states)
        assert [row["sequenceNumber"] for row in rows] == list(range(client.call("queue.stat", queue=queue)["enqueued"]))
        for row in rows:
            sender, number = row["body"].split()[:2]
            assert row["body"] == body(sender.decode(), int(number))
            sent_rows.setdefault(sender.decode(), []).append((int(number), queue, row["sequenceNumber"], row["state"]))

    for sender in ("a", "b"):
        numbers = [number for number, *_ in sent_rows[sender]]
        assert numbers == sorted(set(numbers)), f"messages of {sender} are out of order, or there twice"
        assert record.confirmed[sender] <= set(numbers), "a confirmed message is lost"
        assert numbers[-1] < record.sent[sender], "a message exists that was never sent"

    # The stages of one publish went over two queues: both parts are there or neither, and once.
    numbers = [number for number, *_ in sent_rows["stager"]]
    assert len(numbers) == len(set(numbers))
    assert len(numbers) % ROWS == 0
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(record.confirmed["stager"]) <= len(numbers) <= record.sent["stager"]

    # Each message was in one batch only, a confirmed settlement stays, and the lease took them in order.
    taken = [sequence for batch in sorted(record.read) for sequence, _ in record.read[batch]]
    assert taken == list(range(len(taken)))
    state_of = {sequence: state for rows in sent_rows.values() for _, queue, sequence, state in rows if queue == "q"}
    for batch in record.settled:
        assert all(state_of[sequence] == "archived" for sequence, _ in record.read[batch])
    assert len(record.settled) > 10

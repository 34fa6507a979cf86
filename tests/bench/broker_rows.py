"""Rows about the broker without Spark: durable enqueue, memory, restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from feeding import BATCH, QUEUE, anonymous_bytes, batch_of, enqueue_command, filled, nbytes, started
from harness import Bench, Line, Stopwatch
from yardsticks import discarding_server, read_and_checksum, write_and_sync

from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.server.child import Broker
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

ENQUEUED = 500_000  # messages of 1 KiB a repeat: half a gigabyte
QUIET_S = 12.0  # housekeeping gives freed memory back every ten seconds


def enqueue_flight(bench: Bench) -> Iterator[Line]:
    batch = batch_of(BATCH, 1024)
    batches = bench.count(ENQUEUED, BATCH) // BATCH
    total = nbytes(enqueue_command(batch)) * batches
    messages = batches * BATCH

    def put(client: Client) -> float:
        with Stopwatch() as watch:
            last = client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(batches)))
        assert last["messages"] == messages
        return messages / watch.seconds

    data = bench.folder()
    with Broker(data, fsync="always") as broker, discarding_server() as url, Client(broker.url) as ours, Client(url) as idle:
        broker.declare(QUEUE)
        put(ours), put(idle)
        figures = bench.pairs(
            "messages/s",
            lambda _: put(ours),
            lambda _: put(idle),
            lambda _: messages / write_and_sync(bench.folder(), total),
        )
    bench.remove(data)
    yield Line(
        "enqueue-flight",
        f"durable enqueue over Flight, 1 KiB messages in batches of {BATCH:,}",
        "the slower of a Flight server that throws them away and write + fdatasync in 1 MiB pieces",
        0.7,
        None,
        True,
        "messages/s",
        figures[0],
        [min(pair) for pair in zip(figures[1], figures[2], strict=True)],
        more={"Flight server that throws them away, messages/s": figures[1], "write + fdatasync, messages/s": figures[2]},
    )


def enqueue_local(bench: Bench) -> Iterator[Line]:
    batch = batch_of(BATCH, 1024)
    batches = bench.count(ENQUEUED, BATCH) // BATCH
    total = nbytes(enqueue_command(batch)) * batches
    messages = batches * BATCH
    data = bench.folder()
    service = BrokerService(Settings(data=data, fsync="always"))
    service.submit(c.DeclareQueue(QUEUE))

    def put(_: int = 0) -> float:
        with Stopwatch() as watch:
            end = 0
            for _ in range(batches):
                command = enqueue_command(batch)
                service.reserve_space(nbytes(command))
                _, end = service.submit_nowait(command)
            service.journal.wait(end)
        return messages / watch.seconds

    try:
        put()
        ours, theirs = bench.pairs("messages/s", put, lambda _: messages / write_and_sync(bench.folder(), total))
    finally:
        service.close()
        bench.remove(data)
    title = f"durable enqueue in process, 1 KiB messages in batches of {BATCH:,}"
    yield Line("enqueue-local", title, "write + fdatasync in 1 MiB pieces", 0.7, None, True, "messages/s", ours, theirs)


def memory(bench: Bench) -> Iterator[Line]:
    yield _memory_in_batches(bench, bench.count(10_000_000, 100_000))
    yield _memory_one_by_one(bench, bench.count(1_000_000, 10_000))


def _memory_in_batches(bench: Bench, messages: int) -> Line:
    batch = batch_of(BATCH, 100)
    grown, restarted = [], []
    for i in range(3):
        data = bench.folder()
        with Broker(data, fsync="always") as broker, Client(broker.url) as client:
            broker.declare(QUEUE)
            time.sleep(1)
            empty = anonymous_bytes(broker.pid)
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(messages // BATCH)))
            time.sleep(QUIET_S)
            grown.append((anonymous_bytes(broker.pid) - empty) / messages)
            assert client.call("queue.stat", queue=QUEUE)["available"] == messages
        with Broker(data, fsync="always") as broker:
            time.sleep(QUIET_S)
            restarted.append((anonymous_bytes(broker.pid) - empty) / messages)
        bench.remove(data)
        bench.say(f"{i + 1}/3: {grown[-1]:.2f} bytes a message, {restarted[-1]:.2f} after a restart")
    return Line(
        "memory",
        f"anonymous memory of the broker for {messages:,} queued messages, beyond the empty broker",
        "",
        16,
        4,
        False,
        "bytes/message",
        grown,
        more={"after a restart, bytes/message": restarted},
    )


def _memory_one_by_one(bench: Bench, messages: int) -> Line:
    data = bench.folder()
    with bench.doing(f"{messages:,} messages one by one"):
        weights = filled(data, messages, rows=1, quiet_s=QUIET_S)
    grown = (weights["after"] - weights["before"]) / messages
    bench.remove(data)
    bench.say(f"{grown:.2f} bytes a message")
    title = f"the same for {messages:,} messages that came one by one"
    note = "enqueued in process, where single messages arrive quicker; measured once"
    return Line("memory", title, "", 16, 4, False, "bytes/message", [grown], note=note)


def restart(bench: Bench) -> Iterator[Line]:
    messages, settled = bench.count(10_000_000, 200_000), bench.count(9_000_000, 100_000)
    origin = bench.folder()
    with bench.doing(f"{messages:,} messages, {settled:,} of them settled, then kill -9"):
        filled(origin, messages, settled=settled, crash=True)

    waiting = messages - settled
    started(bench, origin, waiting)
    ours, theirs = bench.pairs("s", lambda _: started(bench, origin, waiting), lambda _: read_and_checksum(origin))
    size = sum(path.stat().st_size for path in Path(origin).glob("*.seg"))
    bench.remove(origin)
    yield Line(
        "restart",
        f"restart after kill -9 with {messages - settled:,} unsettled and {settled:,} settled messages, until it is ready",
        "reading and checksumming the journal's bytes once",
        3.0,
        None,
        False,
        "s",
        ours,
        theirs,
        note=f"a journal of {size >> 20:,} MiB, in the page cache for both; the start of Python is counted",
    )

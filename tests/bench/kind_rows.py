"""Rows about queues that are more than first in, first out: priorities, groups, last values, expiry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from amqp_rows import Load
from feeding import BATCH, QUEUE, batch_of
from harness import Bench, Line, Stopwatch
from interest_rows import cpu_seconds

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

COLUMNS = ["sequenceNumber", "body"]
LIVES_S = 5  # the messages that expire do so within so many seconds
POLL_S = 0.5


# --- Common parts ------------------------------------------------------------------------------------------------------------


class Taker:
    """A query as the broker sees it: batches acquired over Flight, their bodies moved, settled with the next."""

    def __init__(self, client: Client, queue: str, **options: Any) -> None:
        self._client, self._names = client, {"queue": queue, "lease": f"{queue} {options}", "run": "bench"}
        self._options = options
        self._epoch: int | None = None
        self._batch = 0

    def take(self, messages: int) -> int:
        """Acquire a batch of so many, and read it; how many came."""
        fields = {**self._names, "epoch": self._epoch, "finished": self._batch, "fresh": self._batch == 0, "messages": messages}
        answer = self._client.call("lease.advance", **fields, **self._options)
        if answer["batch"] == self._batch:
            return 0
        self._epoch, before, self._batch = answer["epoch"], self._batch, answer["batch"]
        plan = self._client.call("lease.plan", **self._names, epoch=self._epoch, after=before, batch=self._batch)
        rows = 0
        for batch, first, last, *_ in plan["parts"]:
            ticket = {"op": "batch", **self._names, "epoch": self._epoch, "batch": batch, "first": first, "last": last}
            del ticket["queue"]
            rows += sum(batch.num_rows for batch in self._client.get(**ticket, columns=COLUMNS))
        return rows

    def seconds_each(self, messages: int) -> float:
        with Stopwatch() as watch:
            taken = self.take(messages)
        assert taken == messages, f"{taken} of {messages} came"
        return watch.seconds / taken


@contextmanager
def queues(bench: Bench, /, **declared: dict[str, Any]) -> Iterator[tuple[Broker, Client]]:
    """A broker with these queues: name → type and options."""
    data = bench.folder()
    with Broker(data, fsync="always") as broker, Client(broker.url) as client:
        for name, fields in declared.items():
            client.call("queue.declare", queue=name, **fields)
        yield broker, client
    bench.remove(data)


def send(client: Client, queue: str, batch: pa.RecordBatch, batches: int) -> None:
    client.put({"op": "enqueue", "queue": queue}, batch.schema, (batch for _ in range(batches)))


def with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, name])


# --- The rows ----------------------------------------------------------------------------------------------------------------


def priority(bench: Bench) -> Iterator[Line]:
    waiting, taken = bench.count(1_000_000, 100_000), bench.count(100_000, 10_000)
    batch = with_column(batch_of(BATCH, 100), "priority", pa.array(np.arange(BATCH) % 10, pa.int16()))
    with queues(bench, levels={"type": "priority"}, plain={}) as (_, client):
        for queue in ("levels", "plain"):
            send(client, queue, batch, waiting // BATCH)
        levels, plain = Taker(client, "levels"), Taker(client, "plain")
        levels.seconds_each(taken), plain.seconds_each(taken)
        figures = bench.pairs(
            "µs/message",
            lambda _: levels.seconds_each(taken) * 1e6,
            lambda _: plain.seconds_each(taken) * 1e6,
            repeats=bench.count(waiting // taken - 1, 2),  # each takes some 30 ms: to the last message
        )
    title = f"{taken:,} messages acquired and moved over Flight from a priority queue of {waiting:,} in 10 interleaved levels"
    yield Line("priority", title, "a FIFO queue", 1.5, None, False, "µs/message", *figures)


def last_value(bench: Bench) -> Iterator[Line]:
    updates = bench.count(1_000_000, 50_000)
    keys = pa.array([f"key {i % 1000}" for i in range(BATCH)])
    batch = with_column(batch_of(BATCH, 100), "groupId", keys)
    names = count()

    def rate(client: Client, **declared: Any) -> float:
        queue = f"queue {next(names)}"
        client.call("queue.declare", queue=queue, **declared)
        with Stopwatch() as watch:
            send(client, queue, batch, updates // BATCH)
        waiting = client.call("queue.stat", queue=queue)["available"]
        assert waiting == (1000 if declared else updates), waiting
        client.call("queue.delete", queue=queue)
        return updates / watch.seconds

    with queues(bench) as (_, client):
        newest = {"type": "lastvalue", "options": {"key": "groupId"}}
        rate(client, **newest), rate(client)
        figures = bench.pairs("messages/s", lambda _: rate(client, **newest), lambda _: rate(client))
    title = f"{updates:,} durable updates of 1,000 keys of a last-value queue, over Flight"
    yield Line("last-value", title, "the same into a FIFO queue", 0.5, None, True, "messages/s", *figures)


def expiry(bench: Bench) -> Iterator[Line]:
    messages = bench.count(100_000, 10_000)

    def cpu(load: Load, lives_ms: int, scattered: bool = False) -> float:
        """CPU seconds of the broker from the first message on, until all that expire have."""
        with queues(bench, **{QUEUE: {}}) as (broker, client):
            before = cpu_seconds(broker.pid)
            load("send", url=broker.amqp_url, count=messages, size=96, ttl=lives_ms, scattered=scattered)
            end = time.monotonic() + LIVES_S + 6 * POLL_S
            while time.monotonic() < end:
                time.sleep(POLL_S)
                seen = client.call("queue.stat", queue=QUEUE)
            counts = seen["available"], seen["expired"]
            assert counts == ((0, messages) if lives_ms else (messages, 0)), counts
            return cpu_seconds(broker.pid) - before

    with Load() as load:
        cpu(load, 0)
        lives = LIVES_S * 1000
        figures = bench.pairs("s", lambda _: cpu(load, lives), lambda _: cpu(load, 0))
        more = {"in any order, in steps of 1 ms, s": [cpu(load, lives, scattered=True) for _ in range(3)]}
    title = f"the broker's CPU time for {messages:,} messages of an AMQP client that expire one after another within {LIVES_S} s"
    yield Line("expiry", title, "the same messages without TTL", 1.2, None, False, "s", *figures, more=more)


def groups(bench: Bench) -> Iterator[Line]:
    from spark_rows import drained  # the one row here that needs Spark

    messages = bench.count(2_000_000, 200_000)
    names = pa.array([f"group {i}" for i in range(BATCH)])
    batch = with_column(batch_of(BATCH, 100), "groupId", names)
    origins = {}
    for kind, options in (("groups", {"groups": "held"}), ("none", {})):
        origins[kind] = bench.folder()
        with bench.doing(f"{messages:,} messages"), Broker(origins[kind], fsync="always") as broker, Client(broker.url) as client:
            client.call("queue.declare", queue=QUEUE, options=options)
            send(client, QUEUE, batch, messages // BATCH)

    def rate(kind: str) -> float:
        return messages / drained(bench, origins[kind], messages, minPartitions="4")

    rate("groups"), rate("none")
    figures = bench.pairs("rows/s", lambda _: rate("groups"), lambda _: rate("none"))
    for origin in origins.values():
        bench.remove(origin)
    title = f"drain {messages:,} messages of {BATCH:,} groups, each group in one of 4 tasks and in order, availableNow into noop"
    yield Line("groups", title, "the same rows without groups, in 4 tasks", 0.7, None, True, "rows/s", *figures)

"""Rows about Penstock's Python client: loops over waiting messages, sends of many messages, requests."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from amqp_rows import CREDIT, Load, running
from feeding import QUEUE, beside
from harness import WARM_UPS, Bench, Line

import penstock
from penstock.broker_core.client.app.pipeline import WINDOW

sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))
from building import command_of
from driving import Program

SIZE = 1024
PONG = "pong"
#: Seconds, passed to go-amqp's program, which gives up then.
LIMIT_S = 50


def asynchronous(bench: Bench) -> Iterator[Line]:
    """Messages received and accepted by the asyncio client, against the blocking client's loop."""
    messages = bench.count(30_000, 2_000)
    with running(bench) as broker, Load() as load:

        def rate(way: str, _: int) -> float:
            load("send", url=broker.amqp_url, count=messages, size=SIZE)
            return messages / _alone(way, broker.amqp_url, messages)

        ours, theirs = partial(rate, "async"), partial(rate, "blocking")
        ours(0), theirs(0)
        figures = bench.pairs("messages/s", ours, theirs)
    title = f"`async for` receives and accepts {messages:,} messages of 1 KiB, one process, prefetch {CREDIT:,}"
    yield Line("async", title, "the blocking client's `for`", 0.7, None, True, "messages/s", *figures)


def sent_many(bench: Bench) -> Iterator[Line]:
    """Durable messages sent by `send_many`, against go-amqp's sender with as many unconfirmed messages."""
    messages = bench.count(60_000, 3_000)
    with running(bench) as broker, Program(command_of("go_amqp")) as client:
        order = {"url": broker.amqp_url, "address": [QUEUE], "count": messages, "size": SIZE, "window": WINDOW}

        def ours(_: int) -> float:
            return messages / _alone("send", broker.amqp_url, messages)

        def theirs(_: int) -> float:
            return messages / float(client.do("throughput", **order, way="in", wait=LIMIT_S)["seconds"])

        for _ in range(WARM_UPS):
            ours(0), theirs(0)
        figures = bench.pairs("messages/s", ours, theirs)
    title = f"`send_many` of {messages:,} durable messages of 1 KiB, one process"
    against = f"go-amqp's sender with {WINDOW:,} unconfirmed messages"
    yield Line("send-many", title, against, 0.5, None, True, "messages/s", *figures)
    yield Line("send-many", title, "", 8_000, None, True, "messages/s", figures[0])


def requests(bench: Bench) -> Iterator[Line]:
    """Request and reply, against two durable sends and receipts on declared queues, with the same responder."""
    count = bench.count(400, 30)
    body = os.urandom(SIZE)
    with running(bench) as broker, penstock.connect(broker.amqp_url) as connection:
        broker.declare(PONG)
        command = [sys.executable, str(Path(__file__)), "respond", broker.amqp_url, "0"]
        responder = subprocess.Popen(command, env=beside())

        def ours(_: int) -> float:
            return _median_ms(count, lambda: connection.request(QUEUE, body, timeout=LIMIT_S))

        def theirs(_: int) -> float:
            with connection.session() as session:
                producer, consumer = session.producer(QUEUE), session.consumer(PONG)

                def there_and_back() -> None:
                    producer.send(body)
                    consumer.receive(LIMIT_S)

                return _median_ms(count, there_and_back)

        try:
            for _ in range(WARM_UPS):
                ours(0), theirs(0)
            figures = bench.pairs("ms", ours, theirs)
        finally:
            responder.terminate()
            responder.wait()
    title = f"request and reply of 1 KiB, median of {count:,}"
    yield Line("request", title, "two durable sends and receipts", 1.3, None, False, "ms", *figures)


def _median_ms(count: int, call: Callable[[], object]) -> float:
    figures = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        figures.append(time.perf_counter() - began)
    return statistics.median(figures) * 1000


def _alone(way: str, url: str, count: int) -> float:
    """Seconds of a loop in a process of its own."""
    command = [sys.executable, str(Path(__file__)), way, url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=beside())
    return float(json.loads(done.stdout))


def blocking(url: str, count: int) -> float:
    """Seconds until the last message is accepted, by the broker's account."""
    with penstock.connect(url) as connection:
        began = time.perf_counter()
        for _ in connection.queue(QUEUE).receive(limit=count, prefetch=CREDIT):
            pass
        return time.perf_counter() - began


async def by_loop(url: str, count: int) -> float:
    """Seconds, as of `blocking`."""
    async with penstock.connect_async(url) as connection:
        began = time.perf_counter()
        async for _ in connection.queue(QUEUE).receive(limit=count, prefetch=CREDIT):
            pass
        return time.perf_counter() - began


def sending(url: str, count: int) -> float:
    """Seconds until the last message is confirmed."""
    with penstock.connect(url) as connection:
        body = os.urandom(SIZE)
        began = time.perf_counter()
        connection.queue(QUEUE).send_many(body for _ in range(count))
        return time.perf_counter() - began


def respond(url: str, _: int) -> float:
    """Reply to each request, and send every other message on, until the process ends."""
    with penstock.connect(url) as connection, connection.session() as session:
        producer = session.producer(PONG)
        for message in connection.queue(QUEUE).receive():
            if message.reply_to is None:
                producer.send(message.body)
            else:
                message.reply(message.body)
    return 0.0


if __name__ == "__main__":
    way, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ways = {"blocking": blocking, "async": lambda *given: asyncio.run(by_loop(*given)), "send": sending, "respond": respond}
    print(ways[way](url, count))

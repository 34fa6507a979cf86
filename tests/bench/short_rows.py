"""Rows about the client's loops over waiting messages, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from amqp_rows import CREDIT, Load, running
from feeding import QUEUE, beside
from harness import Bench, Line

import penstock

SIZE = 1024


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


if __name__ == "__main__":
    way, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    print(blocking(url, count) if way == "blocking" else asyncio.run(by_loop(url, count)))

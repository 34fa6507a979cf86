"""Rows about the notification of waiting links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from amqp_rows import Load, running
from feeding import QUEUE
from harness import Bench, Line

from penstock.broker_core.client.flight import Client

IDLE = 1_000  # links that wait without a notification


def idle(bench: Bench) -> Iterator[Line]:
    """Cost of one arrival for the broker, however many wait."""
    arrivals, links = bench.count(1_000, 100), bench.count(IDLE, 100)
    with running(bench) as crowded, running(bench) as lonely, Load() as many, Load() as single:
        many("wait_for_messages", url=crowded.amqp_url, links=links)
        single("wait_for_messages", url=lonely.amqp_url, links=1)
        for broker, count in ((crowded, links), (lonely, 1)):
            with Client(broker.url) as client:
                assert client.call("queue.stat", queue=QUEUE)["consumers"] == count

        def with_many(_: int) -> float:
            before = cpu_seconds(crowded.pid)
            many("arrive", url=crowded.amqp_url, count=arrivals, size=64)
            return (cpu_seconds(crowded.pid) - before) / arrivals * 1e6

        def with_one(_: int) -> float:
            before = cpu_seconds(lonely.pid)
            single("arrive", url=lonely.amqp_url, count=arrivals, size=64)
            return (cpu_seconds(lonely.pid) - before) / arrivals * 1e6

        with_many(0), with_one(0)
        ours, theirs = bench.pairs("µs", with_many, with_one)
    title = f"the broker's CPU time for one arrival and its delivery, {links:,} consumers waiting"
    yield Line("idle", title, "one consumer", 1.3, None, False, "µs", ours, theirs)


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""Rows about the HTTP plane: the cost of an open page and of a scrape each second."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from amqp_rows import CREDIT, Load, running
from harness import Bench, Line, cpu_of_family
from interest_rows import cpu_seconds

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

QUEUES = 1_000
PLOTS = 50  # queues whose last hour the page shows


def watched(bench: Bench) -> Iterator[Line]:
    """AMQP rates and latency with an open page, and the broker's share of a scrape."""
    count, single = bench.count(200_000, 5_000), bench.count(3_000, 100)  # for two seconds, so that each has its scrapes
    rates, latencies = bench.count(40, 5), bench.count(15, 5)  # single figures vary by a third, with the disk
    with running(bench) as broker, Load() as load:
        with Client(broker.url) as client:
            for number in range(QUEUES):
                client.call("queue.declare", queue=f"queue {number}")

        def rate(do: str) -> float:
            size: dict[str, Any] = {"size": 1024} if do == "send" else {"credit": CREDIT}
            return count / float(load(do, url=broker.amqp_url, count=count, **size)["seconds"])

        def both_ways(_: int) -> float:
            return statistics.harmonic_mean([rate("send"), rate("receive")])

        worst: list[float] = []

        def p99(_: int) -> float:
            figures = load("latency", url=broker.amqp_url, count=single, size=1024)["seconds"]
            worst.append(max(figures) * 1000)
            return statistics.quantiles(figures, n=100)[98] * 1000

        def while_watched(measure: Any) -> Any:
            def measured(number: int) -> float:
                with looking(broker):
                    return float(measure(number))

            return measured

        meanwhile = f"while the page is open and /metrics is scraped each second, {QUEUES:,} queues"
        both_ways(0), while_watched(both_ways)(0)
        figures = bench.pairs("messages/s", while_watched(both_ways), both_ways, repeats=rates, turned=True)
        yield Line(
            "watched", f"AMQP in and out, {meanwhile}", "without page and scrape", 0.97, None, True, "messages/s", *figures
        )
        figures = bench.pairs("ms", while_watched(p99), p99, repeats=latencies, turned=True)
        more = {"the slowest of each run in its order, watched, not, not, watched …, ms": worst}
        about = f"99th percentile from send to receipt, {meanwhile}"
        yield Line("watched", about, "without page and scrape", 1.1, None, False, "ms", *figures, more=more)

        every: list[float] = []

        def scrape(_: int) -> float:
            before, of_all, scrapes = cpu_seconds(broker.pid), cpu_of_family(broker.pid), 20
            for _ in range(scrapes):
                get(broker, "/metrics")
            every.append((cpu_of_family(broker.pid) - of_all) / scrapes * 1000)
            return (cpu_seconds(broker.pid) - before) / scrapes * 1000

        scrape(0)
        every.clear()
        (figures_ms,) = bench.pairs("ms", scrape)
        about = f"CPU time of the broker's own process for /metrics, {QUEUES:,} queues"
        yield Line("scrape", about, "", 50, None, False, "ms", figures_ms, more={"with the process for HTTP, ms": every})


@contextmanager
def looking(broker: Broker) -> Iterator[None]:
    """A page that asks for counts each second and for plots each ten, and a scrape each second."""
    enough, failed = threading.Event(), list[Exception]()
    plots = "/api/v1/history?" + "&".join(f"queue=queue%20{number}" for number in range(PLOTS))

    def look(*paths: tuple[str, int]) -> None:
        try:
            due = time.monotonic() + 0.5  # so many looks as there are seconds
            while not enough.wait(max(0.0, due - time.monotonic())):
                for path, every in paths:
                    if int(due) % every == 0:
                        get(broker, path)
                due += 1
        except Exception as error:
            failed.append(error)

    get(broker, "/metrics")  # the process is there
    lookers = [
        threading.Thread(target=look, args=(("/api/v1/counts", 1), (plots, 10))),
        threading.Thread(target=look, args=(("/metrics", 1),)),
    ]
    for looker in lookers:
        looker.start()
    try:
        yield
    finally:
        enough.set()
        for looker in lookers:
            looker.join()
    if failed:
        raise failed[0]


def get(broker: Broker, path: str) -> None:
    """Ask, and read all of the answer."""
    connection = http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    while answer.read(1 << 20):
        pass
    connection.close()

"""Rows that compare Penstock with Artemis: the same foreign client and the same disk in one run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feeding import QUEUE
from harness import WARM_UPS, Bench, Line, cpu_of_family, standing_still

from penstock.broker_core.server.child import Broker
from tests.artemis import VERSION, running

sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))
from building import command_of
from driving import Program

MESSAGES = 200_000  # of 1 KiB a repeat: five to ten seconds; with a tenth of that, single pairs differ by half
WINDOW = 1000
#: Connections that send, and as many that receive, in the rows of many; queues, where they do not share one.
MANY = 8
#: Seconds, passed to the client, which gives up then.
LIMIT_S = 50


def both_ways(bench: Bench) -> Iterator[Line]:
    """go-amqp sends and receives simultaneously, with a connection for each."""
    yield _beside(bench, "artemis", 1.5, [QUEUE], 1, WINDOW)


def one_queue(bench: Bench) -> Iterator[Line]:
    """Eight connections send to one queue, and eight receive from it."""
    yield _beside(bench, "artemis-connections", 1.3, [QUEUE], MANY, WINDOW // MANY)


def eight_queues(bench: Bench) -> Iterator[Line]:
    """Eight connections send, each to a queue of its own, and eight receive."""
    yield _beside(bench, "artemis-queues", 1.2, [f"{QUEUE}-{number}" for number in range(MANY)], MANY, WINDOW // MANY)


class _Side:
    """One of the two brokers, at which the client is let loose, while the other, `beside`, stands still. `cpu`: µs a message, one
    figure a repeat, by whose it is, with that of the processes below it."""

    def __init__(self, name: str, client: Program, url: str, pid: int, beside: int, order: dict[str, Any]) -> None:
        self._beside, self._client, self._order = beside, client, {**order, "url": url, "way": "both", "wait": LIMIT_S}
        self._pids = {f"CPU of {name}, µs/message": pid, f"CPU of the client of {name}, µs/message": client.process.pid}
        self.cpu: dict[str, list[float]] = {whose: [] for whose in self._pids}

    def rate(self, repeat: int) -> float:
        """Messages a second. The CPU of a `repeat` below 0 is not kept: that is a warm-up."""
        count = self._order["count"]
        before = {whose: cpu_of_family(pid) for whose, pid in self._pids.items()}
        with standing_still(self._beside):
            answer = self._client.do("throughput", **self._order)
        for whose, pid in self._pids.items() if repeat >= 0 else ():
            self.cpu[whose].append((cpu_of_family(pid) - before[whose]) / count * 1e6)
        return count / float(answer["seconds"])


def _beside(bench: Bench, name: str, target: float, queues: list[str], connections: int, window: int) -> Line:
    count = bench.count(MESSAGES, 2000)
    order = {"address": queues, "connections": connections, "count": count, "size": 1024, "window": window}
    command = command_of("go_amqp")
    home, theirs_home = bench.folder(), bench.folder()
    with Broker(home, fsync="always") as broker, running(theirs_home, *queues) as artemis, Program(command) as client:
        for queue in queues:
            broker.declare(queue)
        assert artemis.pid is not None
        sides = (
            _Side("Penstock", client, broker.amqp_url, broker.pid, artemis.pid, order),
            _Side("Artemis", client, artemis.url, artemis.pid, broker.pid, order),
        )
        for _ in range(WARM_UPS):
            for side in sides:
                side.rate(-1)
        ours, theirs = bench.pairs("messages/s", *(side.rate for side in sides), turned=True)
    bench.remove(home)
    bench.remove(theirs_home)
    more = sides[0].cpu | sides[1].cpu
    for whose, figures in more.items():
        bench.say(f"{whose}: " + ", ".join(f"{figure:.1f}" for figure in figures))
    title = f"go-amqp sends {count:,} durable messages of 1 KiB, {window:,} unconfirmed at most, and receives and accepts them"
    if connections > 1:
        title += f": {connections} connections a way, {'one queue' if len(queues) == 1 else f'{len(queues)} queues'}"
    against = f"ActiveMQ Artemis {VERSION} from the registry, its default journal"
    return Line(name, title, against, target, None, True, "messages/s", ours, theirs, more=more)

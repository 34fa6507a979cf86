"""The row that sets us beside another broker: the same foreign client, the same disk, one run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from artemis import VERSION, artemis
from feeding import QUEUE
from harness import Bench, Line

from penstock.broker_core.server.process import Broker

sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))
from building import command_of
from driving import Program

MESSAGES = 30_000  # of 1 KiB a repeat: about two seconds
WINDOW = 1000
#: Seconds, passed to the client, which gives up then.
LIMIT_S = 50


def both_ways(bench: Bench) -> Iterator[Line]:
    """go-amqp sends and receives at once, a connection for each."""
    count = bench.count(MESSAGES, 2000)
    command = command_of("go_amqp")
    home, theirs_home = bench.folder(), bench.folder()
    with Broker(home, fsync="always") as broker, artemis(theirs_home, QUEUE) as other, Program(command) as client:
        broker.declare(QUEUE)

        def rate(url: str) -> float:
            answer = client.do(
                "throughput", url=url, address=QUEUE, count=count, size=1024, window=WINDOW, way="both", wait=LIMIT_S
            )
            return count / float(answer["seconds"])

        # A JVM is quicker once it has compiled what is hot: it gets twice the warm-up.
        rate(broker.amqp_url), rate(other), rate(other)
        ours, theirs = bench.pairs("messages/s", lambda _: rate(broker.amqp_url), lambda _: rate(other))
    bench.remove(home)
    bench.remove(theirs_home)
    what = f"go-amqp sends {count:,} durable messages of 1 KiB, {WINDOW:,} unconfirmed at most, and receives and accepts them"
    against = f"ActiveMQ Artemis {VERSION} from the registry, its default journal"
    yield Line("artemis", what, against, 0.7, 1.5, True, "messages/s", ours, theirs)

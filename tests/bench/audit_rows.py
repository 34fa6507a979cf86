"""The row about the audit log: AMQP rates while an operator changes queues, recorded and unrecorded."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from amqp_rows import CREDIT, Load
from feeding import QUEUE
from harness import Bench, Line

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

CHANGES_S = 20.0  # audited actions a second: more than many operators, and a script that declares queues
ALTERED = "altered"
#: A broker that records nothing.
UNRECORDED = """
from penstock.broker_core.cli import main
from penstock.broker_core.security.audit import AuditLog
AuditLog.add = lambda self, entry: None
raise SystemExit(main())
"""


class _Unrecorded(Broker):
    def _command(self) -> list[str]:
        return [sys.executable, "-c", UNRECORDED, *super()._command()[3:]]  # instead of `-m penstock`


class _Operator:
    """Alters a queue at a fixed rate, until `close`."""

    def __init__(self, url: str) -> None:
        self._closing, self._client = threading.Event(), Client(url)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due, attempts = time.monotonic(), 1
        while not self._closing.wait(max(0.0, due - time.monotonic())):
            due, attempts = due + 1 / CHANGES_S, attempts % 9 + 1
            self._client.call("queue.alter", queue=ALTERED, options={"maxAttempts": attempts})

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._client.close()


@contextmanager
def _site(bench: Bench, kind: type[Broker]) -> Iterator[str]:
    data = bench.folder()
    with kind(data, fsync="always") as broker:
        for queue in (QUEUE, ALTERED):
            broker.declare(queue)
        operator = _Operator(broker.url)
        yield broker.amqp_url
        operator.close()
    bench.remove(data)


def _rate(load: Load, do: str, url: str, count: int, _: int = 0) -> float:
    if do == "receive":
        load("send", url=url, count=count, size=1024)
    size = {"size": 1024} if do == "send" else {"credit": CREDIT}
    return count / float(load(do, url=url, count=count, **size)["seconds"])


def audited(bench: Bench) -> Iterator[Line]:
    count = bench.count(100_000, 5_000)
    with _site(bench, Broker) as recorded, _site(bench, _Unrecorded) as unrecorded, Load() as load:
        for do, way in (("send", "in"), ("receive", "out, each accepted")):
            sides = [partial(_rate, load, do, url, count) for url in (recorded, unrecorded)]
            for side in sides:
                side()  # warm
            figures = bench.pairs("messages/s", *sides, turned=True)
            title = f"durable transfers of 1 KiB {way}, while an operator changes a queue {CHANGES_S:g} times a second"
            yield Line("audit", title, "the same without the audit log", 1.0, None, True, "messages/s", *figures)

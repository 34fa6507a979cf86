"""The row about explanations: why each of a hundred consumers does not receive one of a million messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from amqp_rows import running
from engine_rows import QUEUE as ENGINE_QUEUE
from engine_rows import EngineAlone
from feeding import BATCH, QUEUE, batch_of
from harness import Bench, Line, Stopwatch
from kind_rows import send

from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS

CONSUMERS, SELECTORS = 100, 5  # half of the consumers have one of these selectors, the others have no credit
WAIT_S = 120.0  # until the broker has evaluated the selectors


def explain(bench: Bench) -> Iterator[Line]:
    messages = bench.count(1_000_000, 100_000)
    with running(bench) as broker, Client(broker.url) as client, contextlib.ExitStack() as connections:
        send(client, QUEUE, batch_of(BATCH, 100), messages // BATCH)
        for number in range(0, CONSUMERS, 10):
            connection = connections.enter_context(connect(broker.amqp_url))
            for link in range(number, number + 10):
                if link % 2:
                    connection.receiver(QUEUE, credit=0)
                else:
                    connection.receiver(QUEUE, credit=10, selector=f"region = 'r{link // 2 % SELECTORS}'")

        def seconds() -> float:
            with Stopwatch() as watch:
                answer = client.call("queue.explain", queue=QUEUE)
            assert len(answer["consumers"]) == CONSUMERS
            return watch.seconds if _is_evaluated(answer) else 0.0

        until = time.monotonic() + WAIT_S
        while not seconds():
            assert time.monotonic() < until, "the selectors are not evaluated"
            time.sleep(0.1)
        whole = [seconds() * 1e3 for _ in range(bench.repeats)]
    title = f"`queue.explain` of {messages:,} messages and {CONSUMERS} consumers, over Flight"
    yield Line("explain", title, "", 50.0, None, False, "ms", whole)
    longest = [_longest_decision(messages) * 1e3 for _ in range(bench.repeats)]
    yield Line("explain", f"the longest of its {CONSUMERS} turns under the lock", "", 1.0, None, False, "ms", longest)


def _is_evaluated(answer: dict[str, Any]) -> bool:
    reasons = [{reason["reason"] for reason in consumer["reasons"]} for consumer in answer["consumers"]]
    return (
        all("selector" in names or "credit" in names for names in reasons) and sum("selector" in names for names in reasons) > 0
    )


class _NoMatch:
    """A selector that is evaluated for all messages and matches none."""

    def known(self, queue: object, block: int) -> Any:
        return np.unpackbits(np.zeros(BLOCK_ROWS // 8, np.uint8)).view(np.bool_)


def _longest_decision(messages: int) -> float:
    engine, longest = EngineAlone(), 0.0
    engine.fill(messages, holes=False)
    for number in range(CONSUMERS):
        selector = None if number % 2 else f"k = {number}"
        holder = engine.do(c.Subscribe(ENGINE_QUEUE, selector=selector))
        matching = None if selector is None else _NoMatch()
        started = time.thread_time()  # a busy machine does not count
        engine.do(c.Explain(ENGINE_QUEUE, holder, matching=matching))
        longest = max(longest, time.thread_time() - started)
    return longest

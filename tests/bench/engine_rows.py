"""Rows about the rules of the engine: the cost of a command with many messages and consumers.

Timed is what happens under the broker's lock: decide, encode the event, apply. The disk is left out: it would hide the
difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from harness import Bench, Line, Stopwatch

from penstock.broker_core.engine import BrokerState, apply, decide
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.rowset import BLOCK_BITS, BLOCK_ROWS, RowSet
from penstock.broker_core.engine.events import codec

QUEUE = "bench"
TAKEN = 1_000  # messages of one command
CYCLES, ROUNDS = 5, 20  # cycles of a small queue until it is replaced; rounds of a repeat


class EngineAlone:
    """The engine without its journal: events are encoded as they would be, and thrown away."""

    def __init__(self) -> None:
        self.state = BrokerState()
        self._clock = count(1_700_000_000_000_000, 1000)
        self._position = 0
        self.do(c.DeclareQueue(QUEUE))

    def do(self, command: c.Command[Any]) -> Any:
        now = next(self._clock)
        decision = decide(self.state, command, c.Now(now, now))
        for event, _ in decision.events:
            if event.journaled:
                codec.encode(event)
                self._position += 1 << 20
            apply(self.state, event, self._position)
        return decision.reply

    def fill(self, waiting: int, *, holes: bool) -> None:
        """`waiting` AVAILABLE messages; with holes, every second place among them is settled."""
        places = 2 * waiting if holes else waiting
        queue = self.state.queues[QUEUE]
        start = queue.next_sequence
        for done in range(0, places, 10_000):
            self.do(c.Enqueue(QUEUE, min(10_000, places - done), 100))
        if holes:
            holder = self.do(c.Subscribe(QUEUE))
            gone = RowSet.of(_every_second(start, start + places))
            apply(self.state, e.Acquired(QUEUE, holder, gone), 0)
            apply(self.state, e.Settled(QUEUE, holder, gone, 1, self.state.time), 0)
            self.do(c.Unsubscribe(QUEUE, holder))


def _every_second(start: int, stop: int) -> Iterator[tuple[int, Any]]:
    for number in range(start >> BLOCK_BITS, ((stop - 1) >> BLOCK_BITS) + 1):
        base = number << BLOCK_BITS
        yield number, np.arange(max(start - base, 0), min(stop - base, BLOCK_ROWS), 2)


def acquire(bench: Bench) -> Iterator[Line]:
    few, many = 10_000, bench.count(10_000_000, 1_000_000)
    for holes in (False, True):
        large = EngineAlone()
        with bench.doing(f"{many:,} waiting" + (", every second place settled" if holes else "")):
            large.fill(many, holes=holes)
        taker = large.do(c.Subscribe(QUEUE))

        def one_round(engine: EngineAlone, holder: int) -> float:
            with Stopwatch() as watch:
                for _ in range(CYCLES):
                    rows = engine.do(c.Acquire(QUEUE, holder, TAKEN)).rows
                    assert rows.count == TAKEN
                    engine.do(c.Settle(QUEUE, holder, rows))
            return watch.seconds

        def with_many(_: int, engine: EngineAlone = large, holder: int = taker) -> float:
            return _microseconds(one_round(engine, holder) for _ in range(ROUNDS))

        def with_few(_: int, holes: bool = holes) -> float:
            return _microseconds(one_round(*_small(few, holes)) for _ in range(ROUNDS))

        ours, theirs = bench.pairs("µs", with_many, with_few)
        title = f"acquire + settle of {TAKEN:,} messages, {many:,} waiting" + (", every second place settled" if holes else "")
        yield Line("acquire", title, f"{few:,} waiting, likewise", 1.3, None, False, "µs", ours, theirs)


def _small(waiting: int, holes: bool) -> tuple[EngineAlone, int]:
    engine = EngineAlone()
    engine.fill(waiting, holes=holes)
    return engine, engine.do(c.Subscribe(QUEUE))


def _microseconds(seconds: Iterator[float]) -> float:
    """The median round, as microseconds a cycle."""
    return float(np.median(list(seconds))) / CYCLES * 1e6


def release(bench: Bench) -> Iterator[Line]:
    subscriptions, releases = 1_000, 2_000

    def prepared(subscribers: int) -> tuple[EngineAlone, int]:
        engine = EngineAlone()
        engine.fill(100_000, holes=False)
        holders = [engine.do(c.Subscribe(QUEUE)) for _ in range(subscribers)]
        first = engine.do(c.Acquire(QUEUE, holders[0], 1)).rows
        for holder in holders:  # every subscription has come some way, so that each release lies behind it
            engine.do(c.Acquire(QUEUE, holder, 10))
        engine.do(c.Release(QUEUE, holders[0], first))
        return engine, holders[0]

    def timed(engine: EngineAlone, holder: int) -> float:
        seconds = []
        for _ in range(releases):
            rows = engine.do(c.Acquire(QUEUE, holder, 1)).rows
            assert rows.first == 0, "not the first message, which lies behind them all"
            with Stopwatch() as watch:
                engine.do(c.Release(QUEUE, holder, rows))
            seconds.append(watch.seconds)
        return float(np.median(seconds)) * 1e6

    crowded, lonely = prepared(subscriptions), prepared(1)
    timed(*crowded), timed(*lonely)
    ours, theirs = bench.pairs("µs", lambda _: timed(*crowded), lambda _: timed(*lonely))
    title = f"a release, {subscriptions:,} subscriptions on the queue"
    yield Line("release", title, "one subscription", 1.3, None, False, "µs", ours, theirs)

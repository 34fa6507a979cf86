"""U3: counts of all queues as columns, their last hour, and histograms."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import cast

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.model.state import BrokerState
from penstock.broker_core.service import history as rings
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.histograms import BOUNDS_S, Histogram
from penstock.broker_core.service.history import PERIOD_S, SAMPLES, History
from penstock.broker_core.service.queue_counts import COLUMNS, LOSSES, NO_LIMIT, QUEUES_AT_ONCE, CountTable, QueueCounts

from ..engine.harness import Engine
from ..journal.lying_disk import LyingDisk
from .helpers import START, Clock, abandon, open_service, running


def row(service: BrokerService, queue: str) -> dict[str, int]:
    counts = service.counts.read()
    return dict(zip(COLUMNS, counts.table[:, counts.names.index(queue)].tolist(), strict=True))


def test_every_column_is_what_the_queue_is() -> None:
    clock = Clock()
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("dead"))
        service.submit(c.DeclareQueue("q", options={"deadLetterQueue": "dead"}))
        service.submit(c.Enqueue("q", 6, 10))
        link = service.submit(c.Subscribe("q"))
        first = service.submit(c.Acquire("q", link, 2)).rows
        service.submit(c.Settle("q", link, first, Outcome.REJECTED))
        clock.advance(5)
        held = service.submit(c.Acquire("q", link, 2)).rows
        service.submit(c.Release("q", link, held))
        again = service.submit(c.Acquire("q", link, 1)).rows
        service.submit(c.Settle("q", link, again, Outcome.ACCEPTED))
        service.submit(c.Acquire("q", link, 1))
        service.submit(c.PauseQueue("q"))

        counts = row(service, "q")
        assert counts.pop("bytes") > 0
        assert counts == {
            "available": 2,
            "acquired": 1,
            "delayed": 0,
            "deferred": 0,
            "staged": 0,
            "deadLetters": 0,
            "oldest": clock.wall - 5_000_000,
            "consumers": 1,
            "leases": 0,
            "paused": 1,
            "enqueued": 6,
            "delivered": 6,
            "redelivered": 2,
            "redriven": 0,
            "acknowledged": 1,
            "rejected": 0,
            "deadLettered": 2,
            "expired": 0,
            "removed": 0,
            **dict.fromkeys(LOSSES, 0),
            **dict.fromkeys(("maxMessages", "maxBytes", "collects"), 0),
            "fill": NO_LIMIT,
        }
        dead = row(service, "dead") | {"bytes": 0, "oldest": 0}
        some = {"available": 2, "deadLetters": 2, "enqueued": 2, "collects": 1, "fill": NO_LIMIT}
        assert dead == dict.fromkeys(COLUMNS, 0) | some


def test_dead_letters_are_those_of_a_queue_that_another_names() -> None:
    with running(LyingDisk(), Clock()) as service:
        service.submit(c.DeclareQueue("dead"))
        service.submit(c.DeclareQueue("q"))
        service.submit(c.Enqueue("dead", 2, 10))
        dead_letters = [row(service, "dead")["deadLetters"]]
        for named in ("dead", None):
            service.submit(c.AlterQueue("q", {"deadLetterQueue": named}))
            dead_letters.append(row(service, "dead")["deadLetters"])
        assert dead_letters == [0, 2, 0]


def test_totals_begin_at_0_with_the_broker_and_dead_letters_that_come_back_count_once() -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock) as service:
        service.submit(c.DeclareQueue("q", options={"maxAttempts": 1}))
        service.submit(c.Enqueue("q", 3, 10))
    with running(disk, clock.restarted()) as service:
        link = service.submit(c.Subscribe("q"))
        rows = service.submit(c.Acquire("q", link, 3)).rows
        service.submit(c.Release("q", link, rows, Cause.MODIFIED))
        counts = row(service, "q")
        assert (counts["enqueued"], counts["deadLettered"], counts["deadLetters"], counts["oldest"]) == (0, 3, 3, 0)
        service.submit(c.Redrive("q"))
        counts = row(service, "q")
        assert (counts["deadLettered"], counts["redriven"], counts["available"], counts["deadLetters"]) == (3, 3, 3, 0)
        assert counts["oldest"] == START


def test_the_oldest_message_is_found_across_blocks_and_again_when_one_comes_back() -> None:
    """The place of the last reading is remembered, and the answer stays correct."""
    clock = Clock()
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("q", options={"maxAttempts": 1}))
        arrived = []
        for _ in range(3):
            arrived.append(clock.wall)
            service.submit(c.Enqueue("q", BLOCK_ROWS // 2 + 1, 10))
            clock.advance(60)
        link = service.submit(c.Subscribe("q"))
        for batch in range(3):
            assert row(service, "q")["oldest"] == arrived[batch]
            rows = service.submit(c.Acquire("q", link, BLOCK_ROWS // 2 + 1)).rows
            assert row(service, "q")["oldest"] == arrived[batch]  # held, and not ended
            service.submit(c.Release("q", link, rows, Cause.MODIFIED))
        assert row(service, "q")["oldest"] == 0
        service.submit(c.Redrive("q"))
        assert row(service, "q")["oldest"] == arrived[0]


def test_a_queue_that_goes_is_gone_and_another_of_its_name_is_another() -> None:
    with running(LyingDisk()) as service:
        for name in ("a", "b"):
            service.submit(c.DeclareQueue(name))
            service.submit(c.Enqueue(name, 2, 10))
        assert service.counts.read().of("available").tolist() == [2, 2]
        service.submit(c.DeleteQueue("a"))
        after = service.counts.read()
        assert (after.names, after.table.shape, after.of("available").tolist()) == (["b"], (len(COLUMNS), 1), [2])
        service.submit(c.DeclareQueue("a"))
        after = service.counts.read()
        assert (after.names, after.of("available").tolist()) == (["b", "a"], [2, 0])


class Watchful:
    """A lock that counts its holds, and the Python functions that are called in each."""

    def __init__(self, meanwhile: Callable[[int], object] = lambda hold: None) -> None:
        self.holds: list[Counter[str]] = []
        self._meanwhile = meanwhile  # done by others before each hold, which are counted from 0

    def __enter__(self) -> None:
        self._meanwhile(len(self.holds))
        self.holds.append(Counter())
        gc.disable()  # a collection would call finalizers of other tests
        sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        self.holds[-1][f"{event} {frame.f_code.co_name}"] += 1


def watched_counts(state: BrokerState, lock: Watchful) -> QueueCounts:
    return QueueCounts(state, cast(threading.Lock, lock))


def declare(service: BrokerService, numbers: range, messages: int = 3) -> None:
    for number in numbers:
        service.submit_nowait(c.DeclareQueue(f"q{number}"))
        service.submit_nowait(c.Enqueue(f"q{number}", messages, 10))


def test_a_hold_of_the_lock_makes_no_more_calls_for_more_queues() -> None:
    """All queues are new to the reader, so each is read."""
    longest = []
    with running(LyingDisk()) as service:
        for have, want in ((0, 100), (100, 1000)):
            declare(service, range(have, want))
            lock = Watchful()
            assert watched_counts(service.state, lock).read().of("available").sum() == 3 * want
            longest.append(max(hold.total() for hold in lock.holds))
    assert longest[0] == longest[1]


def test_only_queues_that_have_changed_are_read_again() -> None:
    with running(LyingDisk()) as service:
        declare(service, range(1000))
        lock = Watchful()
        counts = watched_counts(service.state, lock)
        counts.read()
        service.submit(c.Enqueue("q77", 1, 10))
        service.submit(c.PauseQueue("q500"))
        service.submit(c.DeleteQueue("q10"))
        lock.holds.clear()
        after = counts.read()
        assert [hold["call _row"] for hold in lock.holds] == [0, 0, 2]
        assert after.of("available").sum() == 3 * 999 + 1
        assert [name for name, paused in zip(after.names, after.of("paused"), strict=True) if paused] == ["q500"]


def test_a_queue_that_goes_while_others_are_read_is_not_read() -> None:
    """Ignore a deleted queue whose messages wait to be recorded."""
    engine = Engine(BrokerState(records=True))
    for number in range(100):
        engine.run(c.DeclareQueue(f"q{number}"))
    last = [f"q{number}" for number in range(3 * QUEUES_AT_ONCE, 100)]
    for name in last:
        engine.run(c.Enqueue(name, BLOCK_ROWS, 10), c.Purge(name, BLOCK_ROWS), c.Enqueue(name, 3, 10))
    counts = watched_counts(engine.state, Watchful(lambda hold: hold == 3 and engine.run(*map(c.DeleteQueue, last))))
    counts.read()
    assert engine.state.departed, "nothing was to be recorded"
    assert counts.read().names == [f"q{number}" for number in range(3 * QUEUES_AT_ONCE)]


def test_a_read_makes_no_more_calls_for_more_messages() -> None:
    made = []
    for messages in (3, 300):
        with running(LyingDisk()) as service:
            declare(service, range(100), messages)
            lock = Watchful()
            assert watched_counts(service.state, lock).read().of("available").sum() == 100 * messages
            made.append(sum(hold.total() for hold in lock.holds))
    assert made[0] == made[1]


def counts(**queues: tuple[int, int, int, int]) -> CountTable:
    """`queues`: available, and the totals enqueued, delivered, acknowledged."""
    table = np.zeros((len(COLUMNS), len(queues)), np.int64)
    for column, number in zip(("available", "enqueued", "delivered", "acknowledged"), range(4), strict=True):
        table[COLUMNS.index(column)] = [values[number] for values in queues.values()]
    return CountTable(list(queues), table)


def test_history_has_depth_and_what_came_since_the_last_sample() -> None:
    history = History()
    history.sample(0.0, 100, counts(q=(5, 5, 0, 0)))
    history.sample(10.0, 200, counts(q=(7, 9, 3, 2), r=(1, 1, 0, 0)))
    plot = history.of(["r", "q", "nobody"])
    assert (plot.time, plot.names) == (200, ["r", "q"])
    assert plot.table.tolist() == [[[0, 1], [0, 1], [0, 0], [0, 0]], [[5, 7], [5, 4], [0, 3], [0, 2]]]
    assert history.of_all().table.tolist() == [[[5, 8], [5, 5], [0, 3], [0, 2]]]


def test_history_keeps_an_hour_and_another_queue_of_the_same_name_begins_anew() -> None:
    history = History()
    for number in range(SAMPLES + 5):
        history.sample(number * PERIOD_S, number, counts(q=(number, 2 * number, 0, 0)))
    (depth, enqueued, *_) = history.of(["q"]).table[0].tolist()
    assert depth == [*range(5, SAMPLES + 5)]
    assert enqueued == [2] * SAMPLES
    history.sample(5000.0, 1, counts(q=(1, 1, 0, 0)))  # deleted, and declared again
    assert history.of(["q"]).table[0, 1, -1] == 0
    history.sample(5010.0, 1, counts())
    history.sample(5020.0, 1, counts(q=(1, 1, 0, 0)))
    assert history.of(["q"]).table[0, 0].tolist() == [0] * (SAMPLES - 1) + [1]


def test_a_late_sample_is_spread_over_the_time_that_it_stands_for() -> None:
    history = History()
    history.sample(0.0, 1, counts(q=(0, 0, 0, 0)))
    history.sample(41.0, 1, counts(q=(8, 8, 0, 0)))
    assert history.of(["q"]).table[0, :2].tolist() == [[0, 8, 8, 8, 8], [0, 2, 2, 2, 2]]


def test_history_has_a_limit_on_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "MAX_HISTORY_QUEUES", 20)
    history = History()
    for generation in range(5):  # queues come and go, and the ring does not grow for deleted queues
        history.sample(0.0, 1, counts(**{f"q{generation}-{number}": (1, 1, 0, 0) for number in range(30)}))
    assert len(history.of([f"q4-{number}" for number in range(30)]).names) == 20
    assert history.of_all().table[0, 0, -1] == 20
    assert len(history._ring) == 20


def test_samples_are_due_every_ten_seconds_and_not_twice_after_a_standstill() -> None:
    history, taken = History(), []
    for second in (*range(35), 200, 201, 202, 212):
        if history.is_due(float(second)):
            history.sample(float(second), 1, counts(q=(0, 0, 0, 0)))
            taken.append(second)
    assert taken == [0, 10, 20, 30, 200, 212]


def test_the_broker_takes_samples_by_its_own_clock() -> None:
    clock = Clock()
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("q"))
        service.submit(c.Enqueue("q", 4, 10))
        for _ in range(12):
            service._keep_house(seldom=False)
            clock.advance(1)
        assert service.history.of(["q"]).table[0, 0].tolist() == [4, 4]


def test_histograms_count_by_upper_bounds() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1] * 2):
        histogram.observe(seconds)
    buckets = histogram.read()
    counts = buckets["counts"]
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (2, 1, 1, 4)
    assert buckets["seconds"] == pytest.approx(BOUNDS_S[0] * 2.01 + BOUNDS_S[-1] * 2)


def test_every_sync_of_the_journal_is_observed() -> None:
    service = open_service(LyingDisk())
    try:
        before = sum(service.histograms.fsync.read()["counts"])
        service.submit(c.DeclareQueue("q"))
        assert sum(service.histograms.fsync.read()["counts"]) > before
    finally:
        abandon(service)

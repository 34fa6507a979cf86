"""Q3 Q4 under real threads: an entry never has two holders, and an *immediate* one is delivered once or its sender is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import enqueue, numbered, running

TAKERS, SENDERS, EACH, BATCH = 4, 2, 300, 3
PATIENCE_S = 20.0


def together(*jobs: Callable[[], None]) -> None:
    """Run them at once, each in a thread; the first exception of any is raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def numbers(rows: RowSet) -> list[int]:
    return [int(number) for number in rows.sequences()]


def test_an_immediate_message_is_delivered_once_or_its_sender_is_told_never_both() -> None:
    """Q4, the race of seed 000: takers acquire between the enqueuing and the withdrawal, which are turns of their own here."""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"))
        delivered: Counter[int] = Counter()
        undelivered: Counter[int] = Counter()
        done = threading.Event()
        sending = threading.Semaphore(0)
        taken = threading.Condition()

        def take() -> None:
            holder = service.submit_nowait(c.Subscribe("q"))[0]
            while True:
                last = done.is_set()
                with service.turn() as turn:
                    (rows, _), _ = turn.execute(c.Acquire("q", holder, 2))
                    if rows:
                        turn.execute(c.Settle("q", holder, rows))
                with taken:
                    delivered.update(numbers(rows))
                    taken.notify_all()
                if last and not rows:
                    return

        def send() -> None:
            for round_ in range(EACH):
                placed, _ = service.submit_nowait(enqueue("q", *numbered(BATCH)))
                mine = RowSet.range(placed.next - BATCH, placed.next)
                if round_ % 10 == 0:  # so that both happen, whoever is quicker
                    with taken:
                        assert taken.wait_for(lambda mine=mine: mine.first in delivered, PATIENCE_S)  # type: ignore[misc]
                withdrawn, _ = service.submit_nowait(c.Withdraw("q", mine))
                with taken:
                    undelivered.update(numbers(withdrawn))
            sending.release()

        def end() -> None:
            for _ in range(SENDERS):
                sending.acquire()
            done.set()

        together(*[take] * TAKERS, *[send] * SENDERS, end)
        assert sorted((delivered + undelivered).elements()) == list(range(SENDERS * EACH * BATCH))
        assert outcomes(service) == {Outcome.ACCEPTED: len(delivered), Outcome.NOT_DELIVERED: len(undelivered)}


def outcomes(service: BrokerService) -> dict[Outcome, int]:
    found: Counter[Outcome] = Counter()
    for block in service.state.queues["q"].blocks.values():
        found.update(Outcome(outcome) for outcome in block.outcome.get(slice(0, block.filled)).tolist())  # type: ignore[union-attr]
    return {outcome: found[outcome] for outcome in (Outcome.ACCEPTED, Outcome.NOT_DELIVERED)} | dict(found)


def test_links_and_leases_of_many_threads_never_hold_the_same_message() -> None:
    """Q3: each takes, gives some back and settles the rest; at no time is a message another's, and each ends once."""
    count = 3000
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(count)))
        held: dict[int, int] = {}
        settled: Counter[int] = Counter()
        lock = threading.Lock()

        def hold(holder: int, rows: RowSet) -> None:
            with lock:
                for number in numbers(rows):
                    assert held.setdefault(number, holder) == holder, f"{number} has two holders"

        def let_go(rows: RowSet, *, end: bool) -> None:
            """Before the broker hears of it: from then on it may be another's."""
            with lock:
                for number in numbers(rows):
                    del held[number]
                    settled[number] += end

        def link(seed: int) -> None:
            holder = service.submit_nowait(c.Subscribe("q"))[0]
            turns = 0
            while rows := service.submit_nowait(c.Acquire("q", holder, 1 + (seed + turns) % 7))[0].rows:
                hold(holder, rows)
                turns += 1
                give_back = turns % 3 == 0 and turns < 200
                let_go(rows, end=not give_back)
                service.submit_nowait(c.Release("q", holder, rows) if give_back else c.Settle("q", holder, rows))

        def lease(name: str) -> None:
            batch = 0
            while True:
                reply = service.submit_nowait(c.AcquireBatch("q", name, "r", batch, messages=11))[0]
                if reply[1] in (None, batch):
                    return
                epoch, batch = reply[:2]
                _, rows = service.submit_nowait(c.ReadBatch(name, "r", epoch, batch, 0, count))[0]
                hold(-hash(name), rows)
                let_go(rows, end=True)
                service.submit_nowait(c.FinishBatches(name, batch))

        together(
            *[lambda seed=seed: link(seed) for seed in range(TAKERS)],  # type: ignore[misc]
            lambda: lease("a"),
            lambda: lease("b"),
        )
        rest = service.submit(c.Acquire("q", service.submit(c.Subscribe("q")), count)).rows  # given back when the others had gone
        settled.update(numbers(rest))
        assert sorted(settled.elements()) == list(range(count))
        counts = service.state.queues["q"].counts
        assert (counts[State.ARCHIVED], counts[State.ACQUIRED]) == (count - rest.count, rest.count)

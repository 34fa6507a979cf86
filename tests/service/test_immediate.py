"""Q3 Q4 under real threads: an entry never has two holders, and an *immediate* one is delivered once or refused."""

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


def together(*jobs: Callable[[], None]) -> None:
    """Run functions in parallel threads. Raises the first exception."""
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
    """Q4, the race of seed 000: one command decides who has the message, so that no other thread finds it in between."""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"))
        holders = [service.submit(c.Subscribe("q")) for _ in range(TAKERS)]
        delivered: Counter[int] = Counter()
        undelivered: Counter[str] = Counter()
        sending = [threading.Event() for _ in range(SENDERS)]
        lock = threading.Lock()

        def take(holder: int) -> None:
            while not all(event.is_set() for event in sending):
                assert not service.submit_nowait(c.Acquire("q", holder, 2))[0].rows, "an immediate message waits in the queue"

        def send(number: int) -> None:
            for round_ in range(EACH):
                offers = [c.Offer(holder, (round_ + number) % 2) for holder in holders[number::SENDERS]]
                made = enqueue("q", *numbered(BATCH))
                reply, _ = service.submit_nowait(c.EnqueueImmediate("q", made.count, made.sizes, made.payload, offers=offers))
                for holder, rows in reply.taken:
                    service.submit_nowait(c.Settle("q", holder, rows))
                with lock:
                    delivered.update(number for _, rows in reply.taken for number in numbers(rows))
                    undelivered["messages"] += len(reply.undelivered)
            sending[number].set()

        together(
            *[lambda holder=holder: take(holder) for holder in holders],  # type: ignore[misc]
            *[lambda number=number: send(number) for number in range(SENDERS)],  # type: ignore[misc]
        )
        sent = SENDERS * EACH * BATCH
        assert sorted(delivered.elements()) == list(range(sent // BATCH)), "half of the rounds have credit for two messages"
        assert undelivered["messages"] == sent - len(delivered)
        assert outcomes(service) == {Outcome.ACCEPTED: len(delivered)}


def outcomes(service: BrokerService) -> dict[Outcome, int]:
    counts: Counter[Outcome] = Counter()
    for block in service.state.queues["q"].blocks.values():
        counts.update(Outcome(outcome) for outcome in block.outcome.get(slice(0, block.filled)).tolist())  # type: ignore[union-attr]
    return dict(counts)


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
            """Before the broker receives it: afterwards another holder may have it."""
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

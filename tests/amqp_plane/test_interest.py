"""C1 C2 C4 Q22: which links are notified. Histories of a queue and its consumers against a simple model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker_core.amqp_plane.loop.interest import AWAITS, INTERESTED, NOTIFIED, RESTS, Candidate, Interest

QUANTUM = 3


class Worker(Candidate):
    """A consumer with credit. `able`: a state that it does not report before it is asked, such as that of its socket.

    With a selector, its matches are `known` only below a number.
    """

    def __init__(
        self, name: int, priority: int = 0, *, acquires: bool = True, kinds: Iterable[int] = (0, 1, 2), selects: bool = False
    ) -> None:
        self.name, self.priority, self.acquires, self.kinds = name, priority, acquires, set(kinds)
        self.known: float = 0 if selects and acquires else float("inf")
        self.credit = 0
        self.able = True
        self.seen = 0  # the position of a non-acquiring worker
        self.got: list[int] = []

    @property
    def capacity(self) -> int:
        return self.credit if self.able else 0


class Queue:
    """A queue without an engine: numbers of messages, each of a kind that only some consumers want."""

    def __init__(self) -> None:
        self.interest: Interest[Worker] = Interest()
        self.available: dict[int, int] = {}  # number → kind
        self.count = 0
        self.looks: list[Worker] = []
        self._names = itertools.count(1)

    def worker(self, priority: int = 0, *, credit: int = 0, **how: Any) -> Worker:
        worker = Worker(next(self._names), priority, **how)
        self.interest.join(worker.name, worker)
        self.grant(worker, credit)
        return worker

    def grant(self, worker: Worker, credit: int) -> None:
        worker.credit = credit
        if worker.capacity:
            self.interest.wants(worker)

    def arrive(self, *kinds: int) -> None:
        for kind in kinds:
            self.available[self.count] = kind
            self.count += 1
        self.interest.news()

    def wanted(self, worker: Worker) -> list[int]:
        only = self.interest._only
        if not worker.acquires:
            return [number for number in sorted(self.available) if number >= worker.seen]
        return [n for n, kind in sorted(self.available.items()) if kind in worker.kinds and only in (None, worker.name)]

    def turn(self) -> int:
        """Run one cycle as the plane does; return the number of looks."""
        self.interest.begin_round()
        looks = 0
        while (worker := self.interest.next(bool(self.available))) is not None:
            looks += self._look(worker)
            members = len(self.interest.members)
            selecting = sum(member.known < float("inf") for member in self.interest.members.values())
            assert looks <= members * (1 + selecting), "each looks once a turn, and again when the link ahead of it continues"
        return looks

    def evaluate(self, worker: Worker) -> None:
        """Evaluate all messages, as without arrivals meanwhile."""
        worker.known = self.count
        if worker.capacity:
            self.interest.resumes(worker)
        else:
            self.interest.rests(worker)

    def awaiting(self) -> list[Worker]:
        return [worker for worker in self.interest.members.values() if worker.standing == AWAITS]

    def place(self, worker: Worker) -> float:
        """Return the position before which the worker has passed all messages."""
        return min((number for number in self.wanted(worker) if number < worker.known), default=worker.known)

    def _look(self, worker: Worker) -> int:
        if not worker.capacity:
            self.interest.rests(worker)
            return 0
        self.looks.append(worker)
        wanted = self.wanted(worker)
        behind = [self.interest.members[number] for number in self.interest.ahead_of(worker)]
        bound = min([worker.known, *(self.place(member) for member in behind)])
        numbers = [number for number in wanted if number < bound][: min(worker.capacity, QUANTUM)]
        if (
            not numbers
            and max(self.available, default=-1) >= worker.known
            and not any(number < worker.known for number in wanted)
        ):
            self.interest.awaits(worker)
            return 1
        if not self.available:
            self.interest.misses(worker)
            return 1
        if not numbers and wanted:
            assert behind
            self.interest.stands_back(worker)
            return 1
        for number in numbers:
            assert not worker.acquires or not self.rivals(worker, number), "a lower link took a message that a higher one wanted"
            self._give(worker, number)
        if not worker.capacity:
            self.interest.rests(worker)
        elif numbers and self.available:
            self.interest.stays(worker)
        else:
            self.interest.waits(worker)
        return 1

    def _give(self, worker: Worker, number: int) -> None:
        worker.got.append(number)
        worker.credit -= 1
        if worker.acquires:
            del self.available[number]
        else:
            worker.seen = number + 1

    def rivals(self, worker: Worker, number: int) -> list[Worker]:
        """Return workers of a higher priority that would take this message."""
        return [w for w in self.consumers() if w.priority > worker.priority and w.capacity and number in self.wanted(w)]

    def consumers(self) -> list[Worker]:
        return [w for w in self.interest.members.values() if w.acquires]

    def rest(self) -> None:
        """Run turns until no link is notified."""
        for _ in range(10_000):
            self.turn()
            if not self.interest.busy and not self.awaiting():
                return
            if self.awaiting():
                self.evaluate(self.awaiting()[0])
        raise AssertionError("they wake each other endlessly")


@pytest.mark.parametrize("waiting", [1, 2, 1000])
def test_an_arrival_wakes_one_however_many_wait(waiting: int) -> None:
    """C1: one look for each arrival, and the next arrival goes to the next link."""
    queue = Queue()
    workers = [queue.worker(credit=10) for _ in range(waiting)]
    queue.rest()
    queue.looks.clear()
    for _ in range(5):
        queue.arrive(0)
        queue.rest()
    assert len(queue.looks) == 5
    assert [worker.name for worker in queue.looks] == [1 + i % waiting for i in range(5)]
    assert all(worker.standing == INTERESTED for worker in workers)


def test_who_takes_stays_notified_and_then_goes_to_the_tail() -> None:
    """C1: a steady stream goes to one consumer until it finds no message; then it is the last in line."""
    queue = Queue()
    first, second, third = (queue.worker(credit=100) for _ in range(3))
    queue.rest()
    queue.interest.rests(second)
    queue.interest.rests(third)
    queue.arrive(*[0] * 10)
    queue.turn()
    assert (first.got, first.standing) == ([0, 1, 2], NOTIFIED)
    queue.rest()
    assert (len(first.got), first.standing) == (10, INTERESTED)
    for worker in (second, third):
        queue.interest.wants(worker)
    queue.rest()
    for _ in range(3):
        queue.arrive(0)
        queue.rest()
    assert [len(worker.got) for worker in (first, second, third)] == [11, 1, 1]


def test_who_has_no_credit_is_not_woken_and_who_cannot_work_hands_on() -> None:
    """C1: a link without credit is not asked. A link that turns out unable is asked once, and the arrival goes to the next."""
    queue = Queue()
    stuck, spent, ready = (queue.worker(credit=1) for _ in range(3))
    queue.rest()
    spent.credit = 0
    queue.interest.rests(spent)
    stuck.able = False
    queue.looks.clear()
    queue.arrive(0)
    queue.turn()
    assert (queue.looks, ready.got) == ([ready], [0])
    assert (stuck.standing, spent.standing) == (RESTS, RESTS)
    queue.arrive(0)
    queue.rest()
    assert queue.available, "no link can take it"
    stuck.able = True
    queue.grant(stuck, 1)
    queue.rest()
    assert stuck.got == [1]


def test_what_one_may_not_have_the_next_is_asked_for_once() -> None:
    """C1 C4: a selector that matches nothing passes the notification on. No link looks twice for the same news."""
    queue = Queue()
    fussy = [queue.worker(credit=5, kinds=[1]) for _ in range(20)]
    wanting = queue.worker(credit=5, kinds=[0])
    queue.rest()
    queue.looks.clear()
    queue.arrive(0)
    queue.rest()
    assert wanting.got == [0]
    assert len(queue.looks) == 21
    queue.arrive(2)  # no link wants any of them
    queue.rest()
    assert len(queue.looks) == 2 * 21
    queue.rest()
    assert len(queue.looks) == 2 * 21
    assert all(worker.standing == INTERESTED for worker in fussy)


def test_a_lower_priority_gets_what_the_higher_cannot_take() -> None:
    """C2."""
    queue = Queue()
    low, high = queue.worker(-1, credit=9), queue.worker(5, credit=4)
    middle = queue.worker(2, credit=9, kinds=[1])
    queue.rest()
    queue.arrive(*[0] * 6)
    queue.turn()
    assert (len(high.got), len(low.got)) == (QUANTUM, 0), "the higher one has credit left"
    queue.rest()
    assert (len(high.got), len(middle.got), len(low.got)) == (4, 0, 2), (
        "the lower link gets the messages that the middle one does not want"
    )
    queue.grant(high, 1)
    queue.rest()
    queue.arrive(0)
    queue.rest()
    assert high.got[-1] == 6


def test_equals_share_within_a_turn() -> None:
    """C4: from a backlog each link takes one quantum before any takes a second."""
    queue = Queue()
    workers = [queue.worker(credit=100) for _ in range(10)]
    queue.rest()
    queue.arrive(*[0] * (10 * QUANTUM * 2))
    for rounds in (1, 2):
        queue.turn()
        assert {len(worker.got) for worker in workers} == {rounds * QUANTUM}


def test_browsers_all_hear_and_take_nothing_from_anybody() -> None:
    """C1: browsers see every message, even if no link acquires, and do not hold up others."""
    queue = Queue()
    browsers = [queue.worker(credit=100, acquires=False) for _ in range(5)]
    queue.rest()
    queue.arrive(0, 1)
    queue.rest()
    assert all(browser.got == [0, 1] for browser in browsers)
    taker = queue.worker(credit=100)
    queue.rest()
    queue.arrive(0)
    queue.turn()
    assert taker.got == [0, 1, 2]


def test_the_only_one_is_asked_and_nobody_else() -> None:
    """Q22: with 100 waiting links, an arrival wakes only the active one. When it ends, the next one receives the waiting
    messages.
    """
    queue = Queue()
    queue.interest.only(1)
    workers = [queue.worker(credit=10) for _ in range(100)]
    queue.rest()
    queue.looks.clear()
    for _ in range(3):
        queue.arrive(0)
        queue.rest()
    assert queue.looks == workers[:1] * 3
    queue.interest.leave(1)
    queue.arrive(0)
    queue.rest()
    queue.interest.only(2)
    queue.rest()
    assert workers[1].got == [3]
    assert len(queue.looks) == 4
    queue.interest.only(0)
    queue.arrive(0)
    queue.rest()
    assert len(queue.looks) == 4
    queue.interest.only(None)
    queue.rest()
    assert workers[2].got == [4]


def test_who_stood_by_is_told_when_its_turn_comes() -> None:
    """Q22: also about earlier messages, from a time when the active link had no credit."""
    queue = Queue()
    queue.interest.only(1)
    queue.worker(credit=0)
    queue.arrive(0)
    queue.rest()
    second = queue.worker(credit=1)
    queue.rest()
    assert second.got == []
    queue.interest.leave(1)
    queue.interest.only(2)
    queue.rest()
    assert second.got == [0]


def test_equals_with_and_without_a_selector_take_turns() -> None:
    """C4: one after another, independent of evaluations."""
    queue = Queue()
    workers = [queue.worker(credit=100, selects=number % 2 == 0) for number in range(5)]
    queue.rest()
    for _ in range(20):
        queue.arrive(0)
        queue.rest()
    assert [len(worker.got) for worker in workers] == [4] * 5


def test_a_cold_selector_holds_its_equals_up_only_for_what_is_new() -> None:
    """C4: links without a selector take waiting messages meanwhile; a lower priority does not."""
    queue = Queue()
    queue.arrive(*[0] * 10)
    cold = queue.worker(credit=100, selects=True)
    equal, low = queue.worker(credit=2), queue.worker(-1, credit=2)
    queue.turn()
    assert (cold.standing, equal.got, low.got) == (AWAITS, [0, 1], [])
    queue.interest.leave(cold.name)
    queue.turn()
    assert low.got == [2, 3]


def test_who_ends_is_forgotten_wherever_it_stood() -> None:
    queue = Queue()
    resting, waiting, notified = queue.worker(), queue.worker(credit=1), queue.worker(credit=1)
    shown, browsing = (queue.worker(credit=1, acquires=False) for _ in range(2))
    queue.interest.begin_round()
    queue.interest.next(False)
    queue.interest.waits(waiting)
    queue.interest.rests(shown)
    queue.interest.waits(shown)
    for worker in (resting, waiting, notified, shown, browsing):
        queue.interest.leave(worker.name)
    queue.arrive(0)
    assert queue.interest.next(True) is None
    assert not queue.interest.busy
    assert not queue.interest.members


class InterestMachine(RuleBasedStateMachine):
    """C1 C2 C4: laws for all histories."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()

    def pick(self, data: st.DataObject) -> Worker:
        return data.draw(st.sampled_from(sorted(self.queue.interest.members.values(), key=lambda w: w.name)))

    @property
    def quiet(self) -> bool:
        return not self.queue.interest.busy

    @precondition(lambda self: len(self.queue.interest.members) < 8)
    @rule(
        priority=st.sampled_from([0, 0, 0, 3, -3]),
        credit=st.integers(0, 5),
        acquires=st.sampled_from([True, True, True, False]),
        kinds=st.sampled_from([(0, 1, 2), (0, 1, 2), (0,), (1,), ()]),
        selects=st.booleans(),
    )
    def attach(self, priority: int, credit: int, acquires: bool, kinds: tuple[int, ...], selects: bool) -> None:
        self.queue.worker(priority, credit=credit, acquires=acquires, kinds=kinds, selects=selects)

    @precondition(lambda self: self.queue.awaiting())
    @rule(data=st.data())
    def evaluate(self, data: st.DataObject) -> None:
        """Evaluate in any order."""
        self.queue.evaluate(data.draw(st.sampled_from(sorted(self.queue.awaiting(), key=lambda w: w.name))))

    @precondition(lambda self: self.queue.interest.members)
    @rule(data=st.data(), credit=st.integers(0, 5))
    def grant(self, data: st.DataObject, credit: int) -> None:
        """Grant more or less than before; the queue is not notified of less."""
        self.queue.grant(self.pick(data), credit)

    @precondition(lambda self: self.queue.interest.members)
    @rule(data=st.data())
    def socket_is_full(self, data: st.DataObject) -> None:
        self.pick(data).able = False

    @precondition(lambda self: self.queue.interest.members)
    @rule(data=st.data())
    def socket_flows(self, data: st.DataObject) -> None:
        worker = self.pick(data)
        worker.able = True
        self.queue.grant(worker, worker.credit)

    @precondition(lambda self: self.queue.interest.members)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        """Look, although the worker waits."""
        worker = self.pick(data)
        if worker.capacity:
            self.queue.interest.wants(worker, anyway=True)

    @rule(kinds=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def arrive(self, kinds: list[int]) -> None:
        self.queue.arrive(*kinds)

    @precondition(lambda self: any(worker.got for worker in self.queue.consumers()))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Return a message to its place, and not to this worker again."""
        worker = data.draw(st.sampled_from([worker for worker in self.queue.consumers() if worker.got]))
        number = data.draw(st.sampled_from(worker.got))
        worker.got.remove(number)
        self.queue.available[number] = 2
        worker.kinds.discard(2)
        self.queue.interest.news()

    @precondition(lambda self: self.queue.available)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        """Messages leave that no link took, which does not count as news."""
        del self.queue.available[data.draw(st.sampled_from(sorted(self.queue.available)))]

    @precondition(lambda self: self.queue.interest.members)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        self.queue.interest.leave(self.pick(data).name)

    @rule(only=st.sampled_from([None, None, 0, 1, 2, 3]))
    def single(self, only: int | None) -> None:
        self.queue.interest.only(only)

    @rule()
    def one_turn(self) -> None:
        self.queue.turn()

    @rule()
    def rest(self) -> None:
        self.queue.rest()

    @invariant()
    def nobody_is_forgotten_and_nobody_sleeps_through(self) -> None:
        """C4: after a turn, when nothing moves, no link with credit has a message before it that it wants."""
        self.queue.rest()
        for worker in self.queue.interest.members.values():
            if worker.capacity:
                assert not self.queue.wanted(worker), f"{worker.name} was not told"
            assert worker.standing in (RESTS, INTERESTED)

    @invariant()
    def nobody_is_given_a_message_twice(self) -> None:
        deliveries = Counter(number for worker in self.queue.consumers() for number in worker.got)
        assert not deliveries or deliveries.most_common(1)[0][1] == 1


class RestlessMachine(InterestMachine):
    """Machine with turns only where the history has them: a notification between turns is not forgotten by the next."""

    @invariant()
    def nobody_is_forgotten_and_nobody_sleeps_through(self) -> None:
        pass

    def teardown(self) -> None:
        InterestMachine.nobody_is_forgotten_and_nobody_sleeps_through(self)


_SETTINGS = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
TestInterest = InterestMachine.TestCase
TestInterest.settings = _SETTINGS
TestRestless = RestlessMachine.TestCase
TestRestless.settings = _SETTINGS

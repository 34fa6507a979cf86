"""Callbacks of the application's client: those of one session in order, those of several in parallel, on a bounded pool (C12)."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.app import AcknowledgeMode, Confirmation, ReceivedMessage, connect
from penstock.broker_core.client.app.executors import Pool, SerialExecutor, Task
from penstock.broker_core.client.app.retries import Retries

from .applications import LIMIT_S, bodies, outcomes_by_body, round_trip
from .peer import Peer


class Counted:
    """Counts the threads inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1


def test_c12_a_lane_runs_one_task_at_a_time_in_order_and_lets_other_lanes_in_between() -> None:
    changed, pool = threading.Condition(threading.RLock()), Pool(1)
    ran: list[str] = []
    tasks = {name: deque(range(3)) for name in "ab"}
    finished = threading.Event()

    def take(name: str) -> Task | None:
        if not tasks[name]:
            return None
        number = tasks[name].popleft()

        def task() -> None:
            ran.append(f"{name}{number}")
            if len(ran) == 6:
                finished.set()

        return task

    with changed:
        for name in "ab":
            SerialExecutor(changed, pool, lambda name=name: take(name)).wake()  # type: ignore[misc]
    assert finished.wait(LIMIT_S)
    assert ran == ["a0", "b0", "a1", "b1", "a2", "b2"]
    with changed:
        pool.close()


def test_c12_callbacks_of_one_session_never_overlap_and_those_of_several_do() -> None:
    sessions, per_session = 3, 20
    inside = [Counted() for _ in range(sessions)]
    everyone = threading.Barrier(sessions)  # broken, unless all sessions are in a callback together
    left = threading.Semaphore(0)
    with Peer() as peer, connect(peer.url, callback_threads=sessions) as connection:
        for number in range(sessions):

            def callback(message: ReceivedMessage, number: int = number) -> None:
                with inside[number]:
                    if message.body == b"0":
                        everyone.wait(LIMIT_S)
                left.release()

            session = connection.session()
            for queue in ("x", "y"):  # two consumers of one session also take turns
                peer.queues[f"{queue}{number}"] += bodies(*map(str, range(per_session))) if queue == "x" else bodies(*"abc")
                session.consumer(f"{queue}{number}", callback=callback)
        for _ in range(sessions * (per_session + 3)):
            assert left.acquire(timeout=LIMIT_S)
    assert [counted.most for counted in inside] == [1] * sessions


def test_c12_the_pool_is_bounded() -> None:
    counted, left = Counted(), threading.Semaphore(0)
    with Peer() as peer, connect(peer.url, callback_threads=2) as connection:

        def callback(message: ReceivedMessage) -> None:
            with counted:
                round_trip(message.consumer.session)  # long enough for other callbacks to be ready
            left.release()

        for number in range(6):
            peer.queues[str(number)] += bodies(*"abcd")
            connection.session().consumer(str(number), callback=callback)
        for _ in range(24):
            assert left.acquire(timeout=LIMIT_S)
    assert counted.most == 2


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_c12_every_synchronous_call_is_allowed_inside_a_callback(mode: AcknowledgeMode) -> None:
    """With a pool of one thread: the calls do not wait for the pool."""
    finished, failures = threading.Event(), []
    with Peer() as peer, connect(peer.url, callback_threads=1, on_error=failures.append) as connection:
        peer.queues["q"] += bodies("first")
        peer.queues["other"] += bodies("second", "third")
        session = connection.session(mode)

        def callback(message: ReceivedMessage) -> None:
            try:
                second = connection.session(AcknowledgeMode.CLIENT)
                second.consumer("other").receive(LIMIT_S).acknowledge()
                assert second.consumer("other", prefetch=0).receive(0) is None
                second.producer("answers").send("synchronous")
                second.recover()
                second.close()
                message.acknowledge()
                if mode is not AcknowledgeMode.TRANSACTED:
                    session.producer("answers").send("synchronous")
                    session.recover()
                session.close()  # of the session whose callback this is
            except BaseException as error:
                failures.append(error)
            finished.set()

        session.consumer("q", callback=callback)
        assert finished.wait(LIMIT_S)
    assert failures == []


def test_c12_a_callback_that_raises_is_told_gives_its_message_back_and_does_not_stop_the_others() -> None:
    reported: list[Exception] = []
    finished = threading.Event()

    def callback(message: ReceivedMessage) -> None:
        if message.body == b"b":
            raise KeyError("no such order")
        if message.body == b"c":
            finished.set()

    with Peer() as peer, connect(peer.url, on_error=reported.append, callback_threads=1) as connection:
        peer.queues["q"] += bodies(*"abc")
        session = connection.session()
        consumer = session.consumer("q", callback=callback)
        assert finished.wait(LIMIT_S)
        with pytest.raises(errors.InvalidRequest, match="hands its messages to a callback"):
            consumer.receive(0)
        consumer.close()  # waits for the callback that runs
        round_trip(session)
        assert outcomes_by_body(peer) == [(b"a", "Accepted"), (b"b", "Modified"), (b"c", "Accepted")]
        _, (_, modified), _ = peer.outcomes
        assert (modified.delivery_failed, modified.message_annotations) == (True, {"x-opt-retry-delay": 1000})
        assert [repr(error) for error in reported] == ["KeyError('no such order')"]


def test_each_failed_attempt_waits_longer_up_to_a_longest_wait() -> None:
    """U8: of a callback and of a worker."""
    assert [Retries().after(attempt) for attempt in (1, 2, 3, 6, 7, 20, 1 << 40)] == [1.0, 2.0, 4.0, 32.0, 60.0, 60.0, 60.0]
    assert Retries(0.0, 0.0).after(5) == 0.0


def test_c12_after_close_no_callback_runs() -> None:
    running, go_on, ran = threading.Event(), threading.Event(), []

    def callback(message: ReceivedMessage) -> None:
        running.set()
        assert go_on.wait(LIMIT_S)
        ran.append(message.body)

    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies(*"abc")
        session = connection.session()
        session.consumer("q", callback=callback)
        assert running.wait(LIMIT_S)
        closing = threading.Thread(target=session.close)
        closing.start()
        probe = connection.session()
        while not session.callbacks._pauses:  # before, it is not asked to close
            round_trip(probe)
        go_on.set()
        closing.join(LIMIT_S)
        assert ran == [b"a"]
        round_trip(probe)
        assert outcomes_by_body(peer) == [(b"a", "Accepted"), (b"b", "Released"), (b"c", "Released")]


def test_c12_closing_calls_what_outcomes_are_due_to_though_the_pool_is_busy() -> None:
    running, go_on = threading.Event(), threading.Event()
    confirmed: list[Confirmation] = []

    def busy(message: ReceivedMessage) -> None:
        running.set()
        assert go_on.wait(LIMIT_S)

    with Peer() as peer, connect(peer.url, callback_threads=1) as connection:
        peer.queues["q"] += bodies("a")
        connection.session().consumer("q", callback=busy)
        assert running.wait(LIMIT_S)
        session = connection.session()
        confirmations = [session.producer("out").send("x", on_outcome=confirmed.append) for _ in range(3)]
        session.close()
        assert confirmed == confirmations
        go_on.set()

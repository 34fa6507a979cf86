"""A power failure undoes no reply: a reply waits for the state that it was decided on, also if it changes nothing."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.errors import Fenced, PenstockError, StorageError
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import abandon, advance, enqueue, everything, numbered, open_service, read, running, stage, stat

KEY, OLDER = c.PublishKey("stream", "query", 5), c.PublishKey("stream", "query", 4)


class Held:
    """A disk whose syncs wait until they are released or fail."""

    def __init__(self) -> None:
        self.disk = LyingDisk()
        self.disk.fail = self._sync
        self._open = threading.Event()
        self._open.set()
        self._fails = False
        self.waiting = threading.Event()  # a sync has come

    def _sync(self, call: str, name: str) -> OSError | None:
        if call != "sync":
            return None
        self.waiting.set()
        self._open.wait()
        return OSError(errno.EIO, "the disk has failed") if self._fails else None

    def hold(self) -> None:
        self.waiting.clear()
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def fail(self) -> None:
        self._fails = True
        self._open.set()


@pytest.fixture
def held() -> Iterator[Held]:
    disk = Held()
    yield disk
    disk.let_go()


def prepared(held: Held) -> BrokerService:
    service = open_service(held.disk)
    service.submit(c.DeclareQueue("q"), c.DeclareQueue("empty"), enqueue("q", *numbered(10)))
    service.submit(stage("s", "q", b"published"))
    service.submit(*advance("q", "lease", 0, messages=2))
    return service


# An earlier command that is not on the disk yet; the tested command; its reply.
Case = tuple[list[c.Command[Any]], Callable[[BrokerService], Any], Any]
PROMISES: dict[str, Case] = {
    "a repeated publish": ([c.Publish(["s"], KEY)], lambda s: s.submit(c.Publish(["s"], KEY)), (0, True)),
    "a publish of an older number": ([c.Publish(["s"], KEY)], lambda s: s.submit(c.Publish([], OLDER)), (0, True)),
    "a duplicate declare": ([c.DeclareQueue("new")], lambda s: s.submit(c.DeclareQueue("new")), False),
    "a stat": ([enqueue("q", b"new")], lambda s: stat(s, "q")["enqueued"], 11),
    "a list of queues": ([c.DeclareQueue("new")], lambda s: len(s.submit(c.Stat())), 3),
    "a list of leases": (advance("q", "other", 0, messages=1), lambda s: len(s.submit(c.ListLeases())), 2),
    "an empty acquire": ([c.Purge("q")], lambda s: s.submit(*advance("q", "late", 0))[:2], (None, 0)),
    "a held batch": (advance("q", "other", 0, messages=1), lambda s: s.submit(*advance("q", "other", 0, epoch=1))[:2], (1, 1)),
    "an empty purge": ([c.Purge("q")], lambda s: s.submit(c.Purge("q")), 0),
    "a discard of a missing stage": ([c.Discard(["s"])], lambda s: s.submit(c.Discard(["s"])), 0),
    "a renewal": (advance("q", "lease", 0), lambda s: s.submit(c.RenewLease("lease", 2)), None),
    "a plan": ([enqueue("q", b"new")], lambda s: s.submit(c.PlanBatches("lease", 0, 1)), (1, [[1, 0, 1, 2]])),
    "a second read of a batch": ([read("lease", 1, 1)], lambda s: s.submit(read("lease", 1, 1)), ("q", RowSet.range(0, 2))),
    "a browse": ([enqueue("empty", b"new")], lambda s: everything(s, "empty"), {0: b"new"}),
    "a browse that finds nothing": ([c.DeleteQueue("empty"), c.DeclareQueue("empty")], lambda s: everything(s, "empty"), {}),
    "an enqueue of nothing": ([enqueue("q", b"new")], lambda s: s.submit(c.Enqueue("q", 0, 0)).next, 11),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_an_answer_is_given_when_the_disk_is_done(held: Held, name: str) -> None:
    first, ask, answer = PROMISES[name]
    service = prepared(held)
    held.hold()
    service.submit_nowait(*first)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, service)
        assert held.waiting.wait(30)
        assert not asked.done()  # can only fail when a promise is broken: the sync is held until the next line
        held.let_go()
        assert asked.result(30) == answer
    abandon(service)


@pytest.mark.parametrize("promise", PROMISES)
def test_no_answer_is_given_when_what_it_rests_on_never_reached_the_disk(held: Held, promise: str) -> None:
    first, ask, _ = PROMISES[promise]
    service = prepared(held)
    held.hold()
    service.submit_nowait(*first)
    assert held.waiting.wait(30)
    held.fail()
    with pytest.raises(StorageError, match="nothing was retried"):
        ask(service)
    abandon(service)


@pytest.mark.parametrize(
    ("durability", "durable", "waits"), [("header", False, False), ("header", True, True), ("all", False, True)]
)
def test_a_sender_is_told_before_the_disk_only_of_what_its_queue_and_header_call_not_durable(
    held: Held, durability: str, durable: bool, waits: bool
) -> None:
    """Q11: such a message may be lost at a crash, and only then."""
    service = prepared(held)
    service.submit(c.DeclareQueue("own", options={"durability": durability}))
    held.hold()
    _, end = service.submit_nowait(replace(enqueue("own", b"message"), durable=durable))
    assert (service.journal.durable < end) is waits
    held.let_go()
    assert stat(service, "own")["available"] == 1
    abandon(service)


REFUSALS: dict[str, tuple[list[c.Command[Any]], Callable[[BrokerService], Any]]] = {
    "of a fenced planner": (advance("q", "lease", 0), lambda s: s.submit(*advance("q", "lease", 0, epoch=1))),
    "of a fenced reader": (advance("q", "lease", 0), lambda s: s.submit(read("lease", 1, 1))),
    "of a queue that is gone": ([c.DeleteQueue("empty")], lambda s: s.submit(c.Stat("empty"))),
    "of a stage that is gone": ([c.Discard(["s"])], lambda s: s.submit(c.Publish(["s"]))),
    "of an older checkpoint": (
        [c.ReleaseLease("lease", settle=True)],
        lambda s: s.submit(c.FinishBatches("lease", 0)),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_an_answer_too(held: Held, name: str) -> None:
    first, ask = REFUSALS[name]
    service = prepared(held)
    service.submit(*first)
    with pytest.raises(PenstockError) as refusal:
        ask(service)
    assert not isinstance(refusal.value, StorageError)
    abandon(service)

    held = Held()
    service = prepared(held)
    held.hold()
    service.submit_nowait(*first)
    assert held.waiting.wait(30)
    held.fail()
    with pytest.raises(StorageError):
        ask(service)
    abandon(service)


def test_a_publish_repeated_before_the_first_is_on_disk_promises_nothing_that_a_power_cut_undoes() -> None:
    """The retry is answered *repeated* only when the first one is safe; when the power fails before, neither was answered."""
    announced = untold = 0
    for seed in range(40):
        random = Random(seed)
        held = Held()
        service = prepared(held)
        held.hold()
        answers: list[Any] = []
        _, end = service.submit_nowait(c.Publish(["s"], KEY))
        retry = threading.Thread(target=lambda s=service, a=answers: _note(a, lambda: s.submit(c.Publish(["s"], KEY))))
        retry.start()
        assert held.waiting.wait(30)
        survives = random.random() < 0.5
        if survives:
            held.let_go()
            service.journal.wait(end, 30)
        else:
            held.fail()
        retry.join()
        after = held.disk.power_cut(random)
        abandon(service)
        with running(after) as again:
            published = stat(again, "q")["enqueued"] == 11
            if answers:
                assert answers == [(0, True)]
                assert published, f"seed {seed}: a retry reported the publish as done, and it is gone"
                announced += 1
            untold += not answers
            # Either way the driver's next retry leaves the messages there once.
            again.submit(stage("s again", "q", b"published"), c.Publish(["s again"], KEY))
            assert list(everything(again, "q").values()).count(b"published") == 1
    assert announced > 5
    assert untold > 5


def _note(answers: list[Any], ask: Callable[[], Any]) -> None:
    with contextlib.suppress(StorageError):
        answers.append(ask())


# ---- the disk fails


@pytest.mark.parametrize("call", ["sync", "append"])
def test_a_failed_write_or_sync_stops_the_broker_and_everybody_who_waits_is_told(call: str) -> None:
    held = Held()
    failures: list[Exception] = []
    service = open_service(held.disk, on_failure=failures.append)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(3)))
    held.hold()
    service.submit_nowait(enqueue("q", b"first"))
    assert held.waiting.wait(30)
    outcomes: list[str] = []
    senders = [threading.Thread(target=lambda n=n: outcomes.append(_outcome(service, n))) for n in range(20)]
    for sender in senders:
        sender.start()
    if call == "sync":
        held.fail()
    else:
        held.disk.fail = lambda name, _: OSError(errno.EIO, "the disk has failed") if name == "append" else None
        held.let_go()
    for sender in senders:
        sender.join()
    assert set(outcomes) == {"StorageError"}
    assert len(failures) == 1
    writes = held.disk.calls["append"]
    held.disk.fail = lambda name, _: None  # the disk is well again: too late
    for command in (enqueue("q", b"late"), c.Stat("q"), c.DeclareQueue("other")):
        with pytest.raises(StorageError):
            service.submit(command)
    with pytest.raises(StorageError):
        service.take_snapshot()
    with pytest.raises(StorageError):
        service.close()
    assert held.disk.calls["append"] == writes, "nothing is written after a failure"
    with running(held.disk.power_cut(Random(3))) as again:
        stored = list(everything(again, "q").values())
        assert stored[:3] == numbered(3)
        assert b"late" not in stored


def _outcome(service: BrokerService, number: int) -> str:
    try:
        service.submit(enqueue("q", b"%d" % number))
    except PenstockError as error:
        return type(error).__name__
    return "answered"


def test_what_was_answered_before_the_disk_failed_stays_and_a_fenced_reader_stays_fenced() -> None:
    disk = LyingDisk()
    service = open_service(disk)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(4)))
    service.submit(*advance("q", "lease", 0))
    service.submit(*advance("q", "lease", 0))  # epoch 2
    disk.fail = lambda call, name: OSError(errno.EIO, "the disk has failed") if call == "sync" else None
    with pytest.raises(StorageError):
        service.submit(*advance("q", "lease", 0))
    abandon(service)
    disk.fail = lambda call, name: None
    with running(disk.power_cut(Random(2))) as again, pytest.raises(Fenced):
        again.submit(read("lease", 1, 1))

"""The broker dies at each operation of its disk. It recovers every confirmed change, and no other change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from penstock.broker_core.engine import apply, decide
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.model.state import BrokerState
from penstock.broker_core.errors import PenstockError, StorageError
from penstock.broker_core.service.broker import BrokerService

from ..engine.conservation import conserved
from ..journal.lying_disk import LyingDisk
from .helpers import (
    MIB,
    Clock,
    abandon,
    advance,
    copy,
    described,
    enqueue,
    everything,
    numbered,
    open_service,
    read,
    retain,
    running,
    stage,
)

SETTINGS = {"segment_bytes": MIB, "retention_age_s": 1}
BULK = numbered(100, 7000)

Step = list[c.Command[Any]] | str  # commands submitted together, or a turn of housekeeping by its name

# One history with everything: four queues, a lease with three batches, a link, stages, snapshots, segments that roll over and go.
LINK = 1  # the first link of a life is holder 1
HISTORY: list[Step] = [
    [c.DeclareQueue("q")],
    [c.DeclareQueue("q2")],
    [enqueue("q", *numbered(10))],
    [stage("s1", "q", *numbered(4, start=100))],
    [stage("s2", "q2", *numbered(3, start=200))],
    [stage("s1", "q2", *numbered(2, start=300))],
    advance("q", "lease", 0, messages=6),
    [read("lease", 1, 1)],
    [c.Publish(["s1", "s2"], c.PublishKey("stream", "query", 0))],
    [enqueue("q", *BULK)],
    advance("q", "lease", 1, epoch=1, messages=5),
    "take_snapshot",
    [c.Subscribe("q2")],
    [c.Acquire("q2", LINK, 4)],
    [c.Settle("q2", LINK, RowSet.single(1), Outcome.REJECTED, "no")],
    [c.Release("q2", LINK, RowSet.single(2), Cause.MODIFIED)],
    [c.Release("q2", LINK, RowSet.single(3), Cause.MODIFIED_UNCOUNTED, True, b"what modified adds")],
    [c.Release("q2", LINK, RowSet.single(0), Cause.DEFERRED)],
    [c.Browse("q2", 0, 9)],
    [stage("s3", "q2", *BULK)],
    [c.Publish(["s3"], c.PublishKey("stream", "query", 0))],  # repeated: no-op, the stage goes
    advance("q", "lease", 2, epoch=None, messages=50),  # batch 2 was never read
    [read("lease", 2, 3)],
    [c.SettleRow("lease", 8, "rejected", "poison")],
    [enqueue("q2", *BULK)],
    "take_snapshot",
    [enqueue("q2", *BULK)],
    [c.Unsubscribe("q2", LINK)],
    [c.Subscribe("q2")],
    [c.Acquire("q2", LINK + 2, 2)],
    [c.Unsubscribe("q2", LINK + 2, outcome=Outcome.REJECTED)],
    [c.Subscribe("q2", by_number=True)],
    [c.AcquireDeferred("q2", LINK + 4, RowSet.single(0))],
    [c.Release("q2", LINK + 4, RowSet.single(0), Cause.MODIFIED)],
    [c.Purge("q2")],
    [c.ReleaseLease("lease", settle=False)],
    [c.Purge("q")],
    "retain",
    [stage("s4", "q", *numbered(3, start=400))],
    [c.Publish(["s4"], c.PublishKey("txn", "app", 7))],
    advance("q", "other", 0, messages=2),
    [c.DeclareQueue("gone"), enqueue("gone", b"x")],
    [c.DeleteQueue("gone", force=True)],
    [stage("s5", "q", b"y")],
    [c.Discard(["s5"])],
    "take_snapshot",
    [enqueue("q", b"last")],
]


HOUSEKEEPING: dict[str, Callable[[BrokerService], object]] = {"take_snapshot": BrokerService.take_snapshot, "retain": retain}


class Reference(NamedTuple):
    """History as it is on a disk that is honest. `states[n]` is after the n-th event, as a start would find it."""

    states: list[Any]
    answered: list[int]  # by step: how many events are promised once it has returned
    bodies: dict[str, dict[int, bytes]]
    operations: int  # of the disk


def after_start(state: BrokerState, clock: Clock) -> Any:
    """As a restart leaves it: links end with the broker."""
    recovered = copy(state)
    for event, _ in decide(recovered, c.StartBroker(), clock()).events:
        apply(recovered, event, 0)
    return described(recovered)


def reference(history: list[Step]) -> Reference:
    disk, clock = LyingDisk(), Clock()
    service = open_service(disk, clock, **SETTINGS)
    states, answered = [after_start(service.state, clock)], []
    bodies: dict[str, dict[int, bytes]] = {}
    for step in history:
        clock.advance(1)
        for command in step if isinstance(step, list) else []:
            shadow = copy(service.state)
            for name, queue in service.state.queues.items():  # links are derived, and not in a copy
                shadow.queues[name].consumers.subscriptions = dict(queue.consumers.subscriptions)
                shadow.queues[name].consumers.by_number = dict(queue.consumers.by_number)
            shadow.next_link = service.state.next_link
            for event, _ in decide(shadow, command, clock()).events:
                if event.journaled:
                    apply(shadow, event, 0)
                    states.append(after_start(shadow, clock))
            service.submit(command)
        if isinstance(step, str):
            before = described(service.state)
            HOUSEKEEPING[step](service)
            if described(service.state) != before:
                states.append(after_start(service.state, clock))
        answered.append(len(states) - 1)
        for name in service.state.queues:
            bodies.setdefault(name, {}).update(everything(service, name))
    abandon(service)
    return Reference(states, answered, bodies, disk.calls.total() - disk.calls["read"])


def run(history: list[Step], disk: LyingDisk) -> int:
    """Go through the history until the disk stops; how many steps were answered."""
    clock = Clock()
    try:
        service = open_service(disk, clock, **SETTINGS)
    except StorageError:
        return 0
    done = 0
    try:
        for step in history:
            clock.advance(1)
            if isinstance(step, str):
                HOUSEKEEPING[step](service)
            else:
                service.submit(*step)
            done += 1
    except StorageError:
        pass
    finally:
        abandon(service)
    return done


@pytest.fixture(scope="module")
def honest() -> Reference:
    return reference(HISTORY)


def check(service: BrokerService, honest: Reference, done: int) -> None:
    low = honest.answered[done - 1] if done else 0
    high = honest.answered[done] if done < len(honest.answered) else low
    description = described(service.state)
    assert description in honest.states[low : high + 1], f"after {done} answered steps the state is not one of {low} to {high}"
    for name, queue in service.state.queues.items():
        assert conserved(queue)
        for sequence, body in everything(service, name).items():
            assert honest.bodies[name][sequence] == body


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("crash", ["kill", "power cut"])
def test_a_crash_at_any_operation_leaves_a_prefix_that_holds_everything_answered(
    honest: Reference, crash: str, part: int
) -> None:
    for stop_at in range(1 + part, honest.operations + 1, 4):
        disk = LyingDisk()
        disk.stop_at = stop_at
        done = run(HISTORY, disk)
        print(f"{crash} at operation {stop_at}, after {done} of {len(HISTORY)} steps")
        after = disk.kill() if crash == "kill" else disk.power_cut(Random(stop_at))
        with running(after, Clock(Clock().wall + len(HISTORY) * 1_000_000), **SETTINGS) as service:
            check(service, honest, done)


def test_a_recovery_that_is_itself_cut_short_loses_nothing(honest: Reference) -> None:
    most = 0
    for seed in range(8):
        print(f"seed {seed}")
        random = Random(seed)
        disk = LyingDisk()
        disk.stop_at = honest.operations - 8 * seed
        done = run(HISTORY, disk)
        survivors = disk.kill()
        lives = 0
        while True:
            lives += 1
            survivors.stop_at = lives  # one operation further in each life
            try:
                service = open_service(survivors, Clock(), **SETTINGS)
            except StorageError:
                survivors = survivors.power_cut(random)
                continue
            check(service, honest, done)
            abandon(service)
            break
        most = max(most, lives)
    assert most > 3


def test_the_history_has_what_it_is_for(honest: Reference) -> None:
    """Else the crashes prove less than they say."""
    assert any("overlays" in block for _, blocks in honest.states for block in blocks)
    disk = LyingDisk()
    assert run(HISTORY, disk) == len(HISTORY)
    assert disk.calls["unlink"] >= 2  # retention took a segment, the third snapshot the first
    segments = [name for name in disk.names() if name.endswith(".seg")]
    assert not segments[0].startswith("0" * 20)
    assert len(honest.states) > len(HISTORY)


def test_a_refusal_changes_nothing_after_a_crash() -> None:
    refused: list[Callable[[], c.Command[Any]]] = [
        lambda: enqueue("missing", b"x"),
        lambda: c.Publish(["s", "missing"], c.PublishKey("txn", "app", 1)),
        lambda: c.FinishBatches("lease", 9),
        lambda: c.SettleRow("lease", 99, "accepted"),
        lambda: c.DeleteQueue("q"),
        lambda: c.DeleteLease("lease"),
        lambda: c.EnterLease("q", "lease", "another run", None),
    ]
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(5)), stage("s", "q", b"staged"))
        service.submit(*advance("q", "lease", 0, messages=2))
        before = described(service.state)
        for command in refused:
            with pytest.raises(PenstockError) as refusal:
                service.submit(command())
            assert not isinstance(refusal.value, StorageError)
            assert described(service.state) == before
    with running(disk.power_cut(Random(1))) as service:
        assert described(service.state) == before

"""A turn: several commands under one lock, each with a reply that waits for the disk, and the notifications."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.errors import DamagedJournal, DataLoss, InvalidRequest, NotFound, ResourceLimit, StorageError
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.headers import NOTHING
from penstock.broker_core.messages.encoding.uniform_messages import UniformMessages
from penstock.broker_core.messages.payloads import as_batch
from penstock.broker_core.reading import recent
from penstock.broker_core.reading.recent import Recent
from penstock.broker_core.reading.records import record_slices
from penstock.broker_core.service.broker import FREE_SPACE_FOR_US, BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import MIB, Clock, abandon, advance, described, enqueue, numbered, open_service, running, stage, stat
from .test_replies import Held

MESSAGE = b"\x00\x53\x77\xa1\x05hello"  # the section amqp-value with a string
NOTE = b"\x00\xa3\x01x\xa1\x01y"


def test_a_refused_command_ends_itself_and_not_the_turn() -> None:
    """The other commands are executed. The refusal has the position of the state that it was decided on."""
    held = Held()
    service = open_service(held.disk)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(3)))
    held.hold()
    with service.turn() as turn:
        assert turn.end == 0
        _, first = turn.execute(enqueue("q", b"one more"))
        with pytest.raises(NotFound):
            turn.execute(enqueue("missing", b"x"))
        assert turn.end == first > service.journal.durable
        holder, _ = turn.execute(c.Subscribe("q"))
        (rows, _), second = turn.execute(c.Acquire("q", holder, 99))
        assert rows == RowSet.range(0, 4)
        assert turn.end == second > first
        assert service.journal.durable < first  # nothing waited
    held.let_go()
    service.journal.wait(second, 30)
    assert stat(service, "q")["acquired"] == 4
    abandon(service)


def test_only_what_its_queue_and_header_call_not_durable_waits_for_nothing() -> None:
    """Q11"""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("own", options={"durability": "header"}))
        with service.turn() as turn:
            assert turn.execute(replace(enqueue("own", b"x"), durable=False)) == (c.EnqueueReply(1), 0)
            assert turn.execute(replace(enqueue("own", b"x"), durable=True)) == (c.EnqueueReply(2), turn.end)
            (rows, *_), end = turn.execute(c.Browse("own", 0, 9))
            assert (rows.count, end) == (2, turn.end)


def test_a_refusal_before_the_first_command_waits_for_what_it_was_decided_on() -> None:
    held = Held()
    service = open_service(held.disk)
    service.submit(c.DeclareQueue("q"))
    held.hold()
    _, deleted = service.submit_nowait(c.DeleteQueue("q"))
    with service.turn() as turn:
        reply, error, end = turn.enqueue("q", arrived([MESSAGE]))
    assert reply is None
    assert isinstance(error, NotFound)
    assert end >= deleted > service.journal.durable
    held.let_go()
    service.journal.wait(end, 30)
    abandon(service)


def test_a_turn_is_one() -> None:
    """Q3: no other command comes in between."""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(10)), c.Subscribe("q"))
        taken: list[RowSet] = []
        second = threading.Thread(target=lambda: taken.append(service.submit(c.Acquire("q", 1, 10)).rows))
        with service.turn() as turn:
            second.start()
            mine, _ = turn.execute(c.Subscribe("q"))
            for _ in range(5):
                turn.execute(c.Acquire("q", mine, 1))
        second.join()
        assert taken == [RowSet.range(5, 10)]


def test_an_exception_in_a_turn_gives_the_lock_back() -> None:
    with running(LyingDisk()) as service:
        with pytest.raises(ZeroDivisionError), service.turn():
            raise ZeroDivisionError
        service.submit(c.DeclareQueue("q"))


def intact(indexes: slice, error: DamagedJournal) -> None:
    raise error


def test_slices_of_a_turn_show_what_was_just_acquired_and_last() -> None:
    """C6 Q10 Q12: copies, so what happens afterwards does not show in them."""
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(5)), enqueue("q", *numbered(5, start=5)), c.Subscribe("q"))
        with service.turn() as turn:
            (rows, _), _ = turn.execute(c.Acquire("q", 1, 7))
            turn.execute(c.Release("q", 1, RowSet.of_sequences(np.array([1, 6])), Cause.MODIFIED, annotations=NOTE))
            (rows, _), end = turn.execute(c.Acquire("q", 1, 3))
            (slice_read,) = turn.slices("q", rows)
            turn.execute(c.Release("q", 1, rows, Cause.MODIFIED, annotations=b"later"))
        service.journal.wait(end)
        assert rows.sequences().tolist() == [1, 6, 7]
        parts = list(record_slices(service.journal, slice_read, intact))
        assert [part.sequences().tolist() for part in parts] == [[1], [6, 7]]
        assert [body for part in parts for body in part.payload["body"].to_pylist()] == [numbered(8)[n] for n in (1, 6, 7)]
        assert [np.broadcast_to(part.attempts, part.payload.num_rows).tolist() for part in parts] == [[1], [1, 0]]
        assert [np.broadcast_to(part.returned, part.payload.num_rows).tolist() for part in parts] == [[1], [1, 0]]
        assert [part.overlays for part in parts] == [{0: [NOTE]}, {0: [NOTE]}]


def test_what_was_just_stored_is_not_read_back_and_is_the_same() -> None:
    """The record is in memory, in whole or in part, and its batch equals the one on the disk."""
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"), c.Subscribe("q"))
        for count in (1, 1, 3, 1):
            service.submit(enqueue("q", *numbered(count)))
        with service.turn() as turn:
            (rows, _), end = turn.execute(c.Acquire("q", 1, 5))
            (at_hand,) = turn.slices("q", rows)
        service.journal.wait(end)
        (plain,) = service.slices("q", rows)
        expected = list(record_slices(service.journal, plain, intact))
        disk.fail = lambda call, name: OSError(5, "it was read") if call == "read" else None
        slices = list(record_slices(service.journal, at_hand, intact))
        assert [(f.sequences().tolist(), f.time, f.indexes) for f in slices] == [
            (e.sequences().tolist(), e.time, e.indexes) for e in expected
        ]
        assert all(f.payload.equals(e.payload) for f, e in zip(slices, expected, strict=True))
        assert [f.payload.num_rows for f in slices] == [1, 1, 3]


@pytest.mark.parametrize("together", [1, 2])
def test_copies_of_one_message_that_stand_behind_each_other_are_all_read(together: int) -> None:
    """Messages of one record and one time. `together`: as many came with the one that is copied."""
    with running(LyingDisk()) as service:
        service.submit(*(c.DeclareQueue(queue) for queue in "abc"), c.Subscribe("c"))
        with service.turn() as turn:
            turn.enqueue("a", arrived([MESSAGE] * together))
        copy = c.Copy("a", "b", messages=1)
        service.submit(copy, copy, c.Move("b", "c"))
        with service.turn() as turn:
            (rows, _), end = turn.execute(c.Acquire("c", 1, 9))
            (at_hand,) = turn.slices("c", rows)
        service.journal.wait(end)
        (stored,) = service.slices("c", rows)
        for block_slice in (at_hand, stored):
            slices = list(record_slices(service.journal, block_slice, intact))
            assert [as_batch(part.payload)["message"].to_pylist() for part in slices] == [[MESSAGE], [MESSAGE]]
            assert [part.sequences().tolist() for part in slices] == [[0], [1]]


def test_what_is_at_hand_is_bounded() -> None:
    cache, batch = Recent(), pa.record_batch({"body": [b"x" * 1000]})
    for position in range(recent.MAX_RECORDS + 10):
        cache.add(position, batch)
    assert len(cache) == recent.MAX_RECORDS
    assert list(cache.among(np.array([9, 10]))) == [10]
    large = pa.record_batch({"body": [b"x" * (recent.LARGEST - 100)]})
    for position in range(10_000, 10_100):
        cache.add(position, large)
        assert cache.bytes <= recent.MAX_BYTES
    assert cache.bytes == len(cache) * large.get_total_buffer_size()
    short = UniformMessages([b""] * 1000, NOTHING)
    for position in range(15_000, 16_000):
        cache.add(position, short)
    taken = 1000 * (sys.getsizeof(b"") + 8)  # where none is the same object as another
    assert cache.among(np.array([15_999])) == {15_999: short}
    assert len(cache) * taken <= recent.MAX_BYTES
    cache.add(20_000, pa.record_batch({"body": [b"x" * recent.LARGEST]}).slice(0, 0))  # a slice keeps all of it alive
    assert not cache.among(np.array([20_000]))


def test_slices_of_what_is_not_in_memory_are_refused() -> None:
    with running(LyingDisk()) as service, service.turn() as turn:
        turn.execute(c.DeclareQueue("q"))
        with pytest.raises(DataLoss):
            turn.slices("q", RowSet.single(5))
        with pytest.raises(NotFound):
            turn.slices("missing", RowSet())
        assert turn.slices("q", RowSet()) == []


# ---- room


def test_there_is_no_room_while_the_buffer_is_full_and_nobody_waits_for_it() -> None:
    """C5"""
    held = Held()
    service = open_service(held.disk)
    buffer = 64 * MIB
    service.submit(c.DeclareQueue("q"))
    assert service.has_space(buffer)
    assert service.has_space(2 * buffer)  # when it is empty: else it would never go
    held.hold()
    service.submit_nowait(enqueue("q", b"x" * MIB))
    assert held.waiting.wait(30)
    assert service.has_space(buffer - 2 * MIB)
    assert not service.has_space(buffer)
    held.let_go()
    service.journal.wait(service.journal.end, 30)
    assert service.has_space(buffer)
    abandon(service)


def test_a_failed_journal_has_no_room() -> None:
    held = Held()
    service = open_service(held.disk)
    held.fail()
    with pytest.raises(StorageError):
        service.submit(c.DeclareQueue("q"))
    with pytest.raises(StorageError):
        service.has_space(1)
    abandon(service)


def test_below_the_mark_of_free_space_payloads_are_refused_and_the_disk_is_asked_seldom() -> None:
    disk, clock, asked = LyingDisk(), Clock(), []
    with running(disk, clock, free_space_mark_bytes=MIB) as service:
        service.submit(c.DeclareQueue("q"))
        free = disk.free_bytes
        disk.free_bytes = lambda: asked.append(1) or free()  # type: ignore[method-assign,func-returns-value]
        disk.room = 4 * MIB
        assert all(service.has_space(MIB) for _ in range(100))
        assert len(asked) == 1
        with pytest.raises(ResourceLimit, match="nothing was stored"):
            service.has_space(3 * MIB + 1)
        # Our own appends are subtracted without a measurement.
        service.submit(enqueue("q", b"x" * (2 * MIB)))
        with pytest.raises(ResourceLimit):
            service.has_space(MIB)
        assert len(asked) == 1
        disk.room = 8 * MIB
        clock.advance(FREE_SPACE_FOR_US / 1e6)
        assert service.has_space(MIB)
        assert len(asked) == 2


# ---- listeners


WAYS: dict[str, tuple[Callable[[BrokerService], object], list[str]]] = {
    "enqueue": (lambda s: s.submit(enqueue("q", b"x")), ["q"]),
    "publish": (lambda s: s.submit(c.Publish(["s", "t"])), ["other", "q"]),
    "release": (lambda s: s.submit(c.Release("q", 1, RowSet.single(0), exclude=True)), ["q"]),
    "link ends": (lambda s: s.submit(c.Unsubscribe("q", 1)), ["q"]),
    "batch given back": (lambda s: s.submit(c.FinishBatches("lease", 1)), ["q"]),
    "operator": (lambda s: s.submit(c.SettleRow("lease", 2, "released")), ["q"]),
    "holders lost": (lambda s: s.submit(c.StartBroker()), ["q"]),
    "queue deleted": (lambda s: s.submit(c.DeleteQueue("q", force=True)), ["q"]),
    "nothing": (lambda s: s.submit(c.Purge("q"), c.Stat(), c.Settle("q", 1, RowSet.single(0)), c.Tick()), []),
    "link ends and settles": (lambda s: s.submit(c.Unsubscribe("q", 1, outcome=Outcome.ACCEPTED)), []),
    "operator settles": (lambda s: s.submit(c.ReleaseLease("lease", settle=True)), []),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_listener_hears_which_queue_has_something(way: str) -> None:
    act, queues = WAYS[way]
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"), c.DeclareQueue("other"), enqueue("q", *numbered(4)))
        service.submit(stage("s", "q", b"staged"), stage("t", "other", b"staged"))
        service.submit(c.Subscribe("q"), c.Acquire("q", 1, 2))
        service.submit(*advance("q", "lease", 0))
        events: list[str] = []
        service.arrivals.add(events.append)
        act(service)
        assert sorted(events) == queues
        service.arrivals.remove(events.append)
        service.submit(c.DeclareQueue("third"), enqueue("third", b"x"))
        assert sorted(events) == queues


def test_a_listener_hears_at_once_under_the_lock_and_what_it_raises_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with running(LyingDisk()) as service, caplog.at_level(logging.ERROR, "penstock"):
        service.submit(c.DeclareQueue("q"))
        events: list[str] = []

        def broken(queue: str) -> None:
            raise ValueError("a listener's own mistake")

        service.arrivals.add(broken)
        service.arrivals.add(lambda queue: events.append(f"{queue}, locked: {service._lock.locked()}"))
        with service.turn() as turn:
            assert turn.execute(enqueue("q", b"x"))[0].next == 1
            assert events == ["q, locked: True"]
        assert service.submit(enqueue("q", b"x")).next == 2
        assert len(events) == 2
        assert len(caplog.records) == 2


# ---- commands of the plane, and the disk


def test_overlays_survive_a_power_cut_exactly_when_they_were_confirmed() -> None:
    """Q12: confirmed, the annotations are there; not confirmed, they and the return that brought them are there or are not."""
    lost = intact = 0
    for seed in range(30):
        random = Random(seed)
        held = Held()
        service = open_service(held.disk)
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(3)), c.Subscribe("q"), c.Acquire("q", 1, 3))
        service.submit(c.Release("q", 1, RowSet.single(0), Cause.MODIFIED, annotations=NOTE))
        if random.random() < 0.5:
            service.take_snapshot()
        held.hold()
        service.submit_nowait(c.Release("q", 1, RowSet.single(1), Cause.MODIFIED, True, b"unconfirmed"))
        assert held.waiting.wait(30)
        after = held.disk.power_cut(random)
        held.fail()
        abandon(service)
        with running(after) as again:
            block = again.state.queues["q"].blocks[0]
            overlays = block.overlays.among(slice(0, 3))
            assert overlays.pop(0) == [NOTE], f"seed {seed}"
            assert overlays in ({}, {1: [b"unconfirmed"]})
            intact, lost = intact + bool(overlays), lost + (not overlays)
            # The return counts if its annotations exist. The end of its link with the broker does not count as an attempt.
            attempts = [int(n) for n in np.broadcast_to(block.attempts.get(slice(0, 3)), 3)]
            assert attempts == [1, int(bool(overlays)), 0], f"seed {seed}"
    print(f"{intact} kept, {lost} lost")
    assert lost > 3


def test_overlays_are_there_after_archiving_and_a_restart() -> None:
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"), *[enqueue("q", *numbered(1 << 15)) for _ in range(3)], c.Subscribe("q"))
        service.submit(
            c.Acquire("q", 1, 3 << 15), c.Release("q", 1, RowSet.of_sequences(np.array([5, 70_000])), annotations=NOTE)
        )
        service.submit(c.Acquire("q", 1, 2), c.Settle("q", 1, RowSet.range(0, 1 << 16)))
        assert service.pack_blocks() == 1
        before = described(service.state)
        service.submit(c.Release("q", 1, RowSet.single(70_001), annotations=b"later"))
    with running(disk) as again:
        assert described(again.state)[0]["queues"] == before[0]["queues"]
        slices = list(again.browse("q", lambda block: slice(0, block.filled), 0, None))
        assert [part.overlays for part in slices] == [{5: [NOTE]}, {70_000 - (1 << 16): [NOTE], 70_001 - (1 << 16): [b"later"]}]


def test_what_is_wrong_is_refused_and_changes_nothing_after_a_crash() -> None:
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(5)), c.Subscribe("q"), c.Acquire("q", 1, 2))
        before = described(service.state)
        with pytest.raises(ResourceLimit):
            service.submit(c.Release("q", 1, RowSet.single(0), exclude=True, annotations=b"x" * 10_000))
        with pytest.raises(InvalidRequest):
            service.submit(c.Unsubscribe("q", 1, outcome=Outcome.PURGED))
        assert described(service.state) == before
        assert stat(service, "q")["consumers"] == 1
    with running(disk.power_cut(Random(1))) as again:
        assert stat(again, "q")["available"] == 5

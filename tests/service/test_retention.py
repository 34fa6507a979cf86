"""Settled messages: out of memory, readable as long as retention keeps them, and gone in whole segments."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random

import pytest

from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.retention import Keeping
from penstock.broker_core.errors import DataLoss, NotFound
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service import reloading
from penstock.broker_core.service.broker import BrokerService

from ..engine.conservation import lowest_live_position
from ..journal.lying_disk import LyingDisk
from .helpers import (
    MIB,
    START,
    Clock,
    abandon,
    advance,
    bodies_of,
    described,
    enqueue,
    everything,
    killed,
    numbered,
    open_service,
    read,
    retain,
    running,
    stage,
    stat,
    table,
)

HALF_MIB = 75  # messages of 7,000 bytes
CUT = ["state", "outcome", "settledTime", "enqueuedTime", "deliveryCount"]


def fill(service: BrokerService, clock: Clock, queue: str = "q", batches: int = 8) -> None:
    """Half a MiB a second."""
    for number in range(batches):
        clock.advance(1)
        service.submit(enqueue(queue, *numbered(HALF_MIB, 7000, start=number * HALF_MIB)))


def settle(service: BrokerService, lease: str, messages: int, queue: str = "q") -> RowSet:
    """Take, read and settle the next messages."""
    known = service.state.leases.get(lease)
    finished = known.finished if known else 0
    epoch, batch, *_ = service.submit(*advance(queue, lease, finished, epoch=known.epoch if known else None, messages=messages))
    _, rows = service.submit(read(lease, epoch, batch))
    service.submit(c.FinishBatches(lease, batch))
    return rows


def oldest_position(service: BrokerService) -> int:
    return service.journal.segments()[0].base


class Aging(LyingDisk):
    """Its files bear the times of the test's clock."""

    clock: Clock

    def now_ns(self) -> int:
        return self.clock.wall * 1000


def aging(clock: Clock) -> Aging:
    disk = Aging()
    disk.clock = clock
    return disk


def test_by_age_the_oldest_segments_without_unsettled_messages_go_and_no_others() -> None:
    clock = Clock()
    disk = aging(clock)
    with running(disk, clock, segment_bytes=MIB, retention_age_s=60) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock)
        settle(service, "lease", 4 * HALF_MIB)
        assert retain(service) == 0  # nothing is old yet
        clock.advance(30)
        service.submit(c.DeclareQueue("later"), enqueue("later", *numbered(HALF_MIB, 7000)))
        clock.advance(58)  # the first segments ended more than a minute ago
        assert retain(service) > 0
        first = oldest_position(service)
        live = lowest_live_position(service.state)
        assert live is not None
        assert 0 < first <= live
        remaining = everything(service, "q")
        assert all(sequence in remaining for sequence in range(4 * HALF_MIB, 8 * HALF_MIB)), "an unsettled message is gone"
        assert 0 not in remaining
        for sequence, body in remaining.items():
            assert body.startswith(b"%08d" % sequence)
        clock.advance(3600)
        assert retain(service) == 0, "unsettled messages hold their segment, however old"
        settle(service, "lease", 4 * HALF_MIB)
        assert retain(service) > 0
        assert stat(service, "q")["archived"] == 8 * HALF_MIB  # counted for ever
        assert service.submit(c.Purge("later")) == HALF_MIB


def test_a_retention_that_was_read_again_holds_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also the mark of free space, of which the cleaner has a part."""
    caplog.set_level(logging.INFO)  # which a reload sets, is set back after the test
    clock = Clock()
    disk = aging(clock)
    with running(disk, clock, segment_bytes=MIB, free_space_mark_bytes=2 * MIB) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock)
        settle(service, "lease", 8 * HALF_MIB)
        clock.advance(120)
        assert retain(service) == 0  # it is kept for ever
        reloading.reload(service, replace(service.settings, retention_age_s=60.0))
        assert retain(service) > 0
        before = service.cleaner._room()
        reloading.reload(service, replace(service.settings, free_space_mark_bytes=4 * MIB))
        assert service.cleaner._room() == before - MIB


def test_by_size_just_as_much_goes_as_is_too_much() -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, segment_bytes=MIB, retention_bytes=3 * MIB) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock, batches=16)
        assert retain(service) == 0
        settle(service, "lease", 16 * HALF_MIB)
        assert retain(service) > 0
        sizes = [segment.bytes for segment in service.journal.segments()]
        assert sum(sizes) <= 3 * MIB < sum(sizes) + 2 * MIB
        assert everything(service, "q")[16 * HALF_MIB - 1].startswith(b"%08d" % (16 * HALF_MIB - 1))


def test_a_stage_that_waits_for_its_publish_holds_its_segment_and_no_other() -> None:
    """D2: its neighbours are dropped."""
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, segment_bytes=MIB, retention_bytes=MIB) as service:
        service.submit(c.DeclareQueue("q"), stage("s", "q", b"staged"))
        fill(service, clock)
        settle(service, "lease", 8 * HALF_MIB)
        assert retain(service) > 0
        assert oldest_position(service) == 0
        service.submit(c.Publish(["s"]))
        retain(service)
        assert oldest_position(service) == 0  # now it is a message that waits
        assert bodies_of(service, "q", settle(service, "lease", 1)) == [b"staged"]
        fill(service, clock, batches=3)
        retain(service)
        assert oldest_position(service) > 0


def test_what_remains_is_browsed_while_the_rest_goes() -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, segment_bytes=MIB, retention_bytes=2 * MIB) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock)
        settle(service, "lease", 8 * HALF_MIB)
        slices = service.browse("q", lambda block: slice(0, block.filled), 0, None)
        batches = record_batches(service.journal, slices, BatchRequest(["body"], "q"))
        first = next(batches)
        assert retain(service) > 0
        assert first["body"][0].as_py().startswith(b"00000000"), "an open slice stays valid"
        left = everything(service, "q")
        assert 0 < len(left) < 8 * HALF_MIB
        assert sorted(left) == list(range(min(left), 8 * HALF_MIB))


def test_a_settled_batch_whose_rows_retention_took_is_data_loss_and_no_short_batch() -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, segment_bytes=MIB, retention_bytes=MIB) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock, batches=7)
        first = settle(service, "lease", 2 * HALF_MIB)
        last = settle(service, "lease", 5 * HALF_MIB)
        assert len(bodies_of(service, "q", first)) == 2 * HALF_MIB  # settled, and remembered
        assert retain(service) > 0
        for rows in (first, last):  # the second has lost only its first rows
            with pytest.raises(DataLoss, match="retention"):
                bodies_of(service, "q", rows)
        assert len(bodies_of(service, "q", RowSet.single(last.last))) == 1


def test_with_data_loss_accepted_the_rest_of_such_a_batch_is_read() -> None:
    disk, clock = LyingDisk(), Clock()
    with running(disk, clock, segment_bytes=MIB, retention_bytes=MIB) as service:
        service.submit(c.DeclareQueue("q"))
        fill(service, clock, batches=7)
        gone, short = settle(service, "lease", 2 * HALF_MIB), settle(service, "lease", 5 * HALF_MIB)
        assert retain(service) > 0
        plane = FlightPlane(service, "127.0.0.1", 0)
        try:
            with Client(plane.url) as client:
                for number, rows in ((1, gone), (2, short)):
                    part = {"batch": number, "first": rows.first, "last": rows.last, "columns": ["sequenceNumber"]}
                    ticket = {"op": "batch", "lease": "lease", "run": "run", "epoch": 1, **part}
                    with pytest.raises(DataLoss, match="failOnDataLoss=false"):
                        list(client.get(**ticket))
                    batches = client.get(**ticket, failOnDataLoss=False)
                    sequences = [sequence for batch in batches for sequence in batch["sequenceNumber"].to_pylist()]
                    assert sequences == [sequence for sequence in everything(service, "q") if sequence in rows]
                    assert bool(sequences) == (rows is short)
        finally:
            plane.close()


def test_a_crash_between_the_decision_and_the_unlinking_leaves_nothing_behind() -> None:
    disk, clock = LyingDisk(), Clock()
    options = {"segment_bytes": MIB, "retention_bytes": MIB}
    service = open_service(disk, clock, **options)
    service.submit(c.DeclareQueue("q"))
    fill(service, clock)
    settle(service, "lease", 8 * HALF_MIB)
    # As `retain` does it, as far as it came.
    going = [[segment.base, segment.end] for segment in service.journal.segments()[:3]]
    mark = going[-1][1]
    assert service.submit(c.Drop(going, Keeping(mark, mark))) == going
    after = killed(service, disk)
    with running(after, clock.restarted(), **options) as again:
        assert again.state.dropped.pairs() == [[0, mark]]
        assert retain(again) > 0
        assert oldest_position(again) >= mark


def test_retention_does_not_take_what_became_live_in_between() -> None:
    with running(LyingDisk(), segment_bytes=MIB) as service:
        service.submit(c.DeclareQueue("q"), enqueue("q", b"live"))
        everywhere = service.journal.end
        assert service.submit(c.Drop([[0, everywhere]], Keeping(everywhere, everywhere))) == []
        assert not service.state.dropped
        assert everything(service, "q") == {0: b"live"}


# ---- archived blocks


def archived(disk: LyingDisk, clock: Clock, **options: object) -> BrokerService:
    """A queue whose first block is settled in several ways, over several seconds, and has left memory."""
    service = open_service(disk, clock, **options)
    service.submit(c.DeclareQueue("q"))
    for part in range(4):
        clock.advance(10)
        service.submit(enqueue("q", *numbered(BLOCK_ROWS // 4, start=part * BLOCK_ROWS // 4)))
    service.submit(enqueue("q", b"live"))
    link = service.submit(c.Subscribe("q"))
    service.submit(c.Acquire("q", link, 10))
    service.submit(c.Release("q", link, RowSet.range(0, 4), Cause.MODIFIED))
    service.submit(c.Acquire("q", link, 4))
    clock.advance(10)
    service.submit(c.Settle("q", link, RowSet.range(0, 3), Outcome.REJECTED, "broken"))
    service.submit(c.Settle("q", link, RowSet.range(3, 10), Outcome.ACCEPTED))
    clock.advance(10)
    settle(service, "lease", BLOCK_ROWS - 11)
    assert service.pack_blocks() == 0  # one row is still live
    clock.advance(10)
    settle(service, "lease", 1)
    return service


EXPECTED = {
    0: ("archived", "rejected", 50, 10, 1),
    2: ("archived", "rejected", 50, 10, 1),
    3: ("archived", "accepted", 50, 10, 1),
    4: ("archived", "accepted", 50, 10, 0),
    10: ("archived", "accepted", 60, 10, 0),
    BLOCK_ROWS // 4: ("archived", "accepted", 60, 20, 0),
    BLOCK_ROWS - 2: ("archived", "accepted", 60, 40, 0),
    BLOCK_ROWS - 1: ("archived", "accepted", 70, 40, 0),
    BLOCK_ROWS: ("available", None, None, 40, 0),
}


def _seconds(row: dict[str, object]) -> tuple[object, ...]:
    def since(time: object) -> object:
        return None if time is None else round(time.timestamp() - START / 1e6)  # type: ignore[attr-defined]

    return row["state"], row["outcome"], since(row["settledTime"]), since(row["enqueuedTime"]), row["deliveryCount"]


def test_a_finished_block_leaves_memory_and_reads_as_before() -> None:
    clock = Clock()
    disk = LyingDisk()
    service = archived(disk, clock)
    before = table(service, "q", "sequenceNumber", "body", *CUT)
    assert {n: _seconds(before[n]) for n in EXPECTED} == EXPECTED
    assert service.pack_blocks() == 1
    queue = service.state.queues["q"]
    assert list(queue.blocks) == [1]
    assert queue.counts[State.ARCHIVED] == 0
    assert stat(service, "q")["archived"] == BLOCK_ROWS
    assert service.pack_blocks() == 0
    assert table(service, "q", "sequenceNumber", "body", *CUT) == before
    with running(killed(service, disk), clock.restarted()) as again:
        assert list(again.state.queues["q"].blocks) == [1]
        assert table(again, "q", "sequenceNumber", "body", *CUT) == before
        assert bodies_of(again, "q", RowSet.range(8, 12)) == numbered(4, start=8)
        again.take_snapshot()
        abandon(again)
        with running(disk.kill(), clock.restarted()) as third:
            assert table(third, "q", "sequenceNumber", "body", *CUT) == before


def test_an_archived_block_goes_when_retention_took_its_rows() -> None:
    clock = Clock()
    disk = LyingDisk()
    with running(disk, clock) as unused:
        unused.submit(c.DeclareQueue("unused"))
    service = archived(disk, clock.restarted(), segment_bytes=MIB, retention_bytes=MIB)
    service.pack_blocks()
    service.submit(c.DeclareQueue("more"))
    fill(service, clock, "more", 6)
    settle(service, "rest", 1)
    settle(service, "other", 6 * HALF_MIB, "more")
    assert retain(service) > 0
    assert everything(service, "q").keys() <= {BLOCK_ROWS}
    assert service.state.queues["q"].packed == {}
    with pytest.raises(DataLoss, match="retention"):
        bodies_of(service, "q", RowSet.range(8, 12))
    with pytest.raises(NotFound):
        bodies_of(service, "never", RowSet.range(8, 12))
    assert stat(service, "q")["archived"] == BLOCK_ROWS + 1
    state = described(service.state)
    with running(killed(service, disk), clock.restarted()) as again:
        assert described(again.state) == state


# ---- snapshots


def test_recovery_from_snapshot_and_tail_equals_replay_of_everything() -> None:
    random = Random(5)
    print("seed 5")
    clock = Clock()
    disk = LyingDisk()
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q"), c.DeclareQueue("p"))
    snapshots = 0
    for step in range(120):
        clock.advance(0.5)
        action = random.randrange(6)
        if action <= 1:
            service.submit(enqueue(random.choice("pq"), *numbered(random.randint(1, 40), start=step)))
        elif action == 2:
            service.submit(stage(f"s{step % 3}", "q", *numbered(random.randint(1, 9))))
        elif action == 3:
            service.submit(c.Publish(list(service.state.stages)[:2], c.PublishKey("stream", "x", step)))
        elif action == 4 and service.state.queues["q"].counts[State.AVAILABLE]:
            settle(service, random.choice(["a", "b"]), random.randint(1, 30))
        else:
            service.take_snapshot()
            snapshots += 1
    assert snapshots > 10
    state, content = described(service.state), everything(service, "q")
    after = killed(service, disk)
    bare = after.copy()
    for name in bare.names():
        if name.endswith(".snap"):
            bare.unlink(name)
    assert [name for name in after.names() if name.endswith(".snap")]
    for survivor in (after, bare):
        with running(survivor, clock.restarted()) as again:
            assert described(again.state) == state
            assert everything(again, "q") == content


def test_the_queues_go_on_while_a_snapshot_is_written() -> None:
    disk, clock = LyingDisk(), Clock()
    service = open_service(disk, clock)
    service.submit(c.DeclareQueue("q"), enqueue("q", *numbered(5)))
    during: list[int] = []

    def while_writing(call: str, name: str) -> None:
        if call == "append" and ".snap" in name and len(during) < 10:
            during.append(service.submit(enqueue("q", b"meanwhile %d" % len(during))))

    disk.fail = while_writing
    service.take_snapshot()
    assert len(during) > 1, "commands were carried out between the pieces of the snapshot"
    disk.fail = lambda call, name: None
    state, content = described(service.state), everything(service, "q")
    assert len(content) == 5 + len(during)
    with running(killed(service, disk), clock.restarted()) as again:
        assert again.journal.snapshot is not None
        assert described(again.state) == state
        assert everything(again, "q") == content


def test_a_dead_letter_keeps_its_payload_however_old_and_a_settled_one_lets_it_go() -> None:
    """Q13 Q20 Q24: by reference, from a deleted queue. A settled message does not hold the payload that it refers to, and is not
    read after the payload is dropped."""
    clock = Clock()
    disk = aging(clock)
    with running(disk, clock, segment_bytes=MIB, retention_age_s=60) as service:
        service.submit(c.DeclareQueue("dead"), c.DeclareQueue("q", options={"deadLetterQueue": "dead"}))
        fill(service, clock)
        link = service.submit(c.Subscribe("q"))
        rows = service.submit(c.Acquire("q", link, 8 * HALF_MIB)).rows
        poison = RowSet.range(10, 20)
        service.submit(c.Settle("q", link, poison, Outcome.REJECTED, "poison"), c.Settle("q", link, rows.minus(poison)))
        service.submit(c.DeleteQueue("q"), enqueue("dead", *numbered(1, 7000)))
        clock.advance(3600)
        assert retain(service) > 0
        assert oldest_position(service) == 0, "the oldest segment has the payloads of dead letters"
    with running(disk, clock, segment_bytes=MIB, retention_age_s=60) as service:
        assert [body[:8] for body in everything(service, "dead").values()] == [b"%08d" % n for n in [*range(10, 20), 0]]
        settle(service, "lease", 10, "dead")
        assert retain(service) > 0
        assert list(everything(service, "dead")) == [10]
        with pytest.raises(DataLoss):
            list(service.slices("dead", RowSet.range(0, 11)))

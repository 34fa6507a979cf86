"""D2 D4: the journal stays small while settled messages are not recorded, and if queues share payloads."""

from __future__ import annotations

import itertools
from random import Random

import pyarrow as pa

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.errors import StorageError
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service import routing
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.cleaning import SLACK, SPARE_SEGMENTS

from ..journal.lying_disk import LyingDisk
from .helpers import MIB, Clock, abandon, described, enqueue, everything, killed, numbered, open_service, running
from .test_cleaning import bound, in_vain, pass_through, size

SLOW = 1 << 11  # rows of the slow queue that come and are settled while so much passes through the other one


def away(service: BrokerService, rounds: int = 34, body: int = 30, beside: int = 150) -> None:
    """No recorder runs. The slow queue has an archive and packed blocks; the other queue has no archive."""
    service.state.records = True
    service.submit(c.DeclareQueue("slow"), c.DeclareQueue("q", "fifo", {"archive": False}))
    link = service.submit(c.Subscribe("slow"))
    for number in range(rounds):
        service.submit(enqueue("slow", *numbered(SLOW, body, start=number * SLOW)))
        service.submit(c.Settle("slow", link, service.submit(c.Acquire("slow", link, SLOW)).rows))
        pass_through(service, messages=beside)
    service.submit(c.Unsubscribe("slow", link))
    assert service.pack_blocks() == rounds * SLOW // BLOCK_ROWS


def slow(service: BrokerService) -> pa.Table:
    """All messages of the slow queue."""
    slices, names = service.browse("slow", lambda block: slice(0, block.filled), 0, None), ["sequenceNumber", "body"]
    batches = list(record_batches(service.journal, slices, BatchRequest(names, "slow")))
    return pa.Table.from_batches(batches).combine_chunks()


def test_what_is_not_recorded_of_blocks_out_of_memory_is_copied_too() -> None:
    """D2 D4: the bound holds while the archive is away; every message is read from where it is then; kill -9 and a restart
    change nothing."""
    disk = LyingDisk()
    options = {"segment_bytes": MIB, "clean_bandwidth": 1 << 40}
    with running(disk, **options) as service:
        away(service)
        content = slow(service)
        assert content.num_rows == 34 * SLOW
        for _ in range(3):
            pass_through(service, count=4)
            in_vain(service)
            assert size(service) <= bound(service)
        assert service.journal.end > 36 * MIB
        assert slow(service).equals(content)
        usage = service.cleaner.usage()
        assert usage.by_queue["slow"] > 30 * 34 * SLOW
        assert usage.oldest is not None
        assert (usage.oldest.queue, usage.oldest.state) == ("slow", "archived")
        written = service.journal.end
        in_vain(service)
        assert service.journal.end == written, "it is idle when there is nothing to do"
        state, queue_id = described(service.state), service.state.queues["slow"].id
        after = killed(service, disk)
    with running(after, **options) as service:
        service.state.records = True
        current, before = described(service.state), described(service.state, archive=False)
        assert before[1] == state[1]
        assert [row["packed"] for row in current[0]["queues"]] == [row["packed"] for row in state[0]["queues"]]
        assert slow(service).equals(content)
        begun = service.submit(c.BeginRecording(queue_id, 1 << 30, 1 << 40))
        assert begun.rows.count == 34 * SLOW
        service.submit(c.EndRecording(queue_id, begun.number, 0))
        pass_through(service, count=4)
        in_vain(service)
        assert size(service) <= bound(service)
        assert not service.state.queues["slow"].packed, "it is recorded, and its segments are dropped"


def test_columns_that_lie_alone_in_a_segment_are_copied() -> None:
    """D2: the payloads of the block stay where they are, since much is needed there."""
    with running(LyingDisk(), segment_bytes=2 * MIB, retention_bytes=MIB, clean_bandwidth=1 << 40) as service:
        service.state.records = True
        service.submit(c.DeclareQueue("slow"), c.DeclareQueue("q", "fifo", {"archive": False}))
        link = service.submit(c.Subscribe("slow"))
        for _ in range(32):
            service.submit(enqueue("slow", *numbered(SLOW, 110)))
        service.submit(c.Settle("slow", link, service.submit(c.Acquire("slow", link, BLOCK_ROWS)).rows))
        pass_through(service, count=2)
        assert service.pack_blocks() == 1
        pass_through(service, count=3)
        entry, content = service.state.queues["slow"].packed[0], slow(service)
        before = entry.position, entry.lowest_payload
        in_vain(service)
        assert entry.position > before[0]
        assert entry.lowest_payload == before[1]
        assert slow(service).equals(content)
        assert size(service) <= SLACK * service.cleaner.usage().total + SPARE_SEGMENTS * 2 * MIB


def test_a_payload_that_several_queues_hold_counts_once_and_is_copied_once() -> None:
    """D2: through an exchange to eight queues, some of which have settled it."""
    names = [f"to {number}" for number in range(8)]
    with running(LyingDisk(), segment_bytes=MIB, clean_bandwidth=1 << 40) as service:
        service.state.records = True
        service.submit(c.DeclareQueue("q", "fifo", {"archive": False}), c.DeclareExchange("fan", "fanout"))
        for name in names:
            service.submit(c.DeclareQueue(name), c.Bind("fan", name))
        for number in range(16):
            made = enqueue("", *numbered(100, 1000, start=100 * number))
            routing.send(service, routing.ExchangeMessages("fan", made.payload, made.sizes, ""))
            pass_through(service, count=1)
        for name in names[:4]:
            link = service.submit(c.Subscribe(name))
            service.submit(c.Settle(name, link, service.submit(c.Acquire(name, link, 1000)).rows))
        content = {name: everything(service, name) for name in names}
        needed = service.cleaner.usage().total
        assert 1600 * 1000 < needed < 1.2 * 1600 * 1000
        before = service.journal.end
        in_vain(service)
        assert 0 < service.journal.end - before < 1.3 * needed
        assert size(service) <= SLACK * needed + SPARE_SEGMENTS * MIB
        assert {name: everything(service, name) for name in names} == content


def test_a_cleaning_of_blocks_out_of_memory_stopped_at_any_operation_loses_nothing() -> None:
    """D2 D1 D4: after a kill or a power failure unrecorded messages are readable, and the next cleaning continues."""
    disk, options = LyingDisk(), {"segment_bytes": MIB, "clean_bandwidth": 1 << 40}
    with running(disk, **options) as service:
        away(service, rounds=32, body=8, beside=70)
        content = slow(service)
    random = Random(1)
    for stop in itertools.count(1):
        before = disk.copy()
        service = open_service(before, Clock(), **options)
        service.state.records = True
        before.stop_at, stopped = before._steps + stop, False
        try:
            service.cleaner.clean()
        except StorageError:
            stopped = True
        before.stopped = True
        abandon(service)
        with running(before.kill() if stop % 2 else before.power_cut(random), Clock(), **options) as again:
            again.state.records = True
            assert slow(again).equals(content)
            in_vain(again)
            assert size(again) <= bound(again) + MIB
            assert slow(again).equals(content)
        if not stopped:
            assert stop > 24
            return

"""D2: the journal stays small although a message stays, readers are not disturbed, and a crash loses no messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import LocalDisk
from penstock.broker_core.messages import batch_checks, payloads
from penstock.broker_core.messages import columns as message
from penstock.broker_core.reading import mapping
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service import relocation
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.cleaning import SLACK, SPARE_SEGMENTS
from penstock.connector.task.mapping import Location, assembled, locations_of, map_files, may_be_mapped

from ..journal.lying_disk import LyingDisk
from .helpers import MIB, Clock, abandon, bodies_of, described, enqueue, everything, killed, numbered, open_service, running

OPTIONS: dict[str, Any] = {"segment_bytes": MIB, "retention_bytes": MIB, "clean_bandwidth": 1 << 40}
STUCK = b"stuck" * 10


def size(service: BrokerService) -> int:
    return sum(segment.bytes for segment in service.journal.segments())


def bound(service: BrokerService) -> int:
    needed = service.cleaner.usage().total
    assert needed <= SLACK * MIB, "the messages of the tests alone are needed"
    return SLACK * needed + SPARE_SEGMENTS * MIB


def pass_through(service: BrokerService, queue: str = "q", messages: int = 300, count: int = 1) -> None:
    """So many messages of 7,000 bytes come, are taken and settled."""
    link = service.submit(c.Subscribe(queue))
    for _ in range(count):
        service.submit(enqueue(queue, *numbered(messages, 7000)))
        rows = service.submit(c.Acquire(queue, link, messages)).rows
        service.submit(c.Settle(queue, link, rows))
    service.submit(c.Unsubscribe(queue, link))


def stick(service: BrokerService) -> None:
    """One unconsumed message."""
    service.submit(c.DeclareQueue("stuck"), c.DeclareQueue("q"), enqueue("stuck", STUCK))


def in_vain(service: BrokerService) -> None:
    """Clean until there is nothing more to do."""
    for _ in range(10):
        if not service.cleaner.clean():
            return
    raise AssertionError("the cleaner finds no end")


def test_one_stuck_message_and_much_traffic_keep_the_journal_small() -> None:
    """D2: 4 × needed + 3 segments, after 40 segments of traffic. The message exists, also after a restart."""
    disk = LyingDisk()
    with running(disk, **OPTIONS) as service:
        stick(service)
        for _ in range(20):
            pass_through(service)
            service.cleaner.clean()
            service.cleaner.clean()
            assert size(service) <= bound(service)
        assert service.journal.end > 40 * MIB
        assert everything(service, "stuck") == {0: STUCK}
        assert service.state.queues["stuck"].blocks[0].runs.low > 30 * MIB
        in_vain(service)
        end = service.journal.end
        assert service.cleaner.clean() == 0
        assert service.journal.end == end, "it is idle when there is nothing to do"
        after = killed(service, disk)
    with running(after, **OPTIONS) as service:
        assert everything(service, "stuck") == {0: STUCK}
        assert size(service) <= bound(service) + MIB


def test_copies_of_a_message_in_one_queue_count_once() -> None:
    """D2: forty references to a payload count as one payload."""
    with running(LyingDisk(), segment_bytes=MIB, clean_bandwidth=1 << 40) as service:
        large = bytes(MIB // 4)
        service.submit(*(c.DeclareQueue(queue) for queue in ("stuck", "copies", "q")), enqueue("stuck", large))
        service.submit(*[c.Copy("stuck", "copies")] * 40, c.DeleteQueue("stuck", force=True))
        pass_through(service, count=5)
        service.submit(c.DeleteQueue("q", force=True))
        assert len(large) <= service.cleaner.usage().total < 2 * len(large)
        in_vain(service)
        assert size(service) <= bound(service)
        assert len(everything(service, "copies")) == 40


def test_without_retention_and_without_an_archive_what_is_settled_is_kept() -> None:
    with running(LyingDisk(), segment_bytes=MIB) as service:
        stick(service)
        pass_through(service, count=3)
        assert service.cleaner.clean() == 0
        assert len(everything(service, "q")) == 900


def test_with_an_archive_what_is_not_recorded_is_kept_and_what_is_recorded_goes() -> None:
    """D2 D4: retention that is not set keeps nothing that is in the table, and takes nothing that is not."""
    with running(LyingDisk(), segment_bytes=MIB, clean_bandwidth=1 << 40) as service:
        service.state.records = True
        stick(service)
        pass_through(service, count=6)
        assert service.cleaner.clean() == 0
        assert len(everything(service, "q")) == 1800
        number = service.state.queues["q"].id
        begun = service.submit(c.BeginRecording(number, 1200, 1 << 40))
        assert service.cleaner.clean() == 0, "a pass that has begun needs its rows"
        service.submit(c.EndRecording(number, begun.number, 0))
        in_vain(service)
        left = everything(service, "q")
        assert set(range(1200, 1800)) <= left.keys()
        assert len(left) < 1500
        begun = service.submit(c.BeginRecording(number, 1200, 1 << 40))
        service.submit(c.EndRecording(number, begun.number, 1))
        in_vain(service)
        assert size(service) <= bound(service)
        assert everything(service, "stuck") == {0: STUCK}


def test_what_a_deleted_queue_leaves_goes() -> None:
    """D2: with no retention at all; one message of another queue lies in the middle of it."""
    with running(LyingDisk(), segment_bytes=MIB) as service:
        service.submit(c.DeclareQueue("stuck"), c.DeclareQueue("q"))
        service.submit(enqueue("q", *numbered(900, 7000)), enqueue("stuck", STUCK))
        for _ in range(3):
            service.submit(enqueue("q", *numbered(300, 7000)))
        service.submit(c.DeleteQueue("q"))
        for _ in range(3):
            service.cleaner.clean()
        assert size(service) <= bound(service)
        assert everything(service, "stuck") == {0: STUCK}


def test_messages_of_every_form_keep_what_they_are() -> None:
    """D2: columns with properties and without, AMQP messages as they came, staged ones, in several queues and blocks."""
    rich = {"body": [b"a", b""], "subject": ["s", None], "properties": [[("k", "v")], None]}
    with running(LyingDisk(), **OPTIONS) as service:
        stick(service)
        made = batch_checks.validate(
            pa.record_batch({name: pa.array(values, message.MESSAGE_COLUMNS[name]) for name, values in rich.items()})
        )
        service.submit(c.Enqueue("stuck", 2, payloads.stored_sizes(made), payloads.store(made)))
        encoded = pa.record_batch({"message": pa.array([b"\0Su\xa0\x03abc", b"\0Su\xa0\x02de"], pa.binary())})
        mask = message.mask_of(encoded.schema.names)
        service.submit(c.Enqueue("stuck", 2, 8, payloads.store(encoded, mask)))
        batch = enqueue("stuck", b"staged")
        service.submit(c.StageMessages("s", "stuck", 1, 6, batch.payload))
        pass_through(service, count=2)
        names = ["sequenceNumber", "body", "subject", "properties", "message"]

        def content() -> list[Any]:
            slices = service.browse("stuck", lambda block: slice(0, block.filled), 0, None)
            return [
                row
                for batch in record_batches(service.journal, slices, BatchRequest(names, "stuck", stored=True))
                for row in batch.to_pylist()
            ]

        before, low = content(), service.state.queues["stuck"].blocks[0].runs.low
        pass_through(service, count=6)
        in_vain(service)
        assert service.state.queues["stuck"].blocks[0].runs.low > low
        assert service.state.stages["s"].parts[0].position > low
        assert size(service) <= bound(service)
        assert content() == before
        service.submit(c.Publish(["s"]))
        assert everything(service, "stuck")[5] == b"staged"


def test_many_stuck_messages_in_many_blocks_are_copied_once() -> None:
    """D2: copies are not copied again, even if a record is much larger than its message."""
    with running(LyingDisk(), **OPTIONS) as service:
        stick(service)
        link = service.submit(c.Subscribe("q"))
        for _ in range(4):
            service.submit(enqueue("q", *numbered(BLOCK_ROWS - 10)), enqueue("q", *numbered(10)))
            rows = service.submit(c.Acquire("q", link, BLOCK_ROWS)).rows
            service.submit(c.Settle("q", link, rows.minus(RowSet.single(rows.first + 77))))
        pass_through(service, count=6)
        in_vain(service)
        written = service.journal.end
        pass_through(service, "q", 10)
        in_vain(service)
        assert service.journal.end - written < 300_000
        assert size(service) <= bound(service)


def test_what_a_copy_takes_beside_its_messages_is_not_copied_again_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: small messages, each in a record of its own, which takes far more than the message does; a copy does not help."""
    monkeypatch.setattr(relocation, "PIECE_BYTES", 1)
    with running(LyingDisk(), **OPTIONS) as service:
        service.journal._options = replace(service.journal._options, segment_bytes=100_000)
        stick(service)
        for number in range(450):
            service.submit_nowait(enqueue("stuck", b"%d" % number))
        pass_through(service, count=3)
        in_vain(service)
        block = service.state.queues["stuck"].blocks[0]
        low, before = block.runs.low, block.positions(slice(0, 451))
        assert low > 3 * MIB
        pass_through(service, count=3)
        in_vain(service)
        assert np.count_nonzero(block.positions(slice(0, 451)) != before) < 225
        assert size(service) <= SLACK * service.cleaner.usage().total + SPARE_SEGMENTS * MIB


def test_readers_in_the_middle_find_what_they_have_begun_to_read() -> None:
    """D2: slices and places from before the cleaning can be read after it. A mapped file exists as long as the broker's slice
    of it."""
    with running(LyingDisk(), **OPTIONS) as service:
        stick(service)
        pass_through(service, count=2)
        slices = service.browse("stuck", lambda block: slice(0, block.filled), 0, None)
        browsed = next(iter(slices))
        where = mapping.batch(service.journal, browsed, "stuck").to_pylist()[0]
        with service.turn() as turn:
            (taken,) = turn.slices("stuck", RowSet.single(0))
        archived = service.browse("q", lambda block: slice(0, block.filled), 0, None)
        reader = record_batches(service.journal, archived, BatchRequest(["body"], "q"))
        first = next(reader)
        pass_through(service, count=6)
        assert service.cleaner.clean() > 0
        assert service.journal.dropped(), "their files are there yet"
        name = where["file"].removeprefix("/disk/")
        assert name in service.journal._disk.names()
        for part in (browsed, taken):
            assert [b.to_pylist() for b in record_batches(service.journal, [part], BatchRequest(["body"], "stuck"))] == [
                [{"body": STUCK}]
            ]
        assert first["body"][0].as_py().startswith(b"00000000")
        rest = sum(batch.num_rows for batch in reader)
        assert rest + first.num_rows == 600, "an open slice is read to its end"
        del browsed, taken, part, archived, reader, slices
        service.cleaner.clean()
        assert service.journal.dropped() == []
        assert name not in service.journal._disk.names()


def test_a_reader_on_this_host_that_maps_the_files_reads_on_or_asks_for_the_messages(tmp_path: Path) -> None:
    """D2: mapped files stay. If a file is gone, the reader asks over Flight, and tries to map the next time."""
    service = open_service(LocalDisk(tmp_path / "data"), **OPTIONS)
    try:
        stick(service)
        pass_through(service, count=2)

        def places() -> list[Location]:
            browsed = next(iter(service.browse("stuck", lambda block: slice(0, block.filled), 0, None)))
            return locations_of(mapping.batch(service.journal, browsed, "stuck"))

        early, late = places(), places()
        files = map_files(early, None, "broker")
        assert files is not None
        pass_through(service, count=6)
        in_vain(service)
        (read,) = assembled(early, files, ["body"], "stuck", lambda aside: None)
        assert read["body"].to_pylist() == [STUCK]
        assert map_files(late, None, "broker") is None
        assert may_be_mapped("broker")
        now = places()
        files = map_files(now, None, "broker")
        assert files is not None
        (read,) = assembled(now, files, ["body"], "stuck", lambda aside: None)
        assert read["body"].to_pylist() == [STUCK]
    finally:
        service.close()


def test_a_damaged_record_stays_where_it_is_and_the_rest_goes(caplog: pytest.LogCaptureFixture) -> None:
    """D2: its segment is excluded, and logged once."""
    disk = LyingDisk()
    with running(disk, **OPTIONS) as service:
        stick(service)
        pass_through(service)
        service.submit(enqueue("stuck", b"good" * 10))
        first = service.journal.segments()[0]
        data = disk.data(first.path.removeprefix("/disk/"))
        at = bytes(data).index(STUCK)
        data[at] ^= 1
        service._recent._batches.clear()
        service.journal._payloads._young.clear()
        with caplog.at_level(logging.ERROR):
            for _ in range(4):
                pass_through(service, count=4)
                service.cleaner.clean()
        assert len([line for line in caplog.messages if "is not cleaned" in line]) == 1
        assert service.journal.segments()[0].base == first.base
        assert size(service) <= bound(service) + SLACK * MIB
        assert bodies_of(service, "stuck", RowSet.single(1)) == [b"good" * 10]
        assert "damaged" in service.damaged("stuck")[0] or service.damaged("stuck")


def test_a_disk_that_is_nearly_full_is_cleaned_from_the_reserve() -> None:
    """D2 D5: senders are refused, and the cleaner frees space. It leaves half of the reserve for settlements."""
    disk = LyingDisk()
    with running(disk, **OPTIONS, free_space_mark_bytes=8 * MIB) as service:
        stick(service)
        pass_through(service, count=8)
        disk.room = 6 * MIB
        assert service.cleaner.clean() > 8 * MIB
        assert disk.room is not None
        assert disk.room > 4 * MIB
        assert everything(service, "stuck") == {0: STUCK}
        pass_through(service, count=2)
        disk.room = 4 * MIB  # it may not use this: segments without needed payloads are dropped
        before = service.state.queues["stuck"].blocks[0].runs.low
        service.cleaner.clean()
        assert service.state.queues["stuck"].blocks[0].runs.low == before


def test_a_disk_that_fills_up_while_it_copies_stops_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2 D5: it leaves half of the reserve, counts its copies, and continues when there is space again."""
    monkeypatch.setattr(relocation, "PIECE_BYTES", 20_000)
    disk = LyingDisk()
    options = {**OPTIONS, "free_space_mark_bytes": 8 * MIB, "clean_bandwidth": MIB}
    with running(disk, **options) as service:
        stick(service)
        service.submit(enqueue("stuck", *numbered(20, 7000)))
        pass_through(service, count=5)
        before = service.state.queues["stuck"].blocks[0].positions(slice(0, 21))
        disk.room = 6 * MIB
        pieces = 0

        class Closing:
            def is_set(self) -> bool:
                return False

            def wait(self, seconds: float) -> bool:
                nonlocal pieces
                pieces += 1
                if pieces == 2:
                    disk.room = 4 * MIB  # another program used it
                return False

        service.cleaner._closing = Closing()  # type: ignore[assignment]
        service.cleaner.clean()
        assert pieces == 2
        after = service.state.queues["stuck"].blocks[0].positions(slice(0, 21))
        assert 0 < np.count_nonzero(after != before) < 21
        pass_through(service, messages=2)
        disk.room = None
        in_vain(service)
        assert size(service) <= bound(service)
        assert len(everything(service, "stuck")) == 21


def test_the_queues_go_on_while_it_copies_and_it_rests_by_its_bandwidth() -> None:
    """D2: after each piece it waits as long as its bandwidth asks for, and commands are carried out."""
    with running(LyingDisk(), **{**OPTIONS, "clean_bandwidth": 2 * MIB}) as service:
        stick(service)
        service.submit(enqueue("stuck", *numbered(20, 7000)))
        pass_through(service, count=5)
        waits: list[float] = []

        class Closing:
            def is_set(self) -> bool:
                return False

            def wait(self, seconds: float) -> bool:
                waits.append(seconds)
                pass_through(service, messages=2)
                return False

        service.cleaner._closing = Closing()  # type: ignore[assignment]
        service.cleaner._clock = lambda: 0.0  # the time that the work takes would be part of the pause
        assert service.cleaner.clean() > 0
        assert sum(waits) == pytest.approx(140_000 / (2 * MIB), rel=0.3)
        assert len(everything(service, "stuck")) == 21


def steps(seed: int) -> Iterator[tuple[LyingDisk, LyingDisk, Any, dict[int, bytes]]]:
    """Stop a cleaning at each operation of the disk: the state before, after a kill, and after a power failure."""
    random = Random(seed)
    for stop in range(1, 400):
        disk = LyingDisk()
        service = open_service(disk, Clock(), **OPTIONS)
        stick(service)
        service.submit(c.StageMessages("s", "stuck", 1, 6, enqueue("stuck", b"staged").payload))
        pass_through(service, count=3)
        service.submit(enqueue("stuck", *numbered(3, 100)))
        state, content = described(service.state, archive=False), everything(service, "stuck")
        disk.stop_at = disk._steps + stop
        stopped = False
        try:
            service.cleaner.clean()
        except StorageError:
            stopped = True
        disk.stopped = True
        abandon(service)
        yield disk.kill(), disk.power_cut(random), state, content
        if not stopped:
            assert stop > 12
            return


def test_a_cleaning_stopped_at_any_operation_loses_nothing() -> None:
    """D2 D1: by kill or by power cut: the same state, every payload; and the next cleaning does the rest."""
    for after_kill, after_cut, state, content in steps(1):
        for disk in (after_kill, after_cut):
            with running(disk, Clock().restarted(), **OPTIONS) as again:
                assert everything(again, "stuck") == content
                after = described(again.state, archive=False)
                assert [row["name"] for row in after[0]["queues"]] == [row["name"] for row in state[0]["queues"]]
                assert [block["state"] for block in after[1]] == [block["state"] for block in state[1]]
                in_vain(again)
                assert size(again) <= bound(again) + MIB
                again.submit(c.Publish(["s"]))
                assert everything(again, "stuck")[4] == b"staged"


@pytest.mark.parametrize("seed", range(12))
def test_traffic_and_cleaning_in_any_order_with_crashes(seed: int) -> None:
    """D2 D1 C1: random sends, settlements, stages, moves, cleanings, snapshots and crashes, compared with a model."""
    random = Random(seed)
    print("seed", seed)
    clock, disk = Clock(), LyingDisk()
    service = open_service(disk, clock, **OPTIONS)
    service.submit(c.DeclareQueue("q"), c.DeclareQueue("p"))
    waiting: dict[str, list[bytes]] = {"q": [], "p": []}
    staged: list[tuple[str, list[bytes]]] = []
    link: dict[str, int] = {}
    number = 0
    for _ in range(60):
        action, name = random.randrange(9), random.choice("qp")
        if action <= 2:
            bodies = numbered(random.randint(1, 60), random.choice([10, 700, 7000]), start=number)
            number += len(bodies)
            service.submit(enqueue(name, *bodies))
            waiting[name] += bodies
        elif action <= 4 and waiting[name]:
            if name not in link:
                link[name] = service.submit(c.Subscribe(name))
            rows = service.submit(c.Acquire(name, link[name], random.randint(1, 80))).rows
            service.submit(c.Settle(name, link[name], rows, random.choice([Outcome.ACCEPTED, Outcome.REJECTED])))
            waiting[name] = waiting[name][rows.count :]
        elif action == 5:
            bodies = numbered(random.randint(1, 9), 500, start=number)
            number += len(bodies)
            service.submit(c.StageMessages("s", name, len(bodies), 500, enqueue(name, *bodies).payload))
            staged.append((name, bodies))
        elif action == 6 and staged:
            service.submit(c.Publish(["s"]))
            for name, bodies in staged:
                waiting[name] += bodies
            staged = []
        elif action == 7 and random.random() < 0.5:
            second = "p" if name == "q" else "q"
            count = service.submit(c.Move(name, second, random.randint(1, 9))).messages
            waiting[second] += waiting[name][:count]
            waiting[name] = waiting[name][count:]
        elif random.random() < 0.6:
            service.cleaner.clean()
        else:
            random.choice([service.take_snapshot, lambda: None])()
            disk = killed(service, disk) if random.random() < 0.5 else _cut(service, disk, random)
            link = {}
            service = open_service(disk, clock.restarted(), **OPTIONS)
        for queue, bodies in waiting.items():
            rows = RowSet.of(
                (block.number, block.waiting()) for block in service.state.queues[queue].blocks.values() if len(block.waiting())
            )
            assert bodies_of(service, queue, rows) == bodies
    in_vain(service)
    assert size(service) <= SLACK * service.cleaner.usage().total + SPARE_SEGMENTS * MIB
    abandon(service)


def _cut(service: BrokerService, disk: LyingDisk, random: Random) -> LyingDisk:
    disk.stopped = True
    abandon(service)
    return disk.power_cut(random)

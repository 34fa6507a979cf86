"""D2: segments can be dropped anywhere in the log below the last snapshot. A start accepts exactly these holes.

Readers with earlier positions find their payloads until they release them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.errors import DamagedJournal, DataLoss, StorageError
from penstock.broker_core.journal import Journal, LocalDisk, manifest
from penstock.broker_core.journal.holes import Hole, covers, merged

from .helpers import Content, append, content, drop_below, open_journal, running
from .lying_disk import LyingDisk


def records(count: int, first: int = 0) -> list[Content]:
    return [(b"%d" % number, b"%d" % number * 100) for number in range(first, first + count)]


def segments_of(disk: LyingDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".seg")]


def rewrite_manifest(disk: LyingDisk, **changed: object) -> None:
    """Write the manifest as another program might, with a valid checksum."""
    fields = {**json.loads(bytes(disk.data("manifest")).split(b"\n")[0]), **changed}
    line = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
    disk.data("manifest")[:] = line + b"\n%d\n" % manifest.crc32(line)


def holes_in(disk: LyingDisk) -> list[list[int]]:
    holes: list[list[int]] = json.loads(bytes(disk.data("manifest")).split(b"\n")[0])["holes"]
    return holes


def with_holes(*numbers: int, count: int = 8) -> tuple[LyingDisk, list[Content]]:
    """Write `count` records and one more, a segment each, and a snapshot of all; then drop the segments `numbers`."""
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        for record in records(count + 1):
            append(journal, record)
        journal.write_snapshot(journal.end, b"all", [])
        dropped = journal.drop(journal.segments()[number] for number in numbers)
        assert len(dropped) == len(numbers)
        left = [record for number, record in enumerate(records(count + 1)) if number not in numbers]
        assert content(journal) == left
        with pytest.raises(DataLoss, match="no longer in the journal: its segment was dropped"):
            journal.payload(dropped[0].base + 40)
    return disk, left


@pytest.mark.parametrize("numbers", [(0,), (3,), (2, 3, 4), (0, 2, 4, 6), (1, 2, 7), tuple(range(8))])
def test_segments_go_from_anywhere_and_the_rest_is_there_after_a_restart(numbers: tuple[int, ...]) -> None:
    disk, left = with_holes(*numbers)
    assert len(segments_of(disk)) == len(left)
    for seed in range(4):
        after = disk.copy() if seed == 0 else disk.power_cut(Random(seed))
        for start in range(3):  # the holes survive restarts, and the log continues
            with running(after, segment_bytes=10) as journal:
                assert content(journal) == left + records(start, 9)
                append(journal, *records(1, 9 + start))
        disk.stopped = False


def test_the_last_segment_and_what_the_snapshot_needs_stay() -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        ends = [append(journal, record) for record in records(8)]
        assert journal.drop(journal.segments()) == []
        journal.write_snapshot(ends[4], b"", [])
        assert [info.end <= ends[4] + 8 for info in journal.drop(journal.segments())] == [True] * 4
        assert content(journal, ends[4]) == records(3, 5)
        journal.write_snapshot(journal.end, b"", [])
        journal.drop(journal.segments())
        assert content(journal) == records(1, 7)


def test_a_hole_that_the_manifest_does_not_name_exactly_is_refused() -> None:
    """One byte more or less, another missing segment, or no hole."""
    start, left = with_holes(2, 3, 6)
    (a, b), (c, d) = holes_in(start)
    for wrong in ([], [[a, b]], [[c, d]], [[a + 8, b], [c, d]], [[a, b - 8], [c, d]], [[a, b + 8], [c, d]]):
        disk = start.copy()
        rewrite_manifest(disk, holes=wrong)
        with pytest.raises(DamagedJournal, match=r"/disk/\d+-\d+\.seg, offset \d+: the file ends here, and the next segment"):
            open_journal(disk)
    for name in segments_of(start):
        disk = start.copy()
        disk.unlink(name)
        with pytest.raises(DamagedJournal, match=rf"/disk/{name}, offset 0: the file is missing"):
            open_journal(disk)
    assert content(open_journal(start)) == left


def test_a_hole_before_the_first_segment_must_be_named_too() -> None:
    start, left = with_holes(0, 1)
    for wrong in ([], [[8, holes_in(start)[0][1]]]):
        disk = start.copy()
        rewrite_manifest(disk, holes=wrong)
        with pytest.raises(DamagedJournal, match=r"offset 0: a segment is missing: the log begins at \d+, but is needed from 0"):
            open_journal(disk)
    assert content(open_journal(start)) == left


def test_a_hole_above_the_snapshot_is_refused() -> None:
    disk, _ = with_holes(3)
    [snapshot] = [name for name in disk.names() if name.endswith(".snap")]
    disk.unlink(snapshot)
    with pytest.raises(DamagedJournal, match=r"/disk/manifest, offset 0: a snapshot is missing: the log from \d+ to \d+ was"):
        open_journal(disk)


@pytest.mark.parametrize("drop", [1, 5])
def test_a_snapshot_serves_instead_of_a_later_damaged_one_only_if_all_holes_are_below_it(drop: int) -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        for number, record in enumerate(records(8)):
            append(journal, record)
            if number in (3, 7):
                journal.write_snapshot(journal.end, b"%d" % number, [])
        append(journal, *records(1, 8))
        journal.drop([journal.segments()[drop]])
    snapshot = max(name for name in disk.names() if name.endswith(".snap"))
    disk.data(snapshot)[100] ^= 1
    if drop == 1:
        journal = open_journal(disk)
        assert journal.snapshot is not None
        assert journal.repaired is not None
        assert content(journal, journal.snapshot.position) == records(5, 4)
    else:
        with pytest.raises(DamagedJournal, match=rf"{snapshot}, offset 0: .* is damaged, and the log from \d+ to \d+ was"):
            open_journal(disk)


def test_a_dropping_stopped_at_any_operation_happened_or_did_not() -> None:
    """Also after a kill, when names of unlinked files may come back, and at the next start."""
    numbers = (1, 2, 5)
    remaining = [record for number, record in enumerate(records(8)) if number not in numbers]
    seen = set()
    for stop in range(1, 30):
        disk = LyingDisk()
        with running(disk, segment_bytes=10) as journal:
            for record in records(8):
                append(journal, record)
            journal.write_snapshot(journal.end, b"", [])
            disk.stop_at = disk._steps + stop
            try:
                journal.drop(journal.segments()[number] for number in numbers)
            except StorageError:
                stopped = True
            else:
                stopped = False
            disk.stopped = True
        for seed in range(12):
            after = disk.copy() if seed == 0 else disk.power_cut(Random(seed))
            after.stop_at = seed  # the start is also stopped
            try:
                open_journal(after)
            except StorageError:
                after = after.power_cut(Random(seed))
            after.stop_at = None
            for again in range(2):
                journal = open_journal(after)
                replayed = content(journal)
                assert replayed in (remaining, records(8))
                assert len(segments_of(after)) == len(replayed)
                seen.add(len(replayed))
                after = after.power_cut(Random(seed + again))
        if not stopped:
            break
    assert stop > 6
    assert seen == {5, 8}


@given(seed=st.integers(0, 1 << 32), stops=st.lists(st.integers(20, 120), min_size=1, max_size=4), kills=st.integers(0, 15))
@settings(max_examples=200, deadline=None)
def test_whatever_is_dropped_and_whenever_it_stops_the_rest_comes_back(seed: int, stops: list[int], kills: int) -> None:
    """Confirmed records exist unless they were dropped, dropped ones do not return, and the last snapshot counts."""
    random, disk = Random(seed), LyingDisk()
    appended: dict[int, Content] = {}  # by position; for an ended life, the records that returned
    gone: list[tuple[int, int]] = []  # dropped intervals; the last one possibly
    confirmed = snapshot = 0

    def check(journal: Journal, maybe: list[tuple[int, int]]) -> None:
        assert journal.end >= confirmed
        assert (journal.snapshot.position if journal.snapshot else 0) >= snapshot
        replayed = {record.position: (record.meta, bytes(journal.payload(record.position))) for record in journal.replay(0)}
        for position, meta_and_payload in appended.items():
            if covers(merged(gone), position):
                assert position not in replayed
            elif position < confirmed and not covers(merged(maybe), position):
                assert replayed[position] == meta_and_payload
        for position, meta_and_payload in replayed.items():
            assert appended[position] == meta_and_payload
        for position in [position for position in appended if position >= journal.end]:
            del appended[position]

    maybe: list[tuple[int, int]] = []
    for run, stop in enumerate([*stops, None]):
        disk.stop_at = stop
        try:
            journal = open_journal(disk, segment_bytes=2_000)
        except StorageError:
            assert disk.stopped
            disk = disk.kill() if kills >> run & 1 else disk.power_cut(random)
            continue
        check(journal, maybe)
        positions = {record.position for record in journal.replay(0)}
        gone, maybe = [(p, p + 1) for p in appended if p not in positions], []
        confirmed = journal.end
        journal.start()
        try:
            for _ in range(12):
                for _ in range(random.choice([1, 1, 4])):
                    meta, payload = b"%d" % journal.end, random.randbytes(random.choice([0, 10, 900, 5000]))
                    appended[journal.append(meta, [payload]).position] = (meta, payload)
                if random.random() < 0.7:
                    journal.wait(journal.end, 10)
                    confirmed = journal.end
                if random.random() < 0.3:
                    journal.write_snapshot(journal.end, b"", [])
                    snapshot = confirmed = journal.end
                every = journal.segments()
                maybe = [(s.base, s.end) for s in random.sample(every, random.randrange(len(every) // 2 + 1))]
                chosen = [s for s in every if (s.base, s.end) in maybe]
                gone += [(s.base, s.end) for s in journal.drop(chosen)]
                maybe = []
            if random.random() < 0.5:
                journal.close()
        except StorageError:
            assert disk.stopped
        disk = disk.kill() if kills >> run & 1 else disk.power_cut(random)
    check(open_journal(disk), maybe)


def test_who_holds_positions_finds_them_in_dropped_segments_until_he_lets_go() -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        for record in records(8):
            append(journal, record)
        positions = [record.position for record in journal.replay(0)]
        journal.write_snapshot(journal.end, b"", [])
        early, files = journal.hold(), len(segments_of(disk))
        journal.drop(journal.segments()[1:3])
        late = journal.hold()
        assert late is not early
        journal.drop(journal.segments()[2:3])
        assert (len(segments_of(disk)), len(journal.dropped())) == (files, 3)
        assert [meta for meta, _ in content(journal)] == [b"0", b"3", b"5", b"6", b"7"]
        for number in range(8):
            assert bytes(journal.payload(positions[number])) == records(8)[number][1]
            located = journal.locate(positions[number])
            name = located.path.removeprefix("/disk/")
            assert bytes(disk.data(name)[located.offset :][: located.length]) == records(8)[number][1]
        del late  # the early reader still holds them
        assert journal.unlink_dropped() == 0
        del early
        mapped = journal.payload(positions[1])
        assert (journal.unlink_dropped(), journal.dropped()) == (3, [])
        assert len(segments_of(disk)) == files - 3
        for number in (1, 2, 4):
            with pytest.raises(DataLoss):
                journal.payload(positions[number])
        assert bytes(mapped) == records(8)[1][1]


def test_later_drops_wait_for_later_readers_only() -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        for record in records(8):
            append(journal, record)
        journal.write_snapshot(journal.end, b"", [])
        assert weakref.ref(journal.hold())() is not None
        first = journal.segments()[1]
        journal.drop([first])  # no reader holds it
        assert journal.dropped() == []
        reader = journal.hold()
        journal.drop(journal.segments()[1:2])
        assert len(journal.dropped()) == 1
        del reader
        assert journal.unlink_dropped() == 1


def test_what_readers_held_when_the_process_ended_is_removed_at_the_next_start() -> None:
    disk = LyingDisk()
    with running(disk, segment_bytes=10) as journal:
        for record in records(8):
            append(journal, record)
        journal.write_snapshot(journal.end, b"", [])
        hold = journal.hold()
        drop_below(journal, journal.end)
        assert len(segments_of(disk)) == 8
        killed = disk.copy()
    assert len(content(open_journal(killed))) == 1
    assert len(segments_of(killed)) == 1
    del hold


@pytest.mark.parametrize("held", [False, True])
def test_segments_that_go_while_they_are_listed_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: bool) -> None:
    """D2: `penstock journal` lists segments while the cleaner's thread drops or unlinks them."""
    disk = LocalDisk(tmp_path)
    with running(disk, segment_bytes=10) as journal:
        for record in records(8):
            append(journal, record)
        journal.write_snapshot(journal.end, b"", [])
        size, every, asked = disk.size, journal.segments(), 0
        hold = [journal.hold()] if held else []
        if held:
            journal.drop(every[2:4])

        def meanwhile(name: str) -> int:
            nonlocal asked
            asked += 1
            if asked == 1:
                hold.clear()
                if held:
                    assert journal.unlink_dropped() == 2
                else:
                    assert len(journal.drop(every[2:4])) == 2
            return size(name)

        monkeypatch.setattr(disk, "size", meanwhile)
        assert len(journal.dropped() if held else journal.segments()) == (0 if held else 6)
        assert asked > 1


KILLED = """
    import sys
    from penstock.broker_core.journal import Journal, JournalOptions, LocalDisk

    journal = Journal.open(LocalDisk(sys.argv[1]), JournalOptions(segment_bytes=10_000))
    journal.start()
    for turn in range(1_000_000):
        for number in range(5):
            journal.wait(journal.append(b"%d" % journal.end, [b"x" * 3000]).end)
        journal.write_snapshot(journal.end, b"", [])
        journal.drop(segment for segment in journal.segments() if segment.base % 3)
        print(journal.end, flush=True)
"""


@pytest.mark.parametrize("turns", [1, 5, 12])
def test_kill_9_while_segments_are_dropped_leaves_a_journal(tmp_path: Path, turns: int) -> None:
    """kill -9 after some turns of a process that appends, writes snapshots and drops."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(turns):
        confirmed = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    for _ in range(2):
        with running(LocalDisk(tmp_path), segment_bytes=10_000) as journal:
            assert journal.snapshot is not None
            assert journal.end >= journal.snapshot.position >= confirmed
            assert all(payload == b"x" * 3000 for _, payload in content(journal))
            bases = {int(path.name.partition("-")[0]) for path in tmp_path.glob("*.seg")}
            assert bases == {segment.base for segment in journal.segments()}


def test_holes_that_touch_are_one() -> None:
    assert merged([(5, 9), (0, 5), (20, 20), (30, 40), (35, 50)]) == (Hole(0, 9), Hole(30, 50))
    assert [covers(((Hole(2, 4)), Hole(6, 8)), position) for position in range(9)] == [
        *(False, False, True, True, False, False, True, True, False)
    ]

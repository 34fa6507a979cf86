"""The journal without failures."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.errors import DamagedJournal, DataLoss, InvalidRequest, ResourceLimit, StorageError
from penstock.broker_core.journal import record_groups
from penstock.broker_core.journal.segments import read_header

from .helpers import append, content, drop_below, open_journal, read_all, running
from .lying_disk import LyingDisk

BIG = bytes(range(256)) * 400  # not copied when appended


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.sampled_from([b"", b"x", b"12345678", BIG, BIG[:-3]])), max_size=20), st.data()
)
@settings(max_examples=60, deadline=None)
def test_everything_appended_is_replayed_from_any_position(contents, data):
    disk = LyingDisk()
    with running(disk, segment_bytes=data.draw(st.sampled_from([100, 1 << 20]))) as journal:
        appended = [journal.append(meta, [payload]) for meta, payload in contents]
        if appended:
            journal.wait(appended[-1].end)
        assert content(journal) == contents
        assert [(r.position, r.end) for r in journal.replay(0)] == appended
    journal = open_journal(disk)
    assert (journal.repaired, content(journal)) == (None, contents)
    for index, (position, end) in enumerate(appended):
        assert content(journal, position) == contents[index:]
        assert content(journal, end) == contents[index + 1 :]
        assert content(journal, position + 1) == contents[index + 1 :]


def test_positions_are_known_before_anything_is_written():
    disk = LyingDisk()
    journal = open_journal(disk)
    before = disk.calls.total()
    first, second = journal.append(b"a"), journal.append(b"b", [b"x" * 100_000])
    assert disk.calls.total() == before
    assert (first.position, first.end) == (40, 72)
    assert (second.position, second.end, journal.end, journal.durable) == (72, 72 + 32 + 100_000, 72 + 32 + 100_000, 0)
    journal.start()
    journal.wait(second.end, 10)
    assert journal.durable > journal.end
    assert bytes(journal.payload(second.position)) == b"x" * 100_000
    journal.close()


def test_a_payload_is_several_buffers_of_any_kind():
    numbers = np.arange(5000, dtype="i8")
    for buffers in (
        [b"ab", bytearray(b"c"), memoryview(b"def"), pa.py_buffer(b"gh")],
        [numbers, b"end"],
        [b"", numbers[:0], b"z"],
    ):
        with running(LyingDisk()) as journal:
            appended = journal.append(b"meta", buffers)
            assert bytes(journal.payload(appended.position)) == b"".join(bytes(memoryview(b)) for b in buffers)


def test_a_payload_stands_at_a_multiple_of_eight_where_locate_says():
    disk = LyingDisk()
    with running(disk) as journal:
        for length in range(20):
            position = journal.append(b"m" * length, [b"p" * (length + 1)]).position
            path, offset, size, *_ = journal.locate(position)
            assert (offset % 8, size) == (0, length + 1)
            assert disk.data(path.removeprefix("/disk/"))[offset : offset + size] == b"p" * size


def test_segments_roll_over_and_a_record_stays_in_one():
    disk = LyingDisk()
    with running(disk, segment_bytes=1000) as journal:
        for number in range(50):
            append(journal, (b"%d" % number, b"x" * 300))
        segments = journal.segments()
        assert len(segments) > 10
        assert all(a.end == b.base for a, b in itertools.pairwise(segments))
        assert all(s.bytes == s.end - s.base + 128 for s in segments[:-1])
        assert all(s.first_time_ns == disk.now_ns() for s in segments)
    assert [meta for meta, _ in read_all(disk)] == [b"%d" % number for number in range(50)]


def test_a_group_is_limited_and_the_next_one_queues(monkeypatch):
    disk = LyingDisk()
    journal = open_journal(disk, buffer_bytes=2000)  # groups of 1,000
    contents = [(b"%d" % number, b"x" * 100) for number in range(100)]
    for meta, payload in contents:
        journal.append(meta, [payload])
    appends = disk.calls["append"]
    journal.start()
    journal.wait(journal.end, 10)
    assert 13 <= disk.calls["append"] - appends <= 18
    assert content(journal) == contents
    journal.close()
    assert read_all(disk) == contents


def test_reopening_in_order_copies_nothing_and_keeps_the_id():
    disk = LyingDisk()
    for number in range(4):
        with running(disk) as journal:
            assert journal.broker_id == "broker-1"
            append(journal, (b"%d" % number, b""))
            assert len(journal.segments()) == number + 1
    for _ in range(3):
        open_journal(disk).close()
    assert len([name for name in disk.names() if name.endswith(".seg")]) == 4
    assert [meta for meta, _ in read_all(disk)] == [b"0", b"1", b"2", b"3"]


def test_reserve_waits_for_room_and_gives_up():
    disk = LyingDisk()
    journal = open_journal(disk, buffer_bytes=10_000)
    journal.reserve(10_000, 0)
    journal.append(b"", [b"x" * 9000])
    with pytest.raises(StorageError, match="not started"):
        journal.reserve(5000, 0.01)
    gate = threading.Event()
    disk.fail = lambda call, name: gate.wait(10) and None if call == "sync" and "00-" in name else None
    journal.start()
    with pytest.raises(ResourceLimit, match="had no room for 5000 in"):
        journal.reserve(5000, 0.01)
    gate.set()
    journal.reserve(5000, 10)
    journal.reserve(1 << 30, 10)  # above the buffer's size: allowed if it is empty
    journal.close()


def test_positions_that_hold_nothing():
    disk = LyingDisk()
    with running(disk) as journal:
        with pytest.raises(InvalidRequest, match="past the end"):
            journal.payload(0)
        end = append(journal, (b"one", b"payload"))
        for read in (journal.payload, journal.locate):
            with pytest.raises(InvalidRequest, match="past the end"):
                read(end + 8)
            with pytest.raises(DamagedJournal, match=r"seg, offset 136"):
                read(8)
        with pytest.raises(InvalidRequest, match="past the end"):
            journal.write_snapshot(end + 1, b"", [])
        append(journal, (b"two", b""))
    with running(disk, segment_bytes=10) as journal:
        append(journal, (b"three", b""))
        journal.write_snapshot(journal.end, b"", [])
        assert len(drop_below(journal, journal.end)) == 1
        with pytest.raises(DataLoss, match="no longer in the journal"):
            journal.payload(40)


def test_a_payload_is_checked_at_the_first_read_and_again_when_forgotten(monkeypatch):
    from penstock.broker_core.journal import payloads

    monkeypatch.setattr(payloads, "REMEMBERED", 2)
    disk = LyingDisk()
    with running(disk) as journal:
        positions = [journal.append(b"", [b"payload %d" % number]).position for number in range(10)]
        journal.wait(journal.end)
        assert bytes(journal.payload(positions[0])) == b"payload 0"
        path, offset, *_ = journal.locate(positions[0])
        disk.data(path.removeprefix("/disk/"))[offset] ^= 1
        journal.payload(positions[0])  # cached
        for position in positions[1:]:
            journal.payload(position)
        with pytest.raises(DamagedJournal, match=rf"/disk/.*seg, offset {offset}: a payload"):
            journal.payload(positions[0])


def test_a_page_that_the_disk_does_not_read_is_an_error_with_file_and_offset():
    disk = LyingDisk()
    with running(disk) as journal:
        position = journal.append(b"", [b"payload"]).position
        journal.wait(journal.end)
        disk.fail = lambda call, name: OSError(5, "input/output error") if call == "read" else None
        with pytest.raises(DamagedJournal, match=r"seg, offset \d+: the disk does not read it"):
            journal.payload(position)
        disk.fail = lambda call, name: None


def test_listeners_hear_of_the_durable_position_and_a_broken_one_harms_nobody(caplog):
    positions: list[int] = []
    with running(LyingDisk()) as journal:
        journal.add_listener(lambda durable: 1 / 0)
        journal.add_listener(positions.append)
        end = append(journal, (b"a", b""))
        append(journal, (b"b", b""))
    assert positions[0] >= end
    assert sorted(positions) == positions
    assert caplog.text.count("a listener of the journal failed") == 1


def test_what_is_closed_says_so():
    with running(LyingDisk()) as journal:
        journal.close()
        journal.close()
        with pytest.raises(StorageError, match="closed"):
            journal.append(b"")
    with pytest.raises(InvalidRequest, match="fsync"):
        open_journal(LyingDisk(), fsync="sometimes")


def test_ids_that_cannot_be(monkeypatch):
    disk = LyingDisk()
    append_one(disk)
    del disk._names["id"]
    with pytest.raises(DamagedJournal, match=r"/disk/id, offset 0: the file is missing"):
        open_journal(disk)
    disk = LyingDisk()
    append_one(disk)
    disk.data("id")[:] = b"broker-2"
    with pytest.raises(DamagedJournal, match="/disk/manifest, offset 0: it is another broker's"):
        open_journal(disk)
    [segment] = [name for name in disk.names() if name.endswith(".seg")]
    with pytest.raises(DamagedJournal, match=f"/disk/{segment}, offset 48: the segment belongs to another broker"):
        read_header(disk, segment, "broker-2")


def append_one(disk):
    with running(disk) as journal:
        append(journal, (b"one", b""))


def test_a_large_payload_is_kept_by_reference():
    assert len(BIG) > record_groups.INLINE_BYTES
    payload = bytearray(BIG)
    journal = open_journal(LyingDisk())
    position = journal.append(b"", [payload]).position
    payload[0] = 99  # forbidden for callers: it proves that there was no copy
    journal.start()
    assert journal.payload(position)[0] == 99
    journal.close()


def test_what_is_mapped_does_not_end_in_the_zeros_that_others_are_written_into():
    with running(LyingDisk()) as journal:  # its mappings have the content at the time of the mapping
        for number in range(20):
            end = append(journal, (b"", b"%d" % number * 30))
            assert content(journal)[-1] == (b"", b"%d" % number * 30), end

"""D5: any single flipped bit is refused, with file and offset, or changes nothing. No confirmed record is skipped."""

from __future__ import annotations

import re

import pytest

from penstock.broker_core.errors import DamagedJournal, StorageError
from penstock.broker_core.journal import segments
from penstock.broker_core.journal.records import Format, GroupHeader, pack_group

from .helpers import append, content, open_journal, read_all, running
from .lying_disk import LyingDisk

CONTENTS = [(b"meta %d" % number, bytes([number + 1]) * (37 * number)) for number in range(12)]


def journal_of(closed: bool, **options: object) -> LyingDisk:
    """Build twelve confirmed records in groups of one; closed in order, or left by a crash."""
    disk = LyingDisk()
    with running(disk, **options) as journal:
        for record in CONTENTS:
            append(journal, record)
        if not closed:
            disk = crashed(disk)
    return disk


def crashed(disk: LyingDisk) -> LyingDisk:
    """Return the disk after a minimal power cut, which loses only the note of the synced position."""
    disk = disk.copy()
    disk.unlink("synced")
    return disk


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
def test_any_flipped_bit_is_refused_or_changes_nothing(closed):
    start = journal_of(closed)
    [name] = [name for name in start.names() if name.endswith(".seg")]
    refused = 0
    size = len(start.data(name))
    for offset in range(size):
        disk = start.copy()
        disk.data(name)[offset] ^= 1 << (offset % 8)
        try:
            journal = open_journal(disk)
            assert [record.meta for record in journal.replay(0)] == [meta for meta, _ in CONTENTS], f"byte {offset} of {size}"
            assert content(journal) == CONTENTS, f"byte {offset} of {size}"
        except DamagedJournal as error:
            refused += 1
            match = re.search(rf"/disk/{name}, offset (\d+): ", str(error))
            assert match
            assert int(match[1]) <= offset + 8
    assert refused > size * 0.9  # the rest is padding


def test_zeros_in_the_middle_are_damage_and_not_a_torn_write():
    start = journal_of(closed=False)
    [name] = [name for name in start.names() if name.endswith(".seg")]
    size = len(start.data(name))
    last = start.data(name).rindex(b"PGRP")  # this group declares everything below as synced
    for offset in range(128, last, 64):
        disk = start.copy()
        disk.data(name)[offset : offset + 64] = bytes(64)
        with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
            read_all(disk)
    for offset in range(512, last - 512, 512):  # whole sectors, as after a power cut, but later groups declare them as synced
        disk = start.copy()
        disk.data(name)[offset : offset + 512] = bytes(512)
        with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
            read_all(disk)
    assert last < size - 300


def test_a_recovered_tail_is_known_to_be_on_the_disk():
    disk = journal_of(closed=False)
    open_journal(disk)
    _, name = [name for name in disk.names() if name.endswith(".seg")]
    disk.truncate(name, len(disk.data(name)) - 20)
    with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
        open_journal(disk)


def test_a_segment_cut_short_or_missing_between_others_is_damage():
    start = journal_of(closed=True, segment_bytes=500)
    names = [name for name in start.names() if name.endswith(".seg")]
    assert len(names) > 3
    for name in names[:-1]:
        disk = start.copy()
        size = len(disk.data(name)) - 1
        disk.truncate(name, size)
        with pytest.raises(DamagedJournal, match=rf"{name}, offset {size}: the file ends here"):
            open_journal(disk)
        disk.unlink(name)
        with pytest.raises(DamagedJournal, match=r"offset"):
            open_journal(disk)


def test_a_snapshot_proves_that_the_log_was_on_the_disk():
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, *CONTENTS)
        journal.write_snapshot(journal.end, b"", [])
        [segment] = journal.segments()
        disk = crashed(disk)
    name = segment.path.removeprefix("/disk/")
    disk.truncate(name, len(disk.data(name)) - 20)  # else the shape of a torn write
    with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
        open_journal(disk)
    disk.unlink(name)
    with pytest.raises(DamagedJournal, match=rf"{name}, offset 0: the file is missing"):
        open_journal(disk)


def test_another_format_version_is_named():
    disk = journal_of(closed=True)
    [name] = [name for name in disk.names() if name.endswith(".seg")]
    header = bytearray(disk.data(name)[:128])
    header[8] = 9
    header[124:] = segments.crc32(bytes(header[:124])).to_bytes(4, "little")
    disk.data(name)[:128] = header
    with pytest.raises(StorageError, match="format version 9, this program reads 1; use the program that wrote it"):
        open_journal(disk)


def test_a_payload_that_holds_groups_of_a_journal_is_only_a_payload():
    inner = journal_of(closed=False)
    [name] = [name for name in inner.names() if name.endswith(".seg")]
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"carries", bytes(inner.data(name)) * 3))
        append(journal, (b"after", b""))
        disk = crashed(disk)
    expected = [(b"carries", bytes(inner.data(name)) * 3), (b"after", b"")]
    assert read_all(disk.copy()) == expected
    [outer] = [name for name in disk.names() if name.endswith(".seg")]
    disk.truncate(outer, len(disk.data(outer)) - 50)  # now the second group is torn
    journal = open_journal(disk)
    assert content(journal) == expected[:1]


def test_groups_inside_a_payload_bear_no_witness():
    inner = journal_of(closed=False)
    [name] = [name for name in inner.names() if name.endswith(".seg")]
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"before", b""))
        append(journal, (b"carries", bytes(inner.data(name))))
        disk = crashed(disk)
    [outer] = [name for name in disk.names() if name.endswith(".seg")]
    second = disk.data(outer).index(b"PGRP", 140)
    disk.data(outer)[second:512] = bytes(512 - second)  # the second group's header is missing, but not its records
    assert read_all(disk) == [(b"before", b"")]


def forged(form: Format, position: int, length: int) -> bytes:
    """Return a payload for `position` full of group headers, each of which declares all bytes before it as synced."""
    size = 40
    at = range(position, position + length - size, size)
    return b"".join(pack_group(form, GroupHeader(lsn, 48, 0, lsn))[0] for lsn in at).ljust(length, b"x")


@pytest.mark.parametrize("known", ["nothing", "an earlier start's secret", "the secret"])
def test_headers_of_groups_forged_in_a_message_make_no_recovery_refuse(known):
    """The second group is torn. In its payload, after its first sector, is a forged header that declares it synced. A forger does
    not know the secret. A test with the secret shows that the test would fail."""
    disk = LyingDisk()
    with running(disk) as journal:
        append(journal, (b"before", b""))
    earlier = journal._form
    with running(disk) as journal:
        append(journal, (b"first", b""))
        secret = journal._form
        guess = Format.of(1, bytes(12))
        form = {"nothing": guess, "an earlier start's secret": earlier, "the secret": secret}[known]
        position = (journal.end + 8) + 40 + 24 + 8  # of the payload: end mark, header of a group, of a record, meta
        payload = forged(form, position, 3000)
        end = append(journal, (b"forgery!", payload))
        assert end - len(payload) == position
        name = journal.segments()[-1].path.removeprefix("/disk/")
        disk = crashed(disk)
    assert secret.secret != earlier.secret
    torn = disk.data(name).index(payload) - 72
    disk.data(name)[torn : torn + 512] = bytes(512)  # as if the group's header was not written
    if known == "the secret":
        with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
            open_journal(disk)
    else:
        assert [meta for meta, _ in read_all(disk)] == [b"before", b"first"]


def test_bytes_of_another_start_at_the_same_place_do_not_pass_for_a_payload():
    """Two copies of a directory continued separately: the same positions, names, sizes, and other messages."""
    start = journal_of(closed=True)
    ends, names, disks = set(), set(), []
    for side in (b"ours", b"them"):
        disk = start.copy()
        with running(disk) as journal:
            ends.add(append(journal, *((b"meta", side * (number * 5)) for number in range(1, 100))))
            names.add(journal.segments()[-1].path.removeprefix("/disk/"))
        disks.append(disk)
    [name], [_] = names, ends
    disk, their_disk = disks
    theirs = their_disk.data(name)
    with running(disk) as journal:
        records = [record for record in journal.replay(0) if record.meta == b"meta"]
        for record in records:
            path, offset, length, *_ = journal.locate(record.position)
            assert path == f"/disk/{name}"
            since = offset - (32 if record.position % 16 else 0)  # with its header and meta, or without
            original = bytes(disk.data(name)[since : offset + length])
            assert theirs[since : offset + length] != original
            disk.data(name)[since : offset + length] = theirs[since : offset + length]
            journal._payloads._young.clear()
            with pytest.raises(DamagedJournal, match=rf"{name}, offset \d+"):
                journal.payload(record.position)
            disk.data(name)[since : offset + length] = original
        assert len(records) == 99

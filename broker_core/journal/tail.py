"""Check of the last segment, which a crash can tear: its good part, and the fault after it (rules: recovery.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .disk import COPY_BYTES, ReadFile
from .records import (
    END,
    END_BYTES,
    END_MAGIC,
    GROUP_BYTES,
    RECORD_BYTES,
    FileWindow,
    checksum_of,
    record_is_good,
    unpack_group,
    unpack_record,
)
from .replay import damaged
from .segments import HEADER_BYTES, Segment

SECTOR = 512  # bytes; the smallest unit that a disk writes


class Tail(NamedTuple):
    """The last segment. `synced`, `end` and `file_end` are LSNs: base <= synced <= end <= file_end."""

    synced: int  # on the disk below this boundary of groups
    end: int  # good below this boundary of groups
    file_end: int  # only zeros follow
    has_records: bool  # between synced and end
    cut: str | None  # reason to cut [end, file_end); None if it is empty


class _Group(NamedTuple):
    lsn: int
    end: int
    records: int


class _BadGroup(NamedTuple):
    """A group at `lsn` that fails within [low, high). `end` is None if its header is bad."""

    lsn: int
    end: int | None
    low: int
    high: int
    part: str


def read_tail(file: ReadFile, path: str, segment: Segment, known: int) -> Tail:
    """`known`: LSN below which other files prove that the log was on the disk.

    Raises DamagedJournal if a bad group was confirmed, or could have been and is not torn.
    """
    file_end = segment.end
    groups, synced, bad = _walk(file, segment, file_end)
    synced = max(synced, segment.born, known)
    if bad is not None:
        synced = max(synced, _highest_synced_after(file, segment, bad.lsn, file_end))
    end = groups[-1].end if groups else segment.base
    if synced > end:
        where = bad.low if bad else file_end
        raise damaged(path, segment.offset(where), bad.part if bad else f"the file, which ends before position {synced},")
    synced = next((group.lsn for group in groups if group.lsn >= synced), end)
    after = [group for group in groups if group.lsn >= synced]
    for index, group in enumerate(after):
        wrong = _check_group(file, segment, group)
        if wrong is not None:
            bad, after, end = wrong, after[:index], group.lsn
            break
    if bad is not None and not _torn(file, segment, bad, file_end):
        raise damaged(
            path, segment.offset(bad.low), f"{bad.part}, which does not look like a torn write and may have been confirmed,"
        )
    cut = f"{bad.part} at position {bad.low} is missing: a torn write" if bad is not None else None
    return Tail(synced, end, file_end, any(group.records for group in after), cut)


def first_fault(file: ReadFile, segment: Segment, stop: int) -> tuple[int, str] | None:
    """Return offset and name of the first wrong byte below the LSN `stop`. Bytes that a start ignores count: zeros between
    records, and the checksum in the end mark.
    """
    groups, _, bad = _walk(file, segment, stop)
    for group in groups:
        wrong = _check_group(file, segment, group)
        if wrong is not None:
            return segment.offset(wrong.low), wrong.part
        odd = _odd_bytes(file, segment, group)
        if odd is not None:
            return odd
    return None if bad is None else (segment.offset(bad.low), bad.part)


def _odd_bytes(file: ReadFile, segment: Segment, group: _Group) -> tuple[int, str] | None:
    window, lsn, stop = FileWindow(file), group.lsn + GROUP_BYTES, group.end - END_BYTES
    while lsn < stop:
        index = window.at(segment.offset(lsn), RECORD_BYTES)
        header = unpack_record(window.data, index)
        assert header is not None, "the group was checked before"
        for end, room in (
            (lsn + RECORD_BYTES + header.meta_bytes, -header.meta_bytes & 7),
            (lsn + header.payload_at + header.payload_bytes, -header.payload_bytes & 7),
        ):
            if room and any(file.read(segment.offset(end), room)):
                return segment.offset(end), "the padding of a record"
        lsn += header.length
    header_crc = int.from_bytes(file.read(segment.offset(group.lsn) + 8, 4), "little")
    if END.unpack(file.read(segment.offset(stop), END_BYTES))[0] != header_crc:
        return segment.offset(stop), "the end mark of a group"
    return None


def _walk(file: ReadFile, segment: Segment, file_end: int) -> tuple[list[_Group], int, _BadGroup | None]:
    """Return the groups with a good header that fit in the file, their highest synced position, and the bad group after them."""
    groups: list[_Group] = []
    window, lsn, synced = FileWindow(file), segment.base, 0
    while lsn < file_end:
        index = window.at(segment.offset(lsn), GROUP_BYTES)
        header = unpack_group(window.data, index, segment.form, lsn) if index >= 0 else None
        if header is None:
            return groups, synced, _BadGroup(lsn, None, lsn, lsn + GROUP_BYTES, "the header of a group")
        synced = max(synced, header.synced)
        if lsn + header.length > file_end:
            return groups, synced, _BadGroup(lsn, lsn + header.length, file_end, lsn + header.length, "the end of a group")
        groups.append(_Group(lsn, lsn + header.length, header.records))
        lsn += header.length
    return groups, synced, None


def _highest_synced_after(file: ReadFile, segment: Segment, lsn: int, file_end: int) -> int:
    """Return the highest synced position in groups after a break, found by their magic; 0 without any."""
    magic = segment.form.magic
    synced, offset, stop = 0, segment.offset(lsn) + 8, segment.offset(file_end)
    while offset < stop:
        data = file.read(offset, COPY_BYTES)
        index = data.find(magic)
        while index >= 0:
            lsn = segment.base + offset + index - HEADER_BYTES
            header = unpack_group(file.read(offset + index, GROUP_BYTES), 0, segment.form, lsn)
            synced = max(synced, header.synced if header else 0)
            index = data.find(magic, index + 1)
        if len(data) < COPY_BYTES:
            break
        offset += len(data) - len(magic)
    return synced


def _check_group(file: ReadFile, segment: Segment, group: _Group) -> _BadGroup | None:
    def bad(low: int, high: int, part: str) -> _BadGroup:
        return _BadGroup(group.lsn, group.end, low, high, part)

    window, lsn, stop, records = FileWindow(file), group.lsn + GROUP_BYTES, group.end - END_BYTES, 0
    while lsn < stop:
        index = window.at(segment.offset(lsn), RECORD_BYTES)
        header = unpack_record(window.data, index)
        if header is None or lsn + header.length > stop:
            return bad(lsn, lsn + RECORD_BYTES, "the header of a record")
        index = window.at(segment.offset(lsn), RECORD_BYTES + header.meta_bytes)
        if not record_is_good(window.data, index, segment.form.seed(lsn), header.meta_bytes):
            return bad(lsn, lsn + RECORD_BYTES + header.meta_bytes, "the header or meta of a record")
        payload = lsn + header.payload_at
        checksum = checksum_of(file, segment.offset(payload), header.payload_bytes, segment.form.seed(lsn))
        if checksum != header.payload_crc:
            return bad(payload, payload + header.payload_bytes, "the payload of a record")
        lsn, records = lsn + header.length, records + 1
    mark = file.read(segment.offset(stop), END_BYTES)
    if records != group.records or len(mark) < END_BYTES or END.unpack(mark)[1] != END_MAGIC:
        return bad(stop, group.end, "the end mark of a group")
    return None


def _torn(file: ReadFile, segment: Segment, bad: _BadGroup, file_end: int) -> bool:
    """Check rule 3 of recovery.py."""
    if bad.high > file_end or (bad.end is not None and bad.end > file_end):
        return True
    start, stop, high = segment.offset(bad.lsn), segment.offset(file_end), segment.offset(bad.high)
    first = segment.offset(bad.low) // SECTOR * SECTOR
    while first < high:
        data = file.read(first, COPY_BYTES if high - first > COPY_BYTES else high - first + (-(high - first)) % SECTOR)
        if not data:
            return False
        data = b"\0" * max(0, start - first) + data[max(0, start - first) : max(0, stop - first)]
        data += b"\0" * (-len(data) % SECTOR)
        if not np.frombuffer(data, np.uint8).reshape(-1, SECTOR).any(axis=1).all():
            return True
        first += len(data)
    return False

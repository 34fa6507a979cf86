"""The records of a segment in order, without their payloads.

Hot: a start may read a million records, so the loop uses local names and one checksum per record.
"""

from __future__ import annotations

from collections.abc import Iterator

from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal
from .disk import ReadFile
from .records import END_BYTES, GROUP_BYTES, MASK, RECORD, RECORD_BYTES, RECORD_MAGIC, FileWindow, Record, unpack_group
from .segments import Segment


def replay_segment(file: ReadFile, path: str, segment: Segment, position: int, stop: int) -> Iterator[Record]:
    window = FileWindow(file)
    lsn = segment.base
    while lsn < stop:
        index = window.at(segment.offset(lsn), GROUP_BYTES)
        header = unpack_group(window.data, index, segment.form, lsn) if index >= 0 else None
        if header is None or lsn + header.length > stop:
            raise damaged(path, segment.offset(lsn), "the header of a group")
        if lsn + header.length > position:
            yield from _replay_group(window, path, segment, lsn + GROUP_BYTES, lsn + header.length - END_BYTES, position)
        lsn += header.length


def _replay_group(window: FileWindow, path: str, segment: Segment, lsn: int, stop: int, position: int) -> Iterator[Record]:
    shift = segment.offset(0)
    data, start = window.data, window.start
    unpack, new, checksum_of, seed = RECORD.unpack_from, Record._make, crc32, segment.form.record_seed
    while lsn < stop:
        index = lsn + shift - start
        if not 0 <= index <= len(data) - RECORD_BYTES:
            index = window.at(lsn + shift, RECORD_BYTES)
            data, start = window.data, window.start
            if index < 0:
                raise damaged(path, lsn + shift, "the header of a record (the file ends)")
        checksum, magic, flags, meta_bytes, _, payload_bytes = unpack(data, index)
        after = index + RECORD_BYTES + meta_bytes
        end = lsn + RECORD_BYTES + ((meta_bytes + 7) & ~7) + ((payload_bytes + 7) & ~7)
        if magic != RECORD_MAGIC or flags or end > stop:
            raise damaged(path, lsn + shift, "the header of a record")
        if after > len(data):
            index = window.at(lsn + shift, RECORD_BYTES + meta_bytes)
            data, start = window.data, window.start
            if index < 0:
                raise damaged(path, lsn + shift, "the meta of a record (the file ends)")
            after = index + RECORD_BYTES + meta_bytes
        if lsn >= position:
            if checksum_of(data[index + 4 : after], (lsn ^ seed) & MASK) != checksum:
                raise damaged(path, lsn + shift, "a record's header or meta")
            yield new((lsn, end, data[index + RECORD_BYTES : after], payload_bytes))
        lsn = end


def damaged(path: str, offset: int, part: str) -> DamagedJournal:
    return DamagedJournal(
        f"{path}, offset {offset}: {part} does not match its checksum; this was on the disk, and confirmed, "
        "so nothing was cut or skipped: restore the file from a backup"
    )

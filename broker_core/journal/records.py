"""What stands in the log: records, and the groups in which they are written.

An LSN (log sequence number, here also *position*) is a byte offset in the whole log, from 0 and never reused for something
that was confirmed. The log is a chain of groups, without a byte between them:

    group  = magic 8s | checksum u32 | records u32 | own LSN u64 | length u64 | synced u64         40 bytes
             records, one after the other
             group's checksum u32 | b"end\\n"                                                        8 bytes
    record = checksum u32 | magic u16 | flags u16 | meta length u32 | payload crc u32 | payload length u64    24 bytes
             meta, padded with zeros to 8 bytes
             payload, padded with zeros to 8 bytes

Little-endian. A group's `length` counts everything from its magic to its end mark. `synced` is the position below which the
log was known to be on the disk when the group was written. Its checksum covers records..synced and is seeded by the broker's
id, so that a group of another log, carried along in a payload, is none here. A record's checksum covers magic..payload length
and the meta, and is seeded by its position, so that good bytes at the wrong place are bad. The payload has its own checksum,
since it is read alone, later, and not at all during a replay. All are zlib.crc32.

The end mark ends in a byte that is not zero, so a file that ends in zeros inside a group is always a group that was
not written out, never one whose payload ends in zeros.

To change the format: raise `segments.VERSION`; keep the old structs here under their version; let `segments.read_header` hand
the version to the readers below; never write an old version. `flags` (0 today) is for a record that old readers must refuse:
a flag they do not know is damage to them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from broker_core.journal.disk import COPY_BYTES, ReadFile

GROUP = struct.Struct("<8sIIQQQ")
RECORD = struct.Struct("<IHHIIQ")
END = struct.Struct("<I4s")
GROUP_MAGIC = b"PENSTGRP"
RECORD_MAGIC = 0x5250  # "PR"
END_MAGIC = b"end\n"

GROUP_BYTES, RECORD_BYTES, END_BYTES = GROUP.size, RECORD.size, END.size
META_MAX = (1 << 32) - 1

_group_tail = struct.Struct("<IQQQ")
_record_tail = struct.Struct("<HHIIQ")


class Record(NamedTuple):
    """One record as `Journal.replay` gives it."""

    position: int  # LSN, bytes
    end: int  # LSN after the record, bytes
    meta: bytes
    payload_bytes: int


class GroupHeader(NamedTuple):
    lsn: int
    length: int  # bytes, header and end mark included
    records: int
    synced: int  # LSN known to be on the disk when the group was written


def padded(length: int) -> int:
    """`length` rounded up to a multiple of 8."""
    return (length + 7) & ~7


def group_seed(broker_id: str) -> int:
    return crc32(broker_id.encode())


def pack_group(seed: int, header: GroupHeader) -> tuple[bytes, bytes]:
    """The header of a group and its end mark."""
    tail = _group_tail.pack(header.records, header.lsn, header.length, header.synced)
    checksum = crc32(tail, seed)
    return GROUP_MAGIC + checksum.to_bytes(4, "little") + tail, END.pack(checksum, END_MAGIC)


def unpack_group(data: bytes, index: int, seed: int, lsn: int) -> GroupHeader | None:
    """The group header at `index` of `data`, if it is one, and that of position `lsn`."""
    if len(data) - index < GROUP_BYTES:
        return None
    magic, checksum, records, own, length, synced = GROUP.unpack_from(data, index)
    if magic != GROUP_MAGIC or own != lsn or crc32(data[index + 12 : index + GROUP_BYTES], seed) != checksum:
        return None
    if length < GROUP_BYTES + END_BYTES or length & 7 or synced > lsn:
        return None
    return GroupHeader(own, length, records, synced)


def pack_record(position: int, meta: bytes, payload_crc: int, payload_bytes: int) -> bytes:
    """Header, meta and padding: everything of a record that stands before its payload."""
    tail = _record_tail.pack(RECORD_MAGIC, 0, len(meta), payload_crc, payload_bytes)
    checksum = crc32(meta, crc32(tail, position & 0xFFFFFFFF))
    return checksum.to_bytes(4, "little") + tail + meta + b"\0" * (-len(meta) & 7)


class RecordHeader(NamedTuple):
    meta_bytes: int
    payload_crc: int
    payload_bytes: int

    @property
    def payload_at(self) -> int:
        """Bytes from the record's position to its payload."""
        return RECORD_BYTES + padded(self.meta_bytes)

    @property
    def length(self) -> int:
        return self.payload_at + padded(self.payload_bytes)


def unpack_record(data: bytes, index: int) -> RecordHeader | None:
    """The record header at `index`, if it has the look of one; its checksum is `record_is_good`'s."""
    if len(data) - index < RECORD_BYTES:
        return None
    _, magic, flags, meta_bytes, payload_crc, payload_bytes = RECORD.unpack_from(data, index)
    return RecordHeader(meta_bytes, payload_crc, payload_bytes) if magic == RECORD_MAGIC and flags == 0 else None


def record_is_good(data: bytes, index: int, position: int, meta_bytes: int) -> bool:
    """Whether header and meta of the record of `position`, at `index` of `data`, have their checksum."""
    stop = index + RECORD_BYTES + meta_bytes
    if stop > len(data):
        return False
    return crc32(data[index + 4 : stop], position & 0xFFFFFFFF) == int.from_bytes(data[index : index + 4], "little")


def checksum_of(file: ReadFile, offset: int, length: int) -> int | None:
    """crc32 of the bytes [offset, offset + length) of a file; None when the file ends before."""
    checksum, stop = 0, offset + length
    while offset < stop:
        piece = file.read(offset, min(COPY_BYTES, stop - offset))
        if not piece:
            return None
        checksum = crc32(piece, checksum)
        offset += len(piece)
    return checksum


class Window:
    """A file read in pieces that grow while it is read on, and shrink where it is jumped over (payloads during a replay)."""

    SMALLEST, LARGEST = 1 << 14, COPY_BYTES

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._step = self.SMALLEST
        self.data = b""
        self.start = 0  # offset in the file of data[0]

    def at(self, offset: int, length: int) -> int:
        """Make `data` hold the file's bytes [offset, offset + length); the index of the first. -1 when the file ends before."""
        index = offset - self.start
        if not 0 <= index <= len(self.data) - length:
            onward = 0 <= index <= len(self.data)
            self._step = min(self._step * 4, self.LARGEST) if onward else self.SMALLEST
            self.data = self._file.read(offset, max(self._step, length))
            self.start, index = offset, 0
        return index if len(self.data) - index >= length else -1

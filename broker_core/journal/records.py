r"""Format of the log: records, and the groups in which they are written.

An LSN (log sequence number, here also *position*) is a byte offset in the whole log, from 0. It is never reused for something
that was confirmed. The log is a chain of groups, without gaps:

    group  = magic 8s | checksum u32 | records u32 | own LSN u64 | length u64 | synced u64         40 bytes
             records
             group's checksum u32 | b"end\n"                                                         8 bytes

    record = checksum u32 | magic u16 | flags u16 | meta length u32 | payload crc u32 | payload length u64    24 bytes
             meta, padded with zeros to 8 bytes
             payload, padded with zeros to 8 bytes

Little-endian. A group's `length` includes its header and end mark. `synced` is the position below which the log was known to be
on the disk when the group was written. Its checksum covers records..synced. A record's checksum covers magic..payload length and
the meta. The payload has its own, since a replay does not read it. All are zlib.crc32.

After a torn write, recovery finds groups by their magic, and trusts their `synced` (tail.py). Payloads are in the same file, and
every sender can write them. So each start of a broker draws a secret of 12 random bytes. It is only in the headers of the
segments that this start writes (segments.py), mode 0600:

    4 bytes   second half of a group's magic, after "PGRP"
    4 bytes   seed of a group's checksum
    4 bytes   xor the position: seed of a record's checksum, and of its payload's

One valid group is enough to compute others, but only payloads leave the broker. So a forger has to guess 64 bits for each 40
bytes of payload: a chance of 2^-41 for a whole segment.

The position in the seeds makes good bytes at a wrong position bad. The secret does so for bytes of another start, also in a
copied directory that another broker has used. A recovered tail keeps version and secret of its original.

The end mark does not end in zero. So a file that ends in zeros inside a group has an incomplete group.

To change the format: raise `segments.VERSION`. Keep the old structs here under their version, and let `Format` carry the
differences to the readers below. Never write an old version, except for the copy of a tail. `flags` (0 today) is for a record
that old readers must refuse: an unknown flag is damage to them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from .disk import COPY_BYTES, ReadFile, pieces_of

GROUP = struct.Struct("<8sIIQQQ")
RECORD = struct.Struct("<IHHIIQ")
END = struct.Struct("<I4s")
GROUP_MAGIC = b"PGRP"  # and four bytes of the secret
RECORD_MAGIC = 0x5250  # "PR"
END_MAGIC = b"end\n"

GROUP_BYTES, RECORD_BYTES, END_BYTES = GROUP.size, RECORD.size, END.size
META_MAX = (1 << 32) - 1
SECRET_BYTES = 12
MASK = 0xFFFFFFFF  # a seed has 32 bits

_group_tail = struct.Struct("<IQQQ")
_record_tail = struct.Struct("<HHIIQ")


class Record(NamedTuple):
    """A record, as `Journal.replay` yields it."""

    position: int
    end: int
    meta: bytes
    payload_bytes: int


class GroupHeader(NamedTuple):
    """Header of a group."""

    lsn: int
    length: int  # bytes, with header and end mark
    records: int
    synced: int  # LSN known to be on the disk when the group was written


def padded(length: int) -> int:
    return (length + 7) & ~7


class Format(NamedTuple):
    """Magic and seeds of a segment's groups and records: see above."""

    version: int
    secret: bytes
    magic: bytes
    group_seed: int
    record_seed: int  # xor the position

    @classmethod
    def of(cls, version: int, secret: bytes) -> Format:
        group_seed, record_seed = int.from_bytes(secret[4:8], "little"), int.from_bytes(secret[8:], "little")
        return cls(version, secret, GROUP_MAGIC + secret[:4], group_seed, record_seed)

    def seed(self, position: int) -> int:
        """Return the seed of a record's checksums."""
        return (position ^ self.record_seed) & MASK


def pack_group(form: Format, header: GroupHeader) -> tuple[bytes, bytes]:
    """Return header and end mark."""
    tail = _group_tail.pack(header.records, header.lsn, header.length, header.synced)
    checksum = crc32(tail, form.group_seed)
    return form.magic + checksum.to_bytes(4, "little") + tail, END.pack(checksum, END_MAGIC)


def unpack_group(data: bytes, index: int, form: Format, lsn: int) -> GroupHeader | None:
    """Return None unless a valid header of position `lsn` is at `index`."""
    if len(data) - index < GROUP_BYTES:
        return None
    magic, checksum, records, own, length, synced = GROUP.unpack_from(data, index)
    if magic != form.magic or own != lsn or crc32(data[index + 12 : index + GROUP_BYTES], form.group_seed) != checksum:
        return None
    if length < GROUP_BYTES + END_BYTES or length & 7 or synced > lsn:
        return None
    return GroupHeader(own, length, records, synced)


def pack_record(seed: int, meta: bytes, payload_crc: int, payload_bytes: int) -> bytes:
    """Return a record up to its payload. `seed`: `Format.seed` of its position."""
    tail = _record_tail.pack(RECORD_MAGIC, 0, len(meta), payload_crc, payload_bytes)
    checksum = crc32(meta, crc32(tail, seed))
    return checksum.to_bytes(4, "little") + tail + meta + b"\0" * (-len(meta) & 7)


class RecordHeader(NamedTuple):
    """Header of a record."""

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
    """Return None if this does not look like a header. `record_is_good` checks its checksum."""
    if len(data) - index < RECORD_BYTES:
        return None
    _, magic, flags, meta_bytes, payload_crc, payload_bytes = RECORD.unpack_from(data, index)
    return RecordHeader(meta_bytes, payload_crc, payload_bytes) if magic == RECORD_MAGIC and flags == 0 else None


def record_is_good(data: bytes, index: int, seed: int, meta_bytes: int) -> bool:
    """Return True if header and meta match their checksum. `seed`: `Format.seed` of the position."""
    stop = index + RECORD_BYTES + meta_bytes
    if stop > len(data):
        return False
    return crc32(data[index + 4 : stop], seed) == int.from_bytes(data[index : index + 4], "little")


def checksum_of(file: ReadFile, offset: int, length: int, seed: int = 0) -> int | None:
    """Return crc32 of `length` bytes of a file; None if the file ends before."""
    checksum, read = seed, 0
    for piece in pieces_of(file, offset, offset + length):
        checksum = crc32(piece, checksum)
        read += len(piece)
    return checksum if read == length else None


class FileWindow:
    """A file read in pieces, which grow in order, and shrink at a skip (of payloads in a replay)."""

    SMALLEST, LARGEST = 1 << 14, COPY_BYTES

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._step = self.SMALLEST
        self.data = b""
        self.start = 0

    def at(self, offset: int, length: int) -> int:
        """Read `length` bytes at `offset` into `data`. Return the index of the first; -1 if the file ends before."""
        index = offset - self.start
        if not 0 <= index <= len(self.data) - length:
            onward = 0 <= index <= len(self.data)
            self._step = min(self._step * 4, self.LARGEST) if onward else self.SMALLEST
            self.data = self._file.read(offset, max(self._step, length))
            self.start, index = offset, 0
        return index if len(self.data) - index >= length else -1

"""Snapshots: the whole state at one position of the log, where a start begins to read.

    file  = magic 8s | version u32 | arrays u32 | position u64 | meta bytes u64 | meta crc u32 | id bytes u32 | id 64s

            per array: bytes u64 | crc u32 | zero u32
            crc32 of all before u32 | zero u32

            meta, then the arrays, each from an offset that is a multiple of 64, zeros between

Little-endian. The name is `<position>-<number>.snap`, decimal; the number distinguishes snapshots of one position.

A snapshot is written only when the log is synced up to its position. So a log that ends before it is damaged. If the latest
snapshot is damaged, the one before is used, as long as the log reaches back to it.

To change the format: raise `VERSION`, and keep reading the former ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from .disk import Buffer, Disk, ReadFile, is_shortage, write_file
from .records import checksum_of
from .segments import ID_BYTES
from .versions import check_version

VERSION = 1
SUFFIX = ".snap"
KEPT = 2  # the latest, and one to fall back on
MAGIC = b"PENSTSNP"
ALIGN = 64  # of arrays, as Arrow recommends
ARRAYS_MAX = 1 << 20  # limits the read of a damaged count

_HEAD = struct.Struct(f"<8sIIQQII{ID_BYTES}s")
_ARRAY = struct.Struct("<QII")
_CRC = struct.Struct("<II")


class Snapshot(NamedTuple):
    """State at `position`, where replay continues. The arrays are mapped, each 64-byte aligned in the file."""

    position: int
    meta: bytes
    arrays: list[pa.Buffer]


def names_of(disk: Disk) -> list[str]:
    """Return the names, latest first."""
    return sorted((name for name in disk.names() if name.endswith(SUFFIX)), reverse=True)


def write(disk: Disk, broker_id: str, position: int, meta: bytes, arrays: Sequence[Buffer]) -> None:
    """The snapshot counts when this returns. The log must be synced up to `position`."""
    same = [name for name in names_of(disk) if name.startswith(f"{position:020d}-")]
    number = int(same[0][21:29]) + 1 if same else 0
    views = [memoryview(array).cast("B") if memoryview(array).nbytes else memoryview(b"") for array in arrays]
    write_file(disk, f"{position:020d}-{number:08d}{SUFFIX}", _pieces(broker_id, position, meta, views), optional=True)
    for name in names_of(disk)[KEPT:]:
        disk.unlink(name)


def _pieces(broker_id: str, position: int, meta: bytes, arrays: list[memoryview]) -> Iterator[Buffer]:
    owner = broker_id.encode()
    head = _HEAD.pack(MAGIC, VERSION, len(arrays), position, len(meta), crc32(meta), len(owner), owner)
    head += b"".join(_ARRAY.pack(array.nbytes, crc32(array), 0) for array in arrays)
    head += _CRC.pack(crc32(head), 0)
    for piece in (head, meta, *arrays):
        yield piece
        yield b"\0" * (-len(piece) % ALIGN)


def load_latest(disk: Disk, broker_id: str) -> tuple[Snapshot | None, tuple[str, ...]]:
    bad: list[str] = []
    for name in names_of(disk):
        snapshot = _load(disk, name, broker_id)
        if snapshot is not None:
            return snapshot, tuple(bad)
        bad.append(disk.path(name))
    return None, tuple(bad)


class _Head(NamedTuple):
    position: int
    owner: bytes
    contents: list[tuple[int, int]]  # length and checksum of the meta and each array
    end: int  # offset
    zero: int  # after the checksum; a start ignores it


def _read_head(file: ReadFile, path: str) -> _Head | None:
    """Return None if it is damaged."""
    head = file.read(0, _HEAD.size)
    if len(head) < _HEAD.size or head[:8] != MAGIC:
        return None
    _, version, count, position, meta_bytes, meta_crc, id_bytes, owner = _HEAD.unpack(head)
    check_version(path, version, VERSION)
    table_bytes = min(count, ARRAYS_MAX) * _ARRAY.size
    table = file.read(_HEAD.size, table_bytes + _CRC.size)
    if len(table) < table_bytes + _CRC.size:
        return None
    arrays, (checksum, zero) = table[:table_bytes], _CRC.unpack(table[table_bytes:])
    if checksum != crc32(head + arrays):
        return None
    contents = [(meta_bytes, meta_crc), *(entry[:2] for entry in _ARRAY.iter_unpack(arrays))]
    return _Head(position, owner[:id_bytes], contents, len(head) + len(table), zero)


def _load(disk: Disk, name: str, broker_id: str) -> Snapshot | None:
    """Return None if it is damaged. Checksums read the file, because a bad page must be an error."""
    file = disk.open(name)
    try:
        head = _read_head(file, disk.path(name))
        if head is None or head.owner != broker_id.encode():
            return None
        extents, offset = [], _aligned(head.end)
        for length, checksum in head.contents:
            if checksum_of(file, offset, length) != checksum:
                return None
            extents.append((offset, length))
            offset += _aligned(length)
    except OSError as error:
        if is_shortage(error):
            raise
        return None
    whole = file.map()
    return Snapshot(head.position, file.read(*extents[0]), [whole.slice(*extent) for extent in extents[1:]])


def _aligned(length: int) -> int:
    return length + (-length % ALIGN)


def find_fault(disk: Disk, name: str, broker_id: str) -> tuple[int, str] | None:
    """Return offset and name of the first fault in a snapshot's file. StorageError as of `check_version`."""
    file = disk.open(name)
    size, head = file.size(), _read_head(file, disk.path(name))
    if head is None or head.zero:
        return 0, "the header"
    if head.owner != broker_id.encode():
        return 48, "the id of the broker"
    if name[:20] != f"{head.position:020d}":
        return 16, "the position, which is not the one in the file's name,"
    offset = head.end
    for length, checksum in head.contents:
        start = _aligned(offset)
        if any(file.read(offset, start - offset)):
            return offset, "the padding"
        if checksum_of(file, start, length) != checksum:
            return start, "an array, or the meta,"
        offset = start + length
    if size != _aligned(offset) or any(file.read(offset, size - offset)):
        return offset, "the end"
    return None

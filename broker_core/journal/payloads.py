"""Payloads: the bytes of a record, mapped from its segment, and checked at the first read.

The check reads the file. If the disk fails a page, a read raises an error, but a mapping raises a signal that ends the process.
At least the last `REMEMBERED` positions are not checked again.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal, StorageError
from .disk import Disk, is_shortage
from .records import RECORD_BYTES, checksum_of, record_is_good, unpack_record
from .replay import damaged
from .segments import Segment, SegmentChain, dropped_position, out_of_files

FIRST_READ = 4096  # bytes: header and meta of most records, or all of a small one
REMEMBERED = 1 << 15  # positions; two sets of them are some 10 MB


class _Extent(NamedTuple):
    offset: int
    length: int


class Located(NamedTuple):
    """Location of a payload, for a process of this host that maps the file itself. That process compares device and inode: in a
    container, or a copied directory, the path may lead to another file.
    """

    path: str
    offset: int
    length: int
    device: int
    inode: int


class Payloads:
    """Finder and checker of payloads; for any thread."""

    def __init__(self, disk: Disk, chain: SegmentChain) -> None:
        self._disk, self._chain = disk, chain
        self._young: dict[int, _Extent] = {}  # checked last
        self._old: dict[int, _Extent] = {}  # checked before those

    def get(self, position: int) -> pa.Buffer:
        segment, extent = self._find(position)
        try:
            return self._chain.mapped(segment, extent.offset, extent.length)
        except OSError as error:
            if is_shortage(error):
                raise out_of_files(f"the record at position {position} cannot be read now", error) from error
            if isinstance(error, FileNotFoundError):
                raise dropped_position(position) from None
            raise StorageError(f"the segment {segment.name} cannot be mapped: {error}") from error

    def locate(self, position: int) -> Located:
        segment, extent = self._find(position)
        if segment.identity is None:
            segment.identity = self._chain.file(segment).identity()
        return Located(self._disk.path(segment.name), extent.offset, extent.length, *segment.identity)

    def _find(self, position: int) -> tuple[Segment, _Extent]:
        segment = self._chain.find(position)
        extent = self._young.get(position) or self._old.get(position)
        if extent is None:
            extent = self._check(segment, position)
            if len(self._young) >= REMEMBERED:
                self._old, self._young = self._young, {}
            self._young[position] = extent
        return segment, extent

    def _check(self, segment: Segment, position: int) -> _Extent:
        path, offset = self._disk.path(segment.name), segment.offset(position)
        try:
            file = self._chain.file(segment)
            data = file.read(offset, FIRST_READ)
            header = unpack_record(data, 0)
            if header is not None and RECORD_BYTES + header.meta_bytes > len(data):
                data = file.read(offset, RECORD_BYTES + min(header.meta_bytes, segment.end - position))
            if header is None or not record_is_good(data, 0, segment.form.seed(position), header.meta_bytes):
                raise damaged(path, offset, "a record's header or meta")
            extent = _Extent(offset + header.payload_at, header.payload_bytes)
            within = extent.offset + extent.length <= offset + len(data)
            seed = segment.form.seed(position)
            checksum = crc32(data[header.payload_at :][: extent.length], seed) if within else checksum_of(file, *extent, seed)
            if checksum != header.payload_crc:
                raise damaged(path, extent.offset, "a payload")
        except FileNotFoundError:
            raise dropped_position(position) from None
        except OSError as error:
            if is_shortage(error):
                raise out_of_files(f"the record at position {position} cannot be read now", error) from error
            raise DamagedJournal(f"{path}, offset {offset}: the disk does not read it: {error}") from error
        return extent

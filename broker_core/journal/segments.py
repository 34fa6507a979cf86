"""Segments: the files that hold the log, each a part of it.

    file   = magic 8s | version u32 | header bytes u32 | base u64 | born u64 | created ns u64 | generation u32 | id bytes u32
             id 64s | secret 12s | crc32 of all before u32                                                     128 bytes
             groups (records.py): the byte of LSN n stands at 128 + n - base

The name is `<base>-<generation>.seg`, both decimal. A file gets its name when its header and first content (a recovered tail: the
log up to `born`) are on the disk. So a named file with a bad header is damaged, and everything below `born` is synced.

A segment ends where the next one begins. More bytes may follow in its file: preallocated zeros, or a tail that recovery has
copied into the next segment. Of two segments with one base, the lower generation is garbage.

To change the format: see records.py. `VERSION` is that of everything in the file.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, TypeVar

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal, DataLoss, InvalidRequest, ResourceLimit
from .disk import COPY_BYTES, TEMPORARY, AppendFile, Buffer, Disk, FileIdentity, ReadFile, is_shortage
from .records import Format
from .versions import check_version

VERSION = 1
SUFFIX = ".seg"
HEADER_BYTES = 128
MAGIC = b"PENSTSEG"
ID_BYTES = 64  # longest broker id, UTF-8
OPEN_FILES = 64  # kept open for reading: well below the usual 1,024 descriptors of a process

_HEADER = struct.Struct("<8sIIQQQII64s12s")
_CRC = struct.Struct("<I")
_T = TypeVar("_T")


class SegmentInfo(NamedTuple):
    """A segment, as `Journal.segments` reports it."""

    base: int
    end: int
    path: str
    bytes: int  # size of the file, with preallocated zeros
    first_time_ns: int  # when it was begun, since 1970


@dataclass(eq=False)
class Segment:
    """`end` is the LSN after the readable part, and grows while the file is written."""

    name: str
    base: int
    born: int
    generation: int
    created_ns: int
    end: int
    form: Format = field(repr=False)
    checksum: int
    map: pa.Buffer | None = field(default=None, repr=False)
    identity: FileIdentity | None = None

    def offset(self, position: int) -> int:
        return position - self.base + HEADER_BYTES


def out_of_files(operation: str, error: OSError) -> ResourceLimit:
    return ResourceLimit(
        f"{operation}: {error}. The broker has too many files and connections open: try again later, or raise its limit of open "
        "files (ulimit -n, or LimitNOFILE of the service)"
    )


def dropped_position(position: int) -> DataLoss:
    return DataLoss(f"position {position} is no longer in the journal: its segment was dropped")


def name_of(base: int, generation: int) -> str:
    return f"{base:020d}-{generation:08d}{SUFFIX}"


class SegmentHeader(NamedTuple):
    """Content of a segment's header."""

    broker_id: str
    form: Format
    base: int
    born: int
    generation: int
    created_ns: int

    def pack(self) -> bytes:
        owner, form = self.broker_id.encode(), self.form
        fields = (HEADER_BYTES, self.base, self.born, self.created_ns, self.generation, len(owner), owner, form.secret)
        head = _HEADER.pack(MAGIC, form.version, *fields)
        return head + _CRC.pack(crc32(head))


def read_header(disk: Disk, name: str, broker_id: str) -> Segment:
    """`end` is the LSN after which only zeros follow. DamagedJournal if the header is bad."""
    path, file = disk.path(name), disk.open(name)
    data = file.read(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES or data[:8] != MAGIC or _CRC.unpack_from(data, HEADER_BYTES - 4)[0] != crc32(data[:-4]):
        raise DamagedJournal(f"{path}, offset 0: the segment's header is damaged; restore the file from a backup")
    _, version, _, base, born, created_ns, generation, length, owner, secret = _HEADER.unpack_from(data)
    check_version(path, version if any(secret) else 0, VERSION)  # development versions before 0.1.0 had no secret
    if owner[:length] != broker_id.encode():
        raise DamagedJournal(f"{path}, offset 48: the segment belongs to another broker ({owner[:length]!r}, not {broker_id!r})")
    if name != name_of(base, generation):
        raise DamagedJournal(f"{path}, offset 16: the file's name must be {name_of(base, generation)}; it was renamed by hand")
    end = base + _content_end(file) - HEADER_BYTES
    return Segment(name, base, born, generation, created_ns, end, Format.of(version, secret), checksum_in(data))


def checksum_in(header: bytes) -> int:
    return int(_CRC.unpack_from(header, HEADER_BYTES - _CRC.size)[0])


def _content_end(file: ReadFile) -> int:
    """Return the offset after the last byte that is not zero. No group ends in a zero (records.py)."""
    stop = file.size()
    while stop > HEADER_BYTES:
        length = min(COPY_BYTES, stop - HEADER_BYTES)
        length_before_zeros = len(file.read(stop - length, length).rstrip(b"\0"))
        if length_before_zeros:
            return stop - length + length_before_zeros
        stop -= length
    return HEADER_BYTES


def create(disk: Disk, header: SegmentHeader, content: Iterable[Buffer] = ()) -> tuple[Segment, AppendFile]:
    """`content` is the log from `base` to `born`. All of it, and the name, is on the disk afterwards."""
    _, form, base, born, generation, created_ns = header
    name, data = name_of(base, generation), header.pack()
    file = disk.create(name + TEMPORARY)
    try:
        file.append([data])
        for piece in content:
            file.append([piece])
        file.sync()
        disk.rename(name + TEMPORARY, name)
        disk.sync_directory()
    except OSError:
        file.close()
        raise
    return Segment(name, base, born, generation, created_ns, born, form, checksum_in(data)), file


class SegmentChain:
    """Segments of a journal, in order, for readers in any thread. One thread at a time calls `retire` and `forget`. Dropped
    segments are found while a reader may have their positions.
    """

    def __init__(self, disk: Disk, segments: Iterable[Segment]) -> None:
        self._disk = disk
        self._lock = Lock()
        self._files: dict[str, ReadFile] = {}  # at most OPEN_FILES, oldest first
        self._set(tuple(segments), ())

    def _set(self, segments: tuple[Segment, ...], retired: tuple[Segment, ...]) -> None:
        self._all = (segments, [s.base for s in segments], retired)  # one assignment, for readers

    @property
    def all(self) -> tuple[Segment, ...]:
        return self._all[0]

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._set((*self.all, segment), self._all[2])

    def retire(self, dropped: Sequence[Segment]) -> None:
        """Positions still find the segments."""
        with self._lock:
            segments, _, retired = self._all
            self._set(tuple(s for s in segments if s not in dropped), (*retired, *dropped))

    def forget(self, dropped: Sequence[Segment]) -> None:
        with self._lock:
            segments, _, retired = self._all
            self._set(segments, tuple(s for s in retired if s not in dropped))
            for segment in dropped:
                self._files.pop(segment.name, None)

    def find(self, position: int) -> Segment:
        """DataLoss if it was dropped, InvalidRequest past the end."""
        segments, bases, retired = self._all
        index = bisect_right(bases, position) - 1
        if index >= 0 and position < segments[index].end:
            return segments[index]
        for segment in retired:
            if segment.base <= position < segment.end:
                return segment
        if segments and position >= segments[-1].end:
            raise InvalidRequest(f"position {position} is past the end of the journal, {segments[-1].end}")
        raise dropped_position(position)

    def file(self, segment: Segment) -> ReadFile:
        """The handle stays valid when the segment is dropped."""
        file = self._files.get(segment.name)
        if file is None:
            file = self._retry_with_files_closed(lambda: self._disk.open(segment.name))
            with self._lock:
                self._files[segment.name] = file
                while len(self._files) > OPEN_FILES:
                    del self._files[next(iter(self._files))]
        return file

    def _retry_with_files_closed(self, attempt: Callable[[], _T]) -> _T:
        try:
            return attempt()
        except OSError as error:
            if not is_shortage(error):
                raise
        with self._lock:
            self._files.clear()
        return attempt()

    def mapped(self, segment: Segment, offset: int, length: int) -> pa.Buffer:
        whole = segment.map
        if whole is None or whole.size < offset + length:
            whole = self._retry_with_files_closed(self.file(segment).map)
            whole = segment.map = whole.slice(0, min(whole.size, segment.offset(segment.end)))  # zeros may follow
        return whole.slice(offset, length)

    def info(self, segment: Segment) -> SegmentInfo:
        size = self._disk.size(segment.name)
        return SegmentInfo(segment.base, segment.end, self._disk.path(segment.name), size, segment.created_ns)

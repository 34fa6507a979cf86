"""The list of segments that must exist, and the known length of the log.

Segments are dropped anywhere in the log but at its end, so files alone do not show which are missing.

    manifest   one line of JSON | newline | crc32 of the line, decimal | newline

               {"version": 1, "broker": id, "synced": LSN, "segments": [[name, crc32 of its header], ...],
                "holes": [[begin LSN, end LSN], ...], "product": version of Penstock of the last write}

    synced     magic 8s | version u32 | crc32 of the segment's header u32 | synced LSN u64 | crc32 of all before u32     28 bytes

The manifest is replaced as a whole:

- before a new directory gets its `id`, without segments: a directory with an `id` has a manifest;
- when a segment has begun, before its first write: all segments with content are listed;
- before dropped segments are unlinked, without them, and with their hole (holes.py);
- when a start has repaired the directory, before it unlinks replaced files;
- when the journal is closed in order, with its end.

At a start every listed segment must exist, with its original header: a file of another lineage has another secret. A segment
that is not listed was begun just before a crash, and counts. If it begins in a hole, it was dropped, and is unlinked now. Any
other gap is a loss.

`synced` is overwritten in place after each sync, which takes microseconds, and never synced itself. It is never ahead of the
disk, and exact after kill -9. After a power cut it may be an earlier one, missing, or torn (then it is ignored). It counts only
for a listed segment: in a backup made with hard links it may belong to a later one.

To change the format: raise `VERSION`, and keep reading the former ones. Field `product` may be missing.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from .. import __version__
from ..errors import DamagedJournal
from .disk import Disk, NoteFile, write_file
from .holes import Hole, Holes, covers, merged
from .segments import Segment
from .versions import check_version

NAME = "manifest"
VERSION = 1
SYNCED_NAME = "synced"
SYNCED_MAGIC = b"PENSTSYN"
SYNCED_VERSION = 1
BYTES_MAX = 64 << 20  # of a damaged manifest to read; enough for some million segments

_SYNCED = struct.Struct("<8sIIQ")
_CRC = struct.Struct("<I")


class ManifestContent(NamedTuple):
    """`synced` is the position in the file `synced` if that is higher."""

    segments: dict[str, int]  # name -> checksum of the header
    synced: int
    holes: Holes
    product: str | None = None


def write(
    disk: Disk, broker_id: str, segments: Iterable[Segment], synced: int, holes: Holes, product: str | None = __version__
) -> None:
    """A repair keeps the `product` that wrote the repaired files."""
    listed = [[segment.name, segment.checksum] for segment in segments]
    content = {"version": VERSION, "broker": broker_id, "synced": synced, "segments": listed, "holes": holes, "product": product}
    line = json.dumps(content, ensure_ascii=False).encode()
    write_file(disk, NAME, [line + b"\n%d\n" % crc32(line)])


def read(disk: Disk, broker_id: str | None = None) -> ManifestContent | None:
    """Return None without a file. DamagedJournal if it is damaged, or another broker's."""
    if NAME not in disk.names():
        return None
    line, _, checksum = disk.open(NAME).read(0, BYTES_MAX).rstrip(b"\n").rpartition(b"\n")
    if checksum != b"%d" % crc32(line):
        raise DamagedJournal(f"{disk.path(NAME)}, offset 0: the list of segments is damaged; restore the file from a backup")
    content = json.loads(line)
    version = content["version"] if "holes" in content else 0  # development versions before 0.1.0 had none
    check_version(disk.path(NAME), version, VERSION, writer(content.get("product")))
    if broker_id is not None and content["broker"] != broker_id:
        raise DamagedJournal(f"{disk.path(NAME)}, offset 0: it is another broker's ({content['broker']!r}, not {broker_id!r})")
    listed = dict(content["segments"])
    holes = tuple(Hole(*hole) for hole in content["holes"])
    return ManifestContent(listed, max(content["synced"], _synced(disk, set(listed.values()))), holes, content.get("product"))


def writer(product: str | None) -> str:
    """Return the end of a text; nothing if the version is unknown."""
    return "" if product is None else f" (the directory was last written by Penstock {product}; this is {__version__})"


def note_is_good(disk: Disk) -> bool:
    return _is_good(disk.open(SYNCED_NAME).read(0, _SYNCED.size + _CRC.size + 1))


def _is_good(note: bytes) -> bool:
    return len(note) == _SYNCED.size + _CRC.size and _CRC.unpack_from(note, _SYNCED.size)[0] == crc32(note[: _SYNCED.size])


def _synced(disk: Disk, known: set[int]) -> int:
    """Return 0 if the note does not belong to a known segment."""
    if SYNCED_NAME not in disk.names():
        return 0
    data = disk.open(SYNCED_NAME).read(0, _SYNCED.size + _CRC.size)
    if not _is_good(data):
        return 0
    magic, version, segment, position = _SYNCED.unpack_from(data)
    return int(position) if magic == SYNCED_MAGIC and version == SYNCED_VERSION and segment in known else 0


def check(disk: Disk, content: ManifestContent | None, headers: Sequence[Segment], snapshot: bool) -> ManifestContent:
    """Return the manifest. Refuses a directory without it, or with a missing segment."""
    if content is None:
        if not headers and not snapshot:
            raise DamagedJournal(
                f"{disk.path(NAME)}, offset 0: the file is missing, and so is all that it lists: the directory has the id of a "
                "broker and no messages. Restore it from a backup; if none was ever stored here, remove the id"
            )
        beside = headers[0].name if headers else "the snapshot"
        raise DamagedJournal(
            f"{disk.path(NAME)}, offset 0: the file is missing. It lists the files that must be there next to "
            f"{beside}; restore it from a backup"
        )
    by_name = {segment.name: segment for segment in headers}
    for name, checksum in content.segments.items():
        segment = by_name.get(name)
        if segment is None:
            raise DamagedJournal(
                f"{disk.path(name)}, offset 0: the file is missing. It holds a part of the log, and was not dropped; "
                "restore it from a backup"
            )
        if segment.checksum != checksum:
            raise DamagedJournal(
                f"{disk.path(name)}, offset 0: this is not the file that was begun here; it may be from a copy of the "
                "directory that was also used. Restore the file from a backup"
            )
    return content


class Manifest:
    """Keeper of both files while a journal runs. For any thread; only the writer calls `note`."""

    def __init__(self, disk: Disk, broker_id: str, segments: Callable[[], Sequence[Segment]], holes: Holes) -> None:
        self._disk, self._broker_id, self._segments = disk, broker_id, segments
        self._lock = Lock()
        self.holes = holes  # segments that begin in them are being removed, and not listed
        self._file: NoteFile | None = None

    def write(self, synced: int) -> None:
        """OSError if the manifest cannot be written: the former one still counts."""
        with self._lock:
            self._write(synced)

    def drop(self, dropped: Iterable[Segment], synced: int) -> None:
        """Add the hole that these segments leave; they may then be unlinked. OSError as of `write`."""
        with self._lock:
            before, self.holes = self.holes, merged([*self.holes, *((s.base, s.end) for s in dropped)])
            try:
                self._write(synced)
            except OSError:
                self.holes = before
                raise

    def _write(self, synced: int) -> None:
        listed = [segment for segment in self._segments() if not covers(self.holes, segment.base)]
        write(self._disk, self._broker_id, listed, synced, self.holes)

    def note(self, segment: Segment, synced: int) -> None:
        """`segment` is the last one."""
        data = _SYNCED.pack(SYNCED_MAGIC, SYNCED_VERSION, segment.checksum, synced)
        with contextlib.suppress(OSError):  # an older note is also correct
            if self._file is None:
                self._file = self._disk.create_note(SYNCED_NAME)
            self._file.write(data + _CRC.pack(crc32(data)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

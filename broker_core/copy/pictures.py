"""A picture of a data directory: its files at one moment, while a broker continues to write them.

Nothing is locked, and no file stays open. The order of the steps makes the picture consistent:

1. the list of segments that must exist (`manifest`);
2. the latest snapshot: segments that the list lacked were below a snapshot that existed by then;
3. the length of the log on the disk;
4. the segments. If a listed one is missing, it was removed in between, and all steps are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from ..errors import DamagedJournal, StorageError
from ..journal import lineage, manifest
from ..journal.disk import Disk
from ..journal.holes import Holes, covers
from ..journal.journal import ID_FILE
from ..journal.segments import ID_BYTES, SUFFIX, Segment, read_header
from ..journal.snapshots import names_of as snapshots_of
from ..journal.tail import read_tail
from .contents import base_of

USERS_FILE = "users.json"
SMALL_FILES = (ID_FILE, USERS_FILE, lineage.NAME)  # put again when they have changed
ATTEMPTS = 100  # retention removes segments at most every second


class PictureGone(Exception):
    """A file of the picture was removed before it was read: take another picture."""


class Picture(NamedTuple):
    """Files with the numbers of their valid bytes, and the LSN up to which the log is complete with them."""

    broker: str
    files: dict[str, int]
    position: int

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


def take(disk: Disk, end: Callable[[], int] | None = None, *, live: bool = True) -> Picture:
    """`end` returns the length of the log on the disk, which otherwise the directory gives. `live`: a broker writes the
    directory. Otherwise the tail is read, as at a start. Raises DamagedJournal, StorageError."""
    for _ in range(ATTEMPTS):
        try:
            return _take(disk, end, live)
        except (PictureGone, FileNotFoundError):
            continue
    raise StorageError(f"{disk.path('')}: its files changed {ATTEMPTS} times while they were looked at; try again")


def _take(disk: Disk, end: Callable[[], int] | None, live: bool) -> Picture:
    broker = read_id(disk)
    listed = manifest.read(disk, broker)
    snapshot = next(iter(snapshots_of(disk)), None)
    known = end() if end is not None else _synced(disk, broker)
    names = disk.names()
    if listed is not None and not set(listed.segments) <= set(names):
        raise PictureGone
    headers = [read_header(disk, name, broker) for name in names if name.endswith(SUFFIX)]
    segments = ordered(headers, () if listed is None else listed.holes)
    if segments and end is None and (not live or listed is None):
        last = segments[-1]
        least = max(known, base_of(snapshot) if snapshot else 0)
        known = read_tail(disk.open(last.name), disk.path(last.name), last, least).end
    files = {}
    for segment, after in zip(segments, [*segments[1:], None], strict=False):
        stop = min(segment.end, known)
        if stop > segment.base or (after is None and segment.base <= known):  # the last one marks the end of the log
            files[segment.name] = segment.offset(stop)
    position = min(known, segments[-1].end) if segments else 0
    if snapshot is not None and base_of(snapshot) > known:
        raise PictureGone  # the end was read before the snapshot existed
    if snapshot is not None:
        files[snapshot] = disk.size(snapshot)
    for name in SMALL_FILES:
        if name in names:
            files[name] = disk.size(name)
    return Picture(broker, files, max(position, base_of(snapshot) if snapshot else 0))


def ordered(headers: list[Segment], holes: Holes) -> list[Segment]:
    """Return the valid segments in the order of the log, each ending where the next, or a hole, begins.

    Of two segments with one base, the higher generation is valid. A segment that begins in a hole was dropped.
    """
    by_base: dict[int, Segment] = {}
    for segment in sorted(headers, key=lambda s: (s.base, s.generation)):
        if not covers(holes, segment.base):
            by_base[segment.base] = segment
    segments, begins = list(by_base.values()), {hole.end: hole.begin for hole in holes}
    for segment, after in pairwise(segments):
        segment.end = min(segment.end, begins.get(after.base, after.base))
    return segments


def read_id(disk: Disk) -> str:
    if ID_FILE not in disk.names():
        raise DamagedJournal(f"{disk.path(ID_FILE)}, offset 0: the file is missing, but the directory holds a journal")
    return disk.open(ID_FILE).read(0, ID_BYTES + 2).decode(errors="replace").strip()


def _synced(disk: Disk, broker: str) -> int:
    listed = manifest.read(disk, broker)
    return listed.synced if listed is not None else 0

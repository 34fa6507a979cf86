"""A picture of a data directory: files that belong together at one moment, though a broker goes on writing them.

Nothing is locked, and nothing is held open. The order of the looks makes it right:

1. the list of segments that must be there (`manifest`);
2. the latest snapshot: whatever was removed from that list before was removed beneath a snapshot that was there by then;
3. how far the log is on the disk;
4. the segments. If one of the list is missing, it was removed in between: then all is looked at again.

A file that goes away before it is read is a `PictureGone`: take another one. What was copied from the former still counts.
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
SMALL_FILES = (ID_FILE, USERS_FILE, lineage.NAME)  # parts of a chunk, put anew where they have changed
ATTEMPTS = 100  # retention removes segments at most every second


class PictureGone(Exception):
    """A file of the picture was removed meanwhile."""


class Picture(NamedTuple):
    """Files with the number of their bytes that count, and the LSN up to which the log is complete with them."""

    broker: str
    files: dict[str, int]
    position: int

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())


def take(disk: Disk, end: Callable[[], int] | None = None, *, live: bool = True) -> Picture:
    """Return a picture of now.

    `end` says how far the log is on the disk, where somebody knows; else the directory does. `live`: a broker is writing it;
    where none is, the tail is read, as a start would. Raises DamagedJournal, StorageError.
    """
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
    found = [read_header(disk, name, broker) for name in names if name.endswith(SUFFIX)]
    segments = ordered(found, () if listed is None else listed.holes)
    if segments and end is None and (not live or listed is None):
        last = segments[-1]
        least = max(known, base_of(snapshot) if snapshot else 0)
        known = read_tail(disk.open(last.name), disk.path(last.name), last, least).end
    files = {}
    for segment, after in zip(segments, [*segments[1:], None], strict=False):
        stop = min(segment.end, known)
        if stop > segment.base or (after is None and segment.base <= known):  # the last says where the log ends
            files[segment.name] = segment.offset(stop)
    position = min(known, segments[-1].end) if segments else 0
    if snapshot is not None and base_of(snapshot) > known:
        raise PictureGone  # the end was asked before the snapshot was there
    if snapshot is not None:
        files[snapshot] = disk.size(snapshot)
    for name in SMALL_FILES:
        if name in names:
            files[name] = disk.size(name)
    return Picture(broker, files, max(position, base_of(snapshot) if snapshot else 0))


def ordered(found: list[Segment], holes: Holes) -> list[Segment]:
    """Return the segments that count, in the order of the log, each ending where the next, or a hole, begins.

    Of two with one base the one of the higher generation counts; what begins in a hole was dropped.
    """
    kept: dict[int, Segment] = {}
    for segment in sorted(found, key=lambda s: (s.base, s.generation)):
        if not covers(holes, segment.base):
            kept[segment.base] = segment
    segments, begins = list(kept.values()), {hole.end: hole.begin for hole in holes}
    for segment, after in pairwise(segments):
        segment.end = min(segment.end, begins.get(after.base, after.base))
    return segments


def read_id(disk: Disk) -> str:
    """Return the id of a data directory. DamagedJournal when there is none."""
    if ID_FILE not in disk.names():
        raise DamagedJournal(f"{disk.path(ID_FILE)}, offset 0: the file is missing, but the directory holds a journal")
    return disk.open(ID_FILE).read(0, ID_BYTES + 2).decode(errors="replace").strip()


def _synced(disk: Disk, broker: str) -> int:
    listed = manifest.read(disk, broker)
    return listed.synced if listed is not None else 0

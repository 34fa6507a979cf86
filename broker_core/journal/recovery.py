"""Recovery: the part of the log that counts when a journal is opened. Read this before you change the order of writes.

The log is a chain of segments, each a chain of groups. Before a new segment gets its name, everything before it is synced, so
only the *last* segment can end badly. In it, S is the highest position that is *known synced*:

- from its groups, each with the position below which the log was synced when the group was written,
- from its creation (a recovered tail is synced before the file gets its name),
- from the latest good snapshot, which is written only when the log is synced up to it,
- from `manifest` and `synced` (manifest.py), which are written only after a sync.

S is a lower bound: the last confirmed group cannot contain its own sync. So groups from S on may have been confirmed, or may be
missing. After a kill -9 or a failed fsync, all of them read back well, and may be only in memory.

The end of a file here means the end before preallocated zeros.

1. Below S bad bytes are damage: `DamagedJournal`, with file and offset. Nothing is cut or skipped.
2. From S on groups are read, with payloads, up to the first bad one, at P. If it is *torn*, the log is [0, P), and the rest,
   [P, end of file), is cut. A sync covers the whole file, so groups after a torn one were not confirmed, and are also cut. If one
   of them has a synced position above P, that proves damage (rule 1).
3. A bad group is torn if bytes are missing where it is bad: the file ends inside it, or a whole 512-byte sector there is zero. A
   sector is counted from the start of the group, since its first bytes may belong to the group before. Any other fault, such as
   a flipped bit, could be later damage of a confirmed last group, and is refused. One case is undecidable: a flipped bit in a
   payload of the last group that also has a sector of zeros of its own. It is cut, kept in a file and reported.
4. [S, P) is copied into a new segment of base S and a higher generation, and synced, before it is used. LSNs stay, and so does
   the old file: truncating it would leave pages that may not be on the disk. (fdatasync succeeds for pages that the kernel has
   discarded, after a failed fdatasync or in another process.) If only empty groups follow S, as after an orderly close, nothing
   is copied.
5. The cut tail, [P, end of file), is first copied to `<P>-<generation>.cut`, synced, and reported as `Journal.repaired`.
6. Nothing is ever appended to an old file: the first append begins a new segment. So no fsync of an old file has to be trusted.
7. Names are synced first. The process before may have been killed between a rename and its sync of the directory, and a name
   seen here must outlast a power cut.
8. The manifest is written before replaced segments are unlinked: until then all files in the old manifest exist.
9. A gap that differs by one byte from the holes in the manifest (manifest.py) is damage. A segment that begins in a hole is
   garbage: its drop counts since the manifest names the hole. A snapshot may be used only if every hole is below its position,
   since the log must exist from there on. The latest fulfils this; the one before may not.

Every step can be interrupted and is then repeated from the start. A file counts from its rename on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import DamagedJournal
from . import manifest
from .disk import TEMPORARY, Disk, pieces_of, write_file
from .holes import Holes, covers
from .manifest import ManifestContent
from .replay import damaged
from .segments import HEADER_BYTES, SUFFIX, Segment, SegmentHeader, create, read_header
from .snapshots import Snapshot, load_latest
from .tail import Tail, read_tail


@dataclass(frozen=True)
class Repair:
    """A tail that recovery cut, or a damaged snapshot that it skipped, for the operator."""

    path: str | None
    position: int
    offset: int  # the same in the file, bytes
    bytes: int
    kept_aside: str | None
    reason: str
    bad_snapshots: tuple[str, ...] = ()  # damaged; an older one, or the whole log, was used


class Recovered(NamedTuple):
    """Result of a recovery."""

    segments: list[Segment]
    end: int  # everything below is on the disk
    generation: int
    snapshot: Snapshot | None
    repaired: Repair | None
    manifest: ManifestContent  # the one that was read


def recover(disk: Disk, broker_id: str) -> Recovered:
    """DamagedJournal or StorageError if a repair would lose something confirmed."""
    disk.sync_directory()
    for name in disk.names():
        if name.endswith(TEMPORARY):
            disk.unlink(name)
    content = manifest.read(disk, broker_id)
    snapshot, bad_snapshots = load_latest(disk, broker_id)
    headers = [read_header(disk, name, broker_id) for name in disk.names() if name.endswith(SUFFIX)]
    listed = manifest.check(disk, content, headers, snapshot is not None or bool(bad_snapshots))
    segments, replaced = _chain(disk, headers, listed.holes)
    _check_reach(disk, segments, listed.holes, snapshot, bad_snapshots)
    generation = max((s.generation for s in segments), default=0) + 1
    if not segments:
        _write_manifest(disk, broker_id, listed, [])
        return Recovered([], 0, generation, snapshot, _report(None, bad_snapshots), listed)
    last = segments[-1]
    known = max(snapshot.position if snapshot else 0, listed.synced)
    tail = read_tail(disk.open(last.name), disk.path(last.name), last, known)
    cut = _copy_cut_tail(disk, last, tail) if tail.cut is not None else None
    last.end = tail.synced
    if tail.has_records:
        segments.append(_copy_unsynced_tail(disk, broker_id, last, tail, generation))
        generation += 1
    remaining = [s for s in segments if s.end > s.base]
    if not remaining or remaining[-1].end < last.base:  # only an empty segment gives the end of the log
        remaining.append(last)
    _write_manifest(disk, broker_id, listed, remaining)
    for segment in replaced:
        disk.unlink(segment.name)
    return Recovered(remaining, remaining[-1].end, generation, snapshot, _report(cut, bad_snapshots), listed)


def _write_manifest(disk: Disk, broker_id: str, listed: ManifestContent, segments: list[Segment]) -> None:
    """All of `segments` are on the disk. Writes nothing if the manifest would not change."""
    synced = segments[-1].end if segments else 0
    if listed[:2] != ({segment.name: segment.checksum for segment in segments}, synced):
        manifest.write(disk, broker_id, segments, synced, listed.holes, listed.product)


def _chain(disk: Disk, headers: list[Segment], holes: Holes) -> tuple[list[Segment], list[Segment]]:
    """Return the segments that count, each ending where the next, or a hole, begins; and the garbage."""
    headers = sorted(headers, key=lambda s: (s.base, s.generation))
    chain: list[Segment] = []
    garbage = [segment for segment in headers if covers(holes, segment.base)]
    for segment in headers:
        if covers(holes, segment.base):
            continue
        if chain and chain[-1].base == segment.base:
            garbage.append(chain.pop())
        if chain:
            _check_order(disk, chain[-1], segment, holes)
        chain.append(segment)
    return chain, garbage


def _begin(segment: Segment, holes: Holes) -> int:
    """Return the begin of the hole before a segment, or the segment's base."""
    return next((hole.begin for hole in holes if hole.end == segment.base), segment.base)


def _check_order(disk: Disk, before: Segment, after: Segment, holes: Holes) -> None:
    path, stop = disk.path(before.name), _begin(after, holes)
    if before.end < stop:
        raise DamagedJournal(
            f"{path}, offset {before.offset(before.end)}: the file ends here, and the next segment, {after.name}, begins "
            f"{after.base - before.end} bytes later. {stop - before.end} of these bytes were not dropped, and were on the disk; "
            "restore the missing files from a backup"
        )
    if before.generation > after.generation:
        raise DamagedJournal(
            f"{path}, offset {before.offset(stop)}: the next, {after.name}, is of an older generation: put there by hand"
        )
    before.end = stop


def _check_reach(disk: Disk, segments: list[Segment], holes: Holes, snapshot: Snapshot | None, bad: tuple[str, ...]) -> None:
    """Only a hole may be missing before the first segment, and nothing from the snapshot's position on."""
    needed = snapshot.position if snapshot else 0
    if not segments and needed == 0 and not bad:
        return
    first = segments[0].base if segments else None
    blame = f"{bad[0]}, offset 0: the snapshot {bad[0]} is damaged, and" if bad else ""
    if first is None or _begin(segments[0], holes) > 0 or first > needed:
        raise DamagedJournal(
            f"{blame or disk.path('') + ', offset 0: a segment is missing:'} the log begins at {first}, but is needed from "
            f"{needed if first is None or first > needed else 0} on; restore the directory from a backup"
        )
    for hole in holes:
        if hole.end > needed:
            raise DamagedJournal(
                f"{blame or disk.path(manifest.NAME) + ', offset 0: a snapshot is missing:'} the log from {hole.begin} to "
                f"{hole.end} was dropped, but is needed from {needed} on; restore the directory from a backup"
            )


def _copy_cut_tail(disk: Disk, last: Segment, tail: Tail) -> Repair:
    assert tail.cut is not None
    start, stop = last.offset(tail.end), HEADER_BYTES + tail.file_end - last.base
    name = f"{tail.end:020d}-{last.generation:08d}.cut"
    write_file(disk, name, pieces_of(disk.open(last.name), start, stop))
    return Repair(disk.path(last.name), tail.end, start, stop - start, disk.path(name), tail.cut)


def _copy_unsynced_tail(disk: Disk, broker_id: str, last: Segment, tail: Tail, generation: int) -> Segment:
    start, stop = last.offset(tail.synced), last.offset(tail.end)

    def content() -> Iterator[bytes]:
        copied = 0
        for piece in pieces_of(disk.open(last.name), start, stop):
            copied += len(piece)
            yield piece
        if copied != stop - start:
            raise damaged(disk.path(last.name), start + copied, "the tail, read a second time,")

    header = SegmentHeader(broker_id, last.form, tail.synced, tail.end, generation, last.created_ns)
    segment, file = create(disk, header, content())
    file.close()
    return segment


def _report(cut: Repair | None, bad_snapshots: tuple[str, ...]) -> Repair | None:
    if cut is not None:
        return replace(cut, bad_snapshots=bad_snapshots)
    if bad_snapshots:
        return Repair(None, 0, 0, 0, None, "a snapshot is damaged, an older state and more of the log was read", bad_snapshots)
    return None

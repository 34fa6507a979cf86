"""A check of a data directory. It reads every byte with a meaning, changes nothing, and continues after a fault.

It reports the first fault of each file. Faults that a start repairs are remarks. Next to a running broker, the log is checked up
to its known length.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..engine import BrokerState, apply
from ..engine.columns.states import State
from ..engine.events import codec
from ..errors import DamagedJournal, PenstockError, StorageError
from ..journal import lineage, manifest, snapshots
from ..journal.disk import Disk
from ..journal.replay import damaged, replay_segment
from ..journal.segments import SUFFIX, Segment, read_header
from ..journal.snapshots import Snapshot, load_latest
from ..journal.tail import first_fault, read_tail
from . import marker, pictures
from .pictures import USERS_FILE


@dataclass
class CheckResult:
    """Findings of a check, and the numbers of read objects."""

    broker: str = ""
    damage: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    segments: int = 0
    bytes: int = 0  # of the log, read
    position: int = 0  # LSN up to which the log is good
    snapshots: int = 0
    events: int = 0  # applied
    queues: int = 0
    messages: dict[str, int] = field(default_factory=dict)  # by state

    @contextmanager
    def looking(self, path: str) -> Iterator[None]:
        """Record an error in the block as damage."""
        try:
            yield
        except PenstockError as error:
            self.damage.append(str(error))
        except FileNotFoundError:
            raise
        except OSError as error:
            self.damage.append(f"{path}, offset 0: the file cannot be read: {error}")


def check(disk: Disk, *, live: bool, progress: Callable[[int, int], None] = lambda done, total: None) -> CheckResult:
    """`live`: a broker writes the directory. `progress` receives the bytes read and the total."""
    result = CheckResult()
    with result.looking(disk.path("id")):
        result.broker = pictures.read_id(disk)
    listed = None
    with result.looking(disk.path(manifest.NAME)):
        listed = manifest.read(disk, result.broker)
    known = listed.synced if listed is not None else 0
    _check_note(disk, result, listed)
    names = disk.names()
    headers = list[Segment]()
    for name in names:
        if name.endswith(SUFFIX):
            with result.looking(disk.path(name)):
                headers.append(read_header(disk, name, result.broker))
    if not result.damage:
        with result.looking(disk.path(manifest.NAME)):
            manifest.check(disk, listed, headers, bool(snapshots.names_of(disk)))
    segments = pictures.ordered(headers, () if listed is None else listed.holes)
    good = _check_segments(disk, result, segments, known, live, progress)
    snapshot = _check_snapshots(disk, result)
    _check_small(disk, result, names)
    if good:
        with result.looking(disk.path("")):
            _apply(disk, result, segments, snapshot)
    return result


def _check_note(disk: Disk, result: CheckResult, listed: manifest.ManifestContent | None) -> None:
    if listed is not None and manifest.SYNCED_NAME in disk.names() and not manifest.note_is_good(disk):
        result.remarks.append(
            f"{disk.path(manifest.SYNCED_NAME)}, offset 0: the note does not match its checksum. A power cut may do that; a "
            "start does without it"
        )


def _check_segments(
    disk: Disk, result: CheckResult, segments: list[Segment], known: int, live: bool, progress: Callable[[int, int], None]
) -> bool:
    """Return True if all of the log is good."""
    before = len(result.damage)
    total, done = sum(disk.size(segment.name) for segment in segments), 0
    for segment in segments:
        last = segment is segments[-1]
        path, file = disk.path(segment.name), disk.open(segment.name)
        with result.looking(path):
            if last and live:
                segment.end = min(segment.end, max(known, segment.base))
            fault = first_fault(file, segment, segment.end)
            if fault is not None and last and not live:
                tail = read_tail(file, path, segment, max(known, _snapshot_position(disk)))
                if tail.cut is not None and segment.offset(tail.end) <= fault[0]:
                    result.remarks.append(f"{path}, offset {segment.offset(tail.end)}: {tail.cut}; a start cuts it off")
                    segment.end, fault = tail.end, None
            if fault is not None:
                raise damaged(path, *fault)
            result.position = max(result.position, segment.end)
            result.bytes += segment.end - segment.base
        result.segments += 1
        done += disk.size(segment.name)
        progress(done, total)
    return len(result.damage) == before and not result.damage


def _snapshot_position(disk: Disk) -> int:
    names = snapshots.names_of(disk)
    return int(names[0][:20]) if names else 0


def _check_snapshots(disk: Disk, result: CheckResult) -> Snapshot | None:
    for name in snapshots.names_of(disk):
        path = disk.path(name)
        with result.looking(path):
            fault = snapshots.find_fault(disk, name, result.broker)
            if fault is not None:
                raise damaged(path, *fault)
            result.snapshots += 1
    return load_latest(disk, result.broker)[0] if result.snapshots else None


def _check_small(disk: Disk, result: CheckResult, names: list[str]) -> None:
    if USERS_FILE in names:
        with result.looking(disk.path(USERS_FILE)):
            try:
                json.loads(disk.open(USERS_FILE).read(0, 1 << 24))
            except ValueError as error:
                at = getattr(error, "pos", 0)
                raise DamagedJournal(f"{disk.path(USERS_FILE)}, offset {at}: the users cannot be read: {error}") from None
    with result.looking(disk.path(marker.NAME)):
        marker.read(disk)
    with result.looking(disk.path(lineage.NAME)):
        lineage.read(disk, result.broker)


def _apply(disk: Disk, result: CheckResult, segments: list[Segment], snapshot: Snapshot | None) -> None:
    """Build the state as a start does."""
    position = 0
    state = BrokerState()
    try:
        if snapshot is not None:
            state, position = BrokerState.restore(snapshot.meta, snapshot.arrays), snapshot.position
    except PenstockError:
        raise
    except Exception as error:
        raise StorageError(f"the snapshot at {position} cannot be used: {type(error).__name__}: {error}") from error
    if position > result.position:
        path = disk.path(segments[-1].name if segments else "")
        raise DamagedJournal(f"{path}, offset 0: the log ends at {result.position}, before the snapshot at {position}")
    for segment in segments:
        if segment.end <= position:
            continue
        for record in replay_segment(disk.open(segment.name), disk.path(segment.name), segment, position, segment.end):
            try:
                event = codec.decode(record.meta)
                apply(state, event, record.position)
            except Exception as error:
                raise DamagedJournal(
                    f"{disk.path(segment.name)}, offset {segment.offset(record.position)}: the event cannot be applied: "
                    f"{type(error).__name__}: {error}"
                ) from error
            result.events += 1
    result.queues = len(state.queues)
    counts = Counter[str]()
    for queue in state.queues.values():
        for message_state in (State.DELAYED, State.AVAILABLE, State.ACQUIRED, State.DEFERRED):
            counts[message_state.name.lower()] += int(queue.counts[message_state])
        counts[State.ARCHIVED.name.lower()] += queue.archived
    result.messages = dict(counts)

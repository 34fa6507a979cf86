"""The journal, as the broker uses it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from ..errors import DamagedJournal, DiskFull, InvalidRequest, ResourceLimit, StorageError
from . import lineage, manifest, segments, snapshots
from .disk import Buffer, Disk, is_shortage, write_file
from .holds import Hold, Holds
from .lineage import Lineage
from .manifest import Manifest
from .payloads import Located, Payloads
from .records import SECRET_BYTES, Format, Record
from .recovery import Recovered, recover
from .replay import replay_segment
from .reserve import is_full
from .segment_writer import LogFiles
from .segments import ID_BYTES, SUFFIX, Segment, SegmentChain, SegmentInfo, out_of_files
from .writer import JournalOptions, Writer

ID_FILE = "id"


class Journal(Writer):
    """A log in one data directory, for any thread, with exceptions at some methods.

    `snapshot`: the latest one at the start. `snapshot_position`: LSN of the last durable one; segments below may be dropped.
    `repaired`: the tail that recovery cut, or the snapshots that it skipped. `written_by`: the version of Penstock that wrote the
    directory before, as the end of a text.
    """

    def __init__(
        self, files: LogFiles, recovered: Recovered, options: JournalOptions, on_failure: Callable[[Exception], None] | None
    ) -> None:
        """Use `open` instead."""
        super().__init__(files, recovered.end, options, on_failure)
        self._disk, self._chain, self._manifest = files.disk, files.chain, files.manifest
        self.lineage = lineage.read(self._disk, self.broker_id)
        self.snapshot, self.repaired = recovered.snapshot, recovered.repaired
        self.written_by = manifest.writer(recovered.manifest.product)
        self._payloads = Payloads(self._disk, self._chain)
        self._holds = Holds()
        self.snapshot_position = recovered.snapshot.position if recovered.snapshot else 0
        self._is_closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        options: JournalOptions | None = None,
        *,
        on_failure: Callable[[Exception], None] | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> Journal:
        """Open the journal on `disk`, which it then owns, and repair it after a crash.

        Raises DamagedJournal, with file and offset, if something confirmed is damaged; StorageError if the disk fails. Then the
        caller must release the lock with `disk.close()`.
        """
        options = options or JournalOptions()
        if options.fsync not in ("always", "interval", "never"):
            raise InvalidRequest(f"fsync is always, interval or never, not {options.fsync!r}")
        try:
            broker_id = _broker_id(disk, new_id)
            recovered = recover(disk, broker_id)
        except OSError as error:
            remedy = ". The disk is full, and the reserve does not suffice: free some space, then start again" * is_full(error)
            raise StorageError(f"the journal cannot be opened: {error}{remedy}") from error
        chain = SegmentChain(disk, recovered.segments)
        listed = Manifest(disk, broker_id, lambda: chain.all, recovered.manifest.holes)
        form = Format.of(segments.VERSION, os.urandom(SECRET_BYTES))
        return cls(LogFiles(disk, chain, listed, broker_id, form, recovered.generation), recovered, options, on_failure)

    def adopt(self, numbers: Mapping[str, int]) -> None:
        """Note each subject's last number, at the first start after a restore."""
        if self.lineage.parent is not None:
            self._change(self.lineage.adopted(numbers))

    def disown(self, subject: str, number: int) -> None:
        """`number`, the last `subject` of the former lineage, means something else here."""
        self._change(self.lineage.disowned(subject, number))

    def _change(self, lineage_: Lineage) -> None:
        try:
            lineage.write(self._disk, lineage_)
        except OSError as error:
            raise self._write_error("the lineage", error) from error
        self.lineage = lineage_

    # ---- reading

    def log_bytes(self, position: int, limit: int) -> list[tuple[str, int, bytes]]:
        """Return segment, offset in its file, and bytes of the log from `position` on, at most `limit` and below `stored`.

        A segment's header comes with its first byte. Raises DataLoss if the segment was dropped, DamagedJournal if the file has
        become shorter.
        """
        pieces, stop = list[tuple[str, int, bytes]](), self.stored
        while limit > 0 and position < stop:
            segment = self._chain.find(position)
            until = min(segment.end, stop, position + limit)
            offset = 0 if position == segment.base else segment.offset(position)
            length = segment.offset(until) - offset
            data = self._chain.file(segment).read(offset, length)
            if len(data) < length:
                raise DamagedJournal(f"{self._disk.path(segment.name)}, offset {offset + len(data)}: the file ends here")
            pieces.append((segment.name, offset, data))
            limit -= until - position
            position = until
        return pieces

    def segment_names(self) -> list[str]:
        return [segment.name for segment in self._chain.all]

    def replay(self, position: int) -> Iterator[Record]:
        """Yield the written records from `position` on, which may be inside a record.

        Records in dropped segments are missing; all from the snapshot's position on exist. Raises DamagedJournal at the first
        record that does not match its checksum.
        """
        stop = self.written
        for segment in self._chain.all:
            until = min(stop, segment.end)
            if until > position and until > segment.base:
                path = self._disk.path(segment.name)
                yield from replay_segment(self._chain.file(segment), path, segment, position, until)

    def payload(self, position: int) -> pa.Buffer:
        """Return the payload of the record at `position`, mapped and 8-byte aligned, once it is written. It stays valid.

        The first read checks the checksum. Raises DataLoss if the segment was dropped and no reader holds it (`hold`).
        """
        if position >= self.written:
            self._check_position(position)
            self._wait_written(position)
        return self._payloads.get(position)

    def locate(self, position: int) -> Located:
        """Locate that payload, once it is durable, for a process of this host that maps it itself."""
        if position >= self.durable:
            self._check_position(position)
            self.wait(position + 1)
        return self._payloads.locate(position)

    def hold(self) -> Hold:
        """Return an object to keep while positions that are known now are used: `payload` and `locate` then find the records of
        segments that are dropped from now on.
        """
        return self._holds.hold()

    def _check_position(self, position: int) -> None:
        if position >= self.end:
            raise InvalidRequest(f"position {position} is past the end of the journal, {self.end}")

    # ---- snapshots and segments

    def write_snapshot(self, position: int, meta: bytes, arrays: Sequence[Buffer]) -> None:
        """Write the state at `position`, by one thread at a time. The snapshot counts when this returns.

        First waits until the log is synced up to there. Raises ResourceLimit if the disk is full: the earlier snapshots still
        count. Raises StorageError if the disk fails, and with it the journal.
        """
        if position > self.end:
            raise InvalidRequest(f"position {position} is past the end of the journal, {self.end}")
        if self.failure is not None:
            raise StorageError(str(self.failure))
        self.sync(position)
        try:
            snapshots.write(self._disk, self.broker_id, position, meta, arrays)
        except OSError as error:
            raise self._write_error(f"the snapshot at {position}", error) from error
        self.snapshot_position = max(self.snapshot_position, position)

    def segments(self, hold: Hold | None = None) -> list[SegmentInfo]:
        """Include the dropped segments that `hold` keeps."""
        return self._infos(lambda: self._chain.all if hold is None else self._readable(hold))

    def _readable(self, hold: Hold) -> list[Segment]:
        current = self._chain.all  # first: a segment that is then dropped is in both
        return sorted({*current, *self._holds.since(hold)}, key=lambda segment: (segment.base, segment.end))

    def _infos(self, listed: Callable[[], Sequence[Segment]]) -> list[SegmentInfo]:
        """Leave out segments that another thread drops and unlinks meanwhile."""
        infos = []
        for segment in listed():
            try:
                infos.append(self._chain.info(segment))
            except FileNotFoundError:
                if segment in listed():
                    raise
        return infos

    def drop(self, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
        """Drop these segments, anywhere in the log, if they are below the last durable snapshot. Return the dropped ones.

        The last segment always stays. By one thread at a time. `unlink_dropped` later unlinks files that readers hold. Raises
        ResourceLimit if the disk is full, and then drops nothing; StorageError as of `write_snapshot`.
        """
        wanted, every = {(segment.base, segment.end) for segment in segments}, self._chain.all
        gone = {s.base for s in every[:-1] if (s.base, s.end) in wanted and s.base < s.end <= self.snapshot_position}
        dropped = [s for s in every[:-1] if s.base in gone]  # including empty ones of the same base
        if not dropped:
            return []
        infos = [self._chain.info(segment) for segment in dropped]
        try:
            self._manifest.drop(dropped, self.synced)
        except OSError as error:
            raise self._write_error("the list of segments", error) from error
        self._holds.dropped(dropped)  # before they leave the chain, so that they are always in one of the two
        self._chain.retire(dropped)
        self.unlink_dropped()
        return infos

    def dropped(self) -> list[SegmentInfo]:
        """Return the dropped segments that readers still hold."""
        return self._infos(lambda: self._holds.segments)

    def unlink_dropped(self) -> int:
        """Unlink the dropped segments that no reader holds; return how many. By the thread that drops."""
        free = self._holds.released()
        self._chain.forget(free)
        try:
            for segment in free:
                self._disk.unlink(segment.name)
            if free:
                self._disk.sync_directory()
        except OSError as error:  # the next start removes them: the manifest lists the holes
            self.fail(error)
            raise StorageError(f"a dropped segment could not be removed: {error}") from error
        return len(free)

    def _write_error(self, subject: str, error: OSError) -> ResourceLimit | StorageError:
        """Unless the disk is full, the journal fails."""
        if is_full(error):
            return DiskFull(f"the disk is full, {subject} was given up: {error}")
        if is_shortage(error):
            return out_of_files(f"{subject} was given up, and will be tried again", error)
        self.fail(error)
        return StorageError(f"{subject} could not be written: {error}")

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def fill_reserve(self, nbytes: int) -> None:
        self._disk.fill_reserve(nbytes)

    @property
    def is_full(self) -> bool:
        """True after a write to a full disk, until the reserve is whole again."""
        return self._shortages.of_space or not self._disk.has_reserve()

    def close(self) -> None:
        """Write and sync all appended records (none, if never started).

        StorageError if the journal failed, now or before; the lock is released anyway.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._stop()
        finally:
            self._manifest.close()
            self._disk.close()


def _broker_id(disk: Disk, new_id: Callable[[], str]) -> str:
    names = disk.names()
    if ID_FILE in names:
        text = disk.open(ID_FILE).read(0, ID_BYTES + 2).decode(errors="replace").strip()
        if not text or len(text.encode()) > ID_BYTES:
            raise DamagedJournal(f"{disk.path(ID_FILE)}, offset 0: not the id of a broker; restore the file from a backup")
        return text
    listed = manifest.read(disk)
    if any(name.endswith((SUFFIX, snapshots.SUFFIX)) for name in names) or (listed is not None and listed.segments):
        raise DamagedJournal(f"{disk.path(ID_FILE)}, offset 0: the file is missing, but the directory holds a journal")
    broker_id = new_id()
    if not broker_id.strip() or len(broker_id.encode()) > ID_BYTES:
        raise InvalidRequest(f"the id of a broker has 1 to {ID_BYTES} bytes, not {broker_id!r}")
    manifest.write(disk, broker_id, [], 0, ())
    write_file(disk, ID_FILE, [broker_id.encode()])
    return broker_id

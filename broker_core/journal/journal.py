"""The journal: an append-only log of records, group commit, snapshots, recovery. This file only puts the parts together.

records.py, segments.py, snapshots.py   what stands on the disk       recovery.py, tail.py   what counts after a crash
manifest.py                             and what must                 replay.py              how it is read again
groups.py, writer.py                    how it gets there             disk.py                the only I/O
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.broker_core.errors import DamagedJournal, InvalidRequest, ResourceLimit, StorageError
from penstock.broker_core.journal import manifest, snapshots
from penstock.broker_core.journal.disk import Buffer, Disk, is_shortage, write_file
from penstock.broker_core.journal.manifest import Manifest
from penstock.broker_core.journal.payloads import Located, Payloads
from penstock.broker_core.journal.records import SECRET_BYTES, Format, Record
from penstock.broker_core.journal.recovery import Repair, recover
from penstock.broker_core.journal.replay import replay_segment
from penstock.broker_core.journal.segments import ID_BYTES, SUFFIX, VERSION, SegmentChain, SegmentInfo, out_of_files
from penstock.broker_core.journal.snapshots import Snapshot
from penstock.broker_core.journal.writer import Fsync, Writer

ID_FILE = "id"


class Appended(NamedTuple):
    """Where a record stands. Both are LSNs, bytes."""

    position: int
    end: int


def _new_id() -> str:
    return uuid.uuid4().hex


def _new_secret() -> bytes:
    return os.urandom(SECRET_BYTES)


class Journal:
    """A log in one data directory; see `open`. Methods may be called from any thread, except where they say otherwise."""

    def __init__(self, disk: Disk, broker_id: str, chain: SegmentChain, listed: Manifest, writer: Writer) -> None:
        """For `open` only."""
        self.broker_id = broker_id
        self.snapshot: Snapshot | None = None
        self.repaired: Repair | None = None
        self._disk, self._chain, self._manifest, self._writer = disk, chain, listed, writer
        self._payloads = Payloads(disk, chain)
        self._snapshot_position = 0  # of the last durable one
        self._closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        fsync: Fsync = "always",
        interval_s: float = 0.1,
        segment_bytes: int = 256 << 20,
        buffer_bytes: int = 64 << 20,
        new_id: Callable[[], str] = _new_id,
        new_secret: Callable[[], bytes] = _new_secret,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> Journal:
        """Open, and where a crash made it necessary repair, the journal on `disk`, which the journal then owns.

        fsync: "always" (durable means synced), "interval" (written; synced at least every `interval_s` seconds), "never"
        (written; synced when a segment is full). `segment_bytes`: a group that would begin past it goes into a new segment.
        `buffer_bytes`: how much `reserve` lets be appended and not yet durable. `on_failure` is called once, by the thread
        that found it, when a write or sync failed, or `fail` was called. The latest snapshot is in `snapshot`, what had to be cut
        in `repaired`. `new_secret`: 12 random bytes (records.py).

        DamagedJournal, with file and offset, when something confirmed is damaged; StorageError when the disk fails. The lock of
        the directory is then still the caller's to release, with `disk.close()`.
        """
        if fsync not in ("always", "interval", "never"):
            raise InvalidRequest(f"fsync is always, interval or never, not {fsync!r}")
        try:
            broker_id = _broker_id(disk, new_id)
            found = recover(disk, broker_id)
        except OSError as error:
            raise StorageError(f"the journal cannot be opened: {error}") from error
        chain = SegmentChain(disk, found.segments)
        listed = Manifest(disk, broker_id, lambda: chain.all)
        writer = Writer(
            disk,
            chain,
            listed,
            broker_id,
            Format.of(VERSION, new_secret(), broker_id),
            found.end,
            found.generation,
            fsync=fsync,
            interval_s=interval_s,
            segment_bytes=segment_bytes,
            buffer_bytes=buffer_bytes,
            on_failure=on_failure,
        )
        journal = cls(disk, broker_id, chain, listed, writer)
        journal.snapshot, journal.repaired = found.snapshot, found.repaired
        journal._snapshot_position = found.snapshot.position if found.snapshot else 0
        return journal

    # ---- writing

    @property
    def end(self) -> int:
        """LSN after the last appended record."""
        return self._writer.end

    @property
    def durable(self) -> int:
        """LSN below which everything is synced (fsync=always) or written (interval, never)."""
        return self._writer.durable

    @property
    def failure(self) -> StorageError | None:
        """Why the journal failed; None while it has not."""
        return self._writer.failure

    def start(self) -> None:
        """Start the writer's thread. Before, appends stay in memory."""
        self._writer.start()

    def reserve(self, nbytes: int, timeout_s: float) -> None:
        """Wait until `nbytes` more fit in the buffer of what is not yet durable. They are not set aside: several callers
        may overshoot it, each once. More than the buffer holds goes when it is empty.

        ResourceLimit after `timeout_s` seconds; StorageError when the journal failed.
        """
        self._writer.reserve(nbytes, timeout_s)

    def has_room(self, nbytes: int) -> bool:
        """Would `reserve` return at once? StorageError when the journal failed."""
        return self._writer.has_room(nbytes)

    def append(self, meta: bytes, payload: Sequence[Buffer] = (), *, hurry: bool = True, more: bool = False) -> Appended:
        """Append a record, by one thread at a time; never waits for the disk. `payload` is one after the other the bytes of
        the record's payload; large ones are not copied, and must not change any more. StorageError when the journal failed.

        Without `hurry` it is written together with the next that has it, or when somebody waits for it: who appends so sees to it
        that somebody does.

        `more`: the records appended from here on, until one without it or `complete`, share this one's group: after a crash all
        of them are there, or none. Nothing of it is written before, so its caller waits for nothing meanwhile.
        """
        return Appended(*self._writer.append(meta, payload, hurry, more))

    def complete(self, *, hurry: bool) -> None:
        """No more records come for the group of those before. `hurry` as for `append`."""
        self._writer.complete(hurry)

    def hurry(self, end: int) -> None:
        """Somebody waits, elsewhere, until `durable` >= `end`: let it begin. Returns at once."""
        self._writer.hurry(end)

    def write_here(self, meanwhile: Callable[[], object]) -> bool:
        """Write what has been appended from this thread, and sync it, if that is quickly done: True when it was tried, and then
        it is durable or the journal has failed. False changes nothing: then `hurry` or `wait`. Listeners are called, too.

        `meanwhile` is called when there is a sync to wait for, and what was appended is written: it has some 100 µs, and must not
        raise. Nobody may hear of what it does before this has returned, and `durable` says that all is well.
        """
        return self._writer.write_here(meanwhile)

    def wait(self, end: int, timeout_s: float | None = None) -> None:
        """Wait until `durable` >= `end`. StorageError when the journal failed, TimeoutError after `timeout_s` seconds."""
        self._writer.wait(end, timeout_s)

    def fail(self, error: BaseException) -> None:
        """Stop for ever, because of `error`, which the journal's owner has met: state and log may differ now. What is not written
        yet is given up; who waits or comes later, and who waits for the log's `end` as it then is, gets a StorageError that names
        `error`; `on_failure` is called once, from this thread. A second failure changes nothing. Callable from any thread, also
        under a lock of the caller's."""
        self._writer.fail(error)

    def add_listener(self, callback: Callable[[int], None]) -> None:
        """Let the writer's thread call `callback(durable)` whenever that has grown. One that raises is not called again."""
        self._writer.add_listener(callback)

    # ---- reading

    def replay(self, position: int) -> Iterator[Record]:
        """The records that are written, from `position` on, which need not be the beginning of one. Payloads are not read.

        DamagedJournal, with file and offset, at the first one that is not what was written.
        """
        stop = self._writer.written
        for segment in self._chain.all:
            until = min(stop, segment.end)
            if until > position and until > segment.base:
                path = self._disk.path(segment.name)
                yield from replay_segment(self._chain.file(segment), path, segment, position, until)

    def payload(self, position: int) -> pa.Buffer:
        """The payload of the record at `position`, mapped, 8-byte aligned; waits until it is written. Stays valid for ever.

        DamagedJournal, with file and offset, when it is not what was written (checked at the first read); DataLoss when the
        segment was dropped; InvalidRequest when `position` is past the end.
        """
        if position >= self._writer.written:
            self._check_position(position)
            self._writer.wait_written(position)
        return self._payloads.get(position)

    def locate(self, position: int) -> Located:
        """Where that payload lies, verified, for a process on this host that maps it itself. Waits until it is durable; else as
        `payload`."""
        if position >= self._writer.durable:
            self._check_position(position)
            self._writer.wait(position + 1, None)
        return self._payloads.locate(position)

    def _check_position(self, position: int) -> None:
        if position >= self._writer.end:
            raise InvalidRequest(f"position {position} is past the end of the journal, {self._writer.end}")

    # ---- snapshots and segments

    def write_snapshot(self, position: int, meta: bytes, arrays: Sequence[Buffer]) -> None:
        """Write the state at `position`, by one thread at a time. First waits until the log is synced up to there, in every
        fsync mode. When this returns the snapshot counts. The two latest are kept.

        ResourceLimit when the disk is full: the snapshots before still count, and the journal goes on. StorageError when the
        disk fails: so does the journal then.
        """
        if position > self._writer.end:
            raise InvalidRequest(f"position {position} is past the end of the journal, {self._writer.end}")
        if self._writer.failure is not None:
            raise StorageError(str(self._writer.failure))
        self._writer.sync_to(position)
        try:
            snapshots.write(self._disk, self.broker_id, position, meta, arrays)
        except OSError as error:
            raise self._given_up(f"the snapshot at {position}", error) from error
        self._snapshot_position = max(self._snapshot_position, position)

    def segments(self) -> list[SegmentInfo]:
        """All segments, oldest first."""
        return [self._chain.info(segment) for segment in self._chain.all]

    def drop_before(self, position: int) -> list[SegmentInfo]:
        """Unlink the oldest segments that lie below `position` and below the last durable snapshot; those dropped. The last
        segment always stays. By one thread at a time. Buffers handed out stay valid.

        ResourceLimit when the disk is full, and then nothing was dropped; StorageError as of `write_snapshot`.
        """
        limit, every = min(position, self._snapshot_position), self._chain.all
        count = 0
        while count < len(every) - 1 and every[count].end <= limit and every[count + 1].base <= limit:
            count += 1
        if count == 0:
            return []
        dropped = [self._chain.info(segment) for segment in every[:count]]
        try:
            self._manifest.drop_before(every[count], self._writer.synced)
        except OSError as error:
            raise self._given_up("the list of segments", error) from error
        for _ in range(count):
            self._unlink(self._chain.remove_first().name)
        return dropped

    def _given_up(self, what: str, error: OSError) -> ResourceLimit | StorageError:
        """What to raise when `what` could not be written: a disk that is full is no failure; else the journal has failed."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return ResourceLimit(f"the disk is full, {what} was given up: {error}")
        if is_shortage(error):
            return out_of_files(f"{what} was given up, and will be tried again", error)
        self._writer.fail(error)
        return StorageError(f"{what} could not be written: {error}")

    def _unlink(self, name: str) -> None:
        """One by one, each synced: so after a power cut no segment is missing between two others."""
        try:
            self._disk.unlink(name)
            self._disk.sync_directory()
        except OSError as error:
            self._writer.fail(error)
            raise StorageError(f"the segment {name} could not be removed: {error}") from error

    def free_bytes(self) -> int:
        """Free space of the disk, bytes."""
        return self._disk.free_bytes()

    def close(self) -> None:
        """Write and sync what is appended (nothing, if never started), stop the thread, release the lock of the directory.
        StorageError when the journal failed, now or before; the lock is released all the same. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.stop()
        finally:
            self._manifest.close()
            self._disk.close()


def _broker_id(disk: Disk, new_id: Callable[[], str]) -> str:
    """The id of the data directory, made at its first opening."""
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
    manifest.write(disk, broker_id, [], 0)
    write_file(disk, ID_FILE, [broker_id.encode()])
    return broker_id

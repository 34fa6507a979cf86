"""The segment being written, and the start of the next one. By one thread at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from .disk import AppendFile, Buffer, Disk
from .manifest import Manifest
from .record_groups import RecordGroup
from .records import Format
from .reserve import is_full
from .segments import Segment, SegmentChain, SegmentHeader, create
from .shortages import Shortages

SMALL_BYTES = 8 << 10  # a smaller group is written into preallocated zeros: its sync would mostly wait for the new length


class LogFiles(NamedTuple):
    """Files of a log, and the common fields of its next segments' headers."""

    disk: Disk
    chain: SegmentChain
    manifest: Manifest
    broker_id: str
    form: Format
    generation: int


class NoSpaceHere(Exception):
    """The disk is full, and the calling thread must not wait."""


class SegmentWriter:
    """Writer of groups into the last segment of a log."""

    def __init__(self, files: LogFiles, shortages: Shortages) -> None:
        self._files, self._shortages = files, shortages
        self._file: AppendFile | None = None
        self._segment: Segment | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def has_room(self, position: int, segment_bytes: int) -> bool:
        return self._segment is not None and position - self._segment.base <= segment_bytes

    def begin(self, base: int) -> None:
        """Everything before must be synced, so that only a log's last segment can end in a torn tail."""
        if self._file is not None:
            self._file.close()
        disk, chain, manifest, broker_id, form, generation = self._files
        self._segment, self._file = self._shortages.outlast(
            lambda: create(disk, SegmentHeader(broker_id, form, base, base, generation, disk.now_ns()))
        )
        chain.add(self._segment)
        self._shortages.outlast(lambda: manifest.write(base))

    def write(self, group: RecordGroup, synced: int, *, preallocates: bool, may_wait: bool) -> None:
        """`synced`: LSN below which the log is on the disk. Raises NoSpaceHere unless the thread `may_wait`."""
        assert self._file is not None
        assert self._segment is not None
        if preallocates and group.after - group.start <= SMALL_BYTES:
            self._file.preallocate(group.after - group.start)
        self._append(self._file, group.seal(synced), may_wait)
        self._segment.end = group.after

    def _append(self, file: AppendFile, data: Sequence[Buffer], may_wait: bool) -> None:
        try:
            file.append(data)
        except OSError as error:
            if not is_full(error):
                raise
            if not may_wait:
                raise NoSpaceHere from error
            self._shortages.outlast(lambda: file.append(data))

    def start_sync(self) -> None:
        assert self._file is not None
        self._file.start_sync()

    def sync(self) -> None:
        assert self._file is not None
        self._file.sync()

    def note_synced(self, position: int) -> None:
        assert self._segment is not None
        self._files.manifest.note(self._segment, position)

    def close(self, position: int, synced: int) -> None:
        """Append an empty group, which states that everything before it is synced: the next start has no tail to copy."""
        assert self._file is not None
        try:
            self._file.append(RecordGroup(position, self._files.form).seal(synced))
            self._file.sync()
        except OSError as error:
            if not is_full(error):  # the next start copies the tail
                raise
        self._file.close()
        with contextlib.suppress(OSError):  # the former manifest, and the note, are enough
            self._files.manifest.write(synced)

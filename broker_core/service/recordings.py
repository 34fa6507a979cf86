"""Answers to what the archiver asks of its broker: settled messages, and where they lie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..archive.write.rows import RecordingContent
from ..engine import BrokerState
from ..engine.columns.packing import pack
from ..engine.columns.rowset import RowSet
from ..engine.columns.series import Rows
from ..engine.commands import Command, Now
from ..engine.model.recordings import NO_TABLE, Backlog, Recording
from ..journal import Journal

R = TypeVar("R")


class Recordings:
    """The host of a recorder: see `archiver.recorder.Host`. For any thread that does not hold the lock."""

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        lock: threading.Lock,
        clock: Callable[[], Now],
        submit: Callable[[Command[Any]], Any],
    ) -> None:
        self._state, self._journal, self._lock, self._clock, self._submit = state, journal, lock, clock, submit
        self.broker_id = journal.broker_id

    def submit(self, command: Command[R]) -> R:
        """Carry out a command; return its reply once that is durable."""
        reply: R = self._submit(command)
        return reply

    def content(self, backlog: Backlog, current: Recording) -> RecordingContent | None:
        """Return what a pass consists of now: rows that became live again since it began are not in it any more. None where its
        queue is gone. The columns of a block are copied under the lock."""
        columns, packed, parts, hold = {}, {}, list[tuple[int, Rows]](), self._journal.hold()
        for number in current.rows.blocks:
            with self._lock:
                queue = self._state.by_id.get(backlog.queue_id)
                if queue is None or queue.recordings.current is None:
                    return None
                part = queue.recordings.current.rows.rows(number)
                if part is None:
                    continue
                parts.append((number, part))
                block, entry = queue.blocks.get(number), queue.packed.get(number)
                if block is not None:
                    columns[number] = block.persisted()
                elif entry is not None:
                    packed[number] = entry.position
                origins, takers, version = list(queue.origins), list(queue.takers.names), queue.recordings.version
        rows = RowSet.of(parts)
        lineage = self._journal.lineage.of(str(backlog.queue_id), current.number)
        return RecordingContent(
            backlog.queue,
            backlog.queue_id,
            current.number,
            lineage,
            origins if rows else [],
            takers if rows else [],
            rows,
            {number: pack(each) for number, each in columns.items()},
            packed,
            version if rows else NO_TABLE,
            lineage != self._journal.lineage.name,
            hold,
        )

    def sync(self) -> None:
        """Return when all that was decided is on the disk, whatever the setting `fsync` says. Raises StorageError."""
        self._journal.sync(self._journal.end)

    def disown(self, content: RecordingContent) -> None:
        """Make an inherited pass one of this directory's own lineage. Raises StorageError."""
        self._journal.disown(str(content.queue_id), content.number)

    def segments(self, content: RecordingContent) -> list[tuple[str, int, int]]:
        """Return the journal's segments: file name, LSN of the first byte, LSN after the last written one. With those that were
        dropped since the content was looked up: it has positions in them."""
        return [(Path(each.path).name, each.base, each.end) for each in self._journal.segments(content.hold)]

    def tables(self) -> list[str]:
        """Return the names of the queues that have tables."""
        with self._lock:
            return [queue.name for queue in self._state.by_id.values() if queue.recordings.version >= 0]

    def now(self) -> int:
        """Return the time, microseconds since 1970, as settlements have it."""
        return max(self._clock().wall, self._state.time)

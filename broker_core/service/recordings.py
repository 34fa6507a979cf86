"""The broker, as the recorder of the archive sees it."""

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
    """For any thread that does not hold the lock."""

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
        reply: R = self._submit(command)
        return reply

    def content(self, backlog: Backlog, current: Recording) -> RecordingContent | None:
        """Return the content of a recording, without rows that became live again. None if its queue is gone."""
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
                archive_message = queue.rules.archive_message
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
            {number: pack(block_columns) for number, block_columns in columns.items()},
            packed,
            version if rows else NO_TABLE,
            lineage != self._journal.lineage.name,
            archive_message if rows else None,
            hold,
        )

    def sync(self) -> None:
        """Wait until all decisions are on the disk, even without `fsync`."""
        self._journal.sync(self._journal.end)

    def disown(self, content: RecordingContent) -> None:
        """Move an inherited recording to this directory's own lineage."""
        self._journal.disown(str(content.queue_id), content.number)

    def segments(self, content: RecordingContent) -> list[tuple[str, int, int]]:
        """Return file name, begin and end of the journal's segments, including segments dropped since the content was read, which
        has positions in them."""
        return [(Path(segment.path).name, segment.base, segment.end) for segment in self._journal.segments(content.hold)]

    def tables(self) -> list[str]:
        with self._lock:
            return [queue.name for queue in self._state.by_id.values() if queue.recordings.version >= 0]

    def now(self) -> int:
        """In microseconds since 1970, for settlements."""
        return max(self._clock().wall, self._state.time)

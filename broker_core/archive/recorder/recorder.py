"""The broker's thread that has settled messages recorded.

A queue is due if its oldest unrecorded settled message has waited for `archive_after_s`, if its settled messages make a file of
`archive_file_bytes`, or if it was deleted. Queues take turns. A queue whose table cannot be written waits, longer each time,
delays no other, and loses nothing.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ... import errors
from ...engine.columns.limits import NEVER
from ...engine.commands import BeginRecording, Command, EndRecording, ListBacklogs
from ...engine.model.recordings import Backlog, Recording
from ...logs import counted
from ...settings.keys import Settings
from ...stores.folders import is_local, local_path
from ..table.layout import table_url
from ..write.rows import RecordingContent
from .estimate import VACUUM_S, Growth
from .process import ProcessEnded, RecorderProcess

log = logging.getLogger("penstock")

R = TypeVar("R")

LOOK_S = 1.0  # between two checks for due queues
RECORDING_ROWS = 64 << 16  # of one recording
RECORDING_FILES = 4  # of one recording; a commit costs as much as a quarter of a file
FIRST_WAIT_S = 1.0  # after a failed attempt; doubled after each further one
LONGEST_WAIT_S = 60.0
#: The archive is behind after this many times `archive_after_s`, and these seconds for the recording itself.
BEHIND, BEHIND_S = 3, 30.0
KEEP_S = 3600.0  # between two maintenances of a table
FIRST_KEEP_S = 300.0  # from the start to the first maintenance: other parts start first
OFF = "off"


class RecordedBroker(Protocol):
    """The broker of a recorder."""

    broker_id: str

    def submit(self, command: Command[R]) -> R: ...

    def content(self, backlog: Backlog, current: Recording) -> RecordingContent | None:
        """Return None if the queue was deleted."""

    def sync(self) -> None:
        """Wait until all decisions are on the disk, with any setting of `fsync`."""

    def disown(self, content: RecordingContent) -> None:
        """Move an inherited recording to this directory's own lineage."""

    def segments(self, content: RecordingContent) -> list[tuple[str, int, int]]:
        """Return the needed segments: file name, position of the first byte, position after the last."""

    def tables(self) -> list[str]: ...

    def now(self) -> int:
        """Return the time of settlements, microseconds since 1970."""


@dataclass
class Trouble:
    """A failure to write a queue's table."""

    queue: str
    text: str
    refused: bool  # an operator must act
    wait_s: float
    until: float  # monotonic time of the next attempt


class Recorder:
    """The recorder of one broker."""

    def __init__(
        self,
        host: RecordedBroker,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
        process: RecorderProcess | None = None,
    ) -> None:
        self._host, self._settings, self._monotonic = host, settings, monotonic
        #: A folder or URL. A relative path is below the data directory.
        self.url = settings.archive if "://" in settings.archive else str(settings.data / settings.archive)
        self._process = process or RecorderProcess(greeting(host, settings))
        self.growth = Growth(self.url, settings)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-recorder", daemon=True)
        self._last = 0  # id of the queue that was recorded last
        self._backlogs: list[Backlog] = []
        self._due: list[Backlog] = []  # the last one is next
        self._looked = -math.inf  # time of the last listing
        self._troubles: dict[int, Trouble] = {}  # by queue's id
        #: By queue's id: since when messages wait, on the wall clock and the monotonic clock.
        self._waits: dict[int, tuple[int, float]] = {}
        self._keep_from = monotonic() + FIRST_KEEP_S - KEEP_S  # of tables that were not maintained yet
        self._others: list[str] = []  # tables of deleted queues, by folder name
        self._listed = -math.inf  # time of that listing
        self._kept: dict[str, float] = {}  # table's URL → time of its last maintenance
        self._vacuumed: dict[str, float] = {}
        self._behind: str | None = None
        self._asking = False  # a request waits for its reply
        self.recordings = 0
        self.recorded = 0  # messages, since the start

    def start(self) -> None:
        retention_s = self._settings.archive_retention_age_s
        how_long = "for ever" if retention_s is None else f"for {retention_s / 86400:g} days"
        log.info("settled messages are recorded in %s, and kept there %s (archive_retention_age_s)", self.url, how_long)
        self._thread.start()

    def change(self, settings: Settings) -> None:
        self._settings = settings
        self.growth.change(settings)

    def close(self) -> None:
        """An unfinished recording continues at the next start."""
        self._closing.set()
        self._process.close()
        if self._thread.ident is not None:
            self._thread.join()

    def status(self) -> dict[str, Any]:
        backlogs, now = self._host.submit(ListBacklogs()), self._host.now()
        return {
            "archive": self.url,
            "retention": self._settings.archive_retention_age_s,
            "process": self._process.pid,
            "unrecorded": sum(backlog.rows for backlog in backlogs),
            "unrecordedBytes": sum(backlog.bytes for backlog in backlogs),
            "lag": _lag(backlogs, now),
            "behind": self.behind() is not None,
            "passes": self.recordings,
            "recorded": self.recorded,
            "diskFullIn": self.growth.full_in_s,
            "queues": [self._described(backlog, now) for backlog in backlogs],
        }

    def of_queue(self, queue: str) -> dict[str, Any]:
        now = self._host.now()
        backlogs = [backlog for backlog in self._host.submit(ListBacklogs()) if backlog.queue == queue]
        troubles = [self._troubles[backlog.queue_id].text for backlog in backlogs if backlog.queue_id in self._troubles]
        return {
            "table": table_url(self.url, queue),
            "lag": _lag(backlogs, now),
            "error": troubles[0] if troubles else None,
            "diskFullIn": self.growth.full_in_s,
        }

    def troubles(self) -> dict[str, str]:
        texts = {}
        for trouble in list(self._troubles.values()):
            fault = "is refused" if trouble.refused else "cannot be written now"
            texts[trouble.queue] = f"its archive table {fault}; its settled messages stay in the journal: {trouble.text}"
        return texts

    def behind(self) -> str | None:
        """Describe how far the archive is behind. While a request waits, perhaps for ever, the backlog is that of the last
        listing."""
        if self._asking:
            self._look_whether_behind()
        return self._behind

    def _described(self, backlog: Backlog, now: int) -> dict[str, Any]:
        trouble = self._troubles.get(backlog.queue_id)
        return {
            "queue": backlog.queue,
            "id": backlog.queue_id,
            "deleted": backlog.departed,
            "unrecorded": backlog.rows,
            "unrecordedBytes": backlog.bytes,
            "lag": _lag([backlog], now),
            "error": None if trouble is None else trouble.text,
        }

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                while self.turn() and not self._closing.is_set():
                    pass
            except errors.ResourceLimit as error:
                log.warning("the archive waits for room on the disk: %s", error)
            except errors.StorageError as error:
                log.error("the archive: %s", error)  # on_failure stops the broker
                return
            except Exception:
                log.exception("the recorder failed, and tries again in %g s", LOOK_S)

    def turn(self) -> bool:
        """Record the next due queue, or maintain a table. Return False if nothing was done."""
        up = self._monotonic()
        if not self._due or up >= self._looked + LOOK_S:
            self._look(up)
        if not self._due:
            return self._list_tables(up) or self._keep_a_table(up)
        backlog = self._due.pop()
        self._last = backlog.queue_id
        return self._record(backlog)

    def _look(self, up: float) -> None:
        self._looked, self._backlogs = up, self._host.submit(ListBacklogs())
        before = self._waits
        self._waits = {backlog.queue_id: (backlog.waiting_since, up) for backlog in self._backlogs if backlog.waiting_rows}
        self._waits |= {number: seen for number, seen in before.items() if self._waits.get(number, (None,))[0] == seen[0]}
        waiting = {backlog.queue_id for backlog in self._backlogs}
        self._troubles = {queue_id: trouble for queue_id, trouble in self._troubles.items() if queue_id in waiting}
        self._look_whether_behind()
        self.growth.look()
        now = self._host.now()
        due = [backlog for backlog in self._backlogs if self._is_due(backlog, now, up)]
        self._due = sorted(due, key=lambda backlog: (backlog.queue_id <= self._last, backlog.queue_id), reverse=True)

    def _is_due(self, backlog: Backlog, now: int, up: float) -> bool:
        trouble = self._troubles.get(backlog.queue_id)
        if trouble is not None and up < trouble.until:
            return False
        if backlog.current is not None:
            return True
        if not backlog.waiting_rows:
            return False
        # The engine's clock stands still after the wall clock was set back.
        waited_s = max((now - backlog.waiting_since) / 1e6, up - self._waits[backlog.queue_id][1])
        enough = backlog.waiting_bytes >= self._settings.archive_file_bytes or backlog.waiting_rows >= RECORDING_ROWS
        return waited_s >= self._settings.archive_after_s or enough or backlog.departed

    def _record(self, backlog: Backlog) -> bool:
        """Return False on failure."""
        most_bytes = RECORDING_FILES * self._settings.archive_file_bytes
        current = self._host.submit(BeginRecording(backlog.queue_id, RECORDING_ROWS, most_bytes))
        if backlog.current is None and current is not None and current.rows.count >= backlog.waiting_rows:
            self._waits.pop(backlog.queue_id, None)  # later settlements start a new wait
        content = None if current is None else self._host.content(backlog, current)
        if current is None or content is None:
            return True
        if not content.rows and content.inherited:
            return self._disown(backlog, content)
        if not content.rows:
            self._host.submit(EndRecording(backlog.queue_id, current.number, -1))
            return True
        self._host.sync()  # a power cut must not lose this recording: another one would get its number
        url = table_url(self.url, backlog.queue)
        content = content._replace(archive_message=content.archive_message or self._settings.archive_message)
        request, attachments = _request(content, url, self._settings.archive_file_bytes, self._host.segments(content))
        answer = self._ask(request, attachments)
        if "error" in answer:
            if not self._closing.is_set():
                self._note_trouble(backlog, answer["error"], refused=answer["refused"])
            return False
        if answer["differs"]:
            return self._disown(backlog, content)
        self._host.submit(EndRecording(backlog.queue_id, current.number, answer["version"]))
        self._note_success(backlog, answer)
        if answer["small"] >= self._settings.archive_compact_files:
            self._kept[url] = -math.inf
        return True

    def _ask(self, request: dict[str, Any], attachments: Sequence[bytes] = ()) -> dict[str, Any]:
        self._asking = True
        try:
            return self._process.ask(request, attachments)
        except ProcessEnded as error:
            return {"error": str(error), "refused": False}
        finally:
            self._asking = False

    def _disown(self, backlog: Backlog, content: RecordingContent) -> bool:
        """Move an inherited recording to the own lineage. Return False on failure."""
        try:
            self._host.disown(content)
        except errors.StorageError as error:
            self._note_trouble(backlog, str(error), refused=False)
            return False
        return True

    def _note_success(self, backlog: Backlog, answer: dict[str, Any]) -> None:
        self.recordings += 1
        self.recorded += answer["rows"]
        self.growth.added_bytes += answer["bytes"]
        if answer["gone"]:
            log.warning(
                "%s of queue %r settled without an archive, which retention has removed: not recorded",
                counted(answer["gone"], "message"),
                backlog.queue,
                extra={"queue": backlog.queue},
            )
        self._troubles.pop(backlog.queue_id, None)

    def _note_trouble(self, backlog: Backlog, text: str, *, refused: bool) -> None:
        before = self._troubles.get(backlog.queue_id)
        wait_s = FIRST_WAIT_S if before is None else min(2 * before.wait_s, LONGEST_WAIT_S)
        self._troubles[backlog.queue_id] = Trouble(backlog.queue, text, refused, wait_s, self._monotonic() + wait_s)

    def _look_whether_behind(self) -> None:
        now, limit = self._host.now(), BEHIND * self._settings.archive_after_s + BEHIND_S
        lag = _lag(self._backlogs, now)
        if lag > limit or (self._behind is not None and lag > max(limit / 2, self._settings.archive_after_s)):
            rows, size = sum(backlog.rows for backlog in self._backlogs), sum(backlog.bytes for backlog in self._backlogs)
            self._behind = f"the archive is {lag:.0f} s behind: {rows} settled messages, {size >> 20} MiB, wait in the journal"
        else:
            self._behind = None

    def _list_tables(self, up: float) -> bool:
        """List tables of deleted queues, which also have old days."""
        if up < max(self._listed, self._keep_from) + KEEP_S or (is_local(self.url) and not os.path.isdir(local_path(self.url))):
            return False
        self._listed = up
        answer = self._looked_after(self.url, {"op": "tables", "url": self.url})
        if answer is not None:
            self._others = answer["names"]
        return answer is not None

    def _looked_after(self, url: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the reply to a maintenance request; None on failure, which is logged."""
        answer = self._ask(request)
        if "error" not in answer:
            return answer
        if not self._closing.is_set():
            log.warning("%s was not looked after: %s", url, answer["error"])
        return None

    def _keep_a_table(self, up: float) -> bool:
        # Not a table with an unfinished recording: its rows tell whether the table has it.
        under_way = {table_url(self.url, backlog.queue) for backlog in self._backlogs if backlog.current is not None}
        tables = {url: queue for url, queue in self._tables().items() if url not in under_way}
        url = next((url for url in tables if up >= self._kept.get(url, self._keep_from) + KEEP_S), None)
        if url is None:
            return False
        # A power cut must not lose the end of a recording whose rows are removed here.
        self._host.sync()
        self._kept[url] = up
        vacuum = up >= self._vacuumed.get(url, -math.inf) + VACUUM_S
        request = {
            "op": "keep",
            "queue": tables[url],
            "url": url,
            "fileBytes": self._settings.archive_file_bytes,
            "compactFiles": self._settings.archive_compact_files,
            "retentionS": self._settings.archive_retention_age_s,
            "vacuumS": self._settings.archive_vacuum_after_s if vacuum else None,
        }
        answer = self._looked_after(url, request)
        if answer is None:
            return False
        if vacuum:
            self._vacuumed[url] = up
        if answer["ended"]:
            self._kept[url] = -math.inf  # more ended days may have small files
        self.growth.replaced_bytes += answer["replaced"]
        if any(answer.values()):
            log.info(
                "the table %s: %s put together, %d too old, %d removed from the disk",
                url,
                counted(answer["compacted"] + answer["ended"], "file"),
                answer["expired"],
                answer["vacuumed"],
            )
        return True

    def _tables(self) -> dict[str, str | None]:
        """Return URL and queue of the tables. Only the tables have the names of deleted queues."""
        gone: dict[str, str | None] = {f"{self.url.rstrip('/')}/{name}": None for name in self._others}
        return gone | {table_url(self.url, queue): queue for queue in self._host.tables()}


def greeting(host: RecordedBroker, settings: Settings) -> dict[str, Any]:
    return {"data": str(settings.data), "broker": host.broker_id}


def _lag(backlogs: Sequence[Backlog], now: int) -> float:
    return max((max(0.0, (now - backlog.since) / 1e6) for backlog in backlogs if backlog.since != NEVER), default=0.0)


def _request(
    content: RecordingContent, url: str, file_bytes: int, segments: Sequence[tuple[str, int, int]]
) -> tuple[dict[str, Any], list[bytes]]:
    return {
        **content._asdict(),
        "op": "record",
        "url": url,
        "fileBytes": file_bytes,
        "origins": list(content.origins),
        "takers": list(content.takers),
        "rows": content.rows.to_json(),
        "blocks": list(content.blocks),
        "segments": list(segments),
        "hold": None,  # stays in this process
    }, list(content.blocks.values())

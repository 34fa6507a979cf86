"""Current problems, for the log, `penstock status` and health. Only the start and the end of an alarm are logged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

log = logging.getLogger("penstock.alarms")

DISK_LOW = "disk-low"
DISK_FULL = "disk-full"
JOURNAL_FAILED = "journal-failed"
JOURNAL_PINNED = "journal-pinned"
ARCHIVE_FAILING = "archive-failing"
ARCHIVE_BEHIND = "archive-behind"
ARCHIVE_OUTGROWS_DISK = "archive-outgrows-disk"
COPY_BEHIND = "copy-behind"
FILES_LOW = "files-low"
FILES_EXHAUSTED = "files-exhausted"
SLOW_CONSUMER = "slow-consumer"
CERTIFICATE_ENDS = "certificate-ends"
AUDIT_FAILING = "audit-failing"
QUEUE_FULL = "queue-full"

#: The advice if file descriptors may run out.
MORE_FILES = (
    "Raise the hard limit of open files (ulimit -Hn, or LimitNOFILE of the service) and restart, or lower amqp_max_connections"
    " and flight_max_connections"
)

#: In the order of docs/operate.md; with the text that is logged at their end.
ALARMS = {
    DISK_LOW: "the disk has enough free space again",
    DISK_FULL: "new messages are accepted again",
    JOURNAL_FAILED: "the journal can be written again",
    JOURNAL_PINNED: "the journal is below its bound again",
    ARCHIVE_FAILING: "its archive table is written again, or the queue was deleted",
    ARCHIVE_BEHIND: "the archive has caught up",
    ARCHIVE_OUTGROWS_DISK: "retention now frees space before the disk is full",
    COPY_BEHIND: "the copy has caught up",
    FILES_LOW: "the limit of open files is sufficient",
    FILES_EXHAUSTED: "connections are accepted again",
    SLOW_CONSUMER: "the queue has no slow consumer or lease",
    QUEUE_FULL: "the queue has room for messages again, or was deleted",
    CERTIFICATE_ENDS: "the certificate was replaced",
    AUDIT_FAILING: "the audit log is written again",
}
ERRORS = {DISK_FULL, JOURNAL_FAILED, FILES_EXHAUSTED}  # messages are refused, or a promise is at risk


class Alarm(NamedTuple):
    """A raised alarm."""

    name: str
    queue: str | None  # visible with a right on it
    since_ms: int  # wall clock, since 1970
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "queue": self.queue, "since": self.since_ms, "text": self.text}


class Alarms:
    """For any thread. `wall_ms`: milliseconds since 1970."""

    def __init__(
        self, wall_ms: Callable[[], int], changed: Callable[[str, str, str | None], None] = lambda event, text, queue: None
    ) -> None:
        """`changed` receives an event, its text and the alarm's queue."""
        self._wall_ms, self._changed = wall_ms, changed
        self._lock = threading.Lock()
        self._raised: dict[tuple[str, str | None], Alarm] = {}

    def set(self, name: str, text: str | None, queue: str | None = None) -> None:
        """Raise an alarm, or replace its text; None ends it. A name may have an alarm for each queue."""
        level = logging.ERROR if name in ERRORS else logging.WARNING
        which = name if queue is None else f"{name} of queue {queue!r}"
        with self._lock:
            before = self._raised.get((name, queue))
            if text is not None:
                since_ms = self._wall_ms() if before is None else before.since_ms
                self._raised[name, queue] = Alarm(name, queue, since_ms, text)
            elif before is not None:
                del self._raised[name, queue]
        if before is None and text is not None:
            log.log(level, "alarm %s is raised: %s", which, text, extra={"alarm": name, "queue": queue})
            self._changed("alarm", f"{name} is raised: {text}", queue)
        elif before is not None and text is None:
            passed_s = (self._wall_ms() - before.since_ms) / 1000
            log.info("alarm %s is over after %.0f s: %s", which, passed_s, ALARMS[name], extra={"alarm": name, "queue": queue})
            self._changed("alarm-over", f"{name} is over: {ALARMS[name]}", queue)

    def set_queues(self, name: str, texts: Mapping[str, str]) -> None:
        """Raise an alarm for these queues, and end it for all others."""
        for alarm in self.current():
            if alarm.name == name and alarm.queue is not None and alarm.queue not in texts:
                self.set(name, None, alarm.queue)
        for queue, text in texts.items():
            self.set(name, text, queue)

    def is_raised(self, name: str) -> bool:
        with self._lock:
            return (name, None) in self._raised

    def current(self) -> list[Alarm]:
        with self._lock:
            return sorted(self._raised.values(), key=lambda alarm: (alarm.since_ms, alarm.name, alarm.queue or ""))

"""The thread that raises alarms. Housekeeping is another thread, which waits for the disk and, with copy = sync, for the
store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .. import errors
from ..archive.recorder.recorder import Recorder
from ..copy.copier import Copier
from ..engine import BrokerState
from ..engine.columns.losses import FULL
from ..engine.model.admission import fill
from ..engine.model.queue import Queue
from ..journal import Journal
from ..logs import counted
from ..security.tls import ends_at
from ..settings.keys import Settings
from . import alarms as a
from .alarms import Alarms
from .cleaning import Cleaner
from .connections import SLOW_S, Connections
from .events.publisher import EventMessages

log = logging.getLogger("penstock.alarms")

LOOK_S = 1.0  # between two checks of values in memory
SELDOM_S = 60.0  # between two checks that read files or measure
OVER_SHARE = 1.1  # free space ends an alarm at this multiple of the limit, so that it does not flicker
COPY_BEHIND_S = 15.0
PINNED_AFTER_S = 300.0  # the cleaner needs some time
SLOW_LOOK_S = 10.0  # between two checks of all consumers
SLOW_LEASE_S = 900.0  # for which a lease holds one batch: a Spark batch takes seconds to minutes
SLOW_OVER_S = 120.0  # without a slow consumer until the alarm ends, so that it does not flicker
CERTIFICATE_S = 14 * 86400.0
FULL_AT, FULL_OVER = 1000, 900  # thousandths of a limit at which the alarm of a full queue begins and ends
REFUSED_S = 60.0  # without a refusal by a limit, until the alarm ends
LEASES_NAMED = 3  # of one queue, in the text
QUEUES_MAX = 100  # with an alarm of one name: more are one problem
MIB = 1 << 20
# A file occupies a part of the space below the free-space mark, which other programs cannot use then. 16 MiB are about 100,000
# settlements, and more than the tail that a start usually copies.
RESERVE_BYTES = 16 * MIB
RESERVE_PART = 4  # at most one part in this many of the mark
DAY_S = 86400.0


def reserve_bytes(settings: Settings) -> int:
    return min(settings.free_space_mark_bytes // RESERVE_PART, RESERVE_BYTES)


class Watched(NamedTuple):
    """The watched parts of the broker."""

    state: BrokerState
    lock: threading.Lock
    journal: Journal
    cleaner: Cleaner
    copier: Copier | None
    recorder: Recorder | None
    connections: Connections
    events: EventMessages
    settings: Callable[[], Settings]  # the current ones


class Watch:
    """Checks the broker every `LOOK_S` seconds until `closing` is set. `wall_ms`: milliseconds since 1970."""

    def __init__(
        self,
        watched: Watched,
        alarms: Alarms,
        wall_ms: Callable[[], int],
        closing: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched, self._alarms, self._wall_ms, self._closing, self._clock = watched, alarms, wall_ms, closing, clock
        self._seldom_at = clock()
        self._consumers_at = clock()
        self._slow: dict[str, tuple[float, str]] = {}  # by queue: when a consumer was last slow, and the text
        self._batches: dict[str, tuple[tuple[str, int], float]] = {}  # by lease: the run and batch that it holds, and since when
        self._refused: dict[int, tuple[int, float]] = {}  # by id of a queue: messages that its limits refused, and until when
        self._large_since: float | None = None  # since when the journal is too large

    def run(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.exception("looking for alarms failed; it is tried again in %g s", LOOK_S)

    def look(self) -> None:
        self._look_at_space()
        self._look_at_copy()
        self._look_at_archive()
        self._look_at_files()
        self._look_at_limits()
        failure = self._watched.journal.failure
        self._alarms.set(a.JOURNAL_FAILED, None if failure is None else f"the broker stops: {failure}")
        if self._clock() >= self._consumers_at:
            self._consumers_at = self._clock() + SLOW_LOOK_S
            self._look_at_consumers()
        if self._clock() >= self._seldom_at:
            self._seldom_at = self._clock() + SELDOM_S
            self._look_at_journal()
            self._look_at_certificate()
        self._watched.events.look()  # last: it publishes the alarms

    def _look_at_space(self) -> None:
        journal, settings = self._watched.journal, self._watched.settings()
        journal.fill_reserve(reserve_bytes(settings))
        free, full = journal.free_bytes(), journal.is_full
        for name, limit, setting in (
            (a.DISK_FULL, settings.free_space_mark_bytes, "free_space_mark_bytes: new messages are refused"),
            (a.DISK_LOW, settings.free_space_low_bytes, "free_space_low_bytes"),
        ):
            low = free < limit * (OVER_SHARE if self._alarms.is_raised(name) else 1)
            text = f"{free // MIB} MiB are free on the disk of {settings.data}, less than the {limit // MIB} MiB of {setting}. "
            if full and not low:  # a quota, or a file system that reports more than it has
                text = f"the disk of {settings.data} refused a write, because it is full or a quota is used up. "
            self._alarms.set(name, text + "Free some space, or shorten the retention" if low or full else None)

    def _look_at_copy(self) -> None:
        copier = self._watched.copier
        if copier is None:
            return
        status = copier.status()
        behind = status["lagSeconds"] >= COPY_BEHIND_S or status["failingSeconds"] >= COPY_BEHIND_S
        why = "" if status["error"] is None else f"; the store reports: {status['error']}"
        meanwhile = "Nothing is confirmed meanwhile" if status["copy"] == "sync" else "Losing the machine loses that"
        lag = f"{status['lagSeconds']:.0f} s and {status['lagBytes']} bytes behind"
        self._alarms.set(a.COPY_BEHIND, f"the copy at {status['url']} is {lag}{why}. {meanwhile}" if behind else None)

    def _look_at_archive(self) -> None:
        recorder = self._watched.recorder
        if recorder is None:
            return
        troubles = recorder.troubles()
        self._alarms.set_queues(a.ARCHIVE_FAILING, {queue: troubles[queue] for queue in sorted(troubles)[:QUEUES_MAX]})
        self._alarms.set(a.ARCHIVE_BEHIND, recorder.behind())
        self._alarms.set(a.ARCHIVE_OUTGROWS_DISK, recorder.growth.warning())

    def _look_at_files(self) -> None:
        connections = self._watched.connections
        starved = ", ".join(connections.starved())
        self._alarms.set(a.FILES_LOW, connections.few_files)
        text = f"the process has no file descriptor left, so no connection over {starved} can be accepted. {a.MORE_FILES}"
        self._alarms.set(a.FILES_EXHAUSTED, text if starved else None)

    def _look_at_limits(self) -> None:
        """Without the lock: an alarm may be a message late."""
        now, before, texts = self._clock(), self._refused, {}
        raised = {alarm.queue for alarm in self._alarms.current() if alarm.name == a.QUEUE_FULL}
        self._refused = {}
        for queue in list(self._watched.state.queues.values()):
            if not (queue.rules.max_messages or queue.rules.max_bytes or queue.losses):
                continue  # most queues: looks are frequent, and queues may be thousands
            used, refused = fill(queue), queue.losses[FULL]
            if refused:
                count, until = before.get(queue.id, (0, 0.0))
                self._refused[queue.id] = refused, (now + REFUSED_S if refused > count else until)
            is_refusing = refused > 0 and now < self._refused[queue.id][1]
            is_full = used is not None and used >= (FULL_OVER if queue.name in raised else FULL_AT)
            if is_full or is_refusing:
                texts[queue.name] = _described(queue, refused)
        self._alarms.set_queues(a.QUEUE_FULL, {queue: texts[queue] for queue in sorted(texts)[:QUEUES_MAX]})

    def _look_at_consumers(self) -> None:
        try:
            slow = self._watched.connections.slow()
        except errors.ResourceLimit:  # a plane is busy or stops
            return
        now, texts = self._clock(), self._slow_leases()
        for queue, count in slow.items():
            who = "a consumer has" if count == 1 else f"{count} consumers have"
            text = f"{who} settled nothing for {SLOW_S:g} s and can be sent nothing more, while messages wait"
            texts[queue] = [*texts.get(queue, []), f"{text}. `penstock connection list --slow` lists them"]
        self._slow |= {queue: (now, ". ".join(sentences)) for queue, sentences in texts.items()}
        self._slow = {queue: (at, text) for queue, (at, text) in self._slow.items() if now - at < SLOW_OVER_S}
        self._alarms.set_queues(a.SLOW_CONSUMER, {queue: self._slow[queue][1] for queue in sorted(self._slow)[:QUEUES_MAX]})

    def _slow_leases(self) -> dict[str, list[str]]:
        """Describe the leases that hold a batch for too long."""
        now, before = self._clock(), self._batches
        with self._watched.lock:
            held = [(lease, batch) for lease in self._watched.state.leases.values() if (batch := lease.current) is not None]
            self._batches = {lease.name: ((lease.run, batch.number), now) for lease, batch in held}
            self._batches |= {name: then for name, then in before.items() if self._batches.get(name, (None,))[0] == then[0]}
            slow = [(lease, batch) for lease, batch in held if now - self._batches[lease.name][1] > SLOW_LEASE_S]
            held_too_long = [
                (lease.queue, lease.name, batch.number, batch.rows.count, batch.reads.queries) for lease, batch in slow
            ]
        texts: dict[str, list[str]] = {}
        for queue, name, number, messages, queries in held_too_long:
            held_s, query = now - self._batches[name][1], f" of query {', '.join(queries)}" if queries else ""
            size = counted(messages, "message")
            texts.setdefault(queue, []).append(
                f"lease {name!r}{query} has held batch {number} ({size}) for {held_s / 60:.0f} minutes: look at its query. If "
                f"that will not come back, `penstock lease release {name} --settle` or `--return` ends the batch"
            )
        most = LEASES_NAMED
        return {
            queue: leases if len(leases) <= most else [*leases[:most], f"So {len(leases) - most} more"]
            for queue, leases in texts.items()
        }

    def _look_at_journal(self) -> None:
        watched, now = self._watched, self._clock()
        with watched.lock:
            live = watched.state.staged_bytes + sum(queue.bytes for queue in watched.state.queues.values())
        most, size = watched.cleaner.bound(live), sum(segment.bytes for segment in watched.journal.segments())
        if size <= most:
            self._large_since = None
        elif self._large_since is None:
            self._large_since = now
        queue, text = None, None
        if self._large_since is not None and now - self._large_since >= PINNED_AFTER_S:
            report = watched.cleaner.report()
            if not watched.state.records:  # without archive tables settled messages are kept too
                most = report["mostBytes"]
            if report["bytes"] > most:
                queue = (report["oldest"] or {}).get("queue")
                text = (
                    f"the journal has {report['bytes'] // MIB} MiB, and the messages in the queues need {most // MIB} MiB. "
                    f"It needs {report['neededBytes'] // MIB} MiB; `penstock journal` lists the queues and the oldest payload"
                )
        self._alarms.set_queues(a.JOURNAL_PINNED, {queue: text} if text is not None and queue is not None else {})
        self._alarms.set(a.JOURNAL_PINNED, text if queue is None else None)

    def _look_at_certificate(self) -> None:
        path = self._watched.settings().tls_cert_file
        if path is None:
            return
        try:
            left_s = ends_at(path) - self._wall_ms() / 1000
        except (OSError, ValueError):
            return  # the plane that uses it reports this
        when = f"ends in {left_s / DAY_S:.1f} days" if left_s > 0 else f"ended {-left_s / DAY_S:.1f} days ago"
        text = f"the certificate {path} {when}. Replace it: the broker reads the new file on its own"
        self._alarms.set(a.CERTIFICATE_ENDS, text if left_s < CERTIFICATE_S else None)


def _described(queue: Queue, refused: int) -> str:
    rules, messages, size = queue.rules, queue.live + queue.staged.messages, queue.bytes + queue.staged.bytes
    parts = [f"{messages:,} of {rules.max_messages:,} messages"] * bool(rules.max_messages)
    parts += [f"{size:,} of {rules.max_bytes:,} bytes"] * bool(rules.max_bytes)
    has = f"the queue has {' and '.join(parts)}. " if parts else "the queue has its limit of keys or groups. "
    effect = f"It has refused {counted(refused, 'message')} since the start. " if refused else ""
    return f"{has}{effect}Drain it, or raise its limits: `penstock queue alter {queue.name!r} --option NAME=VALUE`"

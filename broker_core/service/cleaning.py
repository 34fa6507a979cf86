"""The cleaner keeps the journal small, so an unconsumed message retains its own bytes and not its segment.

The journal has at most `SLACK` times the needed bytes, and `SPARE_SEGMENTS` segments more. Above that the cleaner drops the
segments with the smallest needed share, anywhere in the log:

1. It copies their needed payloads to the end of the log (`relocation`). Events store the new positions.
2. It writes a snapshot, so no earlier event is needed.
3. It drops the segments.

After a crash, the next turn deals with duplicate payloads and unneeded segments. Every holder of a log position is safe:

- rows of blocks and parts of stages get new positions by events, and a drop is decided under the lock, against all of them;
- packed blocks get new columns; without an archive, retention keeps their segments as long as one of their messages;
- reads have a hold of the journal, which keeps dropped segments on the disk;
- batches of leases, links, and transactions name rows, not positions;
- recently stored payloads (`reading.recent`) are found by positions, which are never reused.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import errors
from ..engine import commands as c
from ..engine.columns.runs import NOWHERE
from ..engine.model.retention import Keeping
from ..journal import SegmentInfo
from .journal_usage import CleanerParts, JournalUsage, measure
from .relocation import Relocation

log = logging.getLogger("penstock")

TURN_S = 10.0  # between two turns
SOON_S = 1.0  # after a turn that freed bytes, or a burst
BURST_BYTES = 64 << 20  # new bytes in the log, at least a segment
REST = 20  # times the duration of a turn that freed nothing
SLACK = 4
SPARE_SEGMENTS = 3  # one being written, one before the snapshot, one being copied to
MOST_NEEDED = 1 / SLACK  # a larger needed share is not worth a copy
DISK_SHARE = 4  # without `clean_bandwidth`: one part in this many of the disk's time
RESERVE_SHARE = 2  # one part in this many of the bytes below the mark can clean a full disk; settlements use the rest
LISTED = 20


class Cleaner:
    """For any thread, with no lock held. It delays no caller: it copies a piece at a time, and rests after each."""

    def __init__(self, broker: CleanerParts, wall_ms: Callable[[], int], closing: threading.Event) -> None:
        self._broker, self._wall_ms, self._closing, self._clock = broker, wall_ms, closing, time.monotonic
        self._turn = threading.Lock()
        self.writing = threading.Lock()  # of snapshots and of drops: the journal takes one at a time
        self._relocation = Relocation(broker, self._rest)
        self.snapshot_bytes = 0  # of the last one
        self._looked_at: tuple[int, Keeping] | None = None

    def keeping(self, segments: Sequence[SegmentInfo] | None = None) -> Keeping:
        """Return which payloads of settled messages are kept."""
        mark, records = self._mark(self._broker.journal.segments() if segments is None else segments), self._broker.state.records
        return Keeping(mark, NOWHERE if records else mark, records)

    def _mark(self, segments: Sequence[SegmentInfo]) -> int:
        """Return the log position before which retention keeps no settled messages."""
        settings = self._broker.settings()
        age, limit = settings.retention_age_s, settings.retention_bytes
        if age is None and limit is None:
            return 0
        total, mark = sum(segment.bytes for segment in segments), 0
        for segment, following in itertools.pairwise(segments):
            too_old = age is not None and self._wall_ms() - following.first_time_ns // 1_000_000 > age * 1000
            too_much = limit is not None and total > limit
            if not (too_old or too_much):
                break
            total -= segment.bytes
            mark = segment.end
        return mark

    def usage(self) -> JournalUsage:
        segments = self._broker.journal.segments()
        return self._measure(segments, self.keeping(segments))

    def _measure(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> JournalUsage:
        relocation = self._relocation
        copies, copied = dict(relocation.written), set(relocation.staged)  # the cleaner changes them meanwhile
        usage = measure(self._broker, segments, keeping, copies=copies, copied=copied)
        usage.pin(np.array(list(relocation.damaged), np.int64))
        return usage

    def report(self) -> dict[str, Any]:
        usage, mark = self.usage(), self.keeping().stayed
        shares = zip(usage.segments, np.minimum(usage.bytes, usage.sizes).tolist(), usage.pinned.tolist(), strict=True)
        held = self._broker.journal.dropped()
        with self._broker.lock:
            oldest = None if usage.oldest is None else usage.oldest.described(self._broker.state)
        return {
            "bytes": int(usage.sizes.sum()),
            "heldBytes": sum(segment.bytes for segment in held),
            "neededBytes": usage.total,
            "mostBytes": self.bound(usage.total),
            "retentionMark": mark,
            "snapshot": self._broker.journal.snapshot_position,
            "oldest": oldest,
            "queues": [
                {"queue": name, "neededBytes": octets}
                for name, octets in sorted(usage.by_queue.items(), key=lambda entry: -entry[1])[:LISTED]
            ],
            "segments": [
                {
                    "begin": segment.base,
                    "end": segment.end,
                    "bytes": segment.bytes,
                    "neededBytes": segment.bytes if pinned else int(octets),
                    "kept": self._why_kept(segment, pinned),
                }
                for segment, octets, pinned in shares
            ],
        }

    def _why_kept(self, segment: SegmentInfo, pinned: bool) -> str | None:
        """None if its payloads may be copied."""
        if segment.base in self._relocation.damaged:
            return "a record in it is damaged"
        return "settled messages that are still kept, or a stage" if pinned else None

    def bound(self, needed_bytes: int) -> int:
        """Return the allowed size of a journal."""
        return SLACK * needed_bytes + SPARE_SEGMENTS * self._broker.settings().segment_bytes

    def _nothing_to_do(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> bool:
        """For certain, without measuring."""
        if self._looked_at == (self._broker.journal.end, keeping):
            return True
        total = sum(segment.bytes for segment in segments)
        # Live messages may share a payload, so their bytes are not an estimate.
        return total <= self.bound(0) and (not segments or segments[0].base >= keeping.stayed)  # of retention

    def clean(self) -> int:
        """Do one turn. Returns the bytes freed."""
        with self._turn:
            return self._clean()

    def run(self) -> None:
        due, end = self._clock() + TURN_S, self._broker.journal.end
        burst = max(BURST_BYTES, self._broker.settings().segment_bytes)
        while not self._closing.wait(SOON_S):
            began = self._clock()
            if began < due and self._broker.journal.end - end < burst:
                continue
            due, end = began + TURN_S, self._broker.journal.end
            try:
                freed = self.clean()
                due = self._clock() + (0.0 if freed else max(TURN_S, REST * (self._clock() - began)))
            except errors.ResourceLimit as error:
                log.warning("cleaning the journal is tried again: %s", error)
            except errors.StorageError as error:
                log.error("cleaning the journal: %s", error)  # on_failure stops the broker
            except Exception:
                log.exception("cleaning the journal failed; it is tried again in %g s", TURN_S)

    def _clean(self) -> int:
        with self.writing:
            self._broker.journal.unlink_dropped()
        segments = self._broker.journal.segments()
        keeping = self.keeping(segments)
        if self._nothing_to_do(segments, keeping):
            return 0
        end = self._broker.journal.end
        self._relocation.forget({segment.base for segment in segments})
        usage = self._measure(segments, keeping)
        victims = self._victims(usage, keeping)
        if victims:
            self._relocation.copy([usage.segments[index] for index in victims], usage.bytes[victims].tolist(), keeping)
            usage = self._measure(segments, keeping)
        freed = self._drop_unused(usage, keeping)
        if not freed and not victims:
            self._looked_at = (end, keeping)
        return freed

    def _victims(self, usage: JournalUsage, keeping: Keeping) -> list[int]:
        """Choose the segments to copy out of, smallest needed shares first, until the journal is within its bound."""
        shares, sizes, unused = usage.shares(), usage.sizes, usage.unused()
        order = [int(index) for index in np.argsort(shares, kind="stable") if int(index) < len(shares) - 1]
        total, limit = sizes.sum() - sizes[unused].sum(), self.bound(usage.total)
        asked = [segment.end <= keeping.stayed for segment in usage.segments]  # by retention
        room = self._room()
        chosen = []
        for index in order:
            if unused[index] or shares[index] >= MOST_NEEDED or not (total > limit or asked[index]):
                continue
            if usage.bytes[index] > room:
                break
            room -= usage.bytes[index]
            total -= sizes[index] - usage.bytes[index]
            chosen.append(index)
        return chosen

    def _room(self) -> float:
        """Return the bytes that the cleaner may write before it has freed some."""
        mark = self._broker.settings().free_space_mark_bytes
        return self._broker.journal.free_bytes() - (mark - mark // RESERVE_SHARE) - self.snapshot_bytes

    def _drop_unused(self, usage: JournalUsage, keeping: Keeping) -> int:
        segments = [segment for segment, unused in zip(usage.segments[:-1], usage.unused(), strict=False) if unused]
        if not segments:
            return 0
        # Includes segments that an earlier turn failed to drop.
        self._broker.submit(c.Drop([[segment.base, segment.end] for segment in segments], keeping, usage.packed))
        dropped = self._broker.state.dropped
        segments = [segment for segment in segments if dropped.covers(segment.base, segment.end - 1)]
        if not segments:
            return 0
        try:
            self._broker.take_snapshot()
        except errors.ResourceLimit as error:  # segments that an older snapshot does not need can go
            log.warning("%s", error)
        with self.writing:
            freed = sum(segment.bytes for segment in self._broker.journal.drop(segments))
        log.info("cleaning freed %d MiB of the journal", freed >> 20)
        return freed

    def _rest(self, work: Callable[[], int]) -> bool:
        """Do a piece of work, then rest as the bandwidth requires. Returns False without doing it if the broker closes, or the
        disk is full."""
        if self._closing.is_set() or self._room() <= 0:
            return False
        began = self._clock()
        octets = work()
        took, rate = self._clock() - began, self._broker.settings().clean_bandwidth
        pause = took * (DISK_SHARE - 1) if rate is None else octets / rate - took
        if pause > 0:
            self._closing.wait(pause)
        return True

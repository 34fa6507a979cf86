"""The cleaner: it keeps the journal small, whatever one message does that stays for ever.

The bound: the journal has at most `SLACK` times the bytes that are needed, and `SPARE_SEGMENTS` segments more. Above it, the
segments of which the smallest share is needed go: what is needed of them is copied to the end of the log (`relocation`), by
events that say where it lies now; then a snapshot is written, since no event below it is needed any more; and then they are
dropped, wherever they stand in the log. Segments of which nothing is needed go without a copy. A crash at any step leaves
payloads twice or segments that are not needed, and the next turn goes on.

Retention says which settled messages are not needed any more (`Keeping`), and asks for the segments below its mark, so that one
message that stays does not hold what is beside it.

Nobody waits for it: it looks at a few blocks at a time, copies a piece at a time, and rests after each, so that it takes
`clean_bandwidth`, or where that is not set a quarter of the disk's time. It leaves half of the reserve below the free-space mark
to those who settle, and uses the other half, so that a full disk can be cleaned.

Every holder of a log position is safe:

- rows of blocks and parts of stages get their new places by events, and a drop is decided under the lock, against all of them;
- blocks that left memory get new columns; without an archive, their segments stay while retention keeps something of them;
- what is being read (slices, and chunks that a selector looks at) has a hold of the journal's: dropped segments stay on the disk;
- batches of leases, links, and transactions name rows, not positions;
- what was just stored (`reading.recent`) is found by positions, which are never used again.
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

TURN_S = 10.0  # between two turns,
SOON_S = 1.0  # and where the last one has freed something, or
BURST_BYTES = 64 << 20  # so much has come since, and a segment at least
REST = 20  # it rests so many times as long as it has looked in vain
SLACK = 4  # the journal may have so many times the bytes that are needed
SPARE_SEGMENTS = 3  # and so many segments more: one being written, one before the snapshot, one that is being copied to
MOST_NEEDED = 1 / SLACK  # a segment of which a larger share is needed is not worth its copy
DISK_SHARE = 4  # without `clean_bandwidth`: one part in so many of the disk's time
RESERVE_SHARE = 2  # one part in so many of the bytes below the free-space mark is the cleaner's
LISTED = 20  # queues in a report: those that need the most


class Cleaner:
    """Cleans its broker's journal. For any thread, with no lock held."""

    def __init__(
        self,
        broker: CleanerParts,
        wall_ms: Callable[[], int],
        closing: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker, self._wall_ms, self._closing, self._clock = broker, wall_ms, closing, clock
        self._turn = threading.Lock()
        self._writing = threading.Lock()  # of snapshots and of drops: the journal takes one at a time
        self._relocation = Relocation(broker, self._rest)
        self._snapshot_bytes = 0
        self._looked_at: tuple[int, Keeping] | None = None  # the log's end, and what was kept, when there was nothing to do

    # What is to be done
    def keeping(self, segments: Sequence[SegmentInfo] | None = None) -> Keeping:
        """Say which payloads of settled messages are kept: those from the mark of retention on."""
        mark, records = self._mark(self._broker.journal.segments() if segments is None else segments), self._broker.state.records
        return Keeping(mark, NOWHERE if records else mark, records)

    def _mark(self, segments: Sequence[SegmentInfo]) -> int:
        """Return the log position below which retention lets settled messages go."""
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
        """Measure what is needed of the journal now."""
        segments = self._broker.journal.segments()
        return self._measure(segments, self.keeping(segments))

    def _measure(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> JournalUsage:
        relocation = self._relocation
        copies, staged = dict(relocation.written), set(relocation.staged)  # others than the cleaner ask, while it copies
        found = measure(self._broker, segments, keeping, copies=copies, copied=staged)
        found.pin(np.array(list(relocation.damaged), np.int64))
        return found

    def report(self) -> dict[str, Any]:
        """Describe the journal for an operator: how large it is and may be, what is needed of it, and by whom."""
        usage, mark = self.usage(), self.keeping().stayed
        shares = zip(usage.segments, np.minimum(usage.bytes, usage.sizes).tolist(), usage.pinned.tolist(), strict=True)
        held = self._broker.journal.dropped()
        return {
            "bytes": int(usage.sizes.sum()),
            "heldBytes": sum(segment.bytes for segment in held),
            "neededBytes": usage.total,
            "mostBytes": self.bound(usage.total),
            "retentionMark": mark,
            "snapshot": self._broker.journal.snapshot_position,
            "oldest": None if usage.oldest is None else usage.oldest.to_json(),
            "queues": [
                {"queue": name, "neededBytes": octets}
                for name, octets in sorted(usage.by_queue.items(), key=lambda each: -each[1])[:LISTED]
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
        """Say why nothing is copied out of a segment; None where something may be."""
        if segment.base in self._relocation.damaged:
            return "a record in it is damaged"
        return "settled messages that are still kept, or a stage" if pinned else None

    def bound(self, needed_bytes: int) -> int:
        """Return the bytes that the journal may have where so many are needed."""
        return SLACK * needed_bytes + SPARE_SEGMENTS * self._broker.settings().segment_bytes

    def _nothing_to_do(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> bool:
        """Say so where it is certain without a look at every message."""
        if self._looked_at == (self._broker.journal.end, keeping):
            return True
        total = sum(segment.bytes for segment in segments)
        # Messages that live say nothing of what is needed: queues, and one alone, may have many copies of a payload.
        return total <= self.bound(0) and (not segments or segments[0].base >= keeping.stayed)  # of retention

    def retain(self) -> int:
        """Drop the segments of which nothing is needed; return the bytes that this frees."""
        with self._turn:
            segments = self._broker.journal.segments()
            keeping = self.keeping(segments)
            if self._nothing_to_do(segments, keeping):
                return 0
            return self._drop_unused(self._measure(segments, keeping), keeping)

    def clean(self) -> int:
        """Do one turn: drop what is not needed, copy what is in the way where there is too much; return the bytes freed."""
        with self._turn:
            return self._clean()

    def run(self) -> None:
        """Clean until the broker closes: the work of a thread."""
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
        with self._writing:
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
        """Choose segments to copy out of: those of which the smallest shares are needed, as many as there have to be."""
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
        return self._broker.journal.free_bytes() - (mark - mark // RESERVE_SHARE) - self._snapshot_bytes

    # Dropping
    def _drop_unused(self, usage: JournalUsage, keeping: Keeping) -> int:
        segments = [segment for segment, unused in zip(usage.segments[:-1], usage.unused(), strict=False) if unused]
        if not segments:
            return 0
        # What an earlier turn, or an earlier life, decided to drop and did not.
        self._broker.submit(c.Drop([[segment.base, segment.end] for segment in segments], keeping, usage.packed))
        dropped = self._broker.state.dropped
        segments = [segment for segment in segments if dropped.covers(segment.base, segment.end - 1)]
        if not segments:
            return 0
        try:
            self._broker.take_snapshot()
        except errors.ResourceLimit as error:  # what an older snapshot does without can go, and makes room
            log.warning("%s", error)
        with self._writing:
            freed = sum(segment.bytes for segment in self._broker.journal.drop(segments))
        log.info("cleaning freed %d MiB of the journal", freed >> 20)
        return freed

    def snapshot_written(self, octets: int) -> None:
        """Note the size of the last snapshot, bytes."""
        self._snapshot_bytes = octets

    @property
    def writing(self) -> threading.Lock:
        """The lock under which snapshots are written, and segments dropped."""
        return self._writing

    def _rest(self, work: Callable[[], int]) -> bool:
        """Do a piece of work, and rest as long as the bandwidth asks for; False, and nothing is done, when the broker closes, or
        somebody else has filled the disk."""
        if self._closing.is_set() or self._room() <= 0:
            return False
        began = self._clock()
        octets = work()
        took, rate = self._clock() - began, self._broker.settings().clean_bandwidth
        pause = took * (DISK_SHARE - 1) if rate is None else octets / rate - took
        if pause > 0:
            self._closing.wait(pause)
        return True

"""The cleaner: it keeps the journal small, whatever one message does that stays for ever.

The bound: the journal has at most `SLACK` times the bytes that are needed, and `SPARE_SEGMENTS` segments more. Above it, the
segments of which the smallest share is needed go: what is needed of them is copied to the end of the log, in pieces, by an event
that says where it lies now; then a snapshot is written, since no event below it is needed any more; and then they are dropped,
wherever they stand in the log. Segments of which nothing is needed go without a copy. A crash at any step leaves payloads twice
or segments that are not needed, and the next turn goes on.

Retention says which settled messages are not needed any more (`Keeping`), and asks for the segments below its mark, so that one
message that stays does not hold what is beside it.

Nobody waits for it: it looks at a few blocks at a time, copies `PIECE_BYTES` at a time, and rests after each piece, so that it
takes `clean_bandwidth`, or where that is not set a quarter of the disk's time. It leaves half of the reserve below the free-space
mark to those who settle, and uses the other half, so that a full disk can be cleaned.

Every holder of a log position is safe:

- rows of blocks and parts of stages get their new places by events, and a drop is decided under the lock, against all of them;
- blocks that left memory: their segments are left alone as long as somebody needs something of them;
- what is being read (slices, and chunks that a selector looks at) has a hold of the journal's: dropped segments stay on the disk;
- batches of leases, links, and transactions name rows, not positions;
- what was just stored (`reading.recent`) is found by positions, which are never used again.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine import BrokerState
from ..engine import commands as c
from ..engine.columns.intervals import Intervals
from ..engine.columns.rowset import BLOCK_BITS, RowSet
from ..engine.columns.runs import NOWHERE, Locations
from ..engine.columns.series import Ints
from ..engine.model.retention import Keeping, needed
from ..journal import Hold, Journal, SegmentInfo
from ..reading.records import record_rows
from ..reading.stored import load, mask_of, store
from ..settings.keys import Settings
from .damage import Damage
from .needs import ROW_BYTES, Copies, Needs, measure

log = logging.getLogger("penstock")

TURN_S = 10.0  # between two turns,
SOON_S = 1.0  # and where the last one has freed something, or
BURST_BYTES = 64 << 20  # so much has come since, and a segment at least
REST = 20  # it rests so many times as long as it has looked in vain
SLACK = 4  # the journal may have so many times the bytes that are needed
SPARE_SEGMENTS = 3  # and so many segments more: one being written, one before the snapshot, one that is being copied to
MOST_NEEDED = 1 / SLACK  # a segment of which a larger share is needed is not worth its copy
PIECE_BYTES = 4 << 20  # copied at once, or one message: some 10 ms of a disk
DISK_SHARE = 4  # without `clean_bandwidth`: one part in so many of the disk's time
RESERVE_SHARE = 2  # one part in so many of the bytes below the free-space mark is the cleaner's
LISTED = 20  # queues in a report: those that need the most
RESERVE_TIMEOUT_S = 60.0  # how long it waits for the journal's buffer


class Owner(NamedTuple):
    """The parts of the broker that the cleaner uses."""

    state: BrokerState
    journal: Journal
    settings: Settings
    damage: Damage
    submit: Callable[[c.Command[Any]], Any]  # carries out a command, and waits until it is durable
    take_snapshot: Callable[[], None]


class Piece(NamedTuple):
    """Needed rows of one block, where they lie in segments that are to go."""

    number: int
    rows: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    locations: Locations
    hold: Hold


class _Form(NamedTuple):
    """Rows whose payloads have the same columns, and so go into one record."""

    sequences: list[Ints]
    positions: list[Ints]
    payload_rows: list[Ints]
    batches: list[pa.RecordBatch]


class Cleaner:
    """Cleans its broker's journal. For any thread, with no lock held."""

    def __init__(
        self,
        owner: Owner,
        lock: threading.Lock,
        wall_ms: Callable[[], int],
        closing: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner, self._lock, self._wall_ms, self._closing, self._clock = owner, lock, wall_ms, closing, clock
        self._turn = threading.Lock()
        self._writing = threading.Lock()  # of snapshots and of drops: the journal takes one at a time
        self._damaged: dict[int, str] = {}  # base of a segment → why nothing can be copied out of it
        self._copied: set[int] = set()  # positions of stages' payloads that were copied
        self._written: dict[int, Copies] = {}  # base of a segment → what was copied into it
        self._snapshot_bytes = 0
        self._looked_at: tuple[int, Keeping] | None = None  # the log's end, and what was kept, when there was nothing to do

    # What is to be done
    def keeping(self, segments: Sequence[SegmentInfo] | None = None) -> Keeping:
        """Say which payloads of settled messages are kept: those from the mark of retention on."""
        mark, records = self._mark(self._owner.journal.segments() if segments is None else segments), self._owner.state.records
        return Keeping(mark, NOWHERE if records else mark, records)

    def _mark(self, segments: Sequence[SegmentInfo]) -> int:
        """Return the log position below which retention lets settled messages go."""
        age, limit = self._owner.settings.retention_age_s, self._owner.settings.retention_bytes
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

    def needs(self) -> Needs:
        """Measure what is needed of the journal now."""
        segments = self._owner.journal.segments()
        return self._measure(segments, self.keeping(segments))

    def _measure(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> Needs:
        bases = {segment.base for segment in segments}
        self._written = {base: each for base, each in self._written.items() if base in bases}
        self._damaged = {base: each for base, each in self._damaged.items() if base in bases}
        found = measure(self._owner.state, self._lock, segments, keeping, copies=self._written, copied=self._copied)
        found.pin(np.array(list(self._damaged), np.int64))
        return found

    def report(self) -> dict[str, Any]:
        """Describe the journal for an operator: how large it is and may be, what is needed of it, and by whom."""
        needs, mark = self.needs(), self.keeping().stayed
        shares = zip(needs.segments, np.minimum(needs.bytes, needs.sizes).tolist(), needs.pinned.tolist(), strict=True)
        held = self._owner.journal.dropped()
        return {
            "bytes": int(needs.sizes.sum()),
            "heldBytes": sum(segment.bytes for segment in held),
            "neededBytes": needs.total,
            "mostBytes": self.bound(needs.total),
            "retentionMark": mark,
            "snapshot": self._owner.journal.snapshot_position,
            "oldest": None if needs.oldest is None else needs.oldest.to_json(),
            "queues": [
                {"queue": name, "neededBytes": octets}
                for name, octets in sorted(needs.by_queue.items(), key=lambda each: -each[1])[:LISTED]
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
        if segment.base in self._damaged:
            return "a record in it is damaged"
        return "settled messages that are still kept, or a stage" if pinned else None

    def bound(self, needed_bytes: int) -> int:
        """Return the bytes that the journal may have where so many are needed."""
        return SLACK * needed_bytes + SPARE_SEGMENTS * self._owner.settings.segment_bytes

    def _nothing_to_do(self, segments: Sequence[SegmentInfo], keeping: Keeping) -> bool:
        """Say so where it is certain without a look at every message."""
        if self._looked_at == (self._owner.journal.end, keeping):
            return True
        total = sum(segment.bytes for segment in segments)
        with self._lock:
            state = self._owner.state
            live = state.staged_bytes + sum(queue.bytes for queue in state.queues.values())
        return total <= self.bound(live) and (not segments or segments[0].base >= keeping.stayed)  # of retention

    def retain(self) -> int:
        """Drop the segments of which nothing is needed; return the bytes that this frees."""
        with self._turn:
            segments = self._owner.journal.segments()
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
        due, end = self._clock() + TURN_S, self._owner.journal.end
        burst = max(BURST_BYTES, self._owner.settings.segment_bytes)
        while not self._closing.wait(SOON_S):
            began = self._clock()
            if began < due and self._owner.journal.end - end < burst:
                continue
            due, end = began + TURN_S, self._owner.journal.end
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
            self._owner.journal.unlink_dropped()
        segments = self._owner.journal.segments()
        keeping = self.keeping(segments)
        if self._nothing_to_do(segments, keeping):
            return 0
        end = self._owner.journal.end
        needs = self._measure(segments, keeping)
        victims = self._victims(needs, keeping)
        if victims:
            self._copy([needs.segments[index] for index in victims], keeping)
            needs = self._measure(segments, keeping)
        freed = self._drop_unused(needs, keeping)
        if not freed and not victims:
            self._looked_at = (end, keeping)
        return freed

    def _victims(self, needs: Needs, keeping: Keeping) -> list[int]:
        """Choose segments to copy out of: those of which the smallest shares are needed, as many as there have to be."""
        shares, sizes = needs.shares(), needs.sizes
        order = [int(index) for index in np.argsort(shares, kind="stable") if int(index) < len(shares) - 1]
        total, limit = sizes.sum() - sizes[needs.unused()].sum(), self.bound(needs.total)
        asked = [segment.end <= keeping.stayed for segment in needs.segments]  # by retention
        room = self._room()
        chosen = []
        for index in order:
            if shares[index] >= MOST_NEEDED or (needs.bytes[index] and not (total > limit or asked[index])):
                continue
            if not needs.bytes[index]:
                continue  # goes without a copy
            if needs.bytes[index] > room:
                break
            room -= needs.bytes[index]
            total -= sizes[index] - needs.bytes[index]
            chosen.append(index)
        return chosen

    def _room(self) -> float:
        """Return the bytes that the cleaner may write before it has freed some."""
        mark = self._owner.settings.free_space_mark_bytes
        return self._owner.journal.free_bytes() - (mark - mark // RESERVE_SHARE) - self._snapshot_bytes

    # Dropping
    def _drop_unused(self, needs: Needs, keeping: Keeping) -> int:
        segments = [segment for segment, unused in zip(needs.segments[:-1], needs.unused(), strict=False) if unused]
        if not segments:
            return 0
        # What an earlier turn, or an earlier life, decided to drop and did not.
        self._owner.submit(c.Drop([[segment.base, segment.end] for segment in segments], keeping))
        dropped = self._owner.state.dropped
        segments = [segment for segment in segments if dropped.covers(segment.base, segment.end - 1)]
        if not segments:
            return 0
        try:
            self._owner.take_snapshot()
        except errors.ResourceLimit as error:  # what an older snapshot does without can go, and makes room
            log.warning("%s", error)
        with self._writing:
            freed = sum(segment.bytes for segment in self._owner.journal.drop(segments))
        log.info("cleaning freed %d MiB of the journal", freed >> 20)
        return freed

    def snapshot_written(self, octets: int) -> None:
        """Note the size of the last snapshot, bytes."""
        self._snapshot_bytes = octets

    @property
    def writing(self) -> threading.Lock:
        """The lock under which snapshots are written, and segments dropped."""
        return self._writing

    # Copying
    def _copy(self, victims: Sequence[SegmentInfo], keeping: Keeping) -> None:
        """Copy what is needed of these segments to the end of the log."""
        going = Intervals((segment.base, segment.end) for segment in victims)
        with self._lock:
            blocks = sorted(
                (queue_id, number)
                for queue_id, queue in self._owner.state.by_id.items()
                for number, block in queue.blocks.items()
                if going.meets(block.runs.low, block.runs.high)
            )
            staged = {part.position for stage in self._owner.state.stages.values() for part in stage.parts}
        for queue_id, group in itertools.groupby(blocks, key=lambda each: each[0]):
            found = (piece for _, number in group for piece in self._pieces_of(queue_id, number, going, keeping))
            for some in _portions(found):
                if self._closing.is_set():
                    return
                self._rest(partial(self._copy_rows, queue_id, some))
        for position in sorted(position for position in staged if going.meets(position, position)):
            if self._closing.is_set():
                return
            self._rest(partial(self._copy_staged, position))

    def _pieces_of(self, queue_id: int, number: int, going: Intervals, keeping: Keeping) -> Iterator[Piece]:
        """The needed rows of a block that lie in segments that are to go, in pieces."""
        with self._lock:
            queue = self._owner.state.by_id.get(queue_id)
            block = None if queue is None else queue.blocks.get(number)
            if block is None or not going.meets(block.runs.low, block.runs.high):
                return
            rows = np.flatnonzero(needed(block, keeping))
            rows = rows[going.contains(block.positions(rows))]
            if not len(rows):
                return
            sizes = np.broadcast_to(np.asarray(block.sizes.get(rows), np.int64), len(rows)) + 0
            parts = [slice(start, stop) for start, stop in _slices(sizes)]
            found = [
                Piece(number, rows[part], sizes[part], block.locations(rows[part]), self._owner.journal.hold()) for part in parts
            ]
        yield from found

    def _copy_rows(self, queue_id: int, pieces: Sequence[Piece]) -> int:
        """Copy these rows of a queue; return the bytes."""
        forms: dict[tuple[int, pa.Schema], _Form] = {}
        for piece in pieces:
            masks: dict[int, int] = {}

            def record(position: int, masks: dict[int, int] = masks) -> pa.RecordBatch:
                masks[position] = mask_of(self._owner.journal.payload(position))
                return load(self._owner.journal, position)

            def damaged(part: slice, error: errors.DamagedJournal, piece: Piece = piece) -> None:
                self._leave(queue_id, piece, part, error)

            payload_rows = piece.locations.payload_rows()
            for each in record_rows(piece.locations, record, damaged):
                part, position = each.extent.indexes, each.extent.position
                batch = each.taken()
                form = forms.setdefault((masks[position], batch.schema), _Form([], [], [], []))
                form.sequences.append(piece.rows[part] + (piece.number << BLOCK_BITS))
                form.positions.append(np.full(batch.num_rows, position))
                form.payload_rows.append(payload_rows[part])
                form.batches.append(batch)
        written = 0
        for (mask, _), form in forms.items():
            stored = store(pa.concat_batches(form.batches), mask)
            rows = RowSet.of_sequences(np.concatenate(form.sequences))  # they rise: block by block, and row by row in each
            positions, payload_rows = np.concatenate(form.positions), np.concatenate(form.payload_rows)
            self._owner.journal.reserve(stored.nbytes, RESERVE_TIMEOUT_S)
            self._owner.submit(c.Relocate(queue_id, rows, positions, payload_rows, stored))
            written += stored.nbytes
        self._note(written, sum(int(piece.sizes.sum()) + ROW_BYTES * len(piece.rows) for piece in pieces))
        return written

    def _leave(self, queue_id: int, piece: Piece, part: slice, error: errors.DamagedJournal) -> None:
        """Leave the segments of a damaged record as they are."""
        rows = piece.rows[part] + (piece.number << BLOCK_BITS)
        queue = self._owner.state.by_id.get(queue_id)
        if queue is not None:
            self._owner.damage.note(errors.DamagedMessages.of(queue.name, int(rows[0]), int(rows[-1]), error))
        positions = np.unique(np.repeat(piece.locations.position, piece.locations.rows)[part])
        for segment in self._owner.journal.segments():
            if ((positions >= segment.base) & (positions < segment.end)).any() and segment.base not in self._damaged:
                self._damaged[segment.base] = str(error)
                log.error("the segment %s is not cleaned, since a record in it is damaged: %s", segment.path, error)

    def _copy_staged(self, position: int) -> int:
        """Copy the payload of a stage, as it is; return the bytes."""
        hold = self._owner.journal.hold()
        try:
            payload = self._owner.journal.payload(position)
        except errors.DamagedJournal as error:
            for segment in self._owner.journal.segments():
                if segment.base <= position < segment.end:
                    self._damaged[segment.base] = str(error)
                    log.error("the segment %s is not cleaned, since a record in it is damaged: %s", segment.path, error)
            return 0
        except errors.DataLoss:
            return 0  # the stage is published or gone, and so is the record
        self._owner.journal.reserve(payload.size, RESERVE_TIMEOUT_S)
        before = self._owner.journal.end
        del hold
        if self._owner.submit(c.RelocateStaged(position, [payload])):
            with self._lock:
                state = self._owner.state
                self._copied &= {part.position for stage in state.stages.values() for part in stage.parts}
                self._copied |= {
                    part.position for stage in state.stages.values() for part in stage.parts if part.position >= before
                }
        return int(payload.size)

    def _note(self, written: int, counted: int) -> None:
        """Note that what counts so much took so many bytes of the last segment: it is not to be copied again for that."""
        last = self._owner.journal.segments()[-1].base
        before = self._written.get(last, Copies(0, 0))
        self._written[last] = Copies(before.bytes + written, before.counted + counted)

    def _rest(self, work: Callable[[], int]) -> None:
        """Do a piece of work, and rest as long as the bandwidth asks for."""
        began = self._clock()
        octets = work()
        took, rate = self._clock() - began, self._owner.settings.clean_bandwidth
        pause = took * (DISK_SHARE - 1) if rate is None else octets / rate - took
        if pause > 0:
            self._closing.wait(pause)


def _slices(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Begin and end of neighbours that have about `PIECE_BYTES` together, or are one."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield start, stop
        start = stop


def _portions(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces of several blocks that have about `PIECE_BYTES` together."""
    some: list[Piece] = []
    octets = 0
    for piece in pieces:
        size = int(piece.sizes.sum())
        if some and octets + size > PIECE_BYTES:
            yield some
            some, octets = [], 0
        some.append(piece)
        octets += size
    if some:
        yield some

"""From rows of a queue to record batches: the one way messages are read, whether live, acquired or archived.

A *cut* is a copy of what the columns say of some rows of one block, taken under the broker's lock; building batches from it
needs no lock, since payloads never change. Archived blocks are opened through `open_block` alone, because a later step
moves them from the journal into Parquet.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker_core import assembly, message
from broker_core.deaths import Deaths, deaths
from broker_core.delivery import column as delivery_column
from broker_core.encoding.overlaid import overlaid
from broker_core.engine.blocks import Block
from broker_core.engine.packing import unpack
from broker_core.engine.queues import ArchivedBlock, Queue
from broker_core.engine.rowset import row_count
from broker_core.engine.runs import Pieces
from broker_core.engine.series import Ints, Rows
from broker_core.engine.states import ARCHIVED, Outcome, State
from broker_core.journal import Journal
from broker_core.recent import Recent

BATCH_ROWS = 65_536  # rows of a record batch at most
SMALL_ROWS = 4_096  # a stretch of fewer rows is put together with its neighbours, up to
BATCH_BYTES = 8 << 20  # bytes of payload, roughly
MAPPABLE_ROWS = 16  # a reader on this host maps the segments itself if it gets so many rows of a record on average
_MASK = 8  # a payload starts with its columns mask, little-endian
_NOTHING_RECENT = Recent()


class Stored(NamedTuple):
    """A journal payload, and the batch that `load` will make of it."""

    buffers: list[Any]
    batch: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buffers))


def store(batch: pa.RecordBatch, mask: int | None = None) -> Stored:
    """A validated batch as a journal payload; with a mask it has the stored form already."""
    if mask is None:
        mask, batch = message.stored_form(batch)
    return Stored([mask.to_bytes(_MASK, "little"), batch.serialize()], batch)


def load(journal: Journal, position: int) -> pa.RecordBatch:
    """The batch whose record is at `position`, a view of the mapped segment."""
    payload = journal.payload(position)
    return message.unpack(int.from_bytes(payload.slice(0, _MASK).to_pybytes(), "little"), payload.slice(_MASK))


def open_block(journal: Journal, entry: ArchivedBlock) -> Block:
    """An archived block, read back from where it went."""
    return Block.restored(unpack(journal.payload(entry.position)))


class Cut(NamedTuple):
    """Rows of one block and where they lie. `rows` and the per-row columns are parallel; a plain number stands for all."""

    base: int
    rows: Rows
    pieces: Pieces
    attempts: Ints | int
    state: npt.NDArray[np.uint8] | int
    outcome: Ints | int
    settled: npt.NDArray[np.int64] | None
    returned: Ints | int  # 1: it came back before, so who gets it now is not its first acquirer
    overlays: Mapping[int, list[bytes]]  # index within `rows` → what was added to its annotations, in order: encoded maps
    expiry: npt.NDArray[np.int64] | None  # milliseconds since 1970, 0: never; None: none of them ever does
    deaths: Deaths | None  # why they are dead letters, if any is
    batches: Mapping[int, pa.RecordBatch]  # log position → the record's batch, where it is still at hand

    @property
    def annotated(self) -> bool:
        """Whether the broker adds anything to the annotations of any of them."""
        return bool(self.overlays) or self.deaths is not None


def cut(block: Block, rows: Rows, queue: Queue, recent: Recent = _NOTHING_RECENT, *, ends: bool = True) -> Cut:
    """Without `ends`, what became of the messages is left out: for those that are somebody's, or wait."""

    def copied(values: Ints | int) -> Ints | int:
        return values if isinstance(values, int) else values.copy()

    pieces = block.pieces(rows)
    return Cut(
        block.base,
        rows,
        pieces,
        copied(block.attempts.get(rows)),
        block.state[: block.filled][rows].copy() if ends else 0,
        copied(block.outcome.get(rows)) if ends else 0,
        block.settled_times(rows) if ends else None,
        copied(block.returned.get(rows)),
        block.overlays.among(rows),
        block.times(block.expiry, rows),
        deaths(block, rows, queue),
        recent.among(pieces.position) if recent else {},
    )


class Stretch(NamedTuple):
    """Rows of one record, in order, with what the broker says of them. Per-row columns: an array, or a number for all."""

    payload: pa.RecordBatch
    sequence: npt.NDArray[np.int64] | int  # a number: the first of neighbours
    time: int
    part: slice  # of the cut's per-row columns
    cut: Cut

    def sequences(self) -> npt.NDArray[np.int64]:
        if isinstance(self.sequence, int):
            return np.arange(self.sequence, self.sequence + self.payload.num_rows)
        return self.sequence

    @property
    def is_encoded(self) -> bool:
        return "message" in self.payload.schema.names

    @property
    def attempts(self) -> Ints | int:
        """Unsuccessful deliveries."""
        return self.cut.attempts if isinstance(self.cut.attempts, int) else self.cut.attempts[self.part]

    @property
    def returned(self) -> Ints | int:
        return self.cut.returned if isinstance(self.cut.returned, int) else self.cut.returned[self.part]

    def ttl(self, now: int) -> npt.NDArray[np.int64] | None:
        """Milliseconds that each message has left at `now` (since 1970), one at least; 0: for ever. None: all have for ever."""
        if self.cut.expiry is None:
            return None
        expiry = self.cut.expiry[self.part]
        return np.where(expiry > 0, np.maximum(expiry - now, 1), 0)

    @property
    def overlays(self) -> Mapping[int, list[bytes]]:
        """Index within the stretch → what was added to the annotations, in order."""
        start, stop, dead = self.part.start, self.part.stop, self.cut.deaths
        found = {index - start: entries for index, entries in self.cut.overlays.items() if start <= index < stop}
        if dead is not None:
            for index, entry in dead.maps(self.part, np.full(stop - start, self.time)).items():
                found[index] = [*found.get(index, ()), entry]
        return found


def stretches(journal: Journal, part: Cut, columns: Container[str] | None = None) -> Iterator[Stretch]:
    """The messages of a cut in order, as they were stored. What is not at hand is read, once the journal has written it.

    Columns that are not among `columns` are left out of a record that is not the cut's only one: they would only be copied.
    """
    pieces = part.pieces
    if len(pieces.row) == 1 and pieces.rows[0] <= BATCH_ROWS:
        yield _stretch(journal, part)
        return
    if not len(pieces.row):
        return
    changes = np.flatnonzero(np.diff(pieces.position)) + 1
    begins, ends = np.concatenate([[0], changes]), np.append(changes, len(pieces.position))
    done = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        record = _record(journal, part, int(pieces.position[begin]))
        if columns is not None:
            record = _only(record, columns)
        time = int(pieces.time[begin])
        if end - begin == 1:
            first, count = int(pieces.payload_row[begin]), int(pieces.rows[begin])
            for offset in range(0, count, BATCH_ROWS):
                width = min(BATCH_ROWS, count - offset)
                sequence = part.base + int(pieces.row[begin]) + offset
                yield Stretch(record.slice(first + offset, width), sequence, time, slice(done, done + width), part)
                done += width
        else:
            inside, rows, counts = pieces.payload_row[begin:end], pieces.row[begin:end], pieces.rows[begin:end]
            if counts.max() > 1:
                steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
                inside, rows = np.repeat(inside, counts) + steps, np.repeat(rows, counts) + steps
            yield Stretch(record.take(pa.array(inside)), rows + part.base, time, slice(done, done + len(rows)), part)
            done += len(rows)


def _stretch(journal: Journal, part: Cut) -> Stretch:
    """The only one of a cut whose rows lie in one piece, as a single message always does."""
    row, count, position, first, time = [int(column[0]) for column in part.pieces]
    record = _record(journal, part, position)
    return Stretch(record.slice(first, count), part.base + row, time, slice(0, count), part)


def _only(record: pa.RecordBatch, columns: Container[str]) -> pa.RecordBatch:
    """The record without other columns; one is left at least, so that there are rows."""
    names = record.schema.names
    kept = [name for name in names if name in columns] or names[:1]
    if len(kept) == len(names):
        return record
    schema = message.arrow_schema(kept, stored=True)
    return pa.RecordBatch.from_arrays([record.column(names.index(name)) for name in kept], schema=schema)


def _record(journal: Journal, part: Cut, position: int) -> pa.RecordBatch:
    batch = part.batches.get(position)
    return load(journal, position) if batch is None else batch


#: What says which form a message has, and what annotations that were added to it are added to.
_ALWAYS = ("message", "annotations", "encodedAnnotations")


def batches(
    journal: Journal, cuts: Iterable[Cut], columns: Sequence[str], queue: str, delivery: bytes = b"", *, stored: bool = False
) -> Iterator[pa.RecordBatch]:
    """Record batches of exactly `message.arrow_schema(columns, stored=stored)`, in the order of the cuts.

    Columns that a message's form does not hold are converted, or with `stored` null.
    """
    waiting: list[Stretch] = []
    rows = size = 0
    kept = {*assembly.needed(columns), *_ALWAYS}
    for part in cuts:
        if not row_count(part.rows):
            continue
        for stretch in stretches(journal, part, kept):
            alike = not waiting or stretch.is_encoded == waiting[0].is_encoded
            large = stretch.payload.num_rows >= SMALL_ROWS
            if waiting and (large or not alike or rows >= BATCH_ROWS or size >= BATCH_BYTES):
                yield _batch(waiting, columns, queue, delivery, stored)
                waiting, rows, size = [], 0, 0
            if large:
                yield _batch([stretch], columns, queue, delivery, stored)
                continue
            waiting.append(stretch)
            rows += stretch.payload.num_rows
            size += stretch.payload.nbytes
    if waiting:
        yield _batch(waiting, columns, queue, delivery, stored)


def _batch(stretches: list[Stretch], columns: Sequence[str], queue: str, delivery: bytes, stored: bool) -> pa.RecordBatch:
    sequence: Any
    time: Any
    if len(stretches) == 1:
        one = stretches[0]
        payload, sequence, time = one.payload, one.sequence, one.time
    else:
        payload = assembly.joined([s.payload for s in stretches])
        counts = [s.payload.num_rows for s in stretches]
        sequence = np.concatenate([s.sequences() for s in stretches])
        time = np.repeat([s.time for s in stretches], counts)
    wanted = set(columns)
    if not wanted.isdisjoint(("annotations", "encodedAnnotations")) and any(s.cut.annotated for s in stretches):
        payload = overlaid(payload, _overlays(stretches))
    return assembly.assemble(
        columns,
        payload,
        queue=queue,
        sequence=sequence,
        time=time,
        delivery_count=_join(stretches, "attempts") if "deliveryCount" in wanted else None,
        state=_names(_join(stretches, "state"), _STATE_NAMES) if "state" in wanted else None,
        outcome=_names(_join(stretches, "outcome"), _OUTCOME_NAMES) if "outcome" in wanted else None,
        settled=_settled(stretches) if "settledTime" in wanted else None,
        delivery=_deliveries(delivery, stretches) if "delivery" in wanted and delivery else None,
        stored=stored,
    )


def _join(stretches: list[Stretch], name: str) -> Any:
    values = [getattr(s.cut, name) for s in stretches]
    if all(isinstance(value, int) and value == values[0] for value in values):
        return values[0]
    return np.concatenate(
        [
            np.full(s.payload.num_rows, value) if isinstance(value, int) else value[s.part]
            for s, value in zip(stretches, values, strict=True)
        ]
    )


def _overlays(stretches: list[Stretch]) -> dict[int, list[bytes]]:
    """By row of the stretches put together."""
    found, first = {}, 0
    for stretch in stretches:
        found.update({first + row: maps for row, maps in stretch.overlays.items()})
        first += stretch.payload.num_rows
    return found


_STATE_NAMES = pa.array([state.name.lower() for state in State])
_OUTCOME_NAMES = pa.array([None if o is Outcome.NONE else o.name.lower().replace("_", "-") for o in Outcome])


def _names(codes: Any, names: pa.Array) -> Any:
    return names[codes].as_py() if isinstance(codes, int) else names.take(pa.array(codes))


def _settled(stretches: list[Stretch]) -> pa.Array:
    parts = []
    for s in stretches:
        archived = np.asarray(s.cut.state)[s.part] == ARCHIVED
        times = np.zeros(len(archived), np.int64) if s.cut.settled is None else s.cut.settled[s.part]
        parts.append(pa.array(times, mask=~archived))
    return pa.concat_arrays(parts)


def _deliveries(prefix: bytes, stretches: list[Stretch]) -> pa.Array:
    return delivery_column(prefix, np.concatenate([s.sequences() for s in stretches]))


PIECE_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("columns", pa.int64()),
        ("row", pa.int32()),
        ("count", pa.int32()),
        ("sequence", pa.int64()),
        ("time", pa.int64()),
        ("deliveryCount", pa.int32()),
        ("taken", pa.binary()),
    ]
)


class _Located(NamedTuple):
    """What a reader on this host maps: parallel arrays. `edges` bounds, in the cut's pieces, those that are read as one: of one
    record, and at the same distance from it in the queue, as holes and groups leave them."""

    edges: npt.NDArray[np.int64]
    pieces: Pieces

    @classmethod
    def of(cls, pieces: Pieces) -> _Located:
        apart = (np.diff(pieces.position) != 0) | (np.diff(pieces.row - pieces.payload_row) != 0) | (np.diff(pieces.time) != 0)
        return cls(np.concatenate([[0], np.flatnonzero(apart) + 1, [len(pieces.row)]]), pieces)

    @property
    def pieces_read(self) -> int:
        return len(self.edges) - 1

    def rows(self) -> npt.NDArray[np.int64]:
        return np.add.reduceat(self.pieces.rows, self.edges[:-1])

    def taken(self) -> pa.Array:
        """Of each, the rows of its record where they are not neighbours: 32-bit numbers, little-endian; else null."""
        found: list[bytes | None] = []
        for begin, end in itertools.pairwise(self.edges.tolist()):
            if end - begin == 1:
                found.append(None)
                continue
            starts, counts = self.pieces.payload_row[begin:end], self.pieces.rows[begin:end]
            steps = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            found.append((np.repeat(starts, counts) + steps).astype("<i4").tobytes())
        return pa.array(found, pa.binary())


def mappable(cuts: Sequence[Cut]) -> bool:
    """Do the rows lie in so few records that a reader does well to map the segments itself?"""
    rows = sum(row_count(part.rows) for part in cuts)
    return sum(_Located.of(part.pieces).pieces_read for part in cuts) * MAPPABLE_ROWS <= rows


def piece_batch(journal: Journal, part: Cut) -> pa.RecordBatch:
    """Where the rows of a cut, of one delivery count, lie, for a reader on this host: `PIECE_SCHEMA`, the payloads verified."""
    attempts = part.attempts if isinstance(part.attempts, int) else int(part.attempts[0])
    located = _Located.of(part.pieces)
    first = located.edges[:-1]
    position = part.pieces.position[first]
    where = {at: _where(journal, at) for at in np.unique(position).tolist()}
    places = [where[at] for at in position.tolist()]
    columns: list[Any] = [pa.array([place[i] for place in places], PIECE_SCHEMA.field(i).type) for i in range(4)]
    columns += [
        pa.array(part.pieces.payload_row[first], pa.int32()),
        pa.array(located.rows(), pa.int32()),
        pa.array(part.pieces.row[first] + part.base),
        pa.array(part.pieces.time[first]),
        pa.array(np.full(located.pieces_read, attempts, np.int32)),
        located.taken(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PIECE_SCHEMA)


def _where(journal: Journal, position: int) -> tuple[str, int, int, int]:
    path, offset, length = journal.locate(position)
    mask = int.from_bytes(journal.payload(position).slice(0, _MASK).to_pybytes(), "little")
    return path, offset + _MASK, length - _MASK, mask

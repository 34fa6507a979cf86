"""From rows of a queue to record batches: the one way messages are read, whether live, acquired or archived.

A *cut* is a copy of what the columns say of some rows of one block, taken under the broker's lock; building batches from it
needs no lock, since payloads never change. Archived blocks are opened through `open_block` alone: nobody else knows where they
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..engine.columns.blocks import Block
from ..engine.columns.packing import unpack
from ..engine.columns.rowset import BLOCK_BITS
from ..engine.columns.runs import Pieces, Share
from ..engine.columns.series import Ints, Rows
from ..engine.columns.states import ARCHIVED, Outcome, State
from ..engine.model.queue import PackedBlock, Queue
from ..journal import Journal
from ..messages import assembly
from ..messages import columns as message
from ..messages.delivery_key import column as delivery_column
from ..messages.encoding.overlaid import overlaid
from .dead_letters import Deaths, deaths, errors_of
from .gathering import gathered
from .recent import Recent

SMALL_ROWS = 4_096  # a stretch of fewer rows is put together with its neighbours, up to
JOINED_ROWS = 16_384  # rows of a record batch, roughly: the reader works on one while the next is put together
BATCH_BYTES = 8 << 20  # bytes of payload, roughly
MASK_BYTES = 8  # a payload starts with its columns mask, little-endian
_NOTHING_RECENT = Recent()

RETENTION = (
    "are gone: retention removed them. Keep them longer (retention_age_s, retention_bytes); with failOnDataLoss=false a query "
    "goes on without them"
)


def gone(queue: str, block: int, why: str) -> errors.DataLoss:
    """Make the error for messages of a block that cannot be read any more."""
    return errors.DataLoss(f"messages of {queue!r} around sequence number {block << BLOCK_BITS} {why}")


class Stored(NamedTuple):
    """A journal payload, and the batch that `load` will make of it."""

    buffers: list[Any]
    batch: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the journal."""
        return sum(map(len, self.buffers))


def store(batch: pa.RecordBatch, mask: int | None = None) -> Stored:
    """A validated batch as a journal payload; with a mask it has the stored form already."""
    if mask is None:
        mask, batch = message.stored_form(batch)
    return Stored([mask.to_bytes(MASK_BYTES, "little"), batch.serialize()], batch)


def load(journal: Journal, position: int) -> pa.RecordBatch:
    """The batch whose record is at `position`, a view of the mapped segment."""
    payload = journal.payload(position)
    return message.unpack(mask_of(payload), payload.slice(MASK_BYTES))


def mask_of(payload: pa.Buffer) -> int:
    """Return the mask of columns that the batch in this payload has."""
    return int.from_bytes(payload.slice(0, MASK_BYTES).to_pybytes(), "little")


def open_block(journal: Journal, entry: PackedBlock) -> Block:
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
    settled: Ints | int  # milliseconds after `begun`, plus one; 0: not settled
    begun: int  # microseconds since 1970: when the block's first message came
    returned: Ints | int  # 1: it came back before, so who gets it now is not its first acquirer
    overlays: Mapping[int, list[bytes]]  # index within `rows` → what was added to its annotations, in order: encoded maps
    expiry: npt.NDArray[np.int64] | None  # milliseconds since 1970, 0: never; None: none of them ever does
    deaths: Deaths | None  # why they are dead letters, if any is
    batches: Mapping[int, pa.RecordBatch]  # log position → the record's batch, where it is still at hand
    errors: Mapping[int, str]  # index within `rows` → what was said by who rejected the message

    def sequences(self, part: slice) -> npt.NDArray[np.int64]:
        """The sequence numbers of some of the rows."""
        if isinstance(self.rows, slice):
            first = self.base + self.rows.start
            return np.arange(first + part.start, first + part.stop)
        numbers: npt.NDArray[np.int64] = self.rows[part] + self.base
        return numbers

    def first_of(self, part: slice) -> int | None:
        """The first sequence number of some of the rows where they follow one another, else None."""
        if isinstance(self.rows, slice):
            return self.base + int(self.rows.start) + int(part.start)
        first, last = int(self.rows[part.start]), int(self.rows[part.stop - 1])
        return int(self.base) + first if last - first == part.stop - 1 - part.start else None

    def overlays_of(self, part: slice, time: int) -> Mapping[int, list[bytes]]:
        """Of some of the rows, which came at `time`: index among them → what was added to the annotations, in order."""
        start, stop, dead = part.start, part.stop, self.deaths
        found = {index - start: entries for index, entries in self.overlays.items() if start <= index < stop}
        if dead is not None:
            for index, entry in dead.maps(part, np.full(stop - start, time)).items():
                found[index] = [*found.get(index, ()), entry]
        return found

    @property
    def annotated(self) -> bool:
        """True where the broker adds anything to the annotations of any of them."""
        return bool(self.overlays) or self.deaths is not None


def cut_of(block: Block, rows: Rows, queue: Queue, recent: Recent = _NOTHING_RECENT, *, ends: bool = True) -> Cut:
    """Without `ends`, what became of the messages is left out: for those that are somebody's, or wait, or where nobody asks."""

    def copied(values: Ints | int) -> Ints | int:
        return values.copy() if isinstance(values, np.ndarray) and isinstance(rows, slice) else values  # else it is a copy

    pieces = block.pieces(rows)
    return Cut(
        block.base,
        rows,
        pieces,
        copied(block.attempts.get(rows)),
        np.asarray(copied(block.state[: block.filled][rows])) if ends else 0,
        copied(block.outcome.get(rows)) if ends else 0,
        copied(block.settled.get(rows)) if ends else 0,
        block.runs.time[0],
        copied(block.returned.get(rows)),
        block.overlays.among(rows),
        block.times(block.expiry, rows),
        deaths(block, rows, queue),
        recent.among(pieces.position) if recent else {},
        errors_of(block, rows) if ends else {},
    )


class Stretch(NamedTuple):
    """Rows of one record, in order, with what the broker says of them. Per-row columns: an array, or a number for all."""

    payload: pa.RecordBatch
    time: int
    part: slice  # of the cut's per-row columns
    cut: Cut

    def sequences(self) -> npt.NDArray[np.int64]:
        """Sequence numbers of its rows."""
        return self.cut.sequences(self.part)

    @property
    def attempts(self) -> Ints | int:
        """Unsuccessful deliveries."""
        return self.cut.attempts if isinstance(self.cut.attempts, int) else self.cut.attempts[self.part]

    @property
    def returned(self) -> Ints | int:
        """1 where it came back before, else 0; of each row or of all."""
        return self.cut.returned if isinstance(self.cut.returned, int) else self.cut.returned[self.part]

    def ttl(self, now: int) -> npt.NDArray[np.int64] | None:
        """Milliseconds that each message has left at `now` (since 1970), one at least; 0: for ever. None: all have for ever, and
        none was ever told another time (as those were that are dead letters now since that time had passed)."""
        if self.cut.expiry is None:
            return np.zeros(self.payload.num_rows, np.int64) if "ttl" in self.payload.schema.names else None
        expiry = self.cut.expiry[self.part]
        return np.where(expiry > 0, np.maximum(expiry - now, 1), 0)

    @property
    def overlays(self) -> Mapping[int, list[bytes]]:
        """Annotations that the broker adds, by row."""
        return self.cut.overlays_of(self.part, self.time)


#: Told of a part of what is read whose record is damaged; then it is left out.
OnDamage = Callable[[slice, errors.DamagedJournal], None]


def stretches(journal: Journal, cut: Cut, damaged: OnDamage | None = None) -> Iterator[Stretch]:
    """The messages of a cut in order, as they were stored. What is not at hand is read, once the journal has written it. Without
    `damaged` a record that is raises DamagedJournal."""
    if len(cut.pieces.row) == 1 and cut.pieces.scattered is None:  # of one record, as most are that leave one by one
        try:
            found = _stretch(journal, cut)
        except errors.DamagedJournal as error:
            if damaged is None:
                raise
            damaged(slice(0, int(cut.pieces.rows[0])), error)
            return
        yield found
        return
    for each in wanted(cut.pieces, partial(_record, journal, cut), damaged):
        yield Stretch(each.taken(), each.share.time, each.share.of, cut)


def _stretch(journal: Journal, cut: Cut) -> Stretch:
    """The only one of a cut whose rows lie in one piece, as a single message always does."""
    _, count, position, first, time = [int(column[0]) for column in cut.pieces[:5]]
    record = _record(journal, cut, position)
    return Stretch(record.slice(first, count), time, slice(0, count), cut)


class Wanted(NamedTuple):
    """Rows of a record that are still to be taken out of it."""

    record: pa.RecordBatch
    share: Share
    scattered: Ints | None  # which of its rows; None: `share.first` and those after it
    error: str | None = None  # the record is damaged, and this one stands for it

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.share.of.stop) - int(self.share.of.start)

    @property
    def is_encoded(self) -> bool:
        """True for AMQP messages as they came, False for columns."""
        return "message" in self.record.schema.names

    def taken(self) -> pa.RecordBatch:
        """Take its rows out of the record."""
        if self.scattered is None:
            return self.record.slice(self.share.first, self.rows)
        return self.record.take(pa.array(self.scattered))


def wanted(pieces: Pieces, record: Callable[[int], pa.RecordBatch], damaged: OnDamage | None = None) -> Iterator[Wanted]:
    """Record by record what pieces want of it; `record` gives it by its position. One that is damaged is for `damaged`."""
    for share, found in _shares(pieces, record):
        if isinstance(found, Wanted):
            yield found
        elif damaged is None:
            raise found
        else:
            damaged(share.of, found)


def _shares(pieces: Pieces, record: Callable[[int], pa.RecordBatch]) -> Iterator[tuple[Share, Wanted | errors.DamagedJournal]]:
    """Of each share what is wanted of its record, or that this is damaged."""
    scattered = None
    for share in pieces.shares():
        mine = None
        if share.first is None:
            if scattered is None:
                scattered = pieces.payload_rows()
            mine = scattered[share.of]
        found: Wanted | errors.DamagedJournal
        try:
            found = Wanted(record(share.position), share, mine)
        except errors.DamagedJournal as error:
            found = error
        yield share, found


def _record(journal: Journal, cut: Cut, position: int) -> pa.RecordBatch:
    batch = cut.batches.get(position)
    return load(journal, position) if batch is None else batch


def refuse(queue: str, cut: Cut, part: slice, error: errors.DamagedJournal) -> NoReturn:
    """Raise DamagedMessages for some of the rows of a cut."""
    sequences = cut.sequences(part)
    raise errors.DamagedMessages.of(queue, int(sequences[0]), int(sequences[-1]), error) from error


def _columns_of_record(columns: Container[str], journal: Journal, cut: Cut, position: int) -> pa.RecordBatch:
    """The record without other columns, which would only be copied; one is left at least, so that there are rows."""
    record = _record(journal, cut, position)
    names = record.schema.names
    kept = [name for name in names if name in columns] or names[:1]
    return record if len(kept) == len(names) else record.select(kept)


#: What says which form a message has, and what annotations that were added to it are added to.
_ALWAYS = ("message", "annotations", "encodedAnnotations")


def batches(
    journal: Journal,
    cuts: Iterable[Cut],
    columns: Sequence[str],
    queue: str,
    delivery: bytes = b"",
    *,
    stored: bool = False,
    set_aside: Callable[[Mapping[int, str]], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Record batches of exactly `message.arrow_schema(columns, stored=stored)`, in the order of the cuts.

    Columns that a message's form does not hold are converted, or with `stored` null. Messages that cannot be converted are handed
    to `set_aside`, by sequence number with the reasons, and left out; without it they are there, with nulls and an `error`. So
    are then those that have ended and whose record is damaged; else DamagedMessages names the first.
    """
    pieces = _measured(journal, cuts, {*assembly.needed(columns), *_ALWAYS}, queue, ended=set_aside is None)
    for group in assembly.grouped(pieces, JOINED_ROWS, BATCH_BYTES):
        yield _batch(group, columns, queue, delivery, stored, set_aside)


def _measured(
    journal: Journal, cuts: Iterable[Cut], columns: Container[str], queue: str, *, ended: bool
) -> Iterator[tuple[tuple[Cut, Wanted], int, int, bool, bool]]:
    """Yield what is wanted of each record, as `assembly.grouped` takes it; `ended`: nulls for what is damaged and has ended."""
    for cut in cuts:
        for share, found in _shares(cut.pieces, partial(_columns_of_record, columns, journal, cut)):
            if isinstance(found, Wanted):
                each = found
            elif ended and bool((np.asarray(cut.state)[share.of] == ARCHIVED).all()):
                nothing = pa.RecordBatch.from_arrays([pa.nulls(share.of.stop - share.of.start, pa.string())], ["subject"])
                error = errors.DamagedMessages.text(found)
                yield (cut, Wanted(nothing, share._replace(first=0), None, error)), nothing.num_rows, 0, False, True
                continue
            else:
                refuse(queue, cut, share.of, found)
            rows = each.rows
            size = each.record.get_total_buffer_size() * rows // each.record.num_rows
            yield (cut, each), rows, size, each.is_encoded, rows >= SMALL_ROWS


def _batch(
    waiting: list[tuple[Cut, Wanted]],
    columns: Sequence[str],
    queue: str,
    delivery: bytes,
    stored: bool,
    set_aside: Callable[[Mapping[int, str]], None] | None,
) -> pa.RecordBatch:
    # All are taken at once: one after another, between other work, would find nothing in the processor's caches.
    payload = _taken([each for _, each in waiting])
    names, spans = set(columns), _spans(waiting)
    first = spans[0][0].first_of(spans[0][1]) if len(spans) == 1 else None
    sequence: Any = np.concatenate([cut.sequences(part) for cut, part in spans]) if first is None else first
    time: Any = waiting[0][1].share.time
    if len(waiting) > 1 and "enqueuedTime" in names:
        time = np.repeat([each.share.time for _, each in waiting], [each.rows for _, each in waiting])
    if not names.isdisjoint(("annotations", "encodedAnnotations")) and any(cut.annotated for cut, _ in spans):
        payload = overlaid(payload, _overlays(waiting))
    malformed: dict[int, str] = {}
    batch = assembly.assemble(
        columns,
        payload,
        queue=queue,
        sequence=sequence,
        time=time,
        delivery_count=_join(spans, "attempts") if "deliveryCount" in names else None,
        state=_names(_join(spans, "state"), _STATE_NAMES) if "state" in names else None,
        outcome=_names(_join(spans, "outcome"), _OUTCOME_NAMES) if "outcome" in names else None,
        settled=_settled(spans) if "settledTime" in names else None,
        delivery=_deliveries(delivery, spans) if "delivery" in names and delivery else None,
        error=_errors(spans, waiting[0][1].error) if "error" in names else None,
        stored=stored,
        malformed=malformed,
    )
    if not malformed or set_aside is None:
        return batch
    set_aside(malformed)
    return assembly.readable(batch, sequence, malformed)


_Span = tuple[Cut, slice]  # rows of a cut, one after another in its columns


def _taken(waiting: list[Wanted]) -> pa.RecordBatch:
    """All rows, one after another."""
    if len(waiting) > 1:
        scattered = [(each.record, each.scattered) for each in waiting if each.scattered is not None]
        together = gathered(scattered) if len(scattered) == len(waiting) else None
        if together is not None:
            return together
    return assembly.joined([each.taken() for each in waiting])


def _spans(waiting: list[tuple[Cut, Wanted]]) -> list[_Span]:
    """Find the broker's own columns of the rows, in order."""
    found: list[_Span] = []
    for cut, each in waiting:
        part = each.share.of
        if found and found[-1][0] is cut and found[-1][1].stop == part.start:
            found[-1] = cut, slice(found[-1][1].start, part.stop)
        else:
            found.append((cut, part))
    return found


def _join(spans: list[_Span], name: str) -> Any:
    values = [getattr(cut, name) for cut, _ in spans]
    if all(isinstance(value, int) and value == values[0] for value in values):
        return values[0]
    return np.concatenate(
        [
            np.full(part.stop - part.start, value) if isinstance(value, int) else value[part]
            for (_, part), value in zip(spans, values, strict=True)
        ]
    )


def _overlays(waiting: list[tuple[Cut, Wanted]]) -> dict[int, list[bytes]]:
    """By row of all together."""
    found, first = {}, 0
    for cut, each in waiting:
        found.update({first + row: maps for row, maps in cut.overlays_of(each.share.of, each.share.time).items()})
        first += each.rows
    return found


_STATE_NAMES = pa.array([state.name.lower() for state in State])
_OUTCOME_NAMES = pa.array([None if o is Outcome.NONE else o.name.lower().replace("_", "-") for o in Outcome])


def _names(codes: Any, names: pa.Array) -> Any:
    return names[codes].as_py() if isinstance(codes, int) else names.take(pa.array(codes))


def _settled(spans: list[_Span]) -> pa.Array:
    parts = []
    for cut, part in spans:
        archived = np.asarray(cut.state)[part] == ARCHIVED
        settled = cut.settled if isinstance(cut.settled, int) else cut.settled[part].astype(np.int64)
        times = np.broadcast_to((settled - 1) * 1000 + cut.begun, len(archived))
        parts.append(pa.array(times, mask=~archived))
    return pa.concat_arrays(parts)


def _errors(spans: list[_Span], otherwise: str | None) -> pa.Array:
    """Build the column of the rejecters' error texts, if there are any."""
    found: list[str | None] = []
    for cut, part in spans:
        said: list[str | None] = [otherwise] * (part.stop - part.start)
        for index, text in cut.errors.items():
            if part.start <= index < part.stop:
                said[index - part.start] = text
        found += said
    return pa.array(found, pa.string())


def _deliveries(prefix: bytes, spans: list[_Span]) -> pa.Array:
    return delivery_column(prefix, np.concatenate([cut.sequences(part) for cut, part in spans]))

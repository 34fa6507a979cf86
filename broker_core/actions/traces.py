"""The search for the stays of a message: in the state of each queue, and then in the table of its archive.

Rows of the state are copied block by block under the broker's lock, and compared without it. Of a table, `archive.read.ids` reads
little more than the matching rows. A call ends after `SEARCH_S` seconds, `MAX_SCANNED` rows or the wanted number of stays. Its
reply has the place to continue.

The table is looked up after the state. So a message that is recorded meanwhile is found once or twice, but never missed.

The table of a deleted queue remains, and also belongs to a later queue of its name. Only `queueId` distinguishes their rows.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import errors
from ..archive.read import files, ids
from ..archive.read.bounds import Bounds
from ..archive.read.files import Table
from ..archive.read.queues import former_queues
from ..archive.table.layout import FILTERED, rows_of_read
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import BLOCK_BITS, BLOCK_ROWS, as_array, row_count
from ..engine.columns.series import Rows
from ..engine.columns.states import ARCHIVED
from ..engine.decide.decision import need_queue
from ..engine.model.queue import PackedBlock
from ..engine.model.recordings import NO_TABLE
from ..messages.annotations import DEATH_ERROR, DEATH_QUEUE, DEATH_REASON, DEATH_SEQUENCE
from ..reading.batches import BatchRequest
from ..reading.slices import BlockSlice
from ..security.rights import Right
from ..selectors import Presence, Selector, parse, presence_of
from ..selectors.names import id_text
from ..service.stays import StayFacts
from .archive_reads import beyond, may_be_beyond
from .browse_plans import Select
from .browses import of_these
from .declaration import ActionCall, Reply, compared_hints, with_hints
from .fields import About, Request, parse_fields
from .histories import histories
from .message_rows import Row, shown
from .requests import Selector as SelectorText

MAX_STAYS = 1_000  # in one answer
MAX_SCANNED = 1 << 24  # messages of the state that one call compares
SEARCH_S = 5.0  # of one call; a page waits no longer
MAX_ID_BYTES = 4_096  # of an id, which a selector and a filter contain

COLUMNS = [
    *("sequenceNumber", "enqueuedTime", "state", "outcome", "settledTime", "error", "holder", "deliveryCount", "failures"),
    *("messageId", "correlationId", "subject", "userId", "annotations"),
]
_QUEUE_ID = "queueId"  # in a table
_DEATH = {"reason": DEATH_REASON, "queue": DEATH_QUEUE, "sequence": DEATH_SEQUENCE, "error": DEATH_ERROR}


@dataclass(frozen=True, kw_only=True)
class Trace(Request):
    """The fields of `message.trace`."""

    id: Annotated[str | None, About("message id or correlation id, as text")] = None
    queue: Annotated[str | None, About("queue of the sequence number; or the only queue that is searched")] = None
    sequence: Annotated[int | None, About("sequence number of the message in `queue`", least=0)] = None
    selector: SelectorText = None
    count: Annotated[int, About(f"how many stays to return, at most {MAX_STAYS}", least=1)] = 100
    resume: Annotated[dict[str, Any] | None, About("`next` of the previous answer; null: begin")] = None


@dataclass(frozen=True, kw_only=True)
class _Place(Request):
    """The place where a search continues."""

    queue: str
    sequence: int = 0  # the first one whose state was not searched
    archive: bool = False  # the state is done
    version: int | None = None  # of the table
    file: int = 0  # of this version: the first one that was not searched to its end
    row: int = 0  # matches in it that were returned


class _Interrupted(Exception):
    """The limits of the call are reached."""

    def __init__(self, place: _Place) -> None:
        self.place = place


@dataclass(frozen=True)
class _Wanted:
    """The messages to find: with one of the ids, by the selector, or with the payload at a place in the journal."""

    ids: tuple[str, ...] = ()
    columns: tuple[str, ...] = FILTERED
    selector: Selector | None = None
    payload: tuple[int, int] | None = None


def trace(call: ActionCall, request: Trace) -> Reply:
    _check(request)
    resume = None if request.resume is None else parse_fields("field 'resume'", request.resume, _Place)
    stays: list[Row] = []
    wanted: _Wanted | None = _Wanted(selector=None if request.selector is None else parse(request.selector))
    if request.id is not None:
        wanted = _of_ids(request.id, FILTERED)
    elif request.sequence is not None:
        stays, wanted = _origin(call, str(request.queue), request.sequence)
    if wanted is None:
        return {"messages": histories(stays), "searched": 0, "next": None}
    presence = None if request.selector is None else presence_of(wanted.selector)
    search = _BrokerSearch(call, wanted, request.count, presence)
    following = None
    try:
        for stay in search.stays(None if request.sequence is not None else request.queue, resume):
            stays.append(stay)
    except _Interrupted as limit:
        following = limit.place.to_json()
    reply = {"messages": histories(stays), "searched": search.scanned, "next": following}
    return with_hints(reply, [*compared_hints(presence), *search.hints])


def _check(request: Trace) -> None:
    ways = [name for name in ("id", "sequence", "selector") if getattr(request, name) is not None]
    if len(ways) != 1:
        raise errors.InvalidRequest("message.trace: name the message by one of the fields 'id', 'sequence' and 'selector'")
    if request.sequence is not None and request.queue is None:
        raise errors.InvalidRequest("message.trace: the field 'sequence' needs the field 'queue'")
    if request.id is not None and not 0 < len(request.id.encode()) <= MAX_ID_BYTES:
        raise errors.InvalidRequest(f"message.trace: the field 'id' must have 1 to {MAX_ID_BYTES:,} bytes")
    if request.count > MAX_STAYS:
        raise errors.InvalidRequest(f"message.trace: field 'count' must be 1 to {MAX_STAYS:,}, not {request.count}")


def _of_ids(text: str, columns: tuple[str, ...]) -> _Wanted:
    names = {"messageId": "amqp.message_id", "correlationId": "amqp.correlation_id"}
    quoted = "'" + text.replace("'", "''") + "'"
    selector = parse(" OR ".join(f"{names[column]} = {quoted}" for column in columns))
    return _Wanted(tuple({text: None, id_text(text): None}), columns, selector)


def _origin(call: ActionCall, queue: str, sequence: int) -> tuple[list[Row], _Wanted | None]:
    """Find a message by its place. Return its stay there, and the search for its other stays. A message of a former queue is
    found if the present queue has no message with the number.

    A message without an id is searched by its payload in the journal. If only the archive has it, nothing identifies its other
    stays, except the first queue of a dead letter.
    """
    search = _BrokerSearch(call, _Wanted(), MAX_STAYS, None)
    search.check(queue)
    stays = list(search.at(queue, sequence))
    latest = max((stay.get(_QUEUE_ID, math.inf) for stay in stays), default=None)
    stays = [stay for stay in stays if stay.get(_QUEUE_ID, math.inf) == latest]
    if not stays:
        raise errors.MessageNotFound(
            f"queue {queue!r} has no message {sequence:,} any more, or never had it: settled messages leave the journal by its"
            " retention, and only the archive then has them"
        )
    if "messageId" in stays[0]:
        return stays, _of_ids(stays[0]["messageId"], ("messageId",))
    if search.payload is not None:
        return stays, _Wanted(payload=search.payload)
    death = stays[0].get("death")
    if death and death["queue"] in call.service.state.queues and call.caller.may(Right.BROWSE, death["queue"]):
        stays += [stay for stay in search.at(death["queue"], death["sequence"]) if "deleted" not in stay]
    return stays, None


class _BrokerSearch:
    """One call's search."""

    def __init__(self, call: ActionCall, wanted: _Wanted, count: int, presence: Presence | None) -> None:
        self._call, self._service, self._wanted, self._presence = call, call.service, wanted, presence
        self._left = count
        self._until, self._has_begun = time.monotonic() + SEARCH_S, False
        self.scanned = 0
        self.payload: tuple[int, int] | None = None  # log position and row of the last message of `at`
        self._hidden: list[str] = []  # queues whose settled messages the caller may not see
        self._unrecorded: list[str] = []  # deleted queues with messages that are not recorded yet
        self._unreachable: list[str] = []  # errors of the archive about deleted queues

    @property
    def hints(self) -> list[str]:
        reasons = ((self._hidden, f"that needs the right {Right.REPLAY.value}"), (self._unrecorded, _NOT_YET))
        texts = [f"settled messages of {_some(names)} were not searched: {reason}" for names, reason in reasons if names]
        if self._unreachable:
            texts.append(f"deleted queues were not searched: {_some(self._unreachable)}")
        return texts

    def check(self, queue: str) -> None:
        """Raises QueueNotFound unless the queue exists, or has a table from before its deletion."""
        if queue not in self._service.state.queues and queue not in self._former():
            need_queue(self._service.state, queue)

    def _former(self) -> set[str]:
        if self._service.archive is None:
            return set()
        try:
            return former_queues(self._service.archive, self._service.broker_id, list(self._service.state.queues))
        except errors.ArchiveUnreachable as error:
            self._unreachable.append(str(error))
            return set()

    def stays(self, only: str | None, resume: _Place | None) -> Iterator[Row]:
        """Search queues by name, also deleted ones. Raises _Interrupted."""
        if only is not None:
            self.check(only)
        for name in [only] if only is not None else sorted({*self._service.state.queues, *self._former()}):
            if resume is not None and name < resume.queue:
                continue
            place = resume if resume is not None and name == resume.queue else _Place(queue=name)
            if self._call.caller.may(Right.BROWSE, name):
                yield from self._of_queue(place)

    def at(self, queue: str, sequence: int) -> Iterator[Row]:
        """Find a message by its place, also in former queues with this name."""
        with contextlib.suppress(errors.QueueNotFound):
            yield from self._state_at(queue, sequence)
        yield from self._recorded(_Place(queue=queue, archive=True), sequence)

    def _state_at(self, queue: str, sequence: int) -> Iterator[Row]:
        select, packed = self._selection(queue)
        for part in self._service.browse(queue, select, sequence, sequence, packed):
            rows = np.array([sequence - part.base])
            for part in self._service.browse(queue, partial(of_these, select, rows), sequence, sequence, packed):
                if row_count(part.rows):
                    self.payload = int(part.locations.positions()[0]), int(part.locations.payload_rows()[0])
                yield from self._rows(queue, part)

    def _of_queue(self, place: _Place) -> Iterator[Row]:
        if not place.archive:
            with contextlib.suppress(errors.QueueNotFound):  # it was deleted
                yield from self._state(place)
        if self._wanted.payload is None:
            yield from self._recorded(place if place.archive else _Place(queue=place.queue, archive=True))

    # The state
    def _selection(self, queue: str) -> tuple[Select, Callable[[PackedBlock], object]]:
        """Return the rows that the table lacks, or without the right `replay` the live ones."""
        if not self._may_see_settled(queue):
            return _live, lambda entry: False
        table = self._service.table(queue)
        if table is None:
            return _all, _any
        return beyond(_all, table.last_recording), may_be_beyond(_any, table.last_recording)

    def _may_see_settled(self, queue: str) -> bool:
        may = self._call.caller.may(Right.REPLAY, queue)
        if not may and queue not in self._hidden:
            self._hidden.append(queue)
        return may

    def _state(self, place: _Place) -> Iterator[Row]:
        queue = place.queue
        select, packed = self._selection(queue)
        for part in self._service.browse(queue, select, place.sequence, None, packed):
            base = part.base
            if self._is_over():
                raise _Interrupted(_Place(queue=queue, sequence=max(base, place.sequence)))
            self.scanned, self._has_begun = self.scanned + row_count(part.rows), True
            rows = self._matches(queue, part)
            rows = rows[rows + base >= place.sequence]
            if not len(rows):
                continue
            first, rest = rows[: self._left], rows[self._left :]
            last = base + BLOCK_ROWS - 1
            for again in self._service.browse(queue, partial(of_these, select, first), base, last, packed):
                yield from self._rows(queue, again)
            self._left -= len(first)
            if len(rest):
                raise _Interrupted(_Place(queue=queue, sequence=base + int(rest[0])))

    def _matches(self, queue: str, part: BlockSlice) -> npt.NDArray[np.int64]:
        if not row_count(part.rows):
            return np.zeros(0, np.int64)
        if self._wanted.payload is not None:
            position, row = self._wanted.payload
            locations = part.locations
            is_same = (locations.positions() == position) & (locations.payload_rows() == row)
            rows: npt.NDArray[np.int64] = as_array(part.rows)[is_same]
            return rows
        assert self._wanted.selector is not None
        return self._call.browses.matches(queue, part, self._wanted.selector, self._presence)

    def _rows(self, queue: str, part: BlockSlice) -> Iterator[Row]:
        if not row_count(part.rows):
            return
        rows = as_array(part.rows)
        facts = self._service.facts(queue, part.base >> BLOCK_BITS, rows)
        by_place = self._wanted.payload is not None or self._wanted.selector is None
        places = list(zip(part.locations.positions(), part.locations.payload_rows(), strict=True)) if by_place else []
        for batch in self._call.browses.batches([part], BatchRequest(COLUMNS, queue)):
            for row in batch.to_pylist():
                stay = _stay(queue, row, is_recorded=False)
                if by_place and "messageId" not in stay:
                    position, payload_row = places[int(np.searchsorted(rows, row["sequenceNumber"] - part.base))]
                    stay["payload"] = f"{position}:{payload_row}"
                yield _with_facts(stay, facts[row["sequenceNumber"]])

    # The table
    def _recorded(self, place: _Place, sequence: int | None = None) -> Iterator[Row]:
        queue = place.queue
        table = self._service.table_with_former(queue) if self._may_see_settled(queue) else None
        if table is None:
            return
        if sequence is None and self._is_over():
            raise _Interrupted(place)
        if any(gone.name == queue for gone in list(self._service.state.departed.values())):
            self._unrecorded.append(queue)
        try:
            yield from self._rows_of_table(table, place, sequence)
        except (errors.ArchiveUnreachable, errors.ArchiveUnsupported) as error:
            if table.version != NO_TABLE:
                raise
            if not isinstance(error, files.NoTable):
                self._unreachable.append(str(error))

    def _rows_of_table(self, table: Table, place: _Place, sequence: int | None) -> Iterator[Row]:
        queue = place.queue
        bounds = table.bounds._replace(former=True)
        if sequence is not None:
            bounds = bounds._replace(first=sequence, last=sequence)
        version = files.version(table, bounds, place.version)
        self._has_begun = True
        if version.queue != queue and table.version == NO_TABLE:  # the copy of another table
            return
        remaining = version.files[place.file :]
        number, row = place.file, 0
        for batch in self._batches(table, remaining, bounds):
            if batch is None:
                number, row, self._has_begun = number + 1, 0, True
                if sequence is None and self._is_over() and number < len(version.files):
                    raise _Interrupted(_Place(queue=queue, archive=True, version=version.number, file=number))
                continue
            known = min(batch.num_rows, max(0, place.row - row)) if number == place.file else 0
            row += known
            batch = batch.slice(known, self._left + 1)
            queue_ids = batch.column(_QUEUE_ID).to_pylist()
            for queue_id, values in zip(queue_ids, rows_of_read(COLUMNS, batch, queue).select(COLUMNS).to_pylist(), strict=True):
                row += 1
                if self._left <= 0:
                    raise _Interrupted(_Place(queue=queue, archive=True, version=version.number, file=number, row=row - 1))
                self._left -= 1
                is_former = queue_id != table.queue_id
                stay = _stay(queue, values, is_recorded=True)
                yield {**stay, "deleted": True, _QUEUE_ID: queue_id} if is_former else stay

    def _batches(self, table: Table, listed: list[files.File], bounds: Bounds) -> Iterator[pa.RecordBatch | None]:
        """Yield the matching rows of each file, and None after each file."""
        wanted, columns = self._wanted, [*COLUMNS, _QUEUE_ID]
        if wanted.ids:
            yield from (rows for _, rows in ids.batches(table, listed, wanted.ids, columns, bounds, wanted.columns))
            return
        text = None if wanted.selector is None else wanted.selector.text
        for file in listed:
            yield from self._call.archive.of_file(table, file, columns, bounds, text, self._presence)
            yield None

    def _is_over(self) -> bool:
        """True at the limits. Each call searches at least one block or file, so the next one gets further."""
        is_late = self.scanned >= MAX_SCANNED or time.monotonic() > self._until or self._call.caller.is_gone()
        return self._has_begun and (is_late or self._left <= 0)


_NOT_YET = "their queue was deleted, and they are not recorded yet; search again in a few seconds"


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3:,} more" if len(texts) > 3 else "")


def _all(block: Block) -> Rows:
    return slice(0, block.filled)


def _any(entry: PackedBlock) -> bool:
    return True


def _live(block: Block) -> Rows:
    return np.flatnonzero(block.state[: block.filled] != ARCHIVED)


def _stay(queue: str, row: Row, *, is_recorded: bool) -> Row:
    annotations = dict(row["annotations"] or ())
    death = {name: annotations[key] for name, key in _DEATH.items() if annotations.get(key) is not None}
    stay = {**shown({**row, "annotations": None, "failures": None}, []), "queue": queue, "recorded": is_recorded}
    if row["failures"] is not None:
        stay["failures"] = json.loads(row["failures"])
    stay |= {name: _exact(row[name]) for name in ("enqueuedTime", "settledTime") if row[name] is not None}
    if "reason" in death and "sequence" in death:
        stay["death"] = {**death, "sequence": int(death["sequence"])}
    return stay


def _exact(moment: datetime) -> str:
    """Keep microseconds, by which the stays of a message follow one another."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _with_facts(stay: Row, facts: StayFacts) -> Row:
    if facts.holder is not None:
        stay["holder"] = facts.holder
    if facts.due is not None:
        stay["due"] = _exact(datetime.fromtimestamp(facts.due / 1000, timezone.utc))
    if facts.batches:
        stay["batches"] = [
            {
                "lease": batch.lease,
                "batch": batch.number,
                "state": batch.state,
                "reads": [{"query": read.query, "batch": read.number} for read in batch.reads],
            }
            for batch in facts.batches
        ]
    return stay

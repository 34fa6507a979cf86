"""The stream reader of `mode=replay`: recorded messages once more, out of the archive's table. It takes and settles nothing.

An offset names a set of rows that never changes: a version of the table, and the passes of the archiver that are read of it.
Within the set it goes by sequence numbers, which is the order of arrival. So whoever restarts gets the same rows in the same
batches. The newest version has these rows too, in other files, except for days that retention has taken out since. Where it may
have taken some, the rows come from the version that the offset names, as long as its commits and files are there.

A set with an end is all. Without an end the passes since are the next set: at once, or where the query is to end, of a later run
with its checkpoint. So what is settled and not recorded yet comes later, once, and nothing waits for it.

The pace is kept by the planner: as many times as fast as they came, from the first message on that this process plans. That one
goes alone, and the pace counts from the end of its batch: Spark takes seconds for the first batch of a query, and the messages
behind it would all be due by then. A restart goes on from where it was.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ...broker_core.archive.read.bounds import Bounds, common
from ...broker_core.archive.read.files import File, Table, tasks
from ...broker_core.client.flight import Client
from ...broker_core.errors import ArchiveUnreachable, DataLoss, InvalidColumn, WrongOffset
from ..identity import Identity, identity_of
from ..offset import INITIAL, ReplayOffset, parse_replay
from ..options import REPLAY, Options
from ..reporting import reports_errors
from ..schema import check_source
from ..suggestions import SelectorHints
from ..task.archive import read_recorded, version_of
from ..task.batching import as_declared
from ..task.partition import RecordedPartition

#: Messages of one batch where `maxMessagesPerTrigger` says nothing: some seconds of reading, which a restart repeats at most.
DEFAULT_MESSAGES = 10_000_000
LOOK_S = 0.5  # between two looks of a query that goes on, while nothing is recorded: Spark would ask a hundred times a second
LISTED_S = 60.0  # after which files are listed again: those that compaction has replaced are removed after a while
WAIT_S = 1.0  # a query that waits for its pace says so each second, by a batch of nothing, so that it can be stopped


@reports_errors
class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is recorded of a queue, as a stream. Connects at its first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(REPLAY)
        check_source(schema, stream=False)
        if "delivery" in schema.names:
            raise InvalidColumn("column 'delivery' is for streams that acquire: nothing of a replay can be settled")
        self._options = options
        self._queue: str = options["queue"][0]
        self._columns = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        self._limit: int = options["maxMessagesPerTrigger"] or DEFAULT_MESSAGES
        self._ends = options["endingSequence"] is not None or options["endingTimestamp"] is not None
        self._available_now = False
        self._hints = SelectorHints()
        self._all: Table | None = None  # the table with all that a query reads that is to end
        self._client: Client | None = None
        self._files: _Listed | None = None  # of a set
        self._first: tuple[ReplayOffset | None, int] | None = None  # the offset of the first batch, and when its message came
        self._clock: tuple[float, int] | None = None  # when the pace began, and that time
        self._next: tuple[tuple[Any, ...], int] | None = None  # an offset, and when the next message after it came

    # --- In the planner ------------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        """Ask which broker it is."""
        return identity_of(self._connected())

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which every replay begins."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is recorded now, and end."""
        self._available_now = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset after the next batch, or `start` where there is nothing more, or nothing yet."""
        known = parse_replay(start)
        if self._clock is None and self._first is not None and known != self._first[0]:
            self._clock = time.monotonic(), self._first[1]  # the first batch has been read
        found = self._begun() if known is None else known
        if found is not None and found.next > self._last(found):
            found = self._following(found)
        if found is None or (known is not None and found == known and found.next > self._last(found)):
            if not self._available_now:
                time.sleep(LOOK_S)
            return dict(start)
        after = self._after(found, known, wait=not isinstance(limit, ReadAllAvailable))
        if after == found and known is not None and self._available_now:
            return found._replace(waits=found.waits + 1).to_json()  # not the end: the next message has not come yet, at this pace
        return after.to_json() if known is None or after != known else dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of the rows between two offsets."""
        before, until = parse_replay(start), parse_replay(end)
        if until is None:
            return []
        self._hints.log_of(self._options["selector"])
        same = before is not None and before[:5] == until[:5]
        first = before.next if before is not None and same else 0
        bounds = self._bounds(until)
        bounds = bounds._replace(first=max(bounds.first, first), last=until.next - 1)
        if bounds.last is not None and bounds.last < bounds.first:
            return []
        table = self._table(until)
        files = [
            file
            for file in self._listed(until, until.days[0], bounds.first)
            if file.last >= bounds.first and file.first < until.next
        ]
        most, least, selector = (self._options[name] for name in ("maxMessagesPerPartition", "minPartitions", "selector"))
        where = (self._connected().endpoint, self._queue, table.url)
        return [RecordedPartition(*where, shares, bounds, self._columns, selector) for shares in tasks(files, most, least)]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: nothing was taken."""

    def stop(self) -> None:
        """Close the connection. Spark 4.2 does not call this."""
        if self._client is not None:
            self._client.close()

    # --- The set of rows -----------------------------------------------------------------------------------------------

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._options.access.client()
        return self._client

    def _known(self) -> Table | None:
        if self._all is not None:
            return self._all
        answer = self._connected().call("archive.plan", queue=self._queue, states=["archived"], first=2**62)
        found = None if answer["table"] is None else Table.of_fields(answer["table"])
        if self._available_now:
            self._all = found
        return found

    def _table(self, of: ReplayOffset) -> Table:
        """Look up where the table is. Raises WrongOffset where it is not the one that the replay began with."""
        table = self._known()
        same = table is not None and (table.broker, table.queue_id) == (of.broker, of.queue_id)
        if table is None or not same or common(table.lineages, of.lineages) is None:
            raise WrongOffset(
                f"the checkpoint belongs to queue {self._queue!r} of broker {of.broker}, declared as its number {of.queue_id},"
                " and that one is not there: it is another broker, or the queue was deleted. Start with a new checkpoint"
            )
        return table

    def _begun(self) -> ReplayOffset | None:
        """The offset before all that is recorded now."""
        table = self._known()
        return None if table is None else self._fixed(table, 0)

    def _following(self, done: ReplayOffset) -> ReplayOffset | None:
        """The offset before what has been recorded since; `done` where nothing was, or no more is wanted."""
        if self._ends:
            return done
        table = self._table(done)
        after = common(table.lineages, done.lineages) or 0  # of another number than the last where the broker was restored
        return done if table.passes == after else self._fixed(table, after)

    def _fixed(self, table: Table, after: int) -> ReplayOffset | None:
        found = ReplayOffset(table.broker, table.queue_id, 0, after, table.lineages, 0)
        bounds = self._bounds(found)
        listed = version_of(self._connected(), self._queue, table, bounds)
        found = found._replace(version=listed.number)
        self._files = _Listed(found[:5], listed.files, None, time.monotonic())
        if not listed.files:
            return None
        first, last = min(file.first for file in listed.files), max(file.last for file in listed.files)
        return self._moved(found._replace(next=max(bounds.first, first), last=last), max(bounds.first, first))

    def _bounds(self, of: ReplayOffset) -> Bounds:
        first, last, since, until, outcome = (
            self._options[name]
            for name in ("startingSequence", "endingSequence", "startingTimestamp", "endingTimestamp", "outcome")
        )
        return Bounds(of.queue_id, of.lineages, of.after, first or 0, last, since, until, None, None, outcome)

    def _listed(self, of: ReplayOffset, day: str | None = None, first: int | None = None) -> list[File]:
        """The files of the set that may have rows, of those that came on `day` or later and are numbered `first` or higher: by
        default of those behind the offset. Raises DataLoss where some are gone."""
        day, first = (of.days[1], of.next) if first is None else (day, first)
        known = self._files
        if known is None or not known.has(of, day) or time.monotonic() - known.at > LISTED_S:
            files, since = self._found(of, day, first)
            self._files = known = _Listed(of[:5], files, since, time.monotonic())
        return known.files

    def _found(self, of: ReplayOffset, day: str | None, first: int) -> tuple[list[File], str | None]:
        """List the files as `_listed` does, with the day since when all rows of the set are in them; None: they all are.

        Retention removes whole days, and every day before one that it removes. So all rows from a day on are there if one of
        that day or of an earlier one is. Days that it has removed may still be in the version with which the replay began. Only
        these are taken from there: of later days, compaction may have replaced the files that it names. If other programs have
        deleted rows since, none are taken.
        """
        where = (self._connected(), self._queue, self._table(of), self._bounds(of))
        newest = version_of(*where)
        since = _least_day(newest.files)
        if newest.number == of.version:
            return newest.files, None
        if day is not None and since is not None and since <= day:
            return newest.files, since
        try:
            listed = version_of(*where, of.version)
        except ArchiveUnreachable as error:
            if self._options["failOnDataLoss"]:
                raise self._loss(newest.files, first, since) from error
            return newest.files, None
        if listed.is_outdated:  # they may have been rows of the days that are gone, which must not come back
            if self._options["failOnDataLoss"]:
                raise self._loss(newest.files, first, since)
            return newest.files, None
        begun = listed.files
        if since is None or any(file.day is None for file in begun):
            return begun, None
        removed = [file for file in begun if file.day is not None and file.day < since]
        return sorted([*removed, *newest.files], key=lambda file: (file.first, file.path)), None

    def _loss(self, left: list[File], first: int, since: str | None) -> DataLoss:
        following = min((file.first for file in left if file.last >= first), default=None)
        gone = f"messages from {first} on" if following is None or following <= first else f"messages {first} to {following - 1}"
        came = "" if since is None else f" that came before {since}"
        return DataLoss(
            f"{gone} of queue {self._queue!r}{came} may be gone: retention has removed old days from the archive, and the version"
            " of the table with which the replay began is cleaned up, or other programs have deleted rows since. With"
            " failOnDataLoss=false it goes on with what is left"
        )

    def _moved(self, at: ReplayOffset, following: int) -> ReplayOffset:
        """The offset before the row `following`, after a batch from `at` on."""
        files = self._listed(at)
        return at._replace(next=following, days=(_least_day(files, at.next), _least_day(files, following)))

    def _last(self, of: ReplayOffset) -> int:
        ending = self._options["endingSequence"]
        return of.last if ending is None else min(of.last, ending)

    # --- A batch -------------------------------------------------------------------------------------------------------

    def _after(self, at: ReplayOffset, start: ReplayOffset | None, *, wait: bool) -> ReplayOffset:
        """The offset after a batch from `start` on of at most as many messages as there may be, and as the pace allows."""
        if not self._options["pace"]:
            return self._moved(at, cut(self._listed(at), at.next, self._last(at), self._limit))
        came = self._next_came(at)
        if came is None:  # nothing more is within the bounds
            return self._moved(at, self._last(at) + 1)
        if self._clock is None:
            self._first = start, came
            return self._until(at, came)
        give_up = time.monotonic() + (WAIT_S if wait else 0)
        begun, first = self._clock
        due = begun + (came - first) / 1e6 / self._options["pace"]
        now = time.monotonic()
        while now < due:
            if now >= give_up:
                return at
            time.sleep(min(due, give_up) - now)
            now = time.monotonic()
        return self._until(at, max(came, first + int((now - begun) * self._options["pace"] * 1e6)))

    def _next_came(self, at: ReplayOffset) -> int | None:
        """The time of arrival of the next message, microseconds since 1970; None: there is none."""
        if self._next is None or self._next[0] != at[:6]:
            came, bounds = None, self._bounds(at)._replace(first=at.next)
            for file in self._listed(at):  # by their first messages; the next one may be in any of those that overlap
                while _may_have(file, bounds) and (found := self._least(at, file, bounds)) is not None:
                    came, bounds = found[1], bounds._replace(last=found[0] - 1)
            if came is None:
                return None
            self._next = at[:6], came
        return self._next[1]

    def _least(self, at: ReplayOffset, file: File, bounds: Bounds) -> tuple[int, int] | None:
        """The least sequence number of a file's first batch within the bounds, and its time of arrival; None: it has none."""
        import pyarrow.compute as pc

        for batch in self._read(at, [file], bounds):
            if batch.num_rows:
                numbers = batch.column("sequenceNumber")
                least = pc.min(numbers)
                return least.as_py(), batch.column("enqueuedTime").cast(pa.int64())[pc.index(numbers, least).as_py()].as_py()
        return None

    def _until(self, at: ReplayOffset, last: int) -> ReplayOffset:
        """The offset after the messages that came up to that time, and are at most as many as there may be."""
        import pyarrow.compute as pc

        bounds = self._bounds(at)
        until = last + 1 if bounds.until is None else min(last + 1, bounds.until)
        end = cut(self._listed(at), at.next, self._last(at), self._limit)
        bounds = bounds._replace(first=at.next, last=end - 1, until=until)
        found = self._read(at, [file for file in self._listed(at) if _may_have(file, bounds)], bounds)
        return self._moved(at, max((pc.max(batch.column("sequenceNumber")).as_py() + 1 for batch in found), default=end))

    def _read(self, at: ReplayOffset, files: Sequence[File], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        where = (self._connected().endpoint, self._queue, self._table(at).url)
        shares = [file.share() for file in files]
        yield from self._rows(RecordedPartition(*where, shares, bounds, ["sequenceNumber", "enqueuedTime"]))

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        found: Iterator[pa.RecordBatch] = iter(())  # Spark makes one partition of nothing where there is none
        if isinstance(partition, RecordedPartition):
            found = self._rows(partition)
        return as_declared(found, self._nullable)

    def _rows(self, part: RecordedPartition) -> Iterator[pa.RecordBatch]:
        access = self._options.access.of(part.broker_url)
        return read_recorded(part, access, fail_on_data_loss=self._options["failOnDataLoss"])


class _Listed(NamedTuple):
    """Files of a set, as they were listed at `at` of the monotonic clock. They have all rows since a day; None: all rows."""

    set: tuple[Any, ...]
    files: list[File]
    since: str | None
    at: float

    def has(self, of: ReplayOffset, day: str | None) -> bool:
        """Say whether the rows of this offset's set that came on a day, or later, are in them."""
        return self.set == of[:5] and (self.since is None or (day is not None and self.since <= day))


def _least_day(files: Sequence[File], first: int = 0) -> str | None:
    """Return the first day of arrival of what files may have from a sequence number on; None: not known, or nothing."""
    days = [file.day for file in files if file.last >= first]
    return None if None in days else min((day for day in days if day is not None), default=None)


def _may_have(file: File, bounds: Bounds) -> bool:
    """Say whether a file may have sequence numbers within the bounds."""
    return file.last >= bounds.first and (bounds.last is None or max(file.first, bounds.first) <= bounds.last)


def cut(files: Sequence[File], first: int, last: int, limit: int) -> int:
    """Return a sequence number before which, from `first` on, files have at most `limit` rows, and at least one if one file
    allows; the number after `last` where these are all."""

    def rows(end: int) -> int:
        """At most so many rows lie before it."""
        return sum(min(file.rows, max(0, min(end - 1, file.last) - max(first, file.first) + 1)) for file in files)

    if rows(last + 1) <= limit:
        return last + 1
    return first + max(1, bisect_right(range(last + 1 - first + 1), limit, key=lambda length: rows(first + length)) - 1)

"""The stream reader of `mode=replay`, which acquires no messages and reads them from the archive's table.

An offset names a set of rows that never changes: a version of the table, and a range of recordings in it. Within the set, rows
are read by sequence number, which is the order of arrival. So a restarted query gets the same rows in the same batches. The
newest version of the table has these rows in other files, without days that retention has removed. If retention may have removed
some of the rows, they come from the version that the offset names, while its commits and files exist.

With an ending option there is one set. Otherwise later recordings are the next set, of this run or, if the run is to end, of the
next run with the checkpoint. So a message that is settled and not recorded yet comes later, once.

The pace is a multiple of the speed of arrival, from the first message that this process plans. That message is a batch of its
own, and the pace counts from its end. Spark takes seconds for a query's first batch, and other messages would all be due by then.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core.archive.read.bounds import Bounds, common
from ...broker_core.archive.read.files import File, Table, tasks
from ...broker_core.client.flight import Client
from ...broker_core.errors import ArchiveUnreachable, DataLoss, InvalidColumn, WrongOffset
from ..identity import Identity, identity_of
from ..offset import ReplayOffset, parse_replay
from ..options import REPLAY, TIMES, Options, check_times
from ..reporting import reports_errors
from ..schema import check_source
from ..spark_versions import InputPartition, ReadAllAvailable, ReadLimit, ReadMaxRows
from ..suggestions import SelectorHints
from ..task.archive import bounds_of, read_recorded, version_of
from ..task.declared import DeclaredRows
from ..task.partition import RecordedPartition
from .start_tracking import TrackedReader

#: Messages of one batch without `maxMessagesPerTrigger`: some seconds of reading, which a restart may repeat.
DEFAULT_MESSAGES = 10_000_000
LOOK_S = 0.5  # between two looks for new recordings: Spark would ask a hundred times a second
LISTED_S = 60.0  # then files are listed again: files that compaction has replaced are removed after a while
WAIT_S = 1.0  # then a query that waits for its pace returns an empty batch, so that it can be stopped


@reports_errors
class ReplayReader(TrackedReader):
    """Reader that connects at its first call. A replay acquires no messages, so a commit has nothing to do."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(REPLAY)
        check_source(schema, stream=False)
        if "delivery" in schema.names:
            raise InvalidColumn("column 'delivery' is for streams that acquire: messages of a replay cannot be settled")
        self._options = options
        self._queue: str = options["queue"][0]
        self._declared = DeclaredRows.of(schema, options)
        self._limit: int = options["maxMessagesPerTrigger"] or DEFAULT_MESSAGES
        #: Of a query that begins here. If it has begun at other brokers, `SeveralReplays` sets the times of that begin.
        self.times: tuple[int | None, int | None] = (options["startingTimestamp"], options["endingTimestamp"])
        self._ends = options["endingSequence"] is not None or options["endingTimestamp"] is not None
        self._available_now = False
        self._hints = SelectorHints()
        self._last_table: Table | None = None
        self._client: Client | None = None
        self._files: _Listed | None = None
        self._first: tuple[ReplayOffset | None, int] | None = None  # offset, and arrival of its message
        self._clock: tuple[float, int] | None = None  # start of the pace, and the time of arrival there
        self._next: tuple[tuple[Any, ...], int] | None = None  # offset, and arrival of the next message

    # --- In the planner ------------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        return identity_of(self._connected())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return `start` without more messages."""
        known = parse_replay(start)
        if self._clock is None and self._first is not None and known != self._first[0]:
            self._clock = time.monotonic(), self._first[1]  # the first batch has been read
        at = self._begun() if known is None else known
        if at is not None and at.next > self._last(at):
            at = self._following(at)
        if at is None or (known is not None and at == known and at.next > self._last(at)):
            if not self._available_now:
                time.sleep(LOOK_S)
            return dict(start)
        after = self._after(at, known, wait=not isinstance(limit, ReadAllAvailable))
        if after == at and known is not None and self._available_now:
            return at._replace(waits=at.waits + 1).to_json()  # not the end: the next message is not due yet
        return after.to_json() if known is None or after != known else dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
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
        files = [file for file in self._listed(until, until.days[0], bounds.first) if _may_have(file, bounds)]
        most, least, selector = (self._options[name] for name in ("maxMessagesPerPartition", "minPartitions", "selector"))
        where = (self._connected().endpoint, self._queue, table.url)
        return [
            RecordedPartition(*where, shares, bounds, self._declared.columns, selector) for shares in tasks(files, most, least)
        ]

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    # --- The set of rows -----------------------------------------------------------------------------------------------

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._options.access.client()
        return self._client

    def _current_table(self) -> Table | None:
        if self._last_table is not None:
            return self._last_table
        answer = self._connected().call("archive.plan", queue=self._queue, states=["archived"], first=2**62)
        table = None if answer["table"] is None else Table.of_fields(answer["table"])
        if self._available_now:
            self._last_table = table
        return table

    def _table(self, of: ReplayOffset) -> Table:
        """Raises WrongOffset for another table than that with which the replay began."""
        table = self._current_table()
        same = table is not None and (table.broker, table.queue_id) == (of.broker, of.queue_id)
        if table is None or not same or common(table.lineages, of.lineages) is None:
            raise WrongOffset(
                f"the checkpoint belongs to queue {self._queue!r} of broker {of.broker}, declared as its number {of.queue_id},"
                " which does not exist: it is another broker, or the queue was deleted. Start with a new checkpoint"
            )
        return table

    def _begun(self) -> ReplayOffset | None:
        check_times(*self.times)
        table = self._current_table()
        return None if table is None else self._fixed(table, 0, self.times)

    def _following(self, done: ReplayOffset) -> ReplayOffset | None:
        """Return the offset before later recordings; otherwise `done`."""
        if self._ends:
            return done
        table = self._table(done)
        after = common(table.lineages, done.lineages) or 0  # an earlier number if the broker was restored
        return done if table.last_recording == after else self._fixed(table, after, done.times)

    def _fixed(self, table: Table, after: int, times: tuple[int | None, int | None]) -> ReplayOffset | None:
        offset = ReplayOffset(table.broker, table.queue_id, 0, after, table.lineages, 0, times=times)
        bounds = self._bounds(offset)
        listed = version_of(self._connected(), self._queue, table, bounds)
        offset = offset._replace(version=listed.number)
        self._files = _Listed(offset[:5], listed.files, None, time.monotonic())
        if not listed.files:
            return None
        first, last = min(file.first for file in listed.files), max(file.last for file in listed.files)
        begin = max(bounds.first, first)
        return self._moved(offset._replace(next=begin, last=last), begin)

    def _bounds(self, of: ReplayOffset) -> Bounds:
        """Options other than relative times may change at a restart."""
        since, until = map(self._time, TIMES, of.times)
        bounds = bounds_of(self._options)._replace(queue_id=of.queue_id, lineages=of.lineages, after=of.after)
        return bounds._replace(since=since, until=until)

    def _time(self, name: str, at_begin: int | None) -> int | None:
        if name not in self._options.relative:
            absolute: int | None = self._options[name]
            return absolute
        if at_begin is None:
            raise WrongOffset(
                f"the query of this checkpoint began without {name}: leave the option out, give a time such as 2026-11-25T10:00,"
                " or start with a new checkpoint"
            )
        return at_begin

    def _listed(self, of: ReplayOffset, day: str | None = None, first: int | None = None) -> list[File]:
        """Return files of the set with rows from `day` and `first` on; by default after the offset. Raises DataLoss."""
        day, first = (of.days[1], of.next) if first is None else (day, first)
        listed = self._files
        if listed is None or not listed.has(of, day) or time.monotonic() - listed.at > LISTED_S:
            files, since = self._list(of, day, first)
            self._files = listed = _Listed(of[:5], files, since, time.monotonic())
        return listed.files

    def _list(self, of: ReplayOffset, day: str | None, first: int) -> tuple[list[File], str | None]:
        """List the files, and the day from which on they contain all rows of the set; None: they contain all of it.

        Retention removes whole days, the oldest first. So all rows from a day on exist if a row of that day or an earlier one
        does. Only removed days come from the version with which the replay began: compaction may have replaced its other files.
        """
        where = (self._connected(), self._queue, self._table(of), self._bounds(of))
        newest = version_of(*where)
        since = _least_day(newest.files)
        if newest.number == of.version:
            return newest.files, None
        if day is not None and since is not None and since <= day:
            return newest.files, since
        begun, cause = None, None
        try:
            listed = version_of(*where, of.version)
            if not listed.is_outdated:  # else other programs may have deleted rows of these days, which must not come back
                begun = listed.files
        except ArchiveUnreachable as error:
            cause = error
        if begun is None:
            if self._options["failOnDataLoss"]:
                raise self._loss(newest.files, first, since) from cause
            return newest.files, None
        if since is None or any(file.day is None for file in begun):
            return begun, None
        removed = [file for file in begun if file.day is not None and file.day < since]
        return sorted([*removed, *newest.files], key=lambda file: (file.first, file.path)), None

    def _loss(self, left: list[File], first: int, since: str | None) -> DataLoss:
        following = min((file.first for file in left if file.last >= first), default=None)
        gone = f"messages from {first} on" if following is None or following <= first else f"messages {first} to {following - 1}"
        came = "" if since is None else f" that came before {since}"
        return DataLoss(
            f"{gone} of queue {self._queue!r}{came} may be gone. Retention has removed old days from the archive, and the version"
            " of the table with which the replay began is cleaned up, or other programs have deleted rows since. With"
            " failOnDataLoss=false it continues with the remaining messages"
        )

    def _moved(self, at: ReplayOffset, following: int) -> ReplayOffset:
        files = self._listed(at)
        return at._replace(next=following, days=(_least_day(files, at.next), _least_day(files, following)))

    def _last(self, of: ReplayOffset) -> int:
        ending = self._options["endingSequence"]
        return of.last if ending is None else min(of.last, ending)

    # --- A batch -------------------------------------------------------------------------------------------------------

    def _after(self, at: ReplayOffset, start: ReplayOffset | None, *, wait: bool) -> ReplayOffset:
        if not self._options["pace"]:
            return self._moved(at, cut(self._listed(at), at.next, self._last(at), self._limit))
        came = self._next_came(at)
        if came is None:
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
        if self._next is None or self._next[0] != at[:6]:
            came, bounds = None, self._bounds(at)._replace(first=at.next)
            for file in self._listed(at):  # the next message may be in any file that overlaps
                while _may_have(file, bounds) and (least := self._least(at, file, bounds)) is not None:
                    came, bounds = least[1], bounds._replace(last=least[0] - 1)
            if came is None:
                return None
            self._next = at[:6], came
        return self._next[1]

    def _least(self, at: ReplayOffset, file: File, bounds: Bounds) -> tuple[int, int] | None:
        """Return the least sequence number of a file's first batch within the bounds, and its arrival."""
        import pyarrow.compute as pc

        for batch in self._read(at, [file], bounds):
            if batch.num_rows:
                numbers = batch.column("sequenceNumber")
                least = pc.min(numbers)
                return least.as_py(), batch.column("enqueuedTime").cast(pa.int64())[pc.index(numbers, least).as_py()].as_py()
        return None

    def _until(self, at: ReplayOffset, last: int) -> ReplayOffset:
        """Return the offset after the messages that came until then, within the limit."""
        import pyarrow.compute as pc

        bounds = self._bounds(at)
        until = last + 1 if bounds.until is None else min(last + 1, bounds.until)
        end = cut(self._listed(at), at.next, self._last(at), self._limit)
        bounds = bounds._replace(first=at.next, last=end - 1, until=until)
        batches = self._read(at, [file for file in self._listed(at) if _may_have(file, bounds)], bounds)
        return self._moved(at, max((pc.max(batch.column("sequenceNumber")).as_py() + 1 for batch in batches), default=end))

    def _read(self, at: ReplayOffset, files: Sequence[File], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        where = (self._connected().endpoint, self._queue, self._table(at).url)
        shares = [file.share() for file in files]
        yield from self._rows(RecordedPartition(*where, shares, bounds, ["sequenceNumber", "enqueuedTime"]))

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without partitions, Spark makes an empty one.
        rows = self._rows(partition) if isinstance(partition, RecordedPartition) else iter(())
        return self._declared.rows(rows)

    def _rows(self, part: RecordedPartition) -> Iterator[pa.RecordBatch]:
        access = self._options.access.of(part.broker_url)
        return read_recorded(part, access, fail_on_data_loss=self._options["failOnDataLoss"])


class _Listed(NamedTuple):
    """Files with all rows of a set since a day, or all rows; listed at `at` of the monotonic clock."""

    set: tuple[Any, ...]
    files: list[File]
    since: str | None
    at: float

    def has(self, of: ReplayOffset, day: str | None) -> bool:
        return self.set == of[:5] and (self.since is None or (day is not None and self.since <= day))


def _least_day(files: Sequence[File], first: int = 0) -> str | None:
    """Return the first day of arrival from a sequence number on; None also without rows."""
    days = [file.day for file in files if file.last >= first]
    return None if None in days else min((day for day in days if day is not None), default=None)


def _may_have(file: File, bounds: Bounds) -> bool:
    return file.last >= bounds.first and (bounds.last is None or max(file.first, bounds.first) <= bounds.last)


def cut(files: Sequence[File], first: int, last: int, limit: int) -> int:
    """Return the end of a batch from `first` on with at most `limit` rows, or one sequence number; at most `last` + 1."""

    def rows(end: int) -> int:  # at most, before `end`
        return sum(min(file.rows, max(0, min(end - 1, file.last) - max(first, file.first) + 1)) for file in files)

    if rows(last + 1) <= limit:
        return last + 1
    return first + max(1, bisect_right(range(last + 1 - first + 1), limit, key=lambda length: rows(first + length)) - 1)

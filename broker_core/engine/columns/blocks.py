"""Blocks: 64 Ki messages of one queue as columns in memory. Their payloads are reached through runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .attributes import NO_ATTRIBUTES, Attributes
from .failures import Failures
from .limits import NEVER
from .overlays import Overlays
from .rowset import BLOCK_BITS, BLOCK_ROWS, as_array, row_count
from .runs import Locations, Run, Runs, positions_of, relocated
from .series import Ints, RowColumn, Rows, Series, Sizes
from .states import ACQUIRED, ARCHIVED, AVAILABLE, DEFERRED, DELAYED, State
from .waiting import RetriesOfBlock

_FIRST_ROWS = 64  # allocated for a new block: a queue with one message must not cost a whole block
_SCAN_ROWS = 1024  # rows that `_raise_low` examines in one step


class Columns:
    """Persisted columns by row, 0 where never set. To add a column, append it here and raise the version in `packing`."""

    attempts: RowColumn  # unsuccessful deliveries
    holder: RowColumn  # of an ACQUIRED row
    returned: RowColumn  # 1: at least once
    outcome: RowColumn
    settled: RowColumn  # milliseconds after the block's first arrival, plus one; 0: not settled
    priority: RowColumn  # as sent, plus one; 0: not set
    expiry: RowColumn  # in the same unit; 0: never
    due: RowColumn  # in the same unit: the end of the sender's delay, or of the wait for a retry; 0: immediately
    group: RowColumn  # code in the queue's dictionary of groups; 0: none
    closes: RowColumn  # 1: the last of its group
    key: RowColumn  # code in the queue's dictionary of keys
    origin: RowColumn  # queue of a dead letter: index in the queue's origins, plus one; 0: sent here
    came_from: RowColumn  # sequence number of a dead letter in its origin, plus one
    reason: RowColumn  # `Reason` of a dead letter
    stayed: RowColumn  # 1: a dead letter that no other queue could take, ARCHIVED here
    defaulted: RowColumn  # the part of `attempts` that a default outcome ended
    recorded: RowColumn  # see `model.recordings`
    leased: RowColumn  # the part of `attempts` in batches of leases
    taker: RowColumn  # code in the queue's takers; 0: no name
    deferred: RowColumn  # 1: it has been DEFERRED, and returns to this state

    __slots__ = tuple(__annotations__)


COLUMNS = Columns.__slots__


class Block(Columns):
    """Columns of up to `BLOCK_ROWS` messages."""

    # persisted, with COLUMNS
    number: int
    filled: int  # rows in use
    state: npt.NDArray[np.uint8]
    errors: dict[int, str]  # row → error of the consumer that rejected it
    overlays: Overlays  # row → added annotations
    failures: Failures
    sizes: Sizes
    runs: Runs
    # derived
    counts: list[int]  # rows by State
    unrecorded: int  # ARCHIVED rows of which `recorded` is 0
    low: int  # no row before this one is AVAILABLE
    level: npt.NDArray[np.uint8] | None  # of a queue with several levels
    by_level: tuple[npt.NDArray[np.uint16], list[int]] | None  # rows sorted by level, and the begin of each level
    # No row has an earlier time: the first two are milliseconds since 1970, locks are milliseconds of uptime.
    next_expiry: int
    next_due: int
    next_lock: int
    lock: RowColumn  # end of an ACQUIRED row's lock, plus one; 0: no lock
    noted_due: int  # the times of this block in the timetables
    noted_expiry: int
    noted_lock: int
    texts: dict[str, str]  # the texts of `errors`, each once
    retries: RetriesOfBlock | None  # None: unknown, because they have changed

    __slots__ = tuple(__annotations__)

    def __init__(self, number: int) -> None:
        self.number = number
        self.filled = 0
        self.state = np.zeros(_FIRST_ROWS, np.uint8)
        for name in COLUMNS:
            setattr(self, name, RowColumn())
        self.errors, self.texts = {}, {}
        self.overlays, self.failures = Overlays(), Failures()
        self.sizes = Sizes()
        self.runs = Runs.empty()
        self.counts = [0] * len(State)
        self.unrecorded = 0
        self.low = 0
        self.level = self.by_level = self.retries = None
        self.lock = RowColumn()
        self.next_expiry = self.next_due = self.next_lock = NEVER
        self.noted_due = self.noted_expiry = self.noted_lock = NEVER

    @property
    def base(self) -> int:
        """Sequence number of the first row."""
        return self.number << BLOCK_BITS

    @property
    def full(self) -> bool:
        return self.filled == BLOCK_ROWS

    @property
    def live(self) -> int:
        return self.filled - self.counts[ARCHIVED]

    def fill(
        self, count: int, sizes: int | Ints, runs: Sequence[Run], time: int, attributes: Attributes = NO_ATTRIBUTES
    ) -> Ints | None:
        """Add rows. Returns which of them are DELAYED, because they are not due at `time`; None: no row.

        `attributes` have codes of the queue's dictionaries.
        """
        start, stop = self.filled, self.filled + count
        if stop > len(self.state):
            grown = np.zeros(min(BLOCK_ROWS, max(stop, 2 * len(self.state))), np.uint8)
            grown[:start] = self.state[:start]
            self.state = grown
            for name in COLUMNS:
                getattr(self, name).grow(len(grown))
            self.lock.grow(len(grown))
            self.failures.grow(len(grown))
        self.sizes.fill(start, sizes, stop, len(self.state))
        row = start
        for run in runs:
            self.runs.append(row, run.position, run.skip, time)
            row += run.rows
        self.filled = stop
        delayed = None if attributes is NO_ATTRIBUTES else self._take_in(slice(start, stop), attributes, time)
        self.state[start:stop] = AVAILABLE
        available = count
        if delayed is not None:
            self.state[start:stop][delayed] = DELAYED
            self.counts[DELAYED] += int(delayed.sum())
            available -= int(delayed.sum())
        self.counts[AVAILABLE] += available
        if available:
            self.low = min(self.low, start) if self.counts[AVAILABLE] > available else start
        if self.full:
            self.runs.trim()
        return delayed

    def _take_in(self, rows: slice, attributes: Attributes, time: int) -> Ints | None:
        """Returns as `fill`."""
        capacity, base, now = len(self.state), self.base_ms, time // 1000
        for name in ("priority", "closes"):
            if (values := getattr(attributes, name)) is not None:
                getattr(self, name).put(rows, values, capacity)
        for name in ("group", "key"):
            if (coded := getattr(attributes, name)) is not None:
                getattr(self, name).put(rows, coded.codes, capacity)
        if attributes.expiry is not None:
            self.expiry.put(rows, _relative(attributes.expiry, base), capacity)
            self.next_expiry = min(self.next_expiry, _earliest(attributes.expiry))
        if attributes.due is None:
            return None
        delayed: Ints = attributes.due > now
        self.due.put(rows, _relative(attributes.due, base), capacity)
        self.next_due = min(self.next_due, _earliest(attributes.due[delayed]))
        return delayed if delayed.any() else None

    @property
    def base_ms(self) -> int:
        """Time from which `expiry` and `due` count, in milliseconds since 1970."""
        return self.runs.time[0] // 1000

    def expired(self, rows: Rows, now: int) -> npt.NDArray[np.bool_]:
        return self._passed(self.expiry, rows, now)

    def is_due(self, rows: Rows, now: int) -> npt.NDArray[np.bool_]:
        return self._passed(self.due, rows, now)

    def _passed(self, column: RowColumn, rows: Rows, now: int) -> npt.NDArray[np.bool_]:
        """`now`: milliseconds since 1970."""
        values = column.get(rows)
        if isinstance(values, int):
            return np.zeros(row_count(rows), np.bool_)
        passed: npt.NDArray[np.bool_] = (values > 0) & (values <= max(0, now - self.base_ms + 1))
        return passed

    def times(self, column: RowColumn, rows: Rows) -> npt.NDArray[np.int64] | None:
        """Milliseconds since 1970, 0: not set. None: no row has a time."""
        values = column.get(rows)
        if isinstance(values, int):
            return None
        return np.where(values > 0, values.astype(np.int64) - 1 + self.base_ms, 0)

    def delay_until(self, rows: Rows, time: int) -> None:
        """`time`: milliseconds since 1970."""
        self.due.set(rows, max(time - self.base_ms, 0) + 1, len(self.state))
        self.next_due = min(self.next_due, time)

    def lock_until(self, rows: Rows, time: int) -> None:
        """`time`: milliseconds of uptime; NEVER: no lock."""
        self.lock.set(rows, 0 if time == NEVER else time + 1, len(self.state))
        self.next_lock = min(self.next_lock, time)

    def unlocked(self, now: int) -> Ints:
        """`now`: milliseconds of uptime."""
        values = self.lock.get(slice(0, self.filled))
        if isinstance(values, int):
            return np.zeros(0, np.int64)
        return np.flatnonzero((self.state[: self.filled] == ACQUIRED) & (values > 0) & (values <= now + 1))

    def look_ahead(self, now: int = 0) -> None:
        """A row that has expired at `now` (milliseconds since 1970) is never due: it is archived later."""
        state = self.state[: self.filled]
        self.next_expiry = self.next_due = self.next_lock = NEVER
        if self.expiry.values is not None:
            self.next_expiry = self._next(self.expiry, (state == AVAILABLE) | (state == DELAYED)) + self.base_ms
        if self.due.values is not None:
            expired = self.expired(slice(0, self.filled), now)
            self.next_due = self._next(self.due, (state == DELAYED) & ~expired) + self.base_ms
        if self.lock.values is not None:
            self.next_lock = self._next(self.lock, state == ACQUIRED)

    def _next(self, column: RowColumn, among: npt.NDArray[np.bool_]) -> int:
        values = np.asarray(column.get(slice(0, self.filled)))
        waiting = values[among & (values > 0)]
        return int(waiting.min()) - 1 if len(waiting) else NEVER

    def move(self, rows: Rows, count: int, source: int, target: int) -> None:
        self.state[rows] = target
        self.counts[source] -= count
        self.counts[target] += count
        if DELAYED in (source, target):
            self.retries = None
        if target == AVAILABLE:
            self.low = min(self.low, rows.start if isinstance(rows, slice) else int(rows[0]))
        elif source == AVAILABLE:
            self._raise_low()

    def archive(self, rows: Rows, outcome: int, time: int, taker: int = 0) -> None:
        capacity = len(self.state)
        self.outcome.set(rows, outcome, capacity)
        self.settled.set(rows, max(0, time - self.runs.time[0]) // 1000 + 1, capacity)
        self.taker.set(rows, taker, capacity)

    def note_failure(self, rows: Rows, cause: int, time: int, taker: int, error: str | None = None) -> None:
        """`cause`, `taker`: as in `FailedDelivery`; `time`: microseconds since 1970."""
        self.failures.note(rows, cause, max(0, time - self.runs.time[0]) // 1000 + 1, taker, error, len(self.state))

    def note_errors(self, errors: Mapping[int, str]) -> None:
        once = self.texts.setdefault
        self.errors.update({row: once(text, text) for row, text in errors.items()})
        if len(self.texts) > 2 * len(self.errors) + _FIRST_ROWS:  # texts of rows that have another error now
            self.texts = {text: text for text in self.errors.values()}

    def of_level(self, level: int) -> npt.NDArray[np.uint16] | None:
        """Return the rows of a level, ascending; None: all. Only for a full block, whose levels no longer change."""
        if self.by_level is None:
            assert self.level is not None
            counts = np.bincount(self.level, minlength=level + 1)
            order: Ints = np.argsort(self.level, kind="stable") if counts.max() < len(self.level) else np.zeros(0, np.int64)
            self.by_level = order.astype(np.uint16), [0, *np.cumsum(counts).tolist()]
        order, begins = self.by_level
        if level + 1 >= len(begins):
            return order[:0]
        begin, end = begins[level], begins[level + 1]
        return None if end - begin == BLOCK_ROWS else order[begin:end]

    def _raise_low(self) -> None:
        """Each row is passed once, so the total cost is small."""
        if not self.counts[AVAILABLE]:
            self.low = self.filled
            return
        while self.low < self.filled:
            window = self.state[self.low : min(self.filled, self.low + _SCAN_ROWS)] == AVAILABLE
            step = int(window.argmax())
            if window[step]:
                self.low += step
                return
            self.low += len(window)

    def locations(self, rows: Rows) -> Locations:
        if not row_count(rows):
            empty = np.zeros(0, np.int64)
            return Locations(empty, empty, empty, empty, empty)
        runs, scattered = self.runs, None
        if isinstance(rows, slice):
            last = runs.row.run_of(rows.stop - 1)
            if runs.row[last] <= rows.start:
                return self._location(rows, last)
            run = np.arange(runs.row.runs_of(rows.start), last + 1)
            firsts = runs.row.take(run)
            start = np.concatenate([[rows.start], firsts[1:]])
            counts = np.diff(start, append=rows.stop)
            payload_row = start - firsts + runs.skip.take(run)
        else:
            edges, run = self._by_run(rows)
            start, counts = rows[edges[:-1]], edges[1:] - edges[:-1]
            payload_row = start - runs.row.take(run) + runs.skip.take(run)
            if (rows[edges[1:] - 1] - start + 1 != counts).any():
                scattered = rows + np.repeat(payload_row - start, counts)
        return Locations(start, counts, runs.position.take(run) << 3, payload_row, runs.time.take(run), scattered)

    def _by_run(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return where each run begins among the rows, with the end of the last one, and the numbers of these runs."""
        first, last = self.runs.row.run_of(int(rows[0])), self.runs.row.run_of(int(rows[-1]))
        if last - first < len(rows):
            run = np.arange(first, last + 1)
            edges = np.full(len(run) + 1, len(rows))
            edges[:-1] = np.searchsorted(rows, self.runs.row.take(run))
            held = edges[1:] > edges[:-1]
            return (edges, run) if held.all() else (np.append(edges[:-1][held], len(rows)), run[held])
        of = self.runs.row.runs_of(rows)
        begins = np.flatnonzero(of[1:] != of[:-1]) + 1
        return np.concatenate([[0], begins, [len(rows)]]), of[np.concatenate([[0], begins])]

    def _location(self, rows: slice, run: int) -> Locations:
        """For rows of one run, and so for each single message."""
        runs = self.runs
        payload_row = rows.start - runs.row[run] + runs.skip[run]
        numbers = (rows.start, rows.stop - rows.start, runs.position[run] << 3, payload_row, runs.time[run])
        return Locations(*np.array(numbers, np.int64).reshape(5, 1))

    def positions(self, rows: Rows) -> npt.NDArray[np.int64]:
        return positions_of(self.runs, as_array(rows))

    def relocate(self, rows: Rows, position: int | Ints, taken: Ints) -> None:
        self.runs = relocated(self.runs, self.filled, as_array(rows), position, taken)

    def unrecorded_rows(self) -> Ints:
        recorded, archived = self.recorded.get(slice(0, self.filled)), self.state[: self.filled] == ARCHIVED
        return np.flatnonzero(archived if isinstance(recorded, int) else archived & (recorded == 0))

    def waiting(self) -> Ints:
        """Rows that no consumer holds."""
        if not self.counts[AVAILABLE] and not self.counts[DELAYED] and not self.counts[DEFERRED]:
            return np.zeros(0, np.int64)
        states = self.state[: self.filled]
        return np.flatnonzero((states <= State.AVAILABLE) | (states == DEFERRED))

    def awaits_retry(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return by DELAYED row whether it waits for its retry, and not because its sender has delayed it."""
        is_again: npt.NDArray[np.bool_] = np.broadcast_to(np.asarray(self.returned.get(rows)) > 0, row_count(rows))
        return is_again

    def deferred_among(self, rows: Rows) -> Ints:
        flags = self.deferred.get(rows)
        return np.zeros(0, np.int64) if isinstance(flags, int) else as_array(rows)[flags > 0]

    def in_order(self, rows: Rows) -> Rows:
        """Leave out deferred rows, which have left the order of their groups."""
        flags = self.deferred.get(rows)
        return rows if isinstance(flags, int) else as_array(rows)[flags == 0]

    def rows_between(self, first: int, last: int) -> slice:
        """Sequence numbers, both included."""
        start = min(max(0, first - self.base), self.filled)
        return slice(start, max(start, min(self.filled, last - self.base + 1)))

    # To change the persisted form, see `packing`.
    def persisted(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"number": self.number, "filled": self.filled, "state": self.state[: self.filled].copy()}
        for name in COLUMNS:
            values = getattr(self, name).values
            if values is not None:
                columns[name] = values[: self.filled].copy()
        if self.errors:
            texts: dict[str, int] = {}
            columns["errors"] = {str(row): texts.setdefault(text, len(texts)) for row, text in self.errors.items()}
            columns["texts"] = list(texts)
        if self.overlays:
            columns["overlays"] = self.overlays.persisted()
        columns |= self.failures.persisted(self.filled)
        columns["size"] = self.sizes.persisted(self.filled)
        for name in ("row", "position", "skip", "time"):
            base, deltas = getattr(self.runs, name).persisted()
            columns[f"{name}_base"], columns[f"{name}_delta"] = base, deltas
        return columns

    @classmethod
    def restored(cls, columns: dict[str, Any]) -> Block:
        block = cls(columns["number"])
        block.filled = columns["filled"]
        block.state = columns["state"].copy()
        for name in COLUMNS:
            if name in columns:
                setattr(block, name, RowColumn(columns[name].copy()))
        block.note_errors({int(row): columns["texts"][text] for row, text in columns.get("errors", {}).items()})
        if "overlays" in columns:
            block.overlays = Overlays.restored(columns["overlays"])
        block.failures = Failures.restored(columns)
        size = columns["size"]
        block.sizes = Sizes(size) if isinstance(size, int) else Sizes(None, size.copy())
        block.runs = Runs(
            *(Series(columns[f"{n}_base"], columns[f"{n}_delta"].copy()) for n in ("row", "position", "skip", "time"))
        )
        block.counts = [int(n) for n in np.bincount(block.state, minlength=len(State))]
        block.unrecorded = len(block.unrecorded_rows())
        block._raise_low()
        block.look_ahead()
        return block


def _relative(times: Ints, base: int) -> Ints:
    """A time before the block's first arrival, `base`, counts as that arrival."""
    return np.where(times > 0, np.maximum(times - base, 0) + 1, 0)


def _earliest(times: Ints) -> int:
    return int(times.min(where=times > 0, initial=NEVER))

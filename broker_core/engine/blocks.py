"""A block: 64 Ki places of one queue, as columns. What changes is in memory; payloads are reached through runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from broker_core.engine.overlays import Overlays
from broker_core.engine.rowset import BLOCK_BITS, BLOCK_ROWS, row_count
from broker_core.engine.series import Column, Ints, Rows, Series, Sizes
from broker_core.engine.states import State

_FIRST_ROWS = 64  # rows allocated for a new block: a queue with one message must not cost a whole block
_SCAN_ROWS = 1024  # a link that wants three messages looks at this many rows first


class Runs:
    """The run table: which journal record holds the payload of which rows. One run per journaled batch."""

    __slots__ = ("position", "row", "skip", "time")

    def __init__(self, row: Series, position: Series, skip: Series, time: Series) -> None:
        self.row = row  # first row of the run in this block
        self.position = position  # log position of the record, in units of 8 bytes (records are so aligned)
        self.skip = skip  # row of the record's payload that the first row is
        self.time = time  # microseconds since 1970: when the messages were enqueued

    @classmethod
    def empty(cls) -> Runs:
        return cls(Series(), Series(), Series(), Series())

    def append(self, row: int, position: int, skip: int, time: int) -> None:
        self.row.append(row)
        self.position.append(position >> 3)
        self.skip.append(skip)
        self.time.append(time)

    def trim(self) -> None:
        for series in (self.row, self.position, self.skip, self.time):
            series.trim()


class Pieces(NamedTuple):
    """Where rows of a block lie: parallel arrays, one entry a piece (rows that are neighbours in block and payload)."""

    row: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]  # how many
    position: npt.NDArray[np.int64]
    payload_row: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]


class Block:
    """Columns of up to `BLOCK_ROWS` messages with the sequence numbers from `number << BLOCK_BITS`."""

    # persisted
    number: int
    filled: int  # rows in use: a block is filled from 0 upwards
    state: npt.NDArray[np.uint8]
    attempts: Column  # unsuccessful deliveries
    holder: Column  # who holds an ACQUIRED row
    returned: Column  # 1 once the row came back: the next acquirer is not the first
    outcome: Column
    settled: Column  # milliseconds after the block's first arrival, plus one; 0: not settled
    errors: dict[int, str]  # row → what the one who rejected it said
    overlays: Overlays  # row → what was added to its annotations
    sizes: Sizes
    runs: Runs
    # derived
    counts: list[int]  # rows by State
    low: int  # no row before this one is AVAILABLE

    __slots__ = (
        "attempts",
        "counts",
        "errors",
        "filled",
        "holder",
        "low",
        "number",
        "outcome",
        "overlays",
        "returned",
        "runs",
        "settled",
        "sizes",
        "state",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.filled = 0
        self.state = np.zeros(_FIRST_ROWS, np.uint8)
        self.attempts, self.holder, self.returned = Column(), Column(), Column()
        self.outcome, self.settled = Column(), Column()
        self.errors = {}
        self.overlays = Overlays()
        self.sizes = Sizes()
        self.runs = Runs.empty()
        self.counts = [0] * len(State)
        self.low = 0

    @property
    def base(self) -> int:
        return self.number << BLOCK_BITS

    @property
    def full(self) -> bool:
        return self.filled == BLOCK_ROWS

    @property
    def live(self) -> int:
        """Rows that are not yet archived."""
        return self.filled - self.counts[State.ARCHIVED]

    def fill(self, count: int, state: State, sizes: int | Ints, position: int, skip: int, time: int) -> None:
        """Add `count` rows whose payload starts at row `skip` of the record at `position`."""
        start, stop = self.filled, self.filled + count
        if stop > len(self.state):
            grown = np.zeros(min(BLOCK_ROWS, max(stop, 2 * len(self.state))), np.uint8)
            grown[:start] = self.state[:start]
            self.state = grown
            for column in (self.attempts, self.holder, self.returned, self.outcome, self.settled):
                column.grow(len(grown))
        self.state[start:stop] = state
        self.sizes.fill(start, sizes, stop, len(self.state))
        self.runs.append(start, position, skip, time)
        self.filled = stop
        self.counts[state] += count
        if state == State.AVAILABLE:
            self.low = min(self.low, start) if self.counts[State.AVAILABLE] > count else start
        if self.full:
            self.runs.trim()

    def move(self, rows: Rows, count: int, source: State, target: State) -> None:
        """Change the state of rows that are all in `source`."""
        self.state[rows] = target
        self.counts[source] -= count
        self.counts[target] += count
        if target == State.AVAILABLE:
            self.low = min(self.low, rows.start if isinstance(rows, slice) else int(rows[0]))
        elif source == State.AVAILABLE:
            self._raise_low()

    def archive(self, rows: Rows, outcome: int, time: int) -> None:
        capacity = len(self.state)
        self.outcome.set(rows, outcome, capacity)
        self.settled.set(rows, max(0, time - self.runs.time[0]) // 1000 + 1, capacity)

    def settled_times(self, rows: Rows) -> npt.NDArray[np.int64] | None:
        """Microseconds since 1970 by row, where a row is settled; None where none ever was."""
        values = self.settled.get(rows)
        if isinstance(values, int):
            return None
        return (values.astype(np.int64) - 1) * 1000 + self.runs.time[0]

    def available(self, start: int, stop: int, limit: int) -> Rows:
        """The first `limit` AVAILABLE rows from `start` up to `stop`."""
        start, stop = max(start, self.low), min(stop, self.filled)
        if start >= stop:
            return slice(start, start)
        if self.counts[State.AVAILABLE] == self.filled - self.low:
            return slice(start, min(stop, start + limit))
        found: list[Ints] = []
        wanted, width = limit, max(_SCAN_ROWS, min(limit, BLOCK_ROWS))
        while wanted > 0 and start < stop:
            end = min(stop, start + width)
            rows = np.flatnonzero(self.state[start:end] == State.AVAILABLE)[:wanted] + start
            found.append(rows)
            wanted -= len(rows)
            start, width = end, width * 8
        return np.concatenate(found)

    def _raise_low(self) -> None:
        """Move the mark past rows that are no longer AVAILABLE; each row is passed once, so this costs little in all."""
        if not self.counts[State.AVAILABLE]:
            self.low = self.filled
            return
        while self.low < self.filled:
            window = self.state[self.low : min(self.filled, self.low + _SCAN_ROWS)] == State.AVAILABLE
            step = int(window.argmax())
            if window[step]:
                self.low += step
                return
            self.low += len(window)

    def pieces(self, rows: Rows) -> Pieces:
        """Where the rows lie, one piece for each stretch that is contiguous both here and in its record."""
        if not row_count(rows):
            empty = np.zeros(0, np.int64)
            return Pieces(empty, empty, empty, empty, empty)
        runs = self.runs
        if isinstance(rows, slice):
            last = runs.row.run_of(rows.stop - 1)
            if runs.row[last] <= rows.start:
                return self._piece(rows, last)
            run = np.arange(runs.row.runs_of(rows.start), last + 1)
            firsts = runs.row.take(run)
            start, stop = firsts.copy(), np.append(firsts[1:], rows.stop)
            start[0] = rows.start
        else:
            of = runs.row.runs_of(rows)
            edges = np.flatnonzero((rows[1:] - rows[:-1] != 1) | (of[1:] != of[:-1])) + 1
            begins = np.concatenate([[0], edges])
            start = rows[begins].astype(np.int64)
            stop = rows[np.append(edges, len(rows)) - 1].astype(np.int64) + 1
            run = of[begins]
            firsts = runs.row.take(run)
        payload_row = start - firsts + runs.skip.take(run)
        return Pieces(start, stop - start, runs.position.take(run) << 3, payload_row, runs.time.take(run))

    def _piece(self, rows: slice, run: int) -> Pieces:
        """The one piece of rows that all lie in one run, as a single message always does."""
        runs = self.runs
        payload_row = rows.start - runs.row[run] + runs.skip[run]
        numbers = (rows.start, rows.stop - rows.start, runs.position[run] << 3, payload_row, runs.time[run])
        return Pieces(*np.array(numbers, np.int64).reshape(5, 1))

    def lowest_live_position(self) -> int | None:
        """The log position of the oldest payload that a row not yet archived needs."""
        live = np.flatnonzero(self.state[: self.filled] != State.ARCHIVED)
        if not len(live):
            return None
        run = np.unique(np.searchsorted(self.runs.row.array(), live, side="right") - 1)
        return int(self.runs.position.array()[run].min()) << 3

    def rows_between(self, first: int, last: int) -> slice:
        """The rows with sequence numbers from `first` to `last`, both included."""
        start = min(max(0, first - self.base), self.filled)
        return slice(start, max(start, min(self.filled, last - self.base + 1)))

    # The persisted form: used by snapshots and by the archive. To change it: raise the version in `packing`, and keep
    # reading the old names.
    def persisted(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"number": self.number, "filled": self.filled, "state": self.state[: self.filled].copy()}
        for name in ("attempts", "holder", "returned", "outcome", "settled"):
            values = getattr(self, name).values
            if values is not None:
                columns[name] = values[: self.filled].copy()
        if self.errors:
            columns["errors"] = {str(row): text for row, text in self.errors.items()}
        if self.overlays:
            columns["overlays"] = self.overlays.persisted()
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
        for name in ("attempts", "holder", "returned", "outcome", "settled"):
            if name in columns:
                setattr(block, name, Column(columns[name].copy()))
        block.errors = {int(row): text for row, text in columns.get("errors", {}).items()}
        if "overlays" in columns:
            block.overlays = Overlays.restored(columns["overlays"])
        size = columns["size"]
        block.sizes = Sizes(size) if isinstance(size, int) else Sizes(None, size.copy())
        block.runs = Runs(
            *(Series(columns[f"{n}_base"], columns[f"{n}_delta"].copy()) for n in ("row", "position", "skip", "time"))
        )
        block.counts = [int(n) for n in np.bincount(block.state, minlength=len(State))]
        block._raise_low()
        return block

"""The run table of a block: the places of its payloads in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .series import Ints, Series

NOWHERE = 1 << 62  # above any log position


class Runs:
    """Records of the journal, and the rows whose payloads they contain. A journaled batch is one run."""

    __slots__ = ("high", "low", "position", "row", "skip", "time")

    def __init__(self, row: Series, position: Series, skip: Series, time: Series) -> None:
        self.row = row
        self.position = position  # of the record, in units of 8 bytes, to which records are aligned
        self.skip = skip  # the first row's number in the record's payload
        self.time = time  # of the arrival: microseconds since 1970
        # derived: bounds of the positions, in bytes
        at = position.array() << 3
        self.low = int(at.min(initial=NOWHERE))
        self.high = int(at.max(initial=-1))

    @classmethod
    def empty(cls) -> Runs:
        return cls(Series(), Series(), Series(), Series())

    def append(self, row: int, position: int, skip: int, time: int) -> None:
        self.row.append(row)
        self.low, self.high = min(self.low, position), max(self.high, position)
        self.position.append(position >> 3)
        self.skip.append(skip)
        self.time.append(time)

    def trim(self) -> None:
        for series in (self.row, self.position, self.skip, self.time):
            series.trim()


def positions_of(runs: Runs, rows: Ints) -> npt.NDArray[np.int64]:
    return runs.position.take(runs.row.runs_of(rows)) << 3


def relocated(runs: Runs, filled: int, rows: Ints, position: int | Ints, taken: Ints) -> Runs:
    """Return the runs of a block with `filled` rows after the payloads of `rows`, ascending, were copied.

    `taken`: by row, its row in the copy at `position`, which is one position or one for each row.
    """
    numbers = np.arange(filled)
    run = runs.row.runs_of(numbers)
    at, time = runs.position.take(run), runs.time.take(run)
    payload = runs.skip.take(run) + numbers - runs.row.take(run)
    at[rows], payload[rows] = position >> 3, taken
    apart = (at[1:] != at[:-1]) | (payload[1:] != payload[:-1] + 1) | (time[1:] != time[:-1])
    first = np.flatnonzero(np.concatenate([[True], apart]))
    return Runs(*(Series.of(column) for column in (first, at[first], payload[first], time[first])))


class Run(NamedTuple):
    """Rows that are consecutive in a journal record and in a block."""

    rows: int
    position: int
    skip: int  # as in `Runs`


class Extent(NamedTuple):
    """Different rows of one record, in its order, with one time of arrival."""

    position: int
    time: int  # microseconds since 1970
    indexes: slice  # of the rows among those of the locations
    first: int | None  # in the record, if the rows are consecutive; None: see `Locations.payload_rows`


class Locations(NamedTuple):
    """Locations of a block's rows in the journal: parallel arrays, with an entry for each run."""

    row: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    payload_row: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]
    scattered: npt.NDArray[np.int64] | None = None  # by row, its row in the record; None: consecutive in each entry

    @classmethod
    def of(cls, positions: Ints, payload_rows: Ints) -> Locations:
        """Make locations without times. By row: its record, and its row in there."""
        apart = (positions[1:] != positions[:-1]) | (payload_rows[1:] != payload_rows[:-1] + 1)
        first = np.flatnonzero(np.concatenate([[True], apart]))
        counts = np.diff(first, append=len(positions))
        return cls(first, counts, positions[first], payload_rows[first], np.zeros(len(first), np.int64))

    def positions(self) -> npt.NDArray[np.int64]:
        return np.repeat(self.position, self.rows)

    def payload_rows(self) -> npt.NDArray[np.int64]:
        if self.scattered is not None:
            return self.scattered
        ends = np.cumsum(self.rows)
        numbers: npt.NDArray[np.int64] = np.arange(int(ends[-1])) + np.repeat(self.payload_row - (ends - self.rows), self.rows)
        return numbers

    def extents(self) -> Iterator[Extent]:
        if not len(self.row):
            return
        ends = np.cumsum(self.rows)
        last = self.payload_row + self.rows - 1 if self.scattered is None else self.scattered[ends - 1]
        apart = (self.position[1:] != self.position[:-1]) | (self.time[1:] != self.time[:-1])
        apart |= self.payload_row[1:] <= last[:-1]  # a copy, or an earlier row
        begins = np.flatnonzero(np.concatenate([[True], apart, [True]]))
        edges = np.concatenate([[0], ends])[begins]
        firsts = self.payload_row[begins[:-1]]
        together = begins[1:] - begins[:-1] == 1
        if self.scattered is not None:
            together &= self.scattered[edges[1:] - 1] - firsts == edges[1:] - edges[:-1] - 1
        columns = (self.position[begins[:-1]], self.time[begins[:-1]], edges[:-1], edges[1:], firsts, together)
        for position, time, start, stop, first, neighbours in zip(*(column.tolist() for column in columns), strict=True):
            yield Extent(position, time, slice(start, stop), first if neighbours else None)

    def runs(self) -> list[Run]:
        positions, firsts, counts = self.consecutive()
        return list(map(Run, counts.tolist(), positions.tolist(), firsts.tolist()))

    def consecutive(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the columns of runs of consecutive rows: record, first row, number of rows."""
        if self.scattered is None:
            return self.position, self.payload_row, self.rows
        rows, entry = self.scattered, np.repeat(np.arange(len(self.rows)), self.rows)
        first = np.concatenate([[0], np.flatnonzero((rows[1:] - rows[:-1] != 1) | (entry[1:] != entry[:-1])) + 1])
        return self.position[entry[first]], rows[first], np.diff(first, append=len(rows))

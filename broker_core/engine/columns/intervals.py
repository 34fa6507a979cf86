"""Intervals of log positions, as the parts of the log whose payloads are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .series import Ints


class Intervals:
    """Disjoint half-open intervals of log positions, in order, of which no two touch."""

    __slots__ = ("_edges",)

    def __init__(self, intervals: Iterable[Sequence[int]] = ()) -> None:
        """Make it of intervals (begin, end), in any order, that may overlap; empty ones are left out."""
        edges: list[int] = []
        for begin, end in sorted((begin, end) for begin, end in intervals if begin < end):
            if edges and begin <= edges[-1]:
                edges[-1] = max(edges[-1], end)
            else:
                edges += (begin, end)
        self._edges: npt.NDArray[np.int64] = np.array(edges, np.int64)  # begin and end by turns, so it rises

    @classmethod
    def apart(cls, intervals: Iterable[Sequence[int]]) -> Intervals:
        """Make it of disjoint intervals in order; those that touch stay apart, so that `index` tells them apart."""
        found = cls()
        found._edges = np.array([edge for begin, end in intervals for edge in (begin, end)], np.int64)
        return found

    def __bool__(self) -> bool:
        return len(self._edges) > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and np.array_equal(self._edges, other._edges)

    def __hash__(self) -> int:
        return hash(self._edges.tobytes())

    def contains(self, positions: Ints) -> npt.NDArray[np.bool_]:
        """Say which of the positions lie in one of the intervals."""
        found: npt.NDArray[np.bool_] = np.searchsorted(self._edges, positions, side="right") & 1 == 1
        return found

    def index(self, positions: Ints) -> npt.NDArray[np.int64]:
        """By position, the number of the interval that it lies in; -1 for none."""
        at = np.searchsorted(self._edges, positions, side="right")
        found: npt.NDArray[np.int64] = np.where(at & 1 == 1, at >> 1, -1)
        return found

    def meets(self, low: int, high: int) -> bool:
        """Return True if an interval has a position from `low` to `high`, both included."""
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return bool(first != last or first & 1)

    def overlapping(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """The numbers of the intervals that have a position from `low` to `high`, both included."""
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return np.arange(first >> 1, (last + 1) >> 1)

    def covers(self, low: int, high: int) -> bool:
        """Return True if one interval has all positions from `low` to `high`, both included."""
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return bool(first == last and first & 1)

    def plus(self, intervals: Iterable[Sequence[int]]) -> Intervals:
        """Return these intervals and others."""
        return Intervals([*self.pairs(), *intervals])

    def pairs(self) -> list[list[int]]:
        """Return the intervals as pairs (begin, end), in order: the persisted form."""
        found: list[list[int]] = self._edges.reshape(-1, 2).tolist()
        return found


NOTHING = Intervals()

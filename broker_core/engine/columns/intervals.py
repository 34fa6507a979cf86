"""Intervals of log positions, for example the parts of the log whose payloads were dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .series import Ints


class Intervals:
    """Disjoint half-open intervals, in order, that do not touch."""

    __slots__ = ("_edges",)

    def __init__(self, intervals: Iterable[Sequence[int]] = ()) -> None:
        """The intervals may overlap and be in any order."""
        edges: list[int] = []
        for begin, end in sorted((begin, end) for begin, end in intervals if begin < end):
            if edges and begin <= edges[-1]:
                edges[-1] = max(edges[-1], end)
            else:
                edges += (begin, end)
        self._edges: npt.NDArray[np.int64] = np.array(edges, np.int64)  # begin and end alternate, so the array ascends

    @classmethod
    def apart(cls, intervals: Iterable[Sequence[int]]) -> Intervals:
        """The intervals are disjoint and in order, but may touch: `index` distinguishes them."""
        intervals_apart = cls()
        intervals_apart._edges = np.array([edge for begin, end in intervals for edge in (begin, end)], np.int64)
        return intervals_apart

    def __bool__(self) -> bool:
        return len(self._edges) > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and np.array_equal(self._edges, other._edges)

    def __hash__(self) -> int:
        return hash(self._edges.tobytes())

    def contains(self, positions: Ints) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = np.searchsorted(self._edges, positions, side="right") & 1 == 1
        return inside

    def index(self, positions: Ints) -> npt.NDArray[np.int64]:
        """-1: in no interval."""
        at = np.searchsorted(self._edges, positions, side="right")
        numbers: npt.NDArray[np.int64] = np.where(at & 1 == 1, at >> 1, -1)
        return numbers

    def meets(self, low: int, high: int) -> bool:
        """Here and in the next functions, `high` is included."""
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return bool(first != last or first & 1)

    def overlapping(self, low: int, high: int) -> npt.NDArray[np.int64]:
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return np.arange(first >> 1, (last + 1) >> 1)

    def covers(self, low: int, high: int) -> bool:
        """Return True if one interval contains all of these positions."""
        first, last = np.searchsorted(self._edges, (low, high), side="right")
        return bool(first == last and first & 1)

    def plus(self, intervals: Iterable[Sequence[int]]) -> Intervals:
        return Intervals([*self.pairs(), *intervals])

    def pairs(self) -> list[list[int]]:
        pairs: list[list[int]] = self._edges.reshape(-1, 2).tolist()
        return pairs


NOTHING = Intervals()

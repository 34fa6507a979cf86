"""Holes: parts of the log whose segments were dropped, as half-open intervals of LSNs, sorted, with something between any two.

The manifest names them, and recovery accepts exactly those that it names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Hole(NamedTuple):
    """A part of the log that is no longer there, from `begin` up to, not including, `end`. Both are LSNs."""

    begin: int
    end: int


Holes = tuple[Hole, ...]


def merged(holes: Iterable[tuple[int, int]]) -> Holes:
    """Return these intervals in order, those that touch or overlap as one, without empty ones."""
    found: list[Hole] = []
    for begin, end in sorted(holes):
        if begin >= end:
            continue
        if found and begin <= found[-1].end:
            found[-1] = Hole(found[-1].begin, max(found[-1].end, end))
        else:
            found.append(Hole(begin, end))
    return tuple(found)


def covers(holes: Holes, position: int) -> bool:
    """Return True if the byte of that LSN is in a hole."""
    index = bisect_right(holes, position, key=lambda hole: hole.begin) - 1
    return index >= 0 and position < holes[index].end

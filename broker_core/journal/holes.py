"""Holes: parts of the log whose segments were dropped, sorted, with content between any two. Recovery accepts only these."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Hole(NamedTuple):
    """From the LSN `begin` up to, not including, `end`."""

    begin: int
    end: int


Holes = tuple[Hole, ...]


def merged(holes: Iterable[tuple[int, int]]) -> Holes:
    """Join intervals that touch or overlap; leave out empty ones."""
    holes_in_order: list[Hole] = []
    for begin, end in sorted(holes):
        if begin >= end:
            continue
        if holes_in_order and begin <= holes_in_order[-1].end:
            holes_in_order[-1] = Hole(holes_in_order[-1].begin, max(holes_in_order[-1].end, end))
        else:
            holes_in_order.append(Hole(begin, end))
    return tuple(holes_in_order)


def covers(holes: Holes, position: int) -> bool:
    index = bisect_right(holes, position, key=lambda hole: hole.begin) - 1
    return index >= 0 and position < holes[index].end

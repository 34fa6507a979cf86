"""Timetables: blocks by the time at which the first of their rows expires, falls due, or loses its lock.

A tick costs in proportion to the due rows, not to the waiting messages. Settled rows leave their entries, which are checked once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .limits import NEVER

LEAST = 1024  # entries below which `_tidy` is not worth its cost


class Entry(NamedTuple):
    """A block with a row that is due."""

    time: int  # milliseconds of the timetable's clock
    queue: str
    block: int


class Timetable:
    """Entries of one clock."""

    __slots__ = ("_heap", "_is_there", "_most", "next")

    def __init__(self, is_there: Callable[[str, int], bool] = lambda queue, block: True) -> None:
        """Entries of blocks for which `is_there` returns False are removed."""
        self._heap: list[Entry] = []
        self._is_there = is_there
        self._most = LEAST  # entries above which `_tidy` runs
        self.next = NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def note(self, time: int, queue: str, block: int) -> None:
        heapq.heappush(self._heap, Entry(time, queue, block))
        if len(self._heap) > self._most:
            self._tidy()
        self.next = self._heap[0].time if self._heap else NEVER

    def _tidy(self) -> None:
        """Keep the first entry of each block. When it is due, the block's next one is added."""
        first: dict[tuple[str, int], Entry] = {}
        for entry in sorted(self._heap):
            if entry[1:] not in first and self._is_there(entry.queue, entry.block):
                first[entry[1:]] = entry
        self._heap = list(first.values())  # sorted, so it is a heap
        self._most = max(LEAST, 2 * len(self._heap))

    def due(self, now: int) -> Iterator[tuple[str, int]]:
        """Yield each (queue, block) once. The entries stay until `passed`."""
        seen = set()
        waiting = [0] if self._heap else []
        while waiting:  # the entries up to now are connected at the top of the heap
            at = waiting.pop()
            entry = self._heap[at]
            if entry.time > now:
                continue
            waiting += [child for child in (2 * at + 1, 2 * at + 2) if child < len(self._heap)]
            if entry[1:] not in seen:
                seen.add(entry[1:])
                yield entry.queue, entry.block

    def passed(self, now: int) -> set[tuple[str, int]]:
        gone = set()
        while self._heap and self._heap[0].time <= now:
            entry = heapq.heappop(self._heap)
            gone.add((entry.queue, entry.block))
        self.next = self._heap[0].time if self._heap else NEVER
        return gone

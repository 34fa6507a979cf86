"""Timetable: blocks by the time at which the first of their rows expires, becomes available, or runs out of its lock.

A heap of lower bounds. What was settled in between leaves its entry behind, which costs one look when its time has come; so the
cost of a tick follows what is due, however many messages wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .limits import NEVER

LEAST = 1024  # entries that are not worth a look


class Entry(NamedTuple):
    """Block of which a row is due, and when."""

    time: int  # milliseconds, of whichever clock the timetable is for
    queue: str
    block: int


class Timetable:
    """Heap of what is due."""

    __slots__ = ("_heap", "_is_there", "_most", "next")

    def __init__(self, is_there: Callable[[str, int], bool] = lambda queue, block: True) -> None:
        """`is_there` says whether a queue has this block still: the entries of others are forgotten in time."""
        self._heap: list[Entry] = []
        self._is_there = is_there
        self._most = LEAST  # entries, from which on those that say nothing are looked for
        self.next = NEVER  # the time of the earliest entry

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._heap)

    def note(self, time: int, queue: str, block: int) -> None:
        """Note that a row of this block is due at `time`."""
        heapq.heappush(self._heap, Entry(time, queue, block))
        if len(self._heap) > self._most:
            self._tidy()
        self.next = self._heap[0].time if self._heap else NEVER

    def _tidy(self) -> None:
        """Keep the first entry of each block that is there: whoever looks at it then notes when its next row is due."""
        first: dict[tuple[str, int], Entry] = {}
        for entry in sorted(self._heap):
            if entry[1:] not in first and self._is_there(entry.queue, entry.block):
                first[entry[1:]] = entry
        self._heap = list(first.values())  # sorted, and so a heap
        self._most = max(LEAST, 2 * len(self._heap))

    def due(self, now: int) -> Iterator[tuple[str, int]]:
        """(queue, block) of every entry up to `now`, each once. The entries stay: see `passed`."""
        seen = set()
        waiting = [0] if self._heap else []
        while waiting:  # the entries up to now stand together at the top of the heap
            at = waiting.pop()
            entry = self._heap[at]
            if entry.time > now:
                continue
            waiting += [child for child in (2 * at + 1, 2 * at + 2) if child < len(self._heap)]
            if entry[1:] not in seen:
                seen.add(entry[1:])
                yield entry.queue, entry.block

    def passed(self, now: int) -> set[tuple[str, int]]:
        """Forget the entries up to `now`; (queue, block) of each."""
        gone = set()
        while self._heap and self._heap[0].time <= now:
            entry = heapq.heappop(self._heap)
            gone.add((entry.queue, entry.block))
        self.next = self._heap[0].time if self._heap else NEVER
        return gone

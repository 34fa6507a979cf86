"""Timetable: blocks by the time at which the first of their rows expires, becomes available, or runs out of its lock.

A heap of lower bounds. What was settled in between leaves its entry behind, which costs one look when its time has come; so the
cost of a tick follows what is due, however many messages wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from .limits import NEVER


class Entry(NamedTuple):
    """Block of which a row is due, and when."""

    time: int  # milliseconds, of whichever clock the timetable is for
    queue: str
    block: int


class Timetable:
    """Heap of what is due."""

    __slots__ = ("_heap", "next")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self.next = NEVER  # the time of the earliest entry

    def note(self, time: int, queue: str, block: int) -> None:
        """Note that a row of this block is due at `time`."""
        heapq.heappush(self._heap, Entry(time, queue, block))
        self.next = self._heap[0].time

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

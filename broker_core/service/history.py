"""Depth and rates of queues over the last hour, for plots: a sample every PERIOD_S seconds, in a ring. Four numbers of four bytes
per queue and sample are 5.8 MB for 1,000 queues."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .queue_counts import CountTable

PERIOD_S = 10
SAMPLES = 360  # an hour
MAX_HISTORY_QUEUES = 4_000  # the first queues have a history: 23 MB
COLUMNS = ("depth", "enqueued", "delivered", "acknowledged")  # depth at the sample; the others since the sample before
_LARGEST = np.iinfo(np.uint32).max


class Plot(NamedTuple):
    """Samples in order, PERIOD_S apart; the last one was taken at `time`."""

    time: int  # microseconds since 1970; 0 before the first sample
    names: list[str]  # requested queues that have a history
    table: npt.NDArray[np.uint32]  # queue, column, sample


class History:
    """The ring of one broker. Callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._ring = np.zeros((0, len(COLUMNS), SAMPLES), np.uint32)
        self._all = np.zeros((len(COLUMNS), SAMPLES), np.uint32)
        self._before = np.zeros((0, len(COLUMNS)), np.int64)
        self._taken = 0  # samples so far
        self._time = 0
        self._due_s = 0.0
        self._last_s: float | None = None  # when the last sample was taken

    def sample(self, uptime_s: float, wall_us: int, counts: CountTable) -> None:
        """`uptime_s`, `wall_us`: when the counts were read."""
        now = np.stack([counts.of("available") + counts.of("acquired") + counts.of("delayed"), *map(counts.of, COLUMNS[1:])], 1)
        with self._lock:
            if counts.names[:MAX_HISTORY_QUEUES] != list(self._slots):
                self._assign(counts.names[:MAX_HISTORY_QUEUES])
            count = len(self._slots)
            slots = np.fromiter(self._slots.values(), np.int64, count)
            known = now[:count]
            since = known - self._before[slots]
            since[:, 0] = known[:, 0]
            since[(since[:, 1:] < 0).any(1), 1:] = 0  # another queue of the same name
            self._before[slots] = known
            periods = self._periods(uptime_s)
            since[:, 1:] //= periods
            for _ in range(periods):
                at = self._taken % SAMPLES
                self._ring[slots, :, at] = np.minimum(since, _LARGEST)
                self._all[:, at] = np.minimum(since.sum(0), _LARGEST)
                self._taken += 1
            self._time = wall_us
            self._due_s = max(self._due_s + PERIOD_S, uptime_s + PERIOD_S / 2)

    def _periods(self, uptime_s: float) -> int:
        """Return how many samples this one replaces: a slow disk or store may have delayed it."""
        last_s, self._last_s = self._last_s, uptime_s
        return 1 if last_s is None else min(SAMPLES, max(1, round((uptime_s - last_s) / PERIOD_S)))

    def is_due(self, uptime_s: float) -> bool:
        return uptime_s >= self._due_s

    def of(self, names: Sequence[str]) -> Plot:
        with self._lock:
            known = [name for name in names if name in self._slots]
            slots = [self._slots[name] for name in known]
            return Plot(self._time, known, self._in_order(self._ring[slots]))

    def of_all(self) -> Plot:
        """Return the sum over all queues that have a history, under the name ''."""
        with self._lock:
            return Plot(self._time, [""], self._in_order(self._all[None]))

    def _in_order(self, table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        if self._taken < SAMPLES:
            return table[:, :, : self._taken].copy()
        return np.roll(table, -(self._taken % SAMPLES), axis=2)

    def _assign(self, wanted: list[str]) -> None:
        """Give each queue a slot. Known queues keep theirs; a new queue begins with an empty hour."""
        before, self._slots = self._slots, {}
        known = {name: before[name] for name in wanted if name in before}
        self._free += [slot for name, slot in before.items() if name not in known]
        for name in wanted:
            slot = known.get(name)
            if slot is None:
                if not self._free:
                    self._grow(len(wanted))
                slot = self._free.pop()
                self._ring[slot] = 0
                self._before[slot] = 0
            self._slots[name] = slot

    def _grow(self, least: int) -> None:
        have = len(self._ring)
        more = max(least, 2 * have, 16) - have
        self._ring = np.concatenate([self._ring, np.zeros((more, *self._ring.shape[1:]), np.uint32)])
        self._before = np.concatenate([self._before, np.zeros((more, self._before.shape[1]), np.int64)])
        self._free += range(have, have + more)

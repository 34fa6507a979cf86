"""Depth and rates of queues over the last hour, for plots. 1,000 queues use 5.8 MB."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .queue_counts import LIVE, CountTable

PERIOD_S = 10
SAMPLES = 360  # an hour
MAX_HISTORY_QUEUES = 4_000  # the first ones have a history: 23 MB
COLUMNS = ("depth", "enqueued", "delivered", "acknowledged")  # except depth: since the sample before
_LARGEST = np.iinfo(np.uint32).max


class Plot(NamedTuple):
    """The last sample was taken at `time`; they are PERIOD_S apart."""

    time: int  # microseconds since 1970; 0 before the first sample
    names: list[str]  # requested queues that have a history
    table: npt.NDArray[np.uint32]  # queue, column, sample


class History:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, int] = {}
        self._ring = np.zeros((0, len(COLUMNS), SAMPLES), np.uint32)
        self._all = np.zeros((len(COLUMNS), SAMPLES), np.uint32)
        self._before = np.zeros((0, len(COLUMNS)), np.int64)
        self._taken = 0
        self._time = 0
        self._due_s = 0.0
        self._last_s: float | None = None

    def sample(self, uptime_s: float, wall_us: int, counts: CountTable) -> None:
        """`uptime_s`, `wall_us`: when the counts were read."""
        now = np.stack([sum(map(counts.of, LIVE)), *map(counts.of, COLUMNS[1:])], 1)
        with self._lock:
            if counts.names[:MAX_HISTORY_QUEUES] != list(self._places):
                self._arrange(counts.names[:MAX_HISTORY_QUEUES])
            known = now[: len(self._places)]
            since = known - self._before
            since[:, 0] = known[:, 0]
            since[(since[:, 1:] < 0).any(1), 1:] = 0  # another queue of the same name
            self._before = known
            periods = self._periods(uptime_s)
            since[:, 1:] //= periods
            for _ in range(periods):
                at = self._taken % SAMPLES
                self._ring[:, :, at] = np.minimum(since, _LARGEST)
                self._all[:, at] = np.minimum(since.sum(0), _LARGEST)
                self._taken += 1
            self._time = wall_us
            self._due_s = max(self._due_s + PERIOD_S, uptime_s + PERIOD_S / 2)

    def _periods(self, uptime_s: float) -> int:
        """Return how many samples this one replaces: the disk or the store may have delayed it."""
        last_s, self._last_s = self._last_s, uptime_s
        return 1 if last_s is None else min(SAMPLES, max(1, round((uptime_s - last_s) / PERIOD_S)))

    def is_due(self, uptime_s: float) -> bool:
        return uptime_s >= self._due_s

    def of(self, names: Sequence[str]) -> Plot:
        with self._lock:
            known = [name for name in names if name in self._places]
            return Plot(self._time, known, self._in_order(self._ring[[self._places[name] for name in known]]))

    def of_all(self) -> Plot:
        """Return the sum over all queues that have a history, named ''."""
        with self._lock:
            return Plot(self._time, [""], self._in_order(self._all[None]))

    def _in_order(self, table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        if self._taken < SAMPLES:
            return table[:, :, : self._taken].copy()
        return np.roll(table, -(self._taken % SAMPLES), axis=2)

    def _arrange(self, names: list[str]) -> None:
        """Known queues keep their history; a new queue begins with an empty hour."""
        known = [at for at, name in enumerate(names) if name in self._places]
        former = [self._places[names[at]] for at in known]
        ring = np.zeros((len(names), len(COLUMNS), SAMPLES), np.uint32)
        before = np.zeros((len(names), len(COLUMNS)), np.int64)
        ring[known], before[known] = self._ring[former], self._before[former]
        self._places, self._ring, self._before = {name: at for at, name in enumerate(names)}, ring, before

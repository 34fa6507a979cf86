"""Histograms of durations with fixed buckets."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

# Upper bounds of the buckets (`le` in Prometheus); the last bucket has none. A sync takes 0.1 ms on a fast disk, 10 ms on a
# spinning one, and over a second on a failing one.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Durations by bucket, since the broker started. One thread at a time observes; any may read."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds += seconds

    def read(self) -> dict[str, Any]:
        """Return `counts`, one for each of BOUNDS_S and one for longer durations, not cumulative, and the sum in `seconds`."""
        return {"counts": tuple(self._counts), "seconds": self._seconds}


class Histograms:
    """The histograms of one broker."""

    def __init__(self) -> None:
        self.fsync = Histogram()
        self.loop_delay = Histogram()  # of a timer of the AMQP plane's event loop

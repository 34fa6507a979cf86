"""The deliveries of one link over time: ages, rates and the last settlement."""

from __future__ import annotations

from typing import Any, NamedTuple

RATE_S = 5.0  # a rate is measured over this time, or up to twice as much


class _Sample(NamedTuple):
    time: float  # seconds
    sent: int
    settled: int


class Rates(NamedTuple):
    """Messages per second."""

    sent: float = 0.0
    settled: float = 0.0


class Activity:
    """Deliveries, noted four times a second. `now`: the plane's clock, seconds."""

    __slots__ = ("_held", "_last", "_samples", "_still", "settled_at")

    def __init__(self) -> None:
        self._held: tuple[Any, float] | None = None  # the oldest unsettled delivery, and when it was first seen
        self._still: tuple[Any, int, float] | None = None  # the newest one, their number, and when both were first seen
        self._last = _Sample(0.0, 0, 0)
        self._samples: tuple[_Sample, _Sample] | None = None  # at the begin of the last two periods
        self.settled_at: float | None = None  # the last settlement

    def note(self, now: float, sent: int, unsettled: dict[Any, Any]) -> None:
        """`sent`: the deliveries so far."""
        oldest = next(iter(unsettled.values()), None)  # not its tag: a message that comes again has the same
        if self._held is None or self._held[0] is not oldest:
            self._held = None if oldest is None else (oldest, now)
        newest, count = next(reversed(unsettled.values()), None), len(unsettled)
        if self._still is None or self._still[0] is not newest or self._still[1] != count:
            self._still = None if newest is None else (newest, count, now)
        if self._samples is None:
            self._last = _Sample(now, 0, min(0, sent - count))  # a resumed link begins with unsettled deliveries
            self._samples = self._last, self._last
        if sent - count > self._last.settled:
            self.settled_at = now
        self._last = _Sample(now, sent, sent - count)
        if now - self._samples[1].time >= RATE_S:
            self._samples = self._samples[1], self._last

    def held_for(self, now: float) -> float:
        """Return the seconds for which the oldest delivery is unsettled."""
        return 0.0 if self._held is None else now - self._held[1]

    def still_for(self, now: float) -> float:
        """Return the seconds without a sent or settled delivery, while any is unsettled."""
        return 0.0 if self._still is None else now - self._still[2]

    @property
    def rates(self) -> Rates:
        if self._samples is None or self._last.time <= self._samples[0].time:
            return Rates()
        first, last = self._samples[0], self._last
        seconds = last.time - first.time
        return Rates((last.sent - first.sent) / seconds, max(0, last.settled - first.settled) / seconds)

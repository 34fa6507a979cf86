"""Idle time-outs (2.4.5) as arithmetic, in seconds of a clock that only moves forward.

We give up after twice our time-out, and send a frame after half of the peer's. If octets came or left without a time, the next
`tick` assumes that input has just come and output left at the previous tick. So a heartbeat may be early and a time-out late by
one interval, never the reverse.
"""

from __future__ import annotations


class IdleTimers:
    """Timers of both directions, from `agree` on."""

    def __init__(self) -> None:
        self._patience: float | None = None
        self._interval: float | None = None
        self._last_in: float | None = None
        self._last_out: float | None = None
        self._last_tick: float | None = None
        self._came = self._left = False

    def agree(self, ours: int | None, theirs: int | None) -> None:
        """Set both idle time-outs, in milliseconds. None and 0 mean none."""
        self._patience = 2 * ours / 1000 if ours else None
        self._interval = theirs / 2000 if theirs else None

    def received(self, now: float | None = None) -> None:
        if now is None:
            self._came = True
        else:
            self._last_in, self._came = now, False

    def sent(self, now: float | None = None) -> None:
        if now is None:
            self._left = True
        else:
            self._last_out, self._left = now, False

    def _settle(self, now: float) -> None:
        if self._came or self._last_in is None:
            self._last_in = now
        if self._left or self._last_out is None:
            self._last_out = now if self._last_tick is None else self._last_tick
        self._came = self._left = False
        self._last_tick = now

    def expired(self, now: float) -> bool:
        self._settle(now)
        return self._patience is not None and self._last_in is not None and now - self._last_in >= self._patience

    def heartbeat_due(self, now: float) -> bool:
        return self._interval is not None and self._last_out is not None and now - self._last_out >= self._interval

    def next_deadline(self, now: float) -> float | None:
        moments = []
        if self._patience is not None:
            moments.append((now if self._last_in is None or self._came else self._last_in) + self._patience)
        if self._interval is not None:
            moments.append((now if self._last_out is None else self._last_out) + self._interval)
        return min(moments) if moments else None

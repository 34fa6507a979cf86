"""The broker's clock: its uptime leaves out the time in which the broker itself stood still.

A process that was stopped, a virtual machine that was suspended or a host without a free processor hears nobody meanwhile. That
time is no silence of those who renew a lease or answer within a lock: it is not counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..engine.commands import Now

log = logging.getLogger("penstock")

# Microseconds between two looks at the clock from which on the broker stood still. The ticker looks once a second at the latest;
# a busy host or a slow disk keeps it for a second or two.
STANDSTILL = 5_000_000


def system_clock() -> Now:
    """Read the machine's clocks: wall and monotonic, in microseconds."""
    return Now(time.time_ns() // 1000, time.monotonic_ns() // 1000)


class RunningClock:
    """`Now` as the broker has lived it. Somebody must look at least every few seconds: the ticker does.

    Of a gap longer than `STANDSTILL` nothing counts, and `resumed` says when it ended: who is silent is given all of his time
    again, as after a start, since what he said meanwhile may still have to be heard.
    """

    def __init__(self, clock: Callable[[], Now] = system_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = clock().up
        self._stood = 0  # microseconds that did not count
        self._resumed = 0

    def __call__(self) -> Now:
        """Read the clocks: wall, uptime without standstills, and when the last standstill ended; all in microseconds."""
        gap = 0
        with self._lock:
            now = self._clock()
            if now.up - self._seen > STANDSTILL:
                gap = now.up - self._seen
                self._stood += gap
                self._resumed = now.up - self._stood
            self._seen = now.up
            found = Now(now.wall, now.up - self._stood, self._resumed)
        if gap:
            log.warning("the broker stood still for %.1f s: that time counts for no lease, lock or transaction", gap / 1e6)
        return found

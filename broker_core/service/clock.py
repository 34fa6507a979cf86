"""The broker's clock. Its uptime leaves out the time in which the broker stood still.

A stopped process, a suspended virtual machine or a host without a free processor receives nothing. Clients that renew a lease or
answer within a lock are not at fault, so that time is not counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..engine.commands import Now

log = logging.getLogger("penstock")

# Microseconds between two reads of the clock that count as a standstill. The ticker reads it at least once a second; a busy host
# or a slow disk delays it by a second or two.
STANDSTILL = 5_000_000


def system_clock() -> Now:
    """Read the machine's clocks: wall and monotonic, in microseconds."""
    return Now(time.time_ns() // 1000, time.monotonic_ns() // 1000)


class RunningClock:
    """`Now` without standstills. The ticker reads it every few seconds, so that a gap is noticed.

    A gap longer than `STANDSTILL` is left out of the uptime, and `resumed` is the time when it ended. From then on every client
    has its full time again, as after a start: its requests may still have to be read.
    """

    def __init__(self, clock: Callable[[], Now] = system_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = clock().up
        self._stood = 0  # microseconds left out so far
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
            reading = Now(now.wall, now.up - self._stood, self._resumed)
        if gap:
            log.warning("the broker stood still for %.1f s: that time counts for no lease, lock or transaction", gap / 1e6)
        return reading

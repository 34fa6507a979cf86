"""The broker's clock. Its uptime leaves out the time in which the process, its virtual machine or its host stood still."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..engine.commands import Now

log = logging.getLogger("penstock")

# Microseconds between two reads. A busy host or a slow disk delays the ticker by a second or two.
STANDSTILL = 5_000_000


def system_clock() -> Now:
    return Now(time.time_ns() // 1000, time.monotonic_ns() // 1000)


class RunningClock:
    """`Now` without standstills. The ticker reads it at least once a second, so that a gap is noticed.

    The uptime leaves out a gap longer than `STANDSTILL`, and `resumed` is its end. From then on every client has its full time
    again: its requests may still have to be read.
    """

    def __init__(self, clock: Callable[[], Now] = system_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = clock().up
        self._stood = 0  # microseconds left out so far
        self._resumed = 0

    def __call__(self) -> Now:
        with self._lock:
            now = self._clock()
            gap = now.up - self._seen if now.up - self._seen > STANDSTILL else 0
            if gap:
                self._stood += gap
                self._resumed = now.up - self._stood
            self._seen = now.up
            reading = Now(now.wall, now.up - self._stood, self._resumed)
        if gap:
            log.warning("the broker stood still for %.1f s: that time counts for no lease, lock or transaction", gap / 1e6)
        return reading


class AdvancedClock:
    """The running clock, and time that a test has added. Time-outs of connections use `running`."""

    def __init__(self) -> None:
        self.running = RunningClock()
        self.added_us = 0
        #: Applies due changes. The broker sets it.
        self.tick: Callable[[], object] = lambda: None

    def __call__(self) -> Now:
        now, added = self.running(), self.added_us
        return Now(now.wall + added, now.up + added, now.resumed)

    def advance(self, microseconds: int) -> None:
        """Returns when changes that are then due have been applied."""
        self.added_us += microseconds
        self.tick()

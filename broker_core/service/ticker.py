"""The thread that ticks the engine: when an entry of its timetables is due, and at least once a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .. import errors
from ..engine import BrokerState
from ..engine import commands as c

log = logging.getLogger("penstock")

TICK_S = 1.0  # the longest time between two ticks
RESOLUTION_S = 0.02  # the shortest: everything due within it is one event


class Ticker:
    """Calls `tick` when the earliest entry is due."""

    def __init__(self, state: BrokerState, clock: Callable[[], c.Now], tick: Callable[[], object]) -> None:
        self._state, self._clock, self._tick = state, clock, tick
        self._changed = threading.Condition()
        self._closing = False
        self._seen = self._earliest()  # at the thread's last look
        self._thread = threading.Thread(target=self._run, name="penstock-ticker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Wake the thread if an earlier entry is due. Called after every turn."""
        due, lock = self._earliest()
        if due < self._seen[0] or lock < self._seen[1]:
            with self._changed:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _earliest(self) -> tuple[int, int]:
        clocks = self._state.clocks
        return clocks.due.next, min(clocks.lock.next, clocks.group.next)

    def _run(self) -> None:
        since = self._clock().up
        while True:
            with self._changed:
                if not self._closing:
                    self._changed.wait(self._wait_s(since))
                if self._closing:
                    return
            if self._wait_s(since) <= 0:
                since = self._clock().up
                self._ring()

    def _wait_s(self, since: int) -> float:
        """Return the seconds until the next tick; the last one was at `since`."""
        now = self._clock()
        self._seen = due, lock = self._earliest()
        passed = (now.up - since) / 1e6
        next_s = min(due - now.wall // 1000, lock - self._state.uptime(now.up)) / 1000
        return min(TICK_S - passed, max(next_s, RESOLUTION_S - passed))

    def _ring(self) -> None:
        try:
            self._tick()
        except errors.ResourceLimit as error:
            log.warning("due messages wait for space on the disk: %s", error)
        except errors.StorageError as error:
            log.error("a tick: %s", error)  # on_failure stops the broker
        except Exception:
            log.exception("a tick failed; it is tried again in %g s", TICK_S)

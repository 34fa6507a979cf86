"""A limit on log lines: clients can cause thousands of refusals per second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

LINES, WINDOW_S = 200, 10.0  # enough for every refusal of an ordinary day; at most 30 MB a day


class LogLimit(logging.Filter):
    """Passes `LINES` lines per `WINDOW_S` seconds, and all errors. The first line of the next window contains the number of
    omitted lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._since, self._lines = clock(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            now, omitted = self._clock(), 0
            if now - self._since >= WINDOW_S:
                omitted = max(0, self._lines - LINES)
                self._since, self._lines = now, 0
            self._lines += 1
            if self._lines > LINES and record.levelno < logging.ERROR:
                return False
        if omitted:
            record.msg = f"{record.getMessage()} ({omitted} similar lines were omitted before)"
            record.args = ()
        return True

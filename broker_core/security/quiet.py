"""A log that strangers cannot fill: whoever may be refused may be refused a thousand times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

LINES, WINDOW_S = 200, 10.0  # of refusals: enough to see each in an ordinary day, at most 30 MB in one that is not


class Quiet(logging.Filter):
    """Lets `LINES` lines through in `WINDOW_S` seconds; the next window's first line says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._since, self._lines = clock(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record through, unless there were too many of late; the next window says how many were left out."""
        with self._lock:
            now, left_out = self._clock(), 0
            if now - self._since >= WINDOW_S:
                left_out = max(0, self._lines - LINES)
                self._since, self._lines = now, 0
            self._lines += 1
            if self._lines > LINES and record.levelno < logging.ERROR:
                return False
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} lines like this were left out before)"
            record.args = ()
        return True

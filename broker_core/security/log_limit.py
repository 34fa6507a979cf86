"""A limit on log lines: clients can cause thousands of refusals per second."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from .failed_logins import host_of

LINES, WINDOW_S = 200, 10.0  # at most 30 MB a day
PEERS = 4  # that share the lines of a fair limit, at least


class LogLimit(logging.Filter):
    """Passes `LINES` lines per `WINDOW_S` seconds, and all errors. The first line after that reports the number of omitted lines.

    `fair`: one peer has at most its part of the lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, fair: bool = False) -> None:
        super().__init__()
        self._clock, self._fair = clock, fair
        self._lock = threading.Lock()
        self._since, self._lines, self._omitted = clock(), 0, 0
        self._of_peer: Counter[str] = Counter()  # at most `LINES`

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        omitted = self.omitted_before(getattr(record, "peer", ""))
        if omitted:
            record.msg = f"{record.getMessage()} ({omitted} similar lines were omitted before)"
            record.args = ()
        return omitted is not None

    def omitted_before(self, peer: str) -> int | None:
        """Count a line. Return the number of lines omitted before it; None: omit it."""
        host = host_of(peer)
        with self._lock:
            if self._clock() - self._since >= WINDOW_S:
                self._since, self._lines = self._clock(), 0
                self._of_peer.clear()
            if self._lines >= LINES or (self._fair and self._of_peer[host] >= LINES // PEERS):
                self._omitted += 1
                return None
            self._lines += 1
            self._of_peer[host] += self._fair
            omitted, self._omitted = self._omitted, 0
            return omitted

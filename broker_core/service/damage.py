"""Messages with a damaged payload, which the log and `queue stat` report. They stay in their queue until an operator restores the
file or discards them."""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from ..errors import DamagedMessages

log = logging.getLogger("penstock")

NAMED = 100  # ranges of one queue: with more damage an operator restores the file
QUEUES = 1_000  # with damage; beyond that all ranges are forgotten, and found again


class Damaged(NamedTuple):
    """Messages of one record."""

    first: int
    last: int
    text: str


class Damage:
    """Not persisted: after a restart reads find it again. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, dict[tuple[int, int], Damaged]] = {}

    def note(self, error: DamagedMessages) -> None:
        queue, first, last = error.queue, error.first, error.last
        with self._lock:
            known = self._known.get(queue)
            if known is None:
                if len(self._known) >= QUEUES:
                    self._known.clear()
                known = self._known[queue] = {}
            if (first, last) in known:
                return
            if len(known) < NAMED:
                known[first, last] = Damaged(first, last, str(error))
        log.error("%s", error, extra={"queue": queue})

    def of(self, queue: str) -> list[Damaged]:
        with self._lock:
            return sorted(self._known.get(queue, {}).values())

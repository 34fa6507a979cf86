"""Memory for incoming messages, shared by all connections."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes shared by calls. A call that finds too few waits in a queue. A call that requests more than the total gets all,
    alone. Thread-safe."""

    def __init__(self, octets: int) -> None:
        self._total = self._left = octets
        self._lock = threading.Lock()
        self._line: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, octets: int, granted: Callable[[], None]) -> bool:
        """Return True if the bytes were taken. Otherwise `granted` is called later, in another thread, once they are."""
        octets = min(octets, self._total)
        with self._lock:
            if not self._line and octets <= self._left:
                self._left -= octets
                return True
            self._line.append((octets, granted))
            return False

    def give(self, octets: int) -> None:
        with self._lock:
            self._left += min(octets, self._total)
            ready = []
            while self._line and self._line[0][0] <= self._left:
                wanted, granted = self._line.popleft()
                self._left -= wanted
                ready.append(granted)
        for granted in ready:
            granted()

    def leave(self, granted: Callable[[], None]) -> bool:
        """Leave the queue; return False if `granted` is no longer in it."""
        with self._lock:
            entry = next((entry for entry in self._line if entry[1] == granted), None)
            if entry is None:
                return False
            self._line.remove(entry)
        self.give(0)  # the next request may fit now
        return True

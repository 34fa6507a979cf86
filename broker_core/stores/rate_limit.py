"""A store with a limited write rate, which leaves processors, disk and network to producers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from .objects import Buffer, ObjectStore


class RateLimitedStore:
    """An `ObjectStore` on another one. After a put of `n` bytes, the next put begins `n / bytes_per_s` seconds later at the
    earliest.

    Reads and deletions do not wait. All threads share the rate.
    """

    def __init__(
        self,
        store: ObjectStore,
        bytes_per_s: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = store.url
        self.get, self.get_range, self.names, self.delete = store.get, store.get_range, store.names, store.delete
        self._store, self._bytes_per_s = store, bytes_per_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = clock()  # when the next put may begin

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        self._wait()
        try:
            return self._store.create(name, data)
        finally:
            self._count(sum(len(piece) for piece in data))

    def put(self, name: str, data: Iterable[bytes]) -> None:
        self._wait()
        self._store.put(name, self._counted(data))

    def _counted(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for piece in data:
            yield piece
            self._count(len(piece))

    def _wait(self) -> None:
        with self._lock:
            wait = self._next - self._clock()
        if wait > 0:
            self._sleep(wait)

    def _count(self, nbytes: int) -> None:
        with self._lock:
            self._next = max(self._next, self._clock()) + nbytes / self._bytes_per_s

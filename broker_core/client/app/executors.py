"""Threads for callbacks: in order for one session, in parallel for several, on a bounded pool.

A `SerialExecutor` has at most one task in the pool, and goes to the end of the pool's queue after each. So no session starves
another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Task = Callable[[], object]


class Pool:
    """Up to `threads` threads for the callbacks of one connection."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="penstock-callback")
        self._closed = False

    def submit(self, task: Task) -> None:
        """Ignored after `close`."""
        if not self._closed:
            self._executor.submit(task)

    def close(self) -> None:
        self._closed = True
        self._executor.shutdown(wait=False)


class SerialExecutor:
    """Runs tasks on the pool, one after another. Callers hold the lock of `changed`.

    `take` returns the next task, or None. A task must not raise, nor hold the lock.
    """

    def __init__(self, changed: threading.Condition, pool: Pool, take: Callable[[], Task | None]) -> None:
        self._changed = changed
        self._pool = pool
        self._take = take
        self._scheduled = False
        self._pauses = 0
        self._thread: int | None = None

    def wake(self) -> None:
        if not self._scheduled and not self._pauses:
            self._scheduled = True
            self._pool.submit(self._step)

    @property
    def busy(self) -> bool:
        return self._thread is not None

    @property
    def inside(self) -> bool:
        return self._thread == threading.get_ident()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the running task, unless it is the caller. No task begins inside the `with` block."""
        self._pauses += 1
        try:
            self._changed.wait_for(lambda: self._thread is None or self.inside)
            yield
        finally:
            self._pauses -= 1
            self.wake()

    def _step(self) -> None:
        with self._changed:
            task = None if self._pauses else self._take()
            if task is None:
                self._scheduled = False
                return
            self._thread = threading.get_ident()
        try:
            task()
        finally:
            with self._changed:
                self._thread, self._scheduled = None, False
                self.wake()
                self._changed.notify_all()

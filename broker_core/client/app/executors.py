"""Threads for callbacks: the callbacks of one session run in order, those of several sessions in parallel on a bounded pool.

A `SerialExecutor` has at most one task in the pool. After each task it moves to the end of the pool's queue, so no session
starves another. Messages wait with their consumer, where credit limits them, and not in the pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Task = Callable[[], None]


class Pool:
    """Up to `threads` threads for the callbacks of one connection, started when they are first needed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, task: Task) -> None:
        """Run a task on a thread of the pool. The caller holds the connection's lock. Ignored after `close`."""
        if self._closed:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="penstock-callback")
        self._executor.submit(task)

    def close(self) -> None:
        """Ignore new tasks; submitted tasks still run."""
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=False)


class SerialExecutor:
    """Runs tasks on the pool, one after another.

    `take` returns the next task, or None. It is called under the lock of `changed`. A task must not raise, and must not hold the
    lock.
    """

    def __init__(self, changed: threading.Condition, pool: Pool, take: Callable[[], Task | None]) -> None:
        self._changed = changed
        self._pool = pool
        self._take = take
        self._scheduled = False
        self._pauses = 0
        self._thread: int | None = None

    def wake(self) -> None:
        """Schedule a call of `take`: there may be a task. The caller holds the lock."""
        if not self._scheduled and not self._pauses:
            self._scheduled = True
            self._pool.submit(self._step)

    @property
    def busy(self) -> bool:
        return self._thread is not None

    @property
    def inside(self) -> bool:
        """True when the caller is a task of this executor."""
        return self._thread == threading.get_ident()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the running task, unless it is the caller. No task begins inside the `with` block. The caller holds the lock."""
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

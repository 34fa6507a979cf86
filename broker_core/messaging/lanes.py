"""Callbacks: those of one session one after another, those of several side by side on a bounded pool.

A lane has at most one callback in the pool, running or waiting for a thread, and goes to the end of the pool's line after each:
so no session's callbacks overlap, none starves another session, and nothing piles up here: what waits, waits with its consumer,
which credit bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Task = Callable[[], None]


class Pool:
    """At most `threads` threads for the callbacks of one connection, made when they are first needed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, task: Task) -> None:
        """Under the connection's lock."""
        if self._closed:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="penstock-callback")
        self._executor.submit(task)

    def close(self) -> None:
        """Nothing is taken any more; what was may end."""
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=False)


class Lane:
    """One session's callbacks. `take` gives the next thing to do, or None; it is asked under the lock of `changed`.

    A task must not raise, and must not hold that lock.
    """

    def __init__(self, changed: threading.Condition, pool: Pool, take: Callable[[], Task | None]) -> None:
        self._changed = changed
        self._pool = pool
        self._take = take
        self._scheduled = False
        self._held = 0
        self._thread: int | None = None

    def wake(self) -> None:
        """There may be something to do. Under the lock."""
        if not self._scheduled and not self._held:
            self._scheduled = True
            self._pool.submit(self._step)

    @property
    def busy(self) -> bool:
        """Whether a callback runs."""
        return self._thread is not None

    @property
    def inside(self) -> bool:
        """Whether the caller is a callback of this lane."""
        return self._thread == threading.get_ident()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Under the lock: waits for a callback that runs (unless it is the caller); none begins meanwhile."""
        self._held += 1
        try:
            self._changed.wait_for(lambda: self._thread is None or self.inside)
            yield
        finally:
            self._held -= 1
            self.wake()

    def _step(self) -> None:
        with self._changed:
            task = None if self._held else self._take()
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

"""Files that are written ahead: a thread that goes on with the planner's work while Spark has none for it.

Some brokers send more only when the former messages are accepted (Artemis, of a paged queue, after 20 MiB), and these are
accepted when they are in a file. Without the thread little would come while Spark works on a batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOP_S, _POLL_S = 10.0, 0.05


class Ahead:
    """Thread that calls `wait`, then `write`, again and again. The planner's calls take a turn: so `write` never runs beside one.

    `write` returns False where it is not to be called again before the next turn. What it raises ends the thread, and is raised
    by the next turn, once; `begin` starts another.
    """

    def __init__(self, wait: Callable[[], object], write: Callable[[], bool]) -> None:
        self._wait, self._write = wait, write
        self._lock = threading.Lock()
        self._free = threading.Event()  # nobody waits for a turn; a lock alone would let the thread take it again and again
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, if there is none. For the turn."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-ahead", daemon=True)  # as the intake's
            self._thread.start()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take a turn: the thread finishes the file that it has begun, and goes on behind this."""
        self._free.clear()
        with self._lock:
            try:
                if self._failure is not None:
                    failure, self._failure, self._thread = self._failure, None, None
                    raise failure
                yield
            finally:
                self._free.set()

    def stop(self, wake: Callable[[], object]) -> None:
        """End the thread once it has finished its file; `wake` ends a `wait` that has begun."""
        self._stopped = True
        until = time.monotonic() + _STOP_S
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until:
            self._free.set()
            wake()
            self._thread.join(_POLL_S)

    def _run(self) -> None:
        while True:
            self._free.wait()
            self._wait()
            with self._lock:
                if self._stopped:
                    return
                try:
                    if self._free.is_set() and not self._write():
                        self._free.clear()
                except BaseException as error:
                    self._failure = error
                    return

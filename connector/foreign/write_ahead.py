"""A thread that continues the planner's work while Spark works on a batch.

Some brokers send more messages only when the previous ones are accepted, and so are in a file (Artemis after 20 MiB of a paged
queue).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOP_S, _POLL_S = 10.0, 0.05


class Ahead:
    """Thread that calls `wait`, then `write`, repeatedly, but `write` never during a turn, which the planner's calls take.

    If `write` returns False, it is called again only after the next turn. Its error ends the thread, and the next turn raises
    it once; `begin` starts another thread.
    """

    def __init__(self, wait: Callable[[], object], write: Callable[[], bool]) -> None:
        self._wait, self._write = wait, write
        self._lock = threading.Lock()
        self._free = threading.Event()  # no turn is requested; with the lock alone, the thread could take it every time
        self._stopped = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread unless it runs. Call this during a turn."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-ahead", daemon=True)
            self._thread.start()

    @contextmanager
    def turn(self) -> Iterator[None]:
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
        """The thread finishes its file; `wake` ends a running `wait`."""
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

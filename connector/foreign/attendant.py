"""A thread that serves a connection while its owner waits for something else: a task for Spark's next rows, perhaps for minutes.

The AMQP client has no thread: heartbeats and new tokens leave within its calls alone. A broker drops a client that is silent for
its idle time-out, often a minute, and then nobody knows what became of the messages under way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds between two looks, where the broker asks for no heartbeat before: new tokens are due, outcomes have come. It is not
#: looked sooner, since each look takes time from the owner's work.
LOOK_S = 1.0


class Attendant:
    """Context manager: within, a thread serves the connection whenever its owner does not hold it by `held`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        # A daemon: nothing that happens to the task keeps its process alive.
        self._thread = threading.Thread(target=self._run, name="penstock-attendant", daemon=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the caller alone use the connection. Raises what has ended the connection meanwhile."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            yield

    def __enter__(self) -> Attendant:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._serve()):
                pass
        except Exception as error:  # the owner is told when it needs the connection again
            self._failure = error

    def _serve(self) -> float:
        """Read all that has come, and send what is due. Return the seconds until the next look."""
        with self._lock:
            while self._connection.step(0.0) and not self._stopped.is_set():
                pass
            due = self._connection.next_heartbeat_s()
            return LOOK_S if due is None else min(LOOK_S, due)

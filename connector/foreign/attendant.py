"""A thread that serves a connection while its owner waits: a task may wait minutes for Spark's next rows.

The AMQP client sends heartbeats and new tokens only during calls. A broker drops a client that is silent for its idle time-out,
often a minute. The outcome of unconfirmed messages is then unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOOK_S = 1.0  # between two rounds, which delay the owner, unless a heartbeat is due sooner


class Attendant:
    """Context manager with a thread that serves the connection while the owner does not hold it by `held`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        # It must not keep the process of a failed task alive.
        self._thread = threading.Thread(target=self._run, name="penstock-attendant", daemon=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises the error that has ended the connection."""
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
        except Exception as error:  # `held` raises it
            self._failure = error

    def _serve(self) -> float:
        """Read all input, and send due frames. Return the time until the next round."""
        with self._lock:
            while self._connection.step(0.0) and not self._stopped.is_set():
                pass
            due = self._connection.next_heartbeat_s()
            return LOOK_S if due is None else min(LOOK_S, due)

"""Producers that wait for capacity of a full queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from ..engine import BrokerState
from ..engine.model.admission import must_wait

log = logging.getLogger("penstock")


class WaitingProducer(NamedTuple):
    """Messages of a producer that waits."""

    callback: Callable[[], None]
    messages: int = 1
    size: int = 1  # bytes of all of them


class BlockedProducers:
    """The waiting producers of all queues."""

    def __init__(self, state: BrokerState, lock: threading.Lock) -> None:
        self._state, self._lock = state, lock
        self._waiting: dict[str, list[WaitingProducer]] = {}

    def wait(self, queue: str, waiting: WaitingProducer) -> None:
        """Call the callback once, as soon as the queue has enough capacity or is gone. The calling thread has the broker's lock,
        so it must not block or call the service."""
        with self._lock:
            self._waiting.setdefault(queue, []).append(waiting)
            self._try(queue)

    def cancel(self, queue: str, waiting: WaitingProducer) -> None:
        """Ignored after the callback."""
        with self._lock:
            still = [producer for producer in self._waiting.pop(queue, ()) if producer is not waiting]
            if still:
                self._waiting[queue] = still

    def look(self) -> None:
        """Call producers whose queue has capacity. Called under the lock, after each turn."""
        for queue in list(self._waiting) if self._waiting else ():
            self._try(queue)

    def _try(self, name: str) -> None:
        queue, still = self._state.queues.get(name), []
        for waiting in self._waiting.pop(name):
            if queue is not None and must_wait(queue, waiting.messages, waiting.size):
                still.append(waiting)
                continue
            try:
                waiting.callback()
            except Exception:
                log.exception("a producer that waited for capacity of queue %r failed", name)
        if still:
            self._waiting[name] = still

"""Producers that wait for capacity of a full queue: told once there is some, or when the queue is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ..engine import BrokerState
from ..engine.model.admission import must_wait

log = logging.getLogger("penstock")


class WaitingProducer(NamedTuple):
    """One who waits, and for how much."""

    messages: int
    size: int  # bytes of all of them
    callback: Callable[[], None]


class BlockedProducers:
    """Everything here is called under the broker's lock."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._waiting: dict[str, list[WaitingProducer]] = {}

    def wait(self, queue: str, waiting: WaitingProducer) -> None:
        """Let the callback be called, once, when the queue has capacity for so much, or none is needed any more; at once if
        that is so now. It must not block, nor call the service."""
        self._waiting.setdefault(queue, []).append(waiting)
        self._try(queue)

    def wait_no_more(self, queue: str, waiting: WaitingProducer) -> None:
        """Forget one who has given up; nothing happens where he was told meanwhile."""
        still = [each for each in self._waiting.pop(queue, ()) if each is not waiting]
        if still:
            self._waiting[queue] = still

    def look(self) -> None:
        """Tell producers whose queue has capacity now. Called at the end of each turn; costs nothing when no producer waits."""
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

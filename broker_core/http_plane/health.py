"""Liveness and readiness of the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..engine import commands as c
from ..service import alarms
from ..service.broker import BrokerService

#: A broker with these alarms is not ready: it refuses messages, or they pile up.
NOT_READY = (alarms.JOURNAL_FAILED, alarms.DISK_FULL, alarms.ARCHIVE_BEHIND, alarms.FILES_EXHAUSTED)
LIVE_S = 4.5  # the loops must answer within; a probe that waits 5 s receives the result


class Health:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._service: BrokerService | None = None
        self._beat: Callable[[Callable[[], None]], None] | None = None
        self._touching: threading.Thread | None = None

    def open(self, service: BrokerService, beat: Callable[[Callable[[], None]], None] | None) -> None:
        """As `answers.Planes.beat`."""
        self._service, self._beat = service, beat

    def lives(self) -> bool:
        if self._service is None:
            return True
        until, beaten = time.monotonic() + LIVE_S, threading.Event()
        if self._beat is not None:
            self._beat(beaten.set)
        if self._touching is None or not self._touching.is_alive():  # otherwise one is still waiting
            # A restart does not repair a disk that hangs, so the disk is not awaited.
            touch, command = self._service.submit_nowait, c.ListExchanges()
            self._touching = threading.Thread(target=touch, args=(command,), name="penstock-http-live", daemon=True)
            self._touching.start()
        self._touching.join(LIVE_S)
        return not self._touching.is_alive() and (self._beat is None or beaten.wait(max(0.0, until - time.monotonic())))

    def reasons(self) -> list[dict[str, Any]]:
        if self._service is None:
            return [{"name": "recovering", "since": None, "text": "the broker reads its journal"}]
        return self._alarms(self._service, of_readiness=True)

    def warnings(self) -> list[dict[str, Any]]:
        return [] if self._service is None else self._alarms(self._service, of_readiness=False)

    def _alarms(self, service: BrokerService, *, of_readiness: bool) -> list[dict[str, Any]]:
        """Alarms about a queue are left out: not every client may know its name."""
        return [
            {"name": alarm.name, "since": alarm.since_ms, "text": alarm.text}
            for alarm in service.alarms.current()
            if (alarm.name in NOT_READY) is of_readiness and alarm.queue is None
        ]

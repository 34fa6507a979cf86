"""A broker with its planes, from start to a clean stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from broker_core import errors
from broker_core.config import Settings
from broker_core.flight_plane import FlightPlane
from broker_core.service import BrokerService

log = logging.getLogger("penstock")


def serve(settings: Settings, ready: Callable[[dict[str, Any]], None], stop: threading.Event) -> int:
    """Run a broker with its planes until `stop` is set; 0 after a clean stop, 1 when the storage failed."""
    failure: list[Exception] = []

    def fail(error: Exception) -> None:
        log.critical("the broker stops: %s", error)
        failure.append(error)
        stop.set()

    service = BrokerService(settings, on_failure=fail)
    plane = FlightPlane(service, settings.host, settings.flight_port)
    ready({"ready": True, "amqp": None, "flight": plane.url, "http": None})
    stop.wait()
    plane.close()
    try:
        service.close()
    except errors.StorageError:
        if not failure:
            raise
    return 1 if failure else 0

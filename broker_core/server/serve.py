"""A broker with its planes, from start to a clean stop."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .. import __version__, errors
from ..amqp_plane import AmqpPlane
from ..archive.recorder.recorder import OFF
from ..flight_plane import FlightPlane
from ..flight_plane.listener import PROTOCOL as FLIGHT_PROTOCOL
from ..http_plane.answers import Planes
from ..http_plane.numbers import ConnectedPlane
from ..http_plane.plane import HttpPlane
from ..logs import counted
from ..security import Access, ServerTls
from ..service import reloading
from ..service.broker import BrokerService
from ..service.clock import AdvancedClock
from ..settings.keys import Settings
from . import open_files

log = logging.getLogger("penstock")

YOUNG_OBJECTS = 10_000  # more than a cycle of the commit loop creates


def serve(
    settings: Settings,
    ready: Callable[[dict[str, Any]], None],
    stop: threading.Event,
    reloads: Callable[[Callable[[Settings], None]], None] = lambda reload: None,
    clock: AdvancedClock | None = None,
) -> int:
    """Run a broker until `stop` is set. Return 0 after a clean stop, 1 if the storage failed.

    `reloads` receives a function that applies settings. A test can advance `clock`.
    """
    failure: list[Exception] = []

    def fail(error: Exception) -> None:
        log.critical("the broker stops: %s", error)
        failure.append(error)
        stop.set()

    log.info("penstock %s starts on the data directory %s", __version__, settings.data)
    room = open_files.make_room(settings)
    if room.warning is not None:
        log.warning("%s", room.warning)
    access = Access.of(settings)
    tls = ServerTls(settings) if settings.tls_cert_file is not None else None
    with contextlib.ExitStack() as opened:
        # First, so that probes see the recovery.
        http = HttpPlane(settings, access, tls, room.http) if settings.http_listener is not None else None
        if http is not None:
            opened.callback(http.close)
        service = BrokerService(settings, clock=clock, on_failure=fail, archive=settings.archive != OFF)
        opened.callback(_close, service, failure)
        service.connections.few_files = room.warning
        access.on_reload = partial(reloading.users_reloaded, service)
        _introduce(service, settings, access)
        reloads(partial(reloading.reload, service))
        service.declare(settings)
        listening = _listen(service, access, tls, http, room, opened)
        gc.freeze()  # later collections skip the objects of the recovery
        gc.set_threshold(YOUNG_OBJECTS)
        ready(listening)
        stop.wait()
    if not failure:
        log.info("stopped: everything is on the disk")
    return 1 if failure else 0


def _close(service: BrokerService, failure: Sequence[Exception]) -> None:
    try:
        service.close()
    except errors.StorageError:
        if not failure:
            raise


def _listen(
    service: BrokerService,
    access: Access,
    tls: ServerTls | None,
    http: HttpPlane | None,
    room: open_files.ConnectionLimits,
    opened: contextlib.ExitStack,
) -> dict[str, Any]:
    """Open the planes; return the content of the ready line."""
    settings = service.settings
    flight_tls = ServerTls(settings, protocols=[FLIGHT_PROTOCOL]).context if settings.flight_tls else None
    flight = FlightPlane(service, settings.host, settings.flight_port, access=access, tls=flight_tls, connections=room.flight)
    opened.callback(flight.close)
    connected: dict[str, ConnectedPlane] = {"flight": flight}
    beat, urls = None, []
    if settings.amqp_listeners:
        address, context = (flight.scheme, flight.port), tls.context if tls else None
        amqp = AmqpPlane(
            service, settings.amqp_listeners, access=access, tls_context=context, flight=address, connections=room.amqp
        )
        opened.callback(amqp.close)
        beat, connected["amqp"], urls = amqp.call, amqp, amqp.urls
    service.listeners = [flight.url, *urls, *([] if http is None else [http.url])]
    if http is not None:
        http.open(service, flight.actions, Planes(beat, connected))
        opened.callback(http.close)  # before the planes that it asks, and again later
    urls_by_plane = {"amqp": urls[0] if urls else None, "flight": flight.url, "http": http.url if http else None}
    return {"ready": True, **urls_by_plane, "listeners": urls}


def _introduce(service: BrokerService, settings: Settings, access: Access) -> None:
    queues = service.state.queues.values()
    log.info(
        "recovered: %s, %s waiting, %s, %d MiB of journal, of broker %s",
        counted(len(queues), "queue"),
        counted(sum(queue.live for queue in queues), "message"),
        counted(len(service.state.leases), "lease"),
        sum(segment.bytes for segment in service.journal.segments()) >> 20,
        service.broker_id,
    )
    if access.enforced:
        log.info("access: %s, from %s", counted(access.user_count, "user"), settings.users_file)
    else:
        log.info("access: no users, so every client that reaches a port may do everything; see `penstock user add --help`")
    if settings.archive == OFF:
        duration = "permanently" if settings.retention_age_s is None else f"for {settings.retention_age_s:g} s (retention_age_s)"
        log.info("retention: settled messages stay in the journal %s; the archive is off", duration)

"""File descriptors for connections. Many systems allow a process only 1,024 open files."""

from __future__ import annotations

import logging
import resource
import sys
from typing import NamedTuple

from ..service.alarms import MORE_FILES
from ..settings.keys import Settings

#: Files besides connections, here and in the process for HTTP; at most half of a low limit.
OTHERS, HTTP_OTHERS = 512, 128

log = logging.getLogger("penstock")


class ConnectionLimits(NamedTuple):
    """Numbers of connections that have file descriptors."""

    amqp: int
    flight: int
    http: int
    warning: str | None


def make_room(settings: Settings) -> ConnectionLimits:
    """Raise the soft limit of open files as far as necessary, and return the connections that fit."""
    amqp = settings.amqp_max_connections if settings.amqp_listeners else 0
    flight, http = settings.flight_max_connections, settings.http_max_connections
    files = _raised(max(amqp + flight + OTHERS, http + HTTP_OTHERS))
    room = min(amqp + flight, files - min(OTHERS, files // 2))
    fitting_http = min(http, files - min(HTTP_OTHERS, files // 2))
    if room == amqp + flight and fitting_http == http:
        return ConnectionLimits(amqp, flight, http, None)
    fitting = amqp * room // (amqp + flight)
    texts = [
        f"{most} {name} connections ({setting} is {wanted})"
        for name, setting, most, wanted in (
            ("AMQP", "amqp_max_connections", fitting, amqp),
            ("Flight", "flight_max_connections", room - fitting, flight),
            ("HTTP", "http_max_connections", fitting_http, http),
        )
        if most < wanted
    ]
    warning = f"only {files} files may be open, so the broker accepts {', '.join(texts)}. {MORE_FILES}"
    return ConnectionLimits(fitting, room - fitting, fitting_http, warning)


def _raised(wanted: int) -> int:
    """Raise the soft limit to `wanted`, or to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    if soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (ValueError, OSError) as error:  # of a system whose limit is below the hard limit
            log.debug("open files: %s", error)
    return soft

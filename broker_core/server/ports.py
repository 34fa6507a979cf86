"""The ports of a broker, checked before recovery, which takes minutes."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from .. import errors
from ..settings.keys import Settings

# The HTTP process of a killed broker keeps its port for some milliseconds.
PATIENCE_S, PAUSE_S = 1.0, 0.05


class PortUnusable(errors.InvalidRequest):
    """A port is in use, or not permitted."""


def try_all(settings: Settings) -> None:
    """Raise PortUnusable for the first unusable port."""
    for setting, host, port in wanted(settings):
        _try(setting, host, port)


def wanted(settings: Settings) -> Iterator[tuple[str, str, int]]:
    """Yield setting, host and port of every listener."""
    yield "flight_port", settings.host, settings.flight_port
    setting = "listeners" if settings.listeners else "amqp_port"
    for listener in settings.amqp_listeners:
        yield setting, listener.host, listener.port
    if settings.http_port is not None:
        yield "http_port", settings.http_host or settings.host, settings.http_port


def _try(setting: str, host: str, port: int) -> None:
    if port == 0:
        return
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            listen(host, port)
            return
        except OSError as error:
            if error.errno == errno.EADDRINUSE and setting == "http_port" and time.monotonic() < until:
                time.sleep(PAUSE_S)
                continue
            text = f"cannot listen on {host}:{port}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                text = f"port {port} of {host} is in use" + (f" by {by}" if (by := holder(port)) else "")
            raise PortUnusable(f"{text}; choose another with --{setting.replace('_', '-')}, or 0 for any free one") from error


def listen(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


def holder(port: int) -> str:
    """Return the process that listens at a port, if it is visible."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening(table, port)}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's process, or an ended one
            if any(os.readlink(file) in inodes for file in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


def _listening(table: str, port: int) -> Iterator[str]:
    with contextlib.suppress(OSError), open(f"/proc/net/{table}") as lines:
        for fields in map(str.split, lines):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # LISTEN
                yield fields[9]

"""Notifications for a service manager: systemd's sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*lines: str) -> None:
    """Send lines to the socket in NOTIFY_SOCKET, if that is set."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifying:
        notifying.connect("\0" + address[1:] if address[0] == "@" else address)
        notifying.send("\n".join(lines).encode())


def status(text: str) -> str:
    return f"STATUS={text}"


def reloading() -> tuple[str, str]:
    """Return the first lines of a reload (Type=notify-reload)."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"

"""The process ends with its broker in every case."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

from ... import logs
from ...children.processes import step_back
from ...security.log_limit import LogLimit
from ...security.tls import ServerTls, TlsFiles
from ...settings.keys import Settings
from .application import application
from .channel import Channel
from .connections import Server

NICE = 5  # the broker has priority

log = logging.getLogger("penstock.http")


def run() -> int:
    step_back(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])  # inherited as blocked
    channel = Channel(socket.socket(fileno=os.dup(0)), lost=lambda: os._exit(0))
    hello, certificate = channel.hello()
    logs.begin(hello["log_level"])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns about each protocol error of a client
    logging.getLogger("asyncio").addFilter(LogLimit())  # it warns about each answer to a closed connection
    asyncio.run(_serve(channel, hello, certificate))
    logging.shutdown()
    os._exit(0)


async def _serve(channel: Channel, hello: dict[str, Any], certificate: list[bytes]) -> None:
    server = Server(
        application(channel, hello),
        socket.socket(fileno=hello["listening"]),
        tls=_tls(channel, hello, TlsFiles(*certificate)) if hello["http_tls"] else None,
        most=hello["http_max_connections"],
        request_timeout_s=hello["http_request_timeout_s"],
        starved=lambda: channel.notify("starved"),
    )
    channel.start(server.stop)
    await server.serve()


def _tls(channel: Channel, hello: dict[str, Any], files: TlsFiles) -> ssl.SSLContext:
    """A handshake uses the newest certificate; the first one uses the broker's."""
    settings = Settings(data=Path(), tls_cert_file=Path(hello["tls_cert_file"]), tls_key_file=Path(hello["tls_key_file"]))
    newest = ServerTls(settings, protocols=["http/1.1"], files=files)
    context = used = newest.context()

    def renew(handshake: ssl.SSLObject, name: str | None, before: ssl.SSLContext) -> None:
        nonlocal used
        handshake.context = newest.context()
        if handshake.context is not used:
            used = handshake.context
            channel.notify("renewed")

    context.sni_callback = renew
    return context

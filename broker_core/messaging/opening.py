"""Opening a connection from urls and credentials."""

from __future__ import annotations

import random as randomness
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..amqp_client.address import parse
from ..amqp_client.connection import TIMEOUT_S
from ..amqp_client.dial import login, new_container_id
from ..client.credentials import Credentials
from ..errors import InvalidRequest
from .backoff import Backoff
from .queues import Connection
from .servers import Dependencies, Servers
from .wire import Wire

#: Threads for the callbacks of one connection.
CALLBACK_THREADS = 8

_DEFAULT_BACKOFF = Backoff()


def _wait(seconds: float, closing: threading.Event) -> None:
    closing.wait(seconds)


class Environment(NamedTuple):
    """Clocks and randomness of the connections that `connect` opens. Applications use the real ones; tests give their own.

    `clock` returns seconds, `wall` seconds since 1970, `random` a number from 0 to 1; `pause(seconds, closing)` waits that long,
    or until the event is set.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    pause: Callable[[float, threading.Event], object] = _wait

    def connect(
        self,
        urls: str | Sequence[str],
        user: str | None = None,
        password: str | None = None,
        *,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        client_id: str | None = None,
        timeout_s: float = TIMEOUT_S,
        reconnect: Backoff | None = _DEFAULT_BACKOFF,
        callback_threads: int = CALLBACK_THREADS,
        on_error: Callable[[Exception], None] | None = None,
    ) -> Connection:
        """Open a connection to the first server that answers; the others are for reconnects.

        Credentials and TLS as for `penstock.broker_core.amqp_client.connect`. `client_id` is the container id at the broker, kept
        over reconnects. `timeout_s` bounds each wait for the broker; `reconnect=None` makes a loss final. `callback_threads`
        bounds how many sessions' callbacks run side by side; `on_error` gets errors that no call can raise: losses, exceptions of
        callbacks. Raises InvalidRequest for a wrong argument, PeerError when no server answers, Unauthenticated when one refuses
        the login.
        """
        servers = [urls] if isinstance(urls, str) else list(urls)
        if not servers or callback_threads < 1:
            raise InvalidRequest("give at least one url, and at least one thread for callbacks")
        credentials = Credentials.from_files(user, password, ca_file, cert_file, key_file)
        encrypted = {url: parse(url).tls for url in servers}
        if credentials.certificates and not all(encrypted.values()):
            raise InvalidRequest("certificates have no meaning for amqp://: use amqps://, or leave them out")
        context = credentials.tls_context() if any(encrypted.values()) else None
        name = client_id or new_container_id()

        def dial(url: str) -> Wire:
            wire = login(
                url,
                user,
                password,
                tls=context if encrypted[url] else None,
                external=cert_file is not None,
                timeout_s=timeout_s,
                kind=Wire,
                container_id=name,
            )
            assert isinstance(wire, Wire)
            return wire

        dependencies = Dependencies(dial, *self)
        connection = Connection(
            Servers(servers, dependencies, reconnect),
            dependencies,
            client_id=name,
            timeout_s=timeout_s,
            callback_threads=callback_threads,
            on_error=on_error,
        )
        connection.open()
        return connection


#: Opens a connection in the real environment.
connect = Environment().connect

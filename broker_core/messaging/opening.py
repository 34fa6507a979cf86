"""From urls and credentials to a connection."""

from __future__ import annotations

import random as randomness
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker_core.amqp_client.address import parse
from penstock.broker_core.amqp_client.connection import TIMEOUT_S
from penstock.broker_core.amqp_client.dial import login, new_container_id
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messaging.backoff import Backoff
from penstock.broker_core.messaging.connection import Connection
from penstock.broker_core.messaging.servers import Means, Servers
from penstock.broker_core.messaging.wire import Wire

#: Threads for the callbacks of one connection.
CALLBACK_THREADS = 8

_COMES_BACK = Backoff()


def _wait(seconds: float, closing: threading.Event) -> None:
    closing.wait(seconds)


class Surroundings(NamedTuple):
    """Clocks and randomness of the connections that `connect` opens. Applications use the real ones; tests give their own.

    `clock` counts seconds, `wall` seconds since 1970; `random` gives 0 to 1; `pause(seconds, closing)` waits so long, or until
    the event is set.
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
        reconnect: Backoff | None = _COMES_BACK,
        callback_threads: int = CALLBACK_THREADS,
        on_error: Callable[[Exception], None] | None = None,
    ) -> Connection:
        """An open connection to the first server that answers; the others are for when it is lost.

        Credentials and TLS as for `broker_core.amqp_client.connect`. `client_id` is the name that the broker knows this client
        by, kept over reconnects. `timeout_s` bounds each wait for the broker; `reconnect=None` makes a loss final.
        `callback_threads` bounds how many sessions' callbacks run side by side; `on_error` is told what no call can raise:
        losses, exceptions of callbacks. Raises InvalidRequest for a wrong argument, PeerError when no server answers,
        Unauthenticated when one does not let us in.
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

        means = Means(dial, *self)
        connection = Connection(
            Servers(servers, means, reconnect),
            means,
            client_id=name,
            timeout_s=timeout_s,
            callback_threads=callback_threads,
            on_error=on_error,
        )
        connection.open()
        return connection


#: Opens a connection in the real surroundings.
connect = Surroundings().connect

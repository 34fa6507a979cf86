"""Opening a connection from urls and credentials."""

from __future__ import annotations

import random as randomness
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import InvalidRequest
from ..amqp.address import parse
from ..amqp.connection import TIMEOUT_S
from ..amqp.dial import MAX_MESSAGE_OCTETS, login, new_container_id
from ..credentials import Credentials
from .backoff import Backoff
from .queues import Connection
from .servers import Dependencies, Servers
from .wire import Wire

#: Threads for the callbacks of one connection.
CALLBACK_THREADS = 8

#: Plan of a reconnect where none is given.
DEFAULT_BACKOFF = Backoff()


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
        reconnect: Backoff | None = DEFAULT_BACKOFF,
        callback_threads: int = CALLBACK_THREADS,
        on_error: Callable[[Exception], None] | None = None,
        max_message_octets: int = MAX_MESSAGE_OCTETS,
    ) -> Connection:
        """Open a connection to the first server that answers; the others are for reconnects.

        A user name logs in with SCRAM-SHA-256, or with PLAIN over TLS or on this machine; without one, a certificate logs in with
        EXTERNAL, and without that the login is ANONYMOUS.

        Args:
            urls: `amqp://HOST[:PORT]` or `amqps://HOST[:PORT]`; one, or several.
            user: User name.
            password: The user's password.
            ca_file: PEM file of the authority that signed the broker's certificate. None: those of the system.
            cert_file: PEM file of a client certificate to log in with.
            key_file: PEM file of its key. None: it is in `cert_file`.
            client_id: Container id at the broker, kept over reconnects. None: a new one.
            timeout_s: Seconds that each wait for the broker takes at most.
            reconnect: When to try which server after a loss. None: a loss is final.
            callback_threads: Number of sessions whose callbacks run side by side at most.
            on_error: Gets errors that no call can raise: losses, exceptions of callbacks. Called on a thread of the client.
            max_message_octets: Largest message that is received; a server that sends a larger one loses the consumer.

        Returns:
            An open connection; close it, or use `with`.

        Raises:
            InvalidRequest: A wrong argument.
            PeerError: No server answers.
            Unauthenticated: A server refuses the login.

        Example:
            with penstock.connect(["amqps://one:5671", "amqps://two:5671"], "alice", password, ca_file="ca.pem") as connection:
                connection.send("orders", json={"id": 7})
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
                max_message_octets=max_message_octets,
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

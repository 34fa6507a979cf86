"""Opening a connection from URLs and credentials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import InvalidRequest
from .. import amqp
from ..amqp.address import parse
from ..amqp.connection import TIMEOUT_S
from ..amqp.dial import MAX_MESSAGE_OCTETS, new_token
from ..credentials import Credentials
from .backoff import Backoff
from .connection import Connection
from .program import program_name
from .servers import Environment, Servers

CALLBACK_THREADS = 8

DEFAULT_BACKOFF = Backoff()


class Opener(NamedTuple):
    """Opens connections in an environment."""

    environment: Environment = Environment()

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
        """Return an open connection to the first server that answers; close it, or use `with`. The other servers are for
        reconnects.

        A user logs in with SCRAM, or with PLAIN over TLS or on this machine. Without a user, a certificate logs in with EXTERNAL.
        Without both, the login is ANONYMOUS.

        Args:
            urls: One or several of `amqp://HOST[:PORT]` and `amqps://HOST[:PORT]`.
            user: User name.
            password: The user's password.
            ca_file: PEM file of the broker's authority. None: the system's authorities.
            cert_file: PEM file of a client certificate to log in with.
            key_file: PEM file of its key. None: it is in `cert_file`.
            client_id: Container id, by which people recognize this client. None: program and host, such as `orders.py@host`.
            timeout_s: Seconds that each wait for the broker takes at most.
            reconnect: When to try which server after a loss. None: a loss is final.
            callback_threads: Largest number of sessions whose callbacks run at the same time.
            on_error: Receives the errors that no call can raise: losses, exceptions of callbacks.
            max_message_octets: Largest received message. A larger one ends the consumer.

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
        if not all(parse(url).tls for url in servers) and credentials.certificates:
            raise InvalidRequest("certificates have no meaning for amqp://: use amqps://, or leave them out")
        container_id, token = client_id or program_name(), new_token()

        def dial(url: str) -> amqp.Connection:
            return amqp.login(
                url,
                credentials,
                timeout_s=timeout_s,
                container_id=container_id,
                token=token,
                max_message_octets=max_message_octets,
            )

        connection = Connection(
            Servers(servers, dial, self.environment, reconnect),
            self.environment,
            client_id=container_id,
            token=token,
            credentials=credentials,
            timeout_s=timeout_s,
            callback_threads=callback_threads,
            on_error=on_error,
        )
        connection.open()
        return connection


connect = Opener().connect

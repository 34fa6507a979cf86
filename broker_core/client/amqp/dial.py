"""Opening a connection from a URL and credentials, with safe SASL mechanisms."""

from __future__ import annotations

import os
import secrets

from ... import amqp
from ...amqp.sasl import ANONYMOUS, EXTERNAL, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from ...errors import InvalidRequest
from ..credentials import Credentials
from . import transport
from .address import parse
from .claims import Claims
from .connection import TIMEOUT_S, Connection

#: Largest frame that is accepted, octets.
MAX_FRAME_OCTETS = 64 * 1024
#: Largest SASL frame, octets: many mechanisms need more than the 512 of the specification (5.3.1).
MAX_SASL_FRAME_OCTETS = 8 * 1024
#: Limit of transfer frames on their way here, independent of credit.
WINDOW_FRAMES = 8192
#: Default limit of a received message, octets. The whole message is in memory.
MAX_MESSAGE_OCTETS = 256 << 20
#: Limit of half-received messages of the largest size, one for each link.
UNFINISHED_MESSAGES = 4
#: Milliseconds. A broker that is silent for twice as long has failed.
IDLE_TIME_OUT_MS = 25_000


def new_token() -> str:
    return secrets.token_hex(6)


def connect(
    url: str,
    user: str | None = None,
    password: str | None = None,
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    timeout_s: float = TIMEOUT_S,
    max_message_octets: int = MAX_MESSAGE_OCTETS,
) -> Connection:
    """Return an open connection to `amqp://HOST[:PORT]` or `amqps://HOST[:PORT]`; close it, or use `with`.

    The login is as of `penstock.connect`, like these arguments.

    Args:
        url: Address of the broker.
        user: User name.
        password: The user's password.
        ca_file: PEM file of the broker's authority.
        cert_file: PEM file of a client certificate.
        key_file: PEM file of its key.
        timeout_s: Seconds that each wait for the broker takes at most.
        max_message_octets: Largest received message. A larger one ends the link.

    Raises:
        InvalidRequest: A wrong argument.
        PeerError: No broker answers.
        Unauthenticated: The broker refuses the login.
    """
    credentials = Credentials.from_files(user, password, ca_file, cert_file, key_file)
    if credentials.certificates and not parse(url).tls:
        raise InvalidRequest(f"certificates have no meaning for {url}: use amqps://, or leave them out")
    return login(url, credentials, timeout_s=timeout_s, max_message_octets=max_message_octets)


def login(
    url: str,
    credentials: Credentials,
    *,
    timeout_s: float,
    container_id: str | None = None,
    token: str | None = None,
    max_message_octets: int = MAX_MESSAGE_OCTETS,
) -> Connection:
    """Return an open connection. As `connect`, with credentials that were read before.

    Args:
        url: As of `connect`.
        credentials: A user, a certificate, or a key that signs a token for each link's address.
        timeout_s: Seconds, as of `connect`.
        container_id: Name of this client at the broker. None: a new one.
        token: Begin of link names. Connections with the same container id need different ones, because a broker ends the older of
            two links with one name. None: a new one.
        max_message_octets: As of `connect`.

    Raises:
        PeerError: No broker answers.
        Unauthenticated: The broker refuses the login.
    """
    address = parse(url)
    token = token or new_token()
    sock = transport.dial(address, credentials.tls_context() if address.tls else None, timeout_s)
    try:
        connection = Connection(
            sock,
            amqp.Connection(
                amqp.Role.CLIENT,
                _settings(address.host, container_id or f"penstock-client-{token}", max_message_octets),
                _sasl(credentials, address.host, sock.secure),
            ),
            address,
            timeout_s,
            token,
        )
        connection.open()
        if credentials.shared is not None:
            connection.claims = Claims(connection, connection.session, credentials.shared)
    except BaseException:
        sock.close()
        raise
    return connection


def _settings(host: str, container_id: str, max_message_octets: int) -> amqp.ConnectionSettings:
    return amqp.ConnectionSettings(
        container_id=container_id,
        hostname=host,
        max_frame_size=MAX_FRAME_OCTETS,
        first_frame_size=MAX_FRAME_OCTETS,
        sasl_frame_size=MAX_SASL_FRAME_OCTETS,
        incoming_window=WINDOW_FRAMES,
        idle_time_out=IDLE_TIME_OUT_MS,
        max_message_size=max_message_octets,
        max_unfinished_size=UNFINISHED_MESSAGES * max_message_octets,
        errant_link_ends_session=False,  # frames on their way must not hide the reason of a link's end
    )


def _sasl(credentials: Credentials, host: str, secure: bool) -> amqp.SaslClient:
    external = credentials.cert is not None
    mechanisms: tuple[str, ...] = (EXTERNAL,) if external else (ANONYMOUS,)
    if credentials.user is not None:
        mechanisms = (SCRAM_SHA_512, SCRAM_SHA_256, PLAIN) if secure else (SCRAM_SHA_512, SCRAM_SHA_256)
    return amqp.SaslClient(
        user=credentials.user,
        password=credentials.password,
        external=external,
        hostname=host,
        prefer=mechanisms,
        random=os.urandom,
    )
